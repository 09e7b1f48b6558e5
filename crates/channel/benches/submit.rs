//! The CPU time of a node without any network: submission of 100 bytes to 1, 8 and 100 sinks on as many hosts, the arrival
//! of one event, and the additional time of filters in E-code (000 §4.4.3: 0.9 to 1 µs there; EVPath: 0.16 µs).
//!
//! `cargo bench -p qfabric-channel` first prints the results, medians of many rounds in one run.

use std::hint::black_box;
use std::time::Instant as Clock;

use divan::Bencher;
use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    Config, Direction, EventType, FilterId, FilterSpec, Lane, Node, Output, SinkSpec, SourceId, SourceSpec, Spec,
    Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_jit::Jit;
use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name, Plane};

const ROUNDS: usize = 101;
const CALLS: u32 = 2_000;

/// Five comparisons, like KECho's filters.
const PASSES: &str = "struct input { int kind; int size; int rate; int load; long stamp; };
if (input.kind == 3) return 0;
if (input.size > 1400) return 0;
if (input.rate < get_attribute(slowest)) return 0;
if (input.load >= 90) return 0;
return input.stamp >= 0;";

const BLOCKS: &str = "struct input { int kind; }; return input.kind == 3;";

/// Chooses sinks by their attributes.
const CHOOSES: &str = "struct input { int kind; int sinks; struct { long load; } sink[100]; };
struct output { unsigned char chosen[100]; };
for (int i = 0; i < input.sinks; i++) output.chosen[i] = input.sink[i].load < 1000;
return 1;";

/// Few with `--max-time`, which makes all benches short.
fn rounds() -> usize {
    if std::env::args().any(|word| word == "--max-time") { 3 } else { ROUNDS }
}

fn main() {
    if !std::env::args().any(|argument| argument == "--list") {
        print_figures();
    }
    divan::main();
}

/// A network that accepts every frame.
#[derive(Default)]
struct Sea {
    frames: u64,
    last: Vec<u8>,
    taken: Taken,
}

impl Sea {
    fn take(&mut self, node: &mut Node, now: Instant) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send(_, _, frame) => {
                    self.frames += 1;
                    self.last.clear();
                    self.last.extend_from_slice(node.frame(frame));
                }
                Output::Ready(sink) => while node.take(sink, black_box(&mut self.taken), now).unwrap_or(false) {},
                _ => {}
            }
        }
    }
}

fn channel() -> ChannelId {
    ChannelId { plane: Plane::Data, name: "video".parse().expect("a name") }
}

fn spec() -> Spec {
    let text = "struct frame { int kind; int size; int rate; int load; long stamp; char rest[72]; };";
    let types = parse_formats(text).expect("it compiles").into_iter().map(|format| EventType { format }).collect();
    Spec { types, ..Spec::default() }
}

fn with_jit(config: Config) -> Config {
    let engines = Box::new(|program: &_, limits| {
        let jit = Jit::new(program, limits).map_err(|error| error.to_string())?;
        Ok(Box::new(jit) as Box<dyn qfabric_ecode::Engine + Send>)
    });
    Config { engines, ..config }
}

/// A source on the first host, and a sink on each of the others.
struct Set {
    world: Memory,
    hosts: Vec<Name>,
    source: SourceId,
    /// The number of the last event that arrived.
    number: u64,
}

fn set(sinks: usize) -> Set {
    let mut world = Memory::configured(Settings { hosts: sinks + 1, ..Settings::default() }, with_jit);
    let hosts = world.hosts();
    world.with(&hosts[0], |node, now| node.create(&channel(), spec(), now)).expect("created");
    world.settle();
    for (number, host) in hosts[1..].iter().enumerate() {
        let attributes = [("load".parse().expect("a key"), number as i64)].into_iter().collect();
        let sink = SinkSpec { attributes, ..SinkSpec::default() };
        world.with(host, |node, now| {
            node.open(&channel(), now).expect("opened");
            node.sink_subscribe(&channel(), sink, now).expect("a sink");
        });
    }
    world.settle();
    let source = SourceSpec::default();
    let source = world.with(&hosts[0], |node, now| node.source_subscribe(&channel(), source, now));
    world.settle();
    Set { world, hosts, source: source.expect("a source"), number: 0 }
}

impl Set {
    fn filter(&mut self, host: usize, direction: Direction, text: &str) {
        let id = FilterId { channel: channel(), direction, name: "f".parse().expect("a name") };
        let filter = FilterSpec { id, sink: None, types: vec![], text: text.to_owned(), parameters: vec![] };
        self.world.with(&self.hosts[host], |node, _| node.install(&filter)).expect("it compiles");
    }

    fn submits(&mut self, mut measure: impl FnMut(&mut dyn FnMut())) {
        let (source, payload) = (self.source, [0; 100]);
        self.world.with(&self.hosts[0], |node, now| {
            let mut sea = Sea::default();
            let event = Submission { payload: &payload, ..Submission::default() };
            measure(&mut || {
                let sent = node.submit(source, black_box(&event), now);
                sea.take(node, now);
                black_box(sent.expect("submitted"));
            });
        });
    }

    /// Frames as they come from the first host, each with its own number.
    fn arrivals(&mut self, mut measure: impl FnMut(&mut dyn FnMut())) {
        let (source, payload) = (self.source, [0; 100]);
        let event = Submission { payload: &payload, ..Submission::default() };
        let mut sea = Sea::default();
        self.world.with(&self.hosts[0], |node, now| {
            node.submit(source, &event, now).expect("submitted");
            sea.take(node, now);
        });
        let (from, mut frame) = (self.hosts[0].clone(), sea.last.clone());
        let mut number = self.number;
        self.world.with(&self.hosts[1], |node, now| {
            measure(&mut || {
                number += 1;
                frame[18..26].copy_from_slice(&number.to_le_bytes());
                arrive(node, &from, &frame, now, &mut sea);
            });
            assert_eq!(node.counts().out_of_order, 0);
        });
        self.number = number;
    }
}

fn arrive(node: &mut Node, from: &Name, frame: &[u8], now: Instant, sea: &mut Sea) {
    node.arrive(from, Lane::Data, black_box(frame), now);
    sea.take(node, now);
}

/// Median nanoseconds of one call.
fn median(call: &mut dyn FnMut()) -> f64 {
    let round = |call: &mut dyn FnMut()| {
        let begin = Clock::now();
        for _ in 0..CALLS {
            call();
        }
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let mut rounds: Vec<f64> = (0..rounds()).map(|_| round(call)).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn print_figures() {
    for sinks in [1, 8, 100] {
        let mut set = set(sinks);
        let mut plain = 0.0;
        set.submits(|call| plain = median(call));
        let mut with = |text| {
            set.filter(0, Direction::Out, text);
            let mut ns = 0.0;
            set.submits(|call| ns = median(call));
            ns
        };
        let (passes, chooses, blocks) = (with(PASSES), with(CHOOSES), with(BLOCKS));
        println!(
            "submit to {sinks:>3} sinks: {plain:>6.0} ns; a filter of five comparisons adds {:>4.0} ns, one that looks \
             at every sink {:>4.0} ns; blocked for all: {blocks:>4.0} ns",
            passes - plain,
            chooses - plain
        );
    }
    let mut set = set(1);
    let (mut plain, mut filtered) = (0.0, 0.0);
    set.arrivals(|call| plain = median(call));
    set.filter(1, Direction::In, PASSES);
    set.arrivals(|call| filtered = median(call));
    println!("arrival, and taking it: {plain:.0} ns; an IN-filter of five comparisons adds {:.0} ns", filtered - plain);
    println!("installing that filter: {:.0} µs", install_us(&mut set));
}

/// Median of installing a filter: check, machine code, replacement.
fn install_us(set: &mut Set) -> f64 {
    let mut times: Vec<f64> = (0..rounds())
        .map(|_| {
            let begin = Clock::now();
            set.filter(0, Direction::Out, PASSES);
            begin.elapsed().as_nanos() as f64 / 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[divan::bench(args = [1, 8, 100])]
fn submit(bencher: Bencher<'_, '_>, sinks: usize) {
    let mut set = set(sinks);
    let mut bencher = Some(bencher);
    set.submits(|call| {
        if let Some(bencher) = bencher.take() {
            bencher.bench_local(call);
        }
    });
}

#[divan::bench]
fn arrival(bencher: Bencher<'_, '_>) {
    let mut set = set(1);
    let mut bencher = Some(bencher);
    set.arrivals(|call| {
        if let Some(bencher) = bencher.take() {
            bencher.bench_local(call);
        }
    });
}
