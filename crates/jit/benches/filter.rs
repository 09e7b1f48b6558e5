//! Measures the cost of a filter with five comparisons that choose the sinks of an event, as in KECho (thesis
//! §4.4.3: about 1 µs).
//!
//! Run `cargo bench -p qfabric-jit`. It first prints the ratios: medians of many rounds, all measured in the same
//! run.

use std::hint::black_box;
use std::time::Instant;

use divan::Bencher;
use qfabric_ecode::{CallContext, Engine, Environment, Interpreter, Limits, Program, compile};
use qfabric_jit::Jit;

/// Each bit of the verdict stands for a sink. The thresholds are attributes that the sinks set.
const FILTER: &str = "struct input { int kind; int size; int rate; int load; long stamp; };
if (input.kind != 3) return 0;
if (input.size > attr.largest) return 1;
else if (input.rate < attr.slowest) return 2;
else if (input.load >= 90) return 4;
else if (input.stamp < attr.since) return 8;
return 15;";

const ROUNDS: usize = 101;
const CALLS: u32 = 2_000;

/// Few with `--max-time`, which makes all benches short.
fn rounds() -> usize {
    if std::env::args().any(|word| word == "--max-time") { 3 } else { ROUNDS }
}

fn main() {
    if !std::env::args().any(|argument| argument == "--list") {
        print_ratios();
    }
    divan::main();
}

fn program() -> Program {
    compile(FILTER, &Environment::default())
        .unwrap_or_else(|errors| panic!("{}", errors.render("filter", FILTER, false)))
}

/// An event that passes all comparisons.
fn event() -> Vec<u8> {
    let ints: [i32; 4] = [3, 700, 25, 50];
    let stamp = 1_000_000_i64.to_le_bytes();
    ints.iter().flat_map(|int| int.to_le_bytes()).chain(stamp).collect()
}

fn prepared(mut engine: impl Engine) -> impl Engine {
    engine.attributes().copy_from_slice(&[1400, 10, 999_999]);
    assert_eq!(engine.call(&event(), &CallContext::default(), &mut |_| ()), Ok(15));
    engine
}

fn jit() -> impl Engine {
    prepared(Jit::new(&program(), Limits::default()).expect("machine code"))
}

fn interpreter() -> impl Engine {
    prepared(Interpreter::new(&program(), Limits::default()))
}

/// The same filter in Rust, on the same bytes.
fn native(event: &[u8], attributes: &[i64; 3]) -> i64 {
    let int = |at: usize| i64::from(i32::from_le_bytes(event[at..at + 4].try_into().expect("four bytes")));
    let stamp = i64::from_le_bytes(event[16..24].try_into().expect("eight bytes"));
    match (int(0), int(4), int(8), int(12)) {
        (kind, ..) if kind != 3 => 0,
        (_, size, ..) if size > attributes[0] => 1,
        (_, _, rate, _) if rate < attributes[1] => 2,
        (.., load) if load >= 90 => 4,
        _ if stamp < attributes[2] => 8,
        _ => 15,
    }
}

fn call(engine: &mut dyn Engine, event: &[u8]) -> i64 {
    engine.call(black_box(event), &CallContext::default(), &mut |_| ()).expect("no fault")
}

/// Nanoseconds of one call: the median of all rounds.
fn median_ns(mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let begun = Instant::now();
        (0..CALLS).for_each(|_| call());
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    median((0..rounds()).map(round).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compile_us() -> f64 {
    let once = |_| {
        let begun = Instant::now();
        black_box(Jit::new(&program(), Limits::default()).expect("machine code"));
        begun.elapsed().as_nanos() as f64 / 1000.0
    };
    median((0..rounds()).map(once).collect())
}

fn print_ratios() {
    let event = event();
    let (mut jit, mut interpreter) = (jit(), interpreter());
    let machine = median_ns(|| _ = black_box(call(&mut jit, &event)));
    let walked = median_ns(|| _ = black_box(call(&mut interpreter, &event)));
    let by_hand = median_ns(|| _ = black_box(native(black_box(&event), black_box(&[1400, 10, 999_999]))));
    println!("filter of five comparisons, one call: machine code {machine:.1} ns (30 are allowed)");
    println!("  interpreter {walked:.1} ns: {:.1} x (30 x are allowed)", walked / machine);
    println!("  Rust by hand {by_hand:.1} ns: machine code takes {:.1} x", machine / by_hand);
    println!("text to machine code: {:.1} us", compile_us());
}

#[divan::bench]
fn machine_code(bencher: Bencher) {
    let (mut engine, event) = (jit(), event());
    bencher.bench_local(|| call(&mut engine, &event));
}

#[divan::bench]
fn interpreted(bencher: Bencher) {
    let (mut engine, event) = (interpreter(), event());
    bencher.bench_local(|| call(&mut engine, &event));
}

#[divan::bench]
fn rust_by_hand(bencher: Bencher) {
    let event = event();
    bencher.bench_local(|| native(black_box(&event), black_box(&[1400, 10, 999_999])));
}

#[divan::bench]
fn text_to_program(bencher: Bencher) {
    bencher.bench_local(program);
}

#[divan::bench]
fn program_to_machine_code(bencher: Bencher) {
    let program = program();
    bencher.bench_local(|| Jit::new(&program, Limits::default()).expect("machine code"));
}
