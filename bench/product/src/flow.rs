//! One-way flows: throughput, a fixed rate, and the CPU cost of submission.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::field::{Peer, cpu_us};
use crate::play::say;
use crate::wire::SIZE;

/// Size of an event of the stream in bytes: the largest allowed size.
pub(crate) const STREAM: usize = 16 << 10;
/// Events per second of the rate test.
pub(crate) const RATE: u32 = 100_000;
/// Duration of the stream and of the rate test.
pub(crate) const TIME: Duration = Duration::from_secs(3);
/// Number of events in one burst, and number of bursts.
const BURST: u32 = 50;
const BURSTS: u32 = 100;

/// Events received, with the times of the first and the last one.
#[derive(Clone, Copy, Default)]
struct Seen {
    events: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen { events: 0, first: None, last: None });

/// Counts the events of a topic.
pub(crate) fn drain(peer: &dyn Peer, topic: &'static str) {
    let count = |_: &[u8]| {
        let (now, mut seen) = (Instant::now(), SEEN.lock().expect("no panic"));
        *seen = Seen { events: seen.events + 1, first: seen.first.or(Some(now)), last: Some(now) };
    };
    peer.subscribe(topic, Box::new(count));
    thread::sleep(Duration::from_millis(500));
    peer.here(topic);
    say("ready");
}

/// Prints the number of received events, and the seconds between the first and the last.
pub(crate) fn print_counts() {
    let Seen { events, first, last } = *SEEN.lock().expect("no panic");
    let time = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    say(&format!("result {events} {time}"));
}

/// Publishes as fast as events are accepted. Prints the number sent and the seconds.
pub(crate) fn stream(peer: &dyn Peer) {
    let mut publish = publisher(peer, "stream");
    let (bytes, begin, mut sent) = (vec![0; STREAM], Instant::now(), 0);
    while begin.elapsed() < TIME {
        publish(&bytes);
        sent += 1;
    }
    say(&format!("result {sent} {}", begin.elapsed().as_secs_f64()));
}

/// Publishes [`RATE`] events per second, or as many as are accepted. Prints the same.
pub(crate) fn rate(peer: &dyn Peer) {
    let mut publish = publisher(peer, "bulk");
    let total = u64::from(RATE) * TIME.as_secs();
    let (begin, mut sent) = (Instant::now(), 0);
    while sent < total && begin.elapsed() < 3 * TIME {
        let due = (begin.elapsed().as_secs_f64() * f64::from(RATE)) as u64;
        while sent < due.min(total) {
            publish(&[0; SIZE]);
            sent += 1;
        }
        thread::sleep(Duration::from_micros(100));
    }
    say(&format!("result {sent} {}", begin.elapsed().as_secs_f64()));
}

/// Prints the CPU time of this process per submission in microseconds: of fifty events in one burst, and of one event
/// per millisecond.
pub(crate) fn submit(peer: &dyn Peer) {
    let mut publish = publisher(peer, "bulk");
    let mut cost = |burst: u32, bursts: u32, pause: Duration| {
        let spent = |_| {
            thread::sleep(pause);
            let before = cpu_us();
            (0..burst).for_each(|_| publish(&[0; SIZE]));
            cpu_us() - before
        };
        (0..bursts).map(spent).sum::<f64>() / f64::from(burst * bursts)
    };
    cost(BURST, BURSTS / 10, Duration::from_millis(5));
    let together = cost(BURST, BURSTS, Duration::from_millis(5));
    let alone = cost(1, BURST * BURSTS / 5, Duration::from_millis(1));
    say(&format!("result {together} {alone}"));
}

/// A publisher to the draining process.
fn publisher(peer: &dyn Peer, topic: &'static str) -> crate::field::Publish {
    let publish = peer.publish(topic);
    say("ready");
    peer.wait_for(topic, 1);
    thread::sleep(Duration::from_millis(700));
    publish
}
