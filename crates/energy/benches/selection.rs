//! The time of one selection among transcoders (000 Figure 51: at most 100 µs for ten), and of one watchdog.

use divan::{Bencher, black_box};
use qfabric_energy::{Approximation, Costs, Measurement, Packet, Shaper, Transcoder, TranscoderTable, select};
use qfabric_types::Window;

fn main() {
    divan::main();
}

fn transcoders(count: usize) -> Vec<Transcoder> {
    let table = |number: usize| {
        let entry = |at: usize| {
            let input_kb = 50.0 * (at + 1) as f64;
            Measurement { input_kb, output_kb: input_kb / (number + 2) as f64, run_s: 1e-4 * input_kb }
        };
        TranscoderTable::new(&(0..18).map(entry).collect::<Vec<_>>(), Approximation::Linear).expect("valid entries")
    };
    (0..count).map(|n| Transcoder { name: n.to_string(), is_mandatory: false, table: table(n) }).collect()
}

const COSTS: Costs = Costs { run_w: 0.63, data_j_per_kb: 7e-4, sleep_j_per_kb: 1e-3, selection_j: 1e-6 };

/// Each transcoder alone, and each pair: 100 chains for ten transcoders.
#[divan::bench(args = [1, 5, 10])]
fn select_among(bencher: Bencher, count: usize) {
    let transcoders = transcoders(count);
    let single = (0..count).map(|at| vec![at]);
    let pairs = (0..count).flat_map(|a| (0..count).filter(move |b| *b != a).map(move |b| vec![a, b]));
    let chains: Vec<Vec<usize>> = single.chain(pairs).collect();
    bencher.bench(|| select(black_box(&transcoders), black_box(&chains), black_box(333.0), &COSTS));
}

/// A packet arrives behind `waiting` others, which are all ready.
#[divan::bench(args = [1, 16, 255])]
fn arrive_behind(bencher: Bencher, waiting: u64) {
    let mut shaper = Shaper::new(&[Window::new(1, 4).expect("1/4 is a window")], 256);
    let packet = |id: u64| Packet {
        id,
        stream: Some(0),
        bytes: 1_000,
        ready: 0,
        deadline: 1_000_000 + id,
        transmission: 10,
        urgent: false,
    };
    for id in 0..waiting {
        shaper.arrive(packet(id), 0).expect("there is room");
    }
    bencher.with_inputs(|| shaper.clone()).bench_values(|mut shaper| shaper.arrive(packet(waiting), 0));
}
