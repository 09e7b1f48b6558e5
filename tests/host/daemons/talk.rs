//! Applications that talk: each host has a source and a sink on one channel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use qfabric_client::ClientError;
use qfabric_client::channel::{
    Channel, Channels, SinkCounts, SinkOptions, SourceCounts, SourceOptions, Spec, Submission,
};

use crate::host::{Host, PATIENCE, eventually};

/// What all of them talk about.
pub(crate) const FORMAT: &str = "struct frame { int number; int size; };";

/// Largest number of events that a paced sender is ahead of its reader: fewer than any queue on the way holds.
const AHEAD: usize = 20;

/// An application that sends, until told to stop; its source stays.
pub(crate) struct Sender {
    stop: Arc<AtomicBool>,
    pub sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// An application that reads.
pub(crate) struct Reader {
    pub sink: u32,
    attributes: mpsc::Sender<(&'static str, i64)>,
    heard: Arc<Mutex<Vec<Heard>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An event: when it came, from whom, and how long it was on its way.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub at: Instant,
    pub host: String,
    pub delay: Duration,
}

/// Opens a channel, created where no host holds it.
pub(crate) fn enter(channels: &Channels, name: &str, spec: &Spec) -> Channel {
    let until = Instant::now() + PATIENCE;
    loop {
        match channels.open(name).or_else(|_| channels.create(name, spec)) {
            Ok(channel) => return channel,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

impl Sender {
    /// `size` bytes every `period`.
    pub(crate) fn start(host: &Host, channel: &str, size: usize, period: Duration) -> Sender {
        Sender::when(host, channel, size, period, |_| true)
    }

    /// The same, but it waits for `reader` when that is [`AHEAD`] events behind: whatever the machine is busy with,
    /// no queue to this reader is full.
    pub(crate) fn paced(host: &Host, channel: &str, size: usize, period: Duration, reader: &Reader) -> Sender {
        let heard = reader.heard.clone();
        Sender::when(host, channel, size, period, move |sent| sent < (heard.lock().unwrap().len() + AHEAD) as u64)
    }

    /// The same for several readers: it waits for the one that is furthest behind.
    pub(crate) fn paced_by_all(
        host: &Host,
        channel: &str,
        size: usize,
        period: Duration,
        readers: &[Reader],
    ) -> Sender {
        let heard: Vec<_> = readers.iter().map(|reader| reader.heard.clone()).collect();
        let least = move || heard.iter().map(|heard| heard.lock().unwrap().len()).min().unwrap_or(usize::MAX - AHEAD);
        Sender::when(host, channel, size, period, move |sent| sent < (least() + AHEAD) as u64)
    }

    fn when(
        host: &Host,
        channel: &str,
        size: usize,
        period: Duration,
        may_send: impl Fn(u64) -> bool + Send + 'static,
    ) -> Sender {
        let (channels, stop, sent) = (host.channels(), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let opened = enter(&channels, channel, &Spec::of(FORMAT));
        let source = opened.source_subscribe(&SourceOptions::default()).unwrap();
        let (told, counted) = (stop.clone(), sent.clone());
        let thread = thread::spawn(move || {
            let (payload, mut next) = (vec![7; size], Instant::now());
            while !told.load(Ordering::Relaxed) {
                if !may_send(counted.load(Ordering::Relaxed)) {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                // A daemon that is gone takes no more.
                match source.submit(&Submission { payload: &payload, ..Submission::default() }) {
                    Ok(()) => counted.fetch_add(1, Ordering::Relaxed),
                    Err(_) => return,
                };
                next += period;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            while Arc::strong_count(&told) > 1 {
                thread::sleep(Duration::from_millis(10));
            }
            drop((opened, channels));
        });
        Sender { stop, sent, thread: Some(thread) }
    }

    /// No more events; the source stays.
    pub(crate) fn pause(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.pause();
        self.stop = Arc::default();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Reader {
    pub(crate) fn start(host: &Host, channel: &str) -> Reader {
        Reader::slow(host, channel, Duration::ZERO)
    }

    /// One that takes that long for an event.
    pub(crate) fn slow(host: &Host, channel: &str, each: Duration) -> Reader {
        let (channels, heard, stop) =
            (host.channels(), Arc::<Mutex<Vec<Heard>>>::default(), Arc::<AtomicBool>::default());
        let opened = enter(&channels, channel, &Spec::of(FORMAT));
        let mut sink = opened.sink(&SinkOptions::default()).unwrap();
        let (number, told, kept) = (sink.number(), stop.clone(), heard.clone());
        let (attributes, changes) = mpsc::channel();
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                for (key, value) in changes.try_iter() {
                    sink.set_attribute(key, Some(value)).unwrap();
                }
                match sink.next(Duration::from_millis(50)) {
                    Ok(Some(event)) => kept.lock().unwrap().push(Heard::of(&event.event())),
                    Ok(None) => {}
                    Err(ClientError::Channels { .. }) => return,
                    Err(error) => panic!("{error}"),
                }
                thread::sleep(each);
            }
            drop((opened, channels));
        });
        Reader { sink: number, attributes, heard, stop, thread: Some(thread) }
    }

    /// Sets a Q-attribute of its sink, soon.
    pub(crate) fn set(&self, key: &'static str, value: i64) {
        self.attributes.send((key, value)).unwrap();
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Whether it has heard of that host since then.
    pub(crate) fn hears(&self, host: &str, since: Instant) -> bool {
        self.heard.lock().unwrap().iter().rev().any(|heard| heard.at >= since && heard.host == host)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Heard {
    fn of(event: &qfabric_client::channel::Event<'_>) -> Heard {
        let delay = qfabric_client::clock::now().get().saturating_sub(event.sent_ns);
        Heard { at: Instant::now(), host: event.host.to_owned(), delay: Duration::from_nanos(delay) }
    }
}

/// A source and a sink on each host.
pub(crate) struct Talk {
    channel: &'static str,
    pub senders: BTreeMap<String, Sender>,
    pub readers: BTreeMap<String, Reader>,
}

impl Talk {
    /// Nobody yet.
    pub(crate) fn of(channel: &'static str) -> Talk {
        Talk { channel, senders: BTreeMap::new(), readers: BTreeMap::new() }
    }

    pub(crate) fn start(hosts: &[Host], channel: &'static str) -> Talk {
        let mut talk = Talk::of(channel);
        hosts.iter().for_each(|host| talk.join(host));
        talk
    }

    /// A host takes part, or does so again.
    pub(crate) fn join(&mut self, host: &Host) {
        self.senders.insert(host.name.clone(), Sender::start(host, self.channel, 100, Duration::from_millis(20)));
        self.readers.insert(host.name.clone(), Reader::start(host, self.channel));
    }

    pub(crate) fn leave(&mut self, host: &str) {
        self.senders.remove(host);
        self.readers.remove(host);
    }

    /// Until everybody among those hosts has heard an event of all others that came from now on.
    #[track_caller]
    pub(crate) fn flows(&self, hosts: &[&str]) -> Duration {
        let since = Instant::now();
        eventually("everybody hears everybody", || {
            let all =
                |to: &str| hosts.iter().filter(|from| **from != to).all(|from| self.readers[to].hears(from, since));
            hosts.iter().all(|to| all(to))
        })
    }

    /// Checks the counts after the last event: the counts of each sink are exact, and its application has read the number
    /// of events that they state. The counts of a source are exact if no sink has events left to read. Returns the number
    /// of lost events.
    #[track_caller]
    pub(crate) fn balances(&self, hosts: &[Host]) -> u64 {
        self.senders.values().for_each(Sender::pause);
        let mut lost = 0;
        for host in hosts {
            let mut books = (Vec::new(), Vec::new());
            let fits = || {
                books = self.books(host);
                let (sources, sinks) = &books;
                sinks.iter().all(|(number, sink)| self.is_exact(host, *number, *sink))
                    && (sources.iter().all(adds_up) || self.waits(hosts) && sources.iter().all(is_sober))
            };
            let took = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually("books", fits)));
            let all = || {
                hosts.iter().map(|host| format!("{}: {:#?}\n", host.name, host.show(self.channel))).collect::<String>()
            };
            assert!(took.is_ok(), "books of {}: {books:#?}\n{}", host.name, all());
            lost += books.1.iter().map(|(_, sink)| sink.lost + sink.dropped).sum::<u64>();
        }
        lost
    }

    fn books(&self, host: &Host) -> (Vec<SourceCounts>, Vec<(u32, SinkCounts)>) {
        let info = host.show(self.channel).expect("it is open");
        let here = info.hosts.iter().find(|holding| holding.host.as_str() == host.name).expect("it holds it");
        let sources = here.sources.iter().filter_map(|source| source.counts).collect();
        (sources, here.sinks.iter().filter_map(|sink| Some((sink.number, sink.counts?))).collect())
    }

    /// Whether some sink has events left to read.
    fn waits(&self, hosts: &[Host]) -> bool {
        hosts.iter().any(|host| self.books(host).1.iter().any(|(_, sink)| sink.queued > 0))
    }

    fn is_exact(&self, host: &Host, number: u32, sink: SinkCounts) -> bool {
        let SinkCounts { sent, delivered, filtered, dropped, late, lost, queued } = sink;
        let reader = &self.readers[&host.name];
        let read = reader.sink != number || reader.heard().len() as u64 == delivered;
        read && sent == delivered + filtered + dropped + late + lost + queued
    }
}

fn known(source: &SourceCounts) -> u64 {
    source.delivered + source.filtered + source.dropped + source.late + source.lost
}

fn adds_up(source: &SourceCounts) -> bool {
    source.sent == known(source)
}

fn is_sober(source: &SourceCounts) -> bool {
    source.sent >= known(source)
}
