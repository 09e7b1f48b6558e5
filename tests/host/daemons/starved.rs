//! Hosts that have no processor to spare: on each, 16 programs that never rest. Counts decide, not times.
//!
//! The long form: `QFABRIC_STARVED_S=600 cargo test -p qfabric-cli --test hosts starved -- --nocapture`. With
//! `QFABRIC_STARVED_CHANNELS='priority = 0'` the daemons get that line in their section `[channels]`, for comparison.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qfabric_linux::sched_attr::SchedAttr;
use qfabric_types::{Nanos, Reservation, ThreadId};

use crate::host::{PATIENCE, Site, eventually};
use crate::talk::{Reader, Sender};

/// Programs that never rest, on each host.
const HOGS: usize = 16;
/// Bytes of an event, the most there may be.
const SIZE: usize = 16 << 10;
/// Between two events of a source.
const PERIOD: Duration = Duration::from_millis(50);
/// How long the short form takes, in seconds.
const SHORT_S: u64 = 20;

/// Programs that take all the processor time they are given, at ordinary priority.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start(count: usize) -> Hogs {
        let hog = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        Hogs((0..count).map(hog).collect())
    }
}

impl Hogs {
    /// Programs that take all processor time for which the kernel admits reservations: 100 ms each, as long as there is room.
    fn reserving() -> Hogs {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut hogs = Hogs::start(cpus);
        for percent in [90, 80, 40, 20, 10, 5, 2, 1] {
            while let Some(hog) = reserved(percent) {
                hogs.0.push(hog);
            }
        }
        hogs
    }
}

/// A program that never rests, with a reservation of this part of a processor. None: the kernel admits no such one any more.
fn reserved(percent: u64) -> Option<Child> {
    let mut hog = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    let ms = Nanos::from_millis;
    let reservation = Reservation::new(ms(percent), ms(100)).unwrap();
    if SchedAttr::deadline(reservation, false).give(ThreadId(hog.id() as i32)).is_ok() {
        return Some(hog);
    }
    let _ = hog.kill();
    let _ = hog.wait();
    None
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// How often the hosts have taken another one for gone.
fn disappearances(site: &Site) -> usize {
    site.hosts().iter().map(|host| host.log().matches("a host is gone").count()).sum()
}

/// Events that the sinks of a channel have lost or dropped, by all hosts' books.
fn missed(site: &Site, channel: &str) -> u64 {
    let of = |host: &crate::host::Host| {
        let info = host.show(channel).expect("it is open");
        let here = info.hosts.into_iter().find(|holding| holding.host.as_str() == host.name).expect("it holds it");
        here.sinks.iter().filter_map(|sink| sink.counts).map(|sink| sink.lost + sink.dropped + sink.late).sum::<u64>()
    };
    site.hosts().iter().map(of).sum()
}

/// Time for everything that was sent to be read.
fn all_heard(sender: &Sender, readers: &[Reader]) {
    let since = Instant::now();
    let sent = || sender.sent.load(Ordering::Relaxed);
    while readers.iter().any(|reader| (reader.heard().len() as u64) < sent()) {
        if since.elapsed() > PATIENCE / 4 {
            // The books say it.
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Starts three hosts, all of which send to all, and starves them.
/// Returns the number of events that were lost, dropped or late.
fn starve(site: &mut Site, hogs: impl FnOnce() -> Hogs) -> u64 {
    let seconds = std::env::var("QFABRIC_STARVED_S").map_or(SHORT_S, |text| text.parse().expect("seconds"));
    let more = std::env::var("QFABRIC_STARVED_CHANNELS").unwrap_or_default();
    (0..3).for_each(|host| site.start(host, &more));
    site.all_meet();
    let channels = ["film-0", "film-1", "film-2"];
    let readers: Vec<Vec<Reader>> =
        channels.iter().map(|channel| site.hosts().iter().map(|host| Reader::start(host, channel)).collect()).collect();
    let known =
        |channel: &str| site[0].show(channel).map_or(0, |info| info.hosts.iter().map(|host| host.sinks.len()).sum());
    eventually("all readers are known", || channels.iter().all(|channel| known(channel) == 3));
    // None is ahead of its slowest reader by more than any queue holds: what is missing then was lost on the way.
    let senders: Vec<Sender> =
        (0..3).map(|host| Sender::paced_by_all(&site[host], channels[host], SIZE, PERIOD, &readers[host])).collect();
    eventually("events flow", || readers.iter().flatten().all(|reader| !reader.heard().is_empty()));

    let hogs = hogs();
    std::thread::sleep(Duration::from_secs(seconds));
    let gone = disappearances(site);
    let beside: Vec<u64> = senders.iter().map(|sender| sender.sent.load(Ordering::Relaxed)).collect();
    println!("{} hogs for {seconds} s: {gone} disappearances, sent {beside:?}", hogs.0.len());
    drop(hogs);
    senders.iter().for_each(Sender::pause);
    senders.iter().zip(&readers).for_each(|(sender, readers)| all_heard(sender, readers));
    let sent: Vec<u64> = senders.iter().map(|sender| sender.sent.load(Ordering::Relaxed)).collect();
    let heard: Vec<Vec<usize>> =
        readers.iter().map(|readers| readers.iter().map(|reader| reader.heard().len()).collect()).collect();
    let missed: u64 = channels.iter().map(|channel| missed(site, channel)).sum();
    println!("in all: sent {sent:?}, heard {heard:?}, {missed} lost");
    assert_eq!(gone, 0, "disappearances");
    let all = |(sent, heard): (&u64, &Vec<usize>)| heard.iter().all(|heard| *heard as u64 == *sent);
    assert!(missed > 0 || sent.iter().zip(&heard).all(all), "what is in no book as lost was read");
    missed
}

#[test]
fn starved_hosts_take_nobody_for_gone_and_lose_no_event_of_16_kb() {
    let Some(mut site) = Site::new(&[0, 0, 1]) else { return };
    assert_eq!(starve(&mut site, || Hogs::start(3 * HOGS)), 0, "events that were lost, dropped or late");
}

/// Reservations precede real-time threads, so these have what the kernel admits no reservations for. On a CPU that other
/// programs disturb, this may be too little for all events; it is enough for the signs of life.
#[test]
fn hosts_starved_by_all_reservations_that_the_kernel_admits_take_nobody_for_gone() {
    let Some(mut site) = Site::new(&[0, 0, 1]) else { return };
    starve(&mut site, Hogs::reserving);
}
