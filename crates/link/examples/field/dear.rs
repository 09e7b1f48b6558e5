//! The cost of single operations: Table 2 and Figures 29, 30 and 33 of the thesis.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use qfabric_channel::{Direction, FilterId, FilterSpec, Node, Output, SinkSpec, SourceId, Submission, Taken};
use zenoh::Wait;

use super::ours::{Ours, channel, create, join, source};
use super::play::{cost_of, forever, say};
use super::{Peer, bare, cpu_us, now_ns, ours};

/// Chooses the first `most` sinks.
const FIRST: &str = "struct input { int sinks; struct { long place; } sink[100]; };
struct output { unsigned char chosen[100]; };
for (int i = 0; i < input.sinks; i++) output.chosen[i] = i < get_attribute(most);
return 1;";

fn first(topic: &str, direction: Direction, most: usize) -> FilterSpec {
    let id = FilterId { channel: channel(topic), direction, name: "first".parse().expect("a name") };
    let parameters = vec![("most".parse().expect("a key"), most as i64)];
    FilterSpec { id, sink: None, types: vec![], text: FIRST.into(), parameters }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Events of 100 B and of 2 KiB, at zero to ten a second: the share of a processor in percent, for `sinks` sinks.
pub(crate) fn rates(peer: &dyn Peer, sinks: usize, seconds: usize) {
    let mut publish = peer.publish("events");
    say("ready");
    peer.wait_for("events", sinks);
    thread::sleep(Duration::from_secs(2));
    for size in [100, 2048] {
        let bytes = vec![0; size];
        for rate in [0, 2, 4, 6, 8, 10] {
            let share = share_of(Duration::from_secs(seconds as u64), rate, || publish(&bytes));
            say(&format!("result {size} {rate} {share:.3}"));
        }
    }
    say("done");
    forever()
}

fn share_of(time: Duration, rate: u32, mut each: impl FnMut()) -> f64 {
    let (before, begin) = (cpu_us(), Instant::now());
    match Duration::from_secs(1).checked_div(rate) {
        None => thread::sleep(time),
        Some(gap) => (0..(time.as_secs_f64() * f64::from(rate)) as u32).for_each(|_| {
            each();
            thread::sleep(gap);
        }),
    }
    (cpu_us() - before) / begin.elapsed().as_secs_f64() / 1e4
}

/// Submits to eight remote sinks; an OUT-filter lets events through to `most` of them; above 8 there is no filter.
pub(crate) fn chosen(peer: &Ours, most: usize) {
    let mut publish = peer.publish("events");
    say("ready");
    peer.wait_for("events", 8);
    if most <= 8 {
        peer.with(|node, _| node.install(&first("events", Direction::Out, most))).expect("it compiles");
    }
    thread::sleep(Duration::from_millis(700));
    say(&format!("result {:.2}", cost_of(1000, Duration::from_millis(1), || publish(&[0; 100]))));
    forever()
}

/// Eight local sinks copy an event and write the time into a file, as in the thesis; an IN-filter chooses `most` of
/// them.
pub(crate) fn handled(peer: &Ours, most: usize) {
    for _ in 0..8 {
        let (mut copy, mut file) = (Vec::new(), File::create("/dev/null").expect("a file"));
        let handle = move |bytes: &[u8]| {
            copy.clear();
            copy.extend_from_slice(bytes);
            let _ = writeln!(file, "{}", now_ns());
        };
        peer.subscribe("events", Box::new(handle));
    }
    if most <= 8 {
        peer.with(|node, _| node.install(&first("events", Direction::In, most))).expect("it compiles");
    }
    thread::sleep(Duration::from_secs(2));
    let frames = || peer.with(|node, _| node.counts().frames_in);
    let (before, spent) = (frames(), cpu_us());
    thread::sleep(Duration::from_secs(2));
    say(&format!("result {:.2}", (cpu_us() - spent) / (frames() - before).max(1) as f64));
    forever()
}

/// Takes all events and discards all frames.
fn drain(node: &mut Node, taken: &mut Taken, now: qfabric_types::Instant) {
    while let Some(output) = node.poll() {
        if let Output::Ready(sink) = output {
            while node.take(sink, taken, now).expect("the sink is there") {
                black_box(taken.event());
            }
        }
    }
}

/// The time of a filter that decides about eight sinks, in nanoseconds: an OUT-filter, an IN-filter.
pub(crate) fn filter_ns() -> [f64; 2] {
    [Direction::Out, Direction::In].map(|direction| {
        let mut node = ours::node(&ours::config("plain", "127.0.0", 0), 0);
        let now = qfabric_types::Instant::new(now_ns());
        (0..8).for_each(|_| _ = join(&mut node, "events", now));
        let from = source(&mut node, "events", now);
        let without = submit_ns(&mut node, from);
        node.install(&first("events", direction, 8)).expect("it compiles");
        submit_ns(&mut node, from) - without
    })
}

fn submit_ns(node: &mut Node, from: SourceId) -> f64 {
    const CALLS: u32 = 2000;
    let now = qfabric_types::Instant::new(now_ns());
    let event = Submission { payload: &[0; 100], ..Submission::default() };
    let mut taken = Taken::default();
    let round = |_| {
        let begin = Instant::now();
        for _ in 0..CALLS {
            let _ = black_box(node.submit(from, black_box(&event), now));
            drain(node, &mut taken, now);
        }
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    median((0..51).map(round).collect())
}

/// Repetitions of each operation of Table 2.
const TIMES: usize = 200;

/// The other side of `table`: it listens, and has channels that can be opened.
pub(crate) fn maker(peer: &dyn Peer) {
    peer.subscribe("events", Box::new(|_| {}));
    for topic in topics('m') {
        drop(peer.publish(topic));
    }
    say("ready");
    forever()
}

fn topics(letter: char) -> impl Iterator<Item = &'static str> {
    (0..TIMES).map(move |number| &*format!("{letter}{number}").leak())
}

fn timed<R>(act: impl FnOnce() -> R) -> f64 {
    let begin = Instant::now();
    black_box(act());
    begin.elapsed().as_secs_f64() * 1e6
}

/// Creating a channel, opening a channel of another host, submitting to a sink there, polling for an event.
pub(crate) fn table(peer: &Ours) {
    peer.ready();
    thread::sleep(Duration::from_millis(500));
    let made = |topic| timed(|| peer.with(|node, now| create(node, topic, now)));
    let creating = median(topics('c').map(made).collect());
    let opening = median(topics('m').map(made).collect());
    let mut publish = peer.publish("events");
    thread::sleep(Duration::from_millis(500));
    let one = |_| {
        thread::sleep(Duration::from_millis(1));
        timed(|| publish(&[0; 100]))
    };
    let submitting = median((0..5 * TIMES).map(one).collect());
    say(&format!("result {creating:.1} {opening:.1} {submitting:.1} {:.2}", polling(peer)));
    forever()
}

/// Taking an event that is in the queue.
fn polling(peer: &Ours) -> f64 {
    let (sink, from) = peer.with(|node, now| {
        create(node, "own", now);
        let spec = SinkSpec::default();
        let sink = node.sink_subscribe(&channel("own"), spec, now).expect("a sink");
        (sink, source(node, "own", now))
    });
    let event = Submission { payload: &[0; 100], ..Submission::default() };
    let mut taken = Taken::default();
    let mut poll = |_| {
        peer.with(|node, now| node.submit(from, &event, now)).expect("submitted");
        timed(|| peer.with(|node, now| node.take(sink, &mut taken, now)).expect("taken"))
    };
    median((0..5 * TIMES).map(&mut poll).collect())
}

/// The same operations with bare Zenoh: a publisher, a subscriber, a publication, a read of a subscriber's channel.
pub(crate) fn table_of_zenoh(net: &str) {
    let session = bare::Bare::open(net, 1).session;
    thread::sleep(Duration::from_millis(500));
    let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
    let creating = topics('c').map(|topic| timed(|| publishers.push(session.declare_publisher(topic).wait())));
    let creating = median(creating.collect());
    let opening = topics('m').map(|topic| timed(|| subscribers.push(session.declare_subscriber(topic).wait())));
    let opening = median(opening.collect());
    let publisher = session.declare_publisher("events").express(true).wait().expect("a publisher");
    let one = |_| {
        thread::sleep(Duration::from_millis(1));
        timed(|| publisher.put([0; 100]).wait())
    };
    let submitting = median((0..5 * TIMES).map(one).collect());
    let own = session.declare_subscriber("own").wait().expect("a subscriber");
    let poll = |_| {
        session.put("own", [0; 100]).wait().expect("sent");
        timed(|| own.try_recv())
    };
    let polling = median((0..5 * TIMES).map(poll).collect());
    say(&format!("result {creating:.1} {opening:.1} {submitting:.1} {polling:.2}"));
    forever()
}
