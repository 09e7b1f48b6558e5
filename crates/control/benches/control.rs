//! Measures the cost of control per job: learn from the last job, predict the next, decide its budget. Target: 200
//! ns. Run with `cargo bench -p qfabric-control`. `job/…` measures all of it through [`TaskController`], `law` the
//! decision alone, `utility…` a plan for applications with utility functions (target: 1 ms for ten), `integrated` a decision with the prediction of sixteen
//! candidates (target: 1 ms for ten streams over 20 hosts), `train` the one solution of OL, which happens once per task.

use divan::{Bencher, black_box};
use qfabric_control::flow::{Host, Processor, Rung, Sink, Situation, Stream};
use qfabric_control::integrated::{self, Change};
use qfabric_control::utility::{self, Level, Tables};
use qfabric_control::{Interval, Target, TaskController, law, predictor};
use qfabric_types::{Choice, Contract, Foresight, Instant, JobRecord, Nanos, RandomNumbers, Usage};

fn main() {
    divan::main();
}

const PREDICTORS: [&str; 8] =
    ["ma:12", "mma:3,12", "ol:15,180", "ol:36,60", "ol:45,120", "pct:64,95", "hint:24", "hint:60"];

/// Costs and hints of a thousand frames, I every 12th, P every 3rd.
fn frames() -> Vec<(u64, f64)> {
    let frame = |k: u64| {
        let wobble = k * 7919 % 1_000;
        let (cost, bytes) = match k % 12 {
            0 => (16_000_000, 200_000),
            k if k % 3 == 0 => (9_000_000, 60_000),
            _ => (5_000_000, 20_000),
        };
        (cost + wobble * 1_000, (bytes + wobble * 10) as f64)
    };
    (0..1_000).map(frame).collect()
}

fn contract(spec: &str) -> Contract {
    let mut contract = Contract::new("bench", Nanos::from_millis(40));
    contract.server_period = Nanos::new(2_500_000);
    contract.predictor = spec.parse().expect("a known predictor");
    contract
}

fn usage(k: u64, frames: &[(u64, f64)]) -> Usage {
    let at = |k: u64| frames[k as usize % frames.len()];
    let release = Instant::new(k * 40_000_000);
    let finish = release + Nanos::new(37_000_000 + at(k).0 / 5);
    let next = Foresight::Hint(at(k + 1).1);
    Usage { job: JobRecord { k, release, finish, cost: Nanos::new(at(k).0), next }, granted: None, served: None }
}

#[divan::bench(args = PREDICTORS, sample_size = 1_000)]
fn job(bencher: Bencher, spec: &str) {
    let frames = frames();
    let usages: Vec<Usage> = (0..1_024).map(|k| usage(k, &frames)).collect();
    let mut controller = TaskController::new(&contract(spec));
    for usage in &usages {
        controller.on_usage(usage);
    }
    let mut k = 0;
    bencher.bench_local(|| {
        k = (k + 1) % usages.len();
        controller.on_usage(black_box(&usages[k]))
    });
}

#[divan::bench(args = PREDICTORS, sample_size = 1_000)]
fn predict_and_observe(bencher: Bencher, spec: &str) {
    let frames = frames();
    let mut predictor = predictor(spec.parse().expect("a known predictor"), 1.0);
    frames.iter().for_each(|&(cost, hint)| predictor.observe(cost as f64, Some(hint)));
    let mut k = 0;
    bencher.bench_local(|| {
        k = (k + 1) % frames.len();
        let (cost, hint) = frames[k];
        let costs = predictor.predict(black_box(Some(hint)));
        predictor.observe(black_box(cost as f64), Some(hint));
        costs
    });
}

#[divan::bench(args = [Choice::Left, Choice::Middle, Choice::Zero, Choice::Cost])]
fn law(bencher: Bencher, choice: Choice) {
    let target = Target::new(Nanos::from_millis(40), Nanos::new(2_500_000), 0.2, 0.0);
    let costs = Interval { low: 8e6, high: 9e6 };
    bencher.bench(|| law::decide(black_box(&target), choice, black_box(costs), black_box(2.5e6), 2.4e6));
}

#[divan::bench(args = ["ol:15,180", "ol:45,120", "ol:64,512"])]
fn train(bencher: Bencher, spec: &str) {
    let frames = frames();
    let spec = spec.parse().expect("a known predictor");
    bencher.bench(|| {
        let mut predictor = predictor(spec, 1.0);
        (0..1_024).for_each(|k| predictor.observe(frames[k % frames.len()].0 as f64, None));
        predictor.predict(None)
    });
}

/// Applications with two metrics of eight levels each and two resources, of which there is half of what all want.
fn choices(applications: usize) -> utility::Choices {
    let mut numbers = RandomNumbers::new(17);
    let mut metric = || {
        let mut level = Level { value: 0, utility: 0, needs: vec![0, 0] };
        let grow = |at: i64| {
            level.value = at;
            level.utility += numbers.draw() % 1_000;
            level.needs.iter_mut().for_each(|need| *need += 1_000 + numbers.draw() % 20_000);
            level.clone()
        };
        (0..8).map(grow).collect::<Vec<_>>()
    };
    let tables = |at: usize| Tables { weight: 1 + at as u32 % 3, metrics: vec![metric(), metric()] };
    let applications: Vec<Tables> = (0..applications).map(tables).collect();
    let top = |at: usize| -> u64 { applications.iter().flat_map(|t| &t.metrics).map(|m| m[7].needs[at]).sum() };
    let capacity = vec![top(0) / 2, top(1) / 2];
    utility::Choices { applications, capacity }
}

#[divan::bench(args = [2, 5, 10, 20])]
fn utility_solve(bencher: Bencher, applications: usize) {
    let choices = choices(applications);
    bencher.bench(|| utility::solve(black_box(&choices)));
}

#[divan::bench(args = [10, 20])]
fn utility_greedy(bencher: Bencher, applications: usize) {
    let choices = choices(applications);
    bencher.bench(|| utility::greedy(black_box(&choices)));
}

/// Streams with sixteen rungs from each of the first hosts to all others, every second host busy.
fn situation(streams: usize, hosts: usize) -> Situation {
    let rung = |rung: usize| {
        let part = 1.0 - rung as f64 / 16.0;
        Rung { worth: 0.5 + part / 2.0, encode: 0.03 * part, decode: 0.004 * part, bits: 30e3 * part }
    };
    let host = |at: usize| {
        let processor = Processor { others: (at % 2) as f64, ..Processor::IDLE };
        Host { processor, uplink: 20e6, downlink: 5e6 }
    };
    let stream = |source: usize| Stream {
        weight: 1.0,
        wanted: 20.0,
        source,
        reserved: 0.0,
        rung: 0,
        rungs: (0..16).map(rung).collect(),
        sinks: (0..hosts).filter(|at| *at != source).map(|host| Sink { host, reserved: 0.0, factor: 1.0 }).collect(),
    };
    Situation { hosts: (0..hosts).map(host).collect(), streams: (0..streams).map(stream).collect() }
}

#[divan::bench(args = [(1, 2), (10, 20), (10, 200)])]
fn integrated_plan(bencher: Bencher, (streams, hosts): (usize, usize)) {
    let mut situation = situation(streams, hosts);
    let change = |rung: usize| Change { rung: Some(rung), source: Some(0.6), ..Change::KEEP };
    let changes: Vec<Change> = (1..16).map(change).collect();
    bencher.bench_local(|| integrated::plan(&mut situation, black_box(&changes)));
}
