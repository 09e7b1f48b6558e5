//! Table 4 and Figure 51 of the thesis (000 §6.2.3) on this machine: how far predicted run times and sizes of transcoders
//! are from measured ones, and what one choice costs. `cargo bench -p qfabric-transcode --bench table4` builds it
//! optimised; without optimisation it prints no figure.
//!
//! 18 sizes are measured off-line; 100 photos of random sizes follow. Times are CPU times of this thread.

use std::time::Duration;

use qfabric_energy::{Approximation, Costs, Measurement, TranscoderTable};
use qfabric_transcode::corpus::Content;
use qfabric_transcode::{Crop, Data, Gray, Huffman, Lz77, Pipeline, Reduce, Setting, Stage, Transcoder};
use rustix::time::{ClockId, clock_gettime};

/// Kilobytes of the off-line measurements.
const SIZES: [f64; 18] = [
    1.0, 5.0, 10.0, 25.0, 58.0, 100.0, 150.0, 200.0, 230.0, 300.0, 360.0, 420.0, 470.0, 518.0, 600.0, 700.0, 800.0,
    900.0,
];
/// Runs of one size; the shortest counts.
const RUNS: usize = 3;
const IMAGES: u32 = 100;
/// Largest mean deviation of a run time, in percent of it.
const MOST_PERCENT: f64 = 7.0;
/// Longest choice among ten transcoders.
const MOST_US: f64 = 100.0;

fn verdict(value: f64, most: f64) -> &'static str {
    if value <= most { "within" } else { "above" }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn measured(transcoder: &mut dyn Transcoder, kilobytes: f64, seed: u32) -> Measurement {
    let data = Data::Image(Content::Photo.image(kilobytes, seed));
    let (mut run_s, mut output) = (f64::MAX, 0);
    for _ in 0..RUNS {
        let begin = cpu_time();
        output = transcoder.apply(&data).expect("a photo").length();
        run_s = run_s.min((cpu_time() - begin).as_secs_f64());
    }
    Measurement { input_kb: data.length() as f64 / 1e3, output_kb: output as f64 / 1e3, run_s }
}

fn table(transcoder: &mut dyn Transcoder) -> TranscoderTable {
    let entries = SIZES.map(|kilobytes| measured(transcoder, kilobytes, 1));
    TranscoderTable::new(&entries, Approximation::Linear).expect("sizes and times are positive")
}

/// Prints the mean deviations of predictions for random images.
fn deviations(transcoder: &mut dyn Transcoder) {
    let table = table(transcoder);
    let (mut time_s, mut part, mut size_kb, mut within) = (0.0, 0.0, 0.0, 0);
    for seed in 0..IMAGES {
        let kilobytes = 1.0 + f64::from(seed.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24) * 899.0;
        let actual = measured(transcoder, kilobytes, 100 + seed);
        let predicted = table.predict(actual.input_kb);
        let off_s = (predicted.run_s - actual.run_s).abs();
        let off_kb = (predicted.output_kb - actual.output_kb).abs();
        (time_s, part, size_kb) = (time_s + off_s, part + off_s / actual.run_s, size_kb + off_kb);
        within += u32::from(off_kb <= 1.0);
    }
    let count = f64::from(IMAGES);
    let (mean_us, percent, mean_kb) = (time_s / count * 1e6, part / count * 100.0, size_kb / count);
    let (name, verdict) = (transcoder.name(), verdict(percent, MOST_PERCENT));
    println!("{name:<10} {mean_us:>9.0} us {percent:>7.1} % {mean_kb:>8.2} kB {within:>7} % {verdict:>9}");
}

/// CPU time of one choice among `count` optional transcoders in one order, without a run.
fn choice_us(count: usize) -> f64 {
    let stage = |_| {
        let mut reduce = Reduce::new(25);
        let table = table(&mut reduce);
        Stage { is_mandatory: false, settings: vec![Setting { transcoder: Box::new(reduce), table }] }
    };
    let costs = Costs { run_w: 0.63, data_j_per_kb: 6.5e-4, sleep_j_per_kb: 0.0, selection_j: 0.0 };
    let pipeline = Pipeline::new((0..count).map(stage).collect(), costs, costs).expect("few stages");
    let begin = cpu_time();
    (0..100).for_each(|at| drop(std::hint::black_box(pipeline.predict(f64::from(at) * 9.0 + 1.0))));
    (cpu_time() - begin).as_secs_f64() * 1e4
}

fn main() {
    if cfg!(debug_assertions) {
        let next = "cargo bench -p qfabric-transcode --bench table4";
        println!("this build is not optimised, so its times say nothing; run `{next}`");
        return;
    }
    let limit = format!("<= {MOST_PERCENT} %");
    println!("{:<10} {:>12} {:>9} {:>11} {:>9} {limit:>9}", "transcoder", "run time", "of it", "size", "<= 1 kB");
    let all: [&mut dyn Transcoder; 5] = [&mut Gray, &mut Crop::new(25), &mut Reduce::new(25), &mut Huffman, &mut Lz77];
    all.into_iter().for_each(deviations);
    for count in [1, 4, 8] {
        let us = choice_us(count);
        println!("one choice among all chains of {count}: {us:.1} us, {} {MOST_US} us", verdict(us, MOST_US));
    }
}
