//! The players' side: the parts, the same for every rival.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use qfabric_link::one_receive_thread;

use super::ours::Ours;
use super::{Peer, Publish, combined, cpu_us, dear, now_ns, open, valve};

/// Measured values in microseconds, which `tell` requests.
static SEEN: Mutex<Vec<f64>> = Mutex::new(Vec::new());
/// A second series of values: a part of the first, or measured beside it.
static INSIDE: Mutex<Vec<f64>> = Mutex::new(Vec::new());

/// Size of an event of the flood in bytes.
pub(crate) const BULK: usize = 16 << 10;

/// Plays the part that this process was started for.
pub(crate) fn play(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    if words[0] == "hog" {
        thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
        return obey();
    }
    if !matches!(words[1], "zenoh" | "tcp" | "nats") {
        one_receive_thread();
    }
    thread::spawn(obey);
    thread::spawn(|| {
        thread::sleep(Duration::from_secs(600)); // end in any case
        std::process::exit(1);
    });
    let number = |at: usize| words[at].parse::<usize>().expect("a number");
    match words[..] {
        ["echo", rival, net, _] => echo(&*open(rival, net, 0)),
        ["ping", rival, net, ..] => ping(&*open(rival, net, 1), number(3), number(4)),
        ["source", rival, net, ..] => source(&*open(rival, net, 0), number(3), number(4), number(5), number(6)),
        ["sinks", rival, net, ..] => sinks(rival, net, number(4)),
        ["feed", rival, net, ..] => feed(&*open(rival, net, 0), number(3), number(4), number(5)),
        ["reader", rival, net, ..] => reader(&*open(rival, net, number(3)), number(4)),
        ["flood", rival, net, ..] => flood(&*open(rival, net, 0), number(3), number(4)),
        ["flooded", rival, net] => flooded(&*open(rival, net, 1)),
        ["collector", rival, net, ..] => collector(&*open(rival, net, 0), number(3)),
        ["reporters", rival, net, ..] => reporters(rival, net, number(3), number(4)),
        ["root", way, net, ..] => collector(&combined::open(way, net, 0, None), number(3)),
        ["combiners", way, net, ..] => combined::combiners(way, net, number(3)),
        ["leaves", way, net, ..] => combined::leaves(way, net, number(3), number(4), number(5)),
        ["rates", rival, net, ..] => dear::rates(&*open(rival, net, 0), number(3), number(4)),
        ["chosen", rival, net, ..] => dear::chosen(&Ours::open(rival, net, 0), number(3)),
        ["handled", rival, net, _] => dear::handled(&Ours::open(rival, net, 1), number(3)),
        ["maker", rival, net] => dear::maker(&*open(rival, net, 0)),
        ["table", rival @ ("plain" | "link"), net] => dear::table(&Ours::open(rival, net, 1)),
        ["table", _, net] => dear::table_of_zenoh(net),
        ["valve", rival, net] => valve::valve(rival, net),
        ["turner", rival, net, _] => valve::turner(rival, net, number(3)),
        _ => panic!("no such part: {role}"),
    }
}

/// Answers the conductor until it ends.
fn obey() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == "tell" {
            tell();
        }
    }
    std::process::exit(0);
}

/// Prints the number of values since the last call, and their median, 99th percentile and maximum in microseconds; then
/// the same for the second series.
fn tell() {
    let [seen, inside] = [&SEEN, &INSIDE].map(|noted| summary(std::mem::take(&mut *noted.lock().expect("no panic"))));
    say(&format!("result {seen} {inside}"));
}

fn summary(mut noted: Vec<f64>) -> String {
    noted.sort_by(f64::total_cmp);
    let part = |percent: usize| noted.get((noted.len() * percent / 100).min(noted.len().max(1) - 1)).copied();
    let [half, most, all] = [50, 99, 100].map(|percent| part(percent).unwrap_or(f64::NAN));
    format!("{} {half:.1} {most:.1} {all:.1}", noted.len())
}

pub(crate) fn note(us: f64) {
    SEEN.lock().expect("no panic").push(us);
}

pub(crate) fn note_inside(us: f64) {
    INSIDE.lock().expect("no panic").push(us);
}

pub(crate) fn say(text: &str) {
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{text}");
    let _ = output.flush();
}

pub(crate) fn forever() -> ! {
    loop {
        thread::park();
    }
}

fn echo(peer: &dyn Peer) {
    peer.echo();
    say("ready");
    forever()
}

/// Makes `trips` round trips with pauses, and prints their times.
fn ping(peer: &dyn Peer, size: usize, trips: usize) {
    let (came, comes) = sync_channel(1);
    peer.subscribe("pong", Box::new(move |_| _ = came.try_send(())));
    let mut publish = peer.publish("ping");
    peer.wait_for("ping", 1);
    let bytes = vec![0; size];
    let mut trip = || {
        let begin = Instant::now();
        publish(&bytes);
        comes.recv_timeout(Duration::from_secs(5)).expect("back");
        begin.elapsed().as_secs_f64() * 1e6
    };
    // The first few may be lost while subscriptions spread; the next ones warm up.
    thread::sleep(Duration::from_millis(700));
    (0..200).for_each(|_| _ = trip());
    let mut times: Vec<f64> = Vec::with_capacity(trips);
    for _ in 0..trips {
        thread::sleep(Duration::from_micros(500));
        times.push(trip());
    }
    times.sort_by(f64::total_cmp);
    say(&format!("result {:.1} {:.1}", times[trips / 2], times[trips * 99 / 100]));
}

/// Submits events with pauses. Prints the CPU time of an event beyond the same pauses without it, the duration of the
/// call, and the process's CPU use without events in percent of a processor.
fn source(peer: &dyn Peer, size: usize, sinks: usize, events: usize, pause_us: usize) {
    let mut publish = peer.publish("events");
    say("ready");
    peer.wait_for("events", sinks);
    thread::sleep(Duration::from_millis(1500));
    let (before, begin) = (cpu_us(), Instant::now());
    thread::sleep(Duration::from_secs(1));
    let rest = (cpu_us() - before) / begin.elapsed().as_secs_f64() / 1e4;
    let bytes = vec![0; size];
    let pause = Duration::from_micros(pause_us as u64);
    let mut calls = Vec::with_capacity(2 * events);
    let cost = cost_of(events, pause, || {
        let begin = Instant::now();
        publish(&bytes);
        calls.push(begin.elapsed().as_secs_f64() * 1e6);
    });
    calls.sort_by(f64::total_cmp);
    say(&format!("result {cost:.2} {:.2} {rest:.3}", calls[calls.len() / 2]));
}

/// CPU time of this process for one event, beyond the CPU time of as many pauses without events.
pub(crate) fn cost_of(events: usize, pause: Duration, mut each: impl FnMut()) -> f64 {
    let run = |events: usize, each: &mut dyn FnMut()| {
        let before = cpu_us();
        for _ in 0..events {
            each();
            thread::sleep(pause);
        }
        (cpu_us() - before) / events as f64
    };
    run(events / 10 + 1, &mut each);
    let without = run(events / 2 + 1, &mut || {});
    run(events, &mut each) - without
}

fn sinks(rival: &str, net: &str, sinks: usize) {
    let peers: Vec<Box<dyn Peer>> = (1..=sinks).map(|number| open(rival, net, number)).collect();
    peers.iter().for_each(|peer| peer.subscribe("events", Box::new(|_| {})));
    thread::sleep(Duration::from_millis(500));
    peers.iter().for_each(|peer| peer.here("events"));
    forever()
}

/// Submits stamped events until the process ends. The reported values are the durations of the calls.
fn feed(peer: &dyn Peer, size: usize, pause_us: usize, readers: usize) {
    let mut publish = peer.publish("events");
    say("ready");
    peer.wait_for("events", readers);
    say("all");
    let mut bytes = vec![0; size];
    loop {
        let begin = now_ns();
        bytes[..8].copy_from_slice(&begin.to_le_bytes());
        publish(&bytes);
        note((now_ns() - begin) as f64 / 1e3);
        thread::sleep(Duration::from_micros(pause_us as u64));
    }
}

fn age_us(bytes: &[u8]) -> Option<f64> {
    let stamp = u64::from_le_bytes(*bytes.first_chunk()?);
    Some(now_ns().saturating_sub(stamp) as f64 / 1e3)
}

/// Takes `pause_ms` for each event. The reported values are the ages of the events.
fn reader(peer: &dyn Peer, pause_ms: usize) {
    peer.subscribe(
        "events",
        Box::new(move |bytes| {
            age_us(bytes).into_iter().for_each(note);
            if pause_ms > 0 {
                thread::sleep(Duration::from_millis(pause_ms as u64));
            }
        }),
    );
    thread::sleep(Duration::from_millis(500));
    peer.here("events");
    forever()
}

/// Submits bulk events with pauses, or as fast as they are accepted, and `count` control events beside them, a hundred
/// a second.
fn flood(peer: &dyn Peer, count: usize, pause_us: usize) {
    let (mut bulk, mut control) = (peer.publish("bulk"), peer.publish("control"));
    say("ready");
    peer.wait_for("bulk", 1);
    peer.wait_for("control", 1);
    thread::spawn(move || {
        let bytes = vec![0; BULK];
        loop {
            bulk(&bytes);
            if pause_us > 0 {
                thread::sleep(Duration::from_micros(pause_us as u64));
            }
        }
    });
    thread::sleep(Duration::from_millis(500));
    let mut bytes = [0; 100];
    for _ in 0..count {
        thread::sleep(Duration::from_millis(10));
        let begin = now_ns();
        bytes[..8].copy_from_slice(&begin.to_le_bytes());
        control(&bytes);
        note((now_ns() - begin) as f64 / 1e3);
    }
    thread::sleep(Duration::from_millis(500));
    say("done");
    forever()
}

/// The reported values are the ages of control events.
fn flooded(peer: &dyn Peer) {
    peer.subscribe("bulk", Box::new(|_| note_inside(0.0)));
    peer.subscribe("control", Box::new(|bytes| age_us(bytes).into_iter().for_each(note)));
    thread::sleep(Duration::from_millis(500));
    peer.here("bulk");
    peer.here("control");
    forever()
}

/// Receives reports for five seconds; prints their number per second, and the CPU use in percent of a processor.
fn collector(peer: &dyn Peer, reporters: usize) {
    static CAME: Mutex<u64> = Mutex::new(0);
    let came = || *CAME.lock().expect("no panic");
    peer.subscribe("control", Box::new(|_| *CAME.lock().expect("no panic") += 1));
    say("ready");
    while came() < 20 * reporters as u64 {
        thread::sleep(Duration::from_millis(50)); // a hundred hosts meet each other meanwhile
    }
    let (before, spent, begin) = (came(), cpu_us(), Instant::now());
    thread::sleep(Duration::from_secs(5));
    let took = begin.elapsed().as_secs_f64();
    let (rate, share) = ((came() - before) as f64 / took, (cpu_us() - spent) / took / 1e4);
    say(&format!("result {rate:.0} {share:.2}"));
    forever()
}

/// Hosts that each report `rate` times a second; evenly spread, so that each report arrives alone.
fn reporters(rival: &str, net: &str, reporters: usize, rate: usize) {
    let peers: Vec<Box<dyn Peer>> = (1..=reporters).map(|number| open(rival, net, number)).collect();
    report(peers.iter().map(|peer| peer.publish("control")).collect(), rate)
}

/// Calls each function `rate` times a second, evenly spread.
pub(crate) fn report(mut publish: Vec<Publish>, rate: usize) -> ! {
    let gap = Duration::from_secs(1) / (publish.len() * rate) as u32;
    let mut next = Instant::now() + Duration::from_secs(1);
    loop {
        for publish in &mut publish {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            publish(&[0; 80]);
            next += gap;
        }
    }
}
