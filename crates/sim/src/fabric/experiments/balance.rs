//! Figures 31 and 32: a cluster of 8 servers. One of them receives 20 to 50 requests per second of 38 ms each.
//! Requests that wait longer than 2.5 s are forwarded to the least loaded other servers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use qfabric_channel::{
    Direction, EventType, FilterId, FilterSpec, SinkId, SinkSpec, SourceId, SourceSpec, Spec, Submission, Target,
};
use qfabric_control::adapt::balance::Answers;
use qfabric_host::manager::Recipient;
use qfabric_host::manager::policies::{BEGUN, Balance, COPY, DROP, FORWARD, REQUEST as WAITS};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{AttributeId, Cause, Reading, Unit};
use qfabric_types::{AppId, Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::{App, Fabric, HostContext, ReceivedEvent, Settings};
use super::{data, quality};

const SERVERS: usize = 8;
/// Time to serve a request.
const SERVICE: Nanos = Nanos::from_millis(38);
/// A request is useless after this time.
const TIMEOUT: Nanos = Nanos::from_millis(5_000);
/// A waiting request is forwarded after this time.
const PATIENCE: Nanos = Nanos::from_millis(2_500);
/// Largest number of waiting requests of one server.
const MOST: usize = 10_000;

/// The server as an application of its host's manager.
const SERVER: AppId = AppId(1);

/// Event types.
const REQUEST: u16 = 0;
const ANSWER: u16 = 1;

/// The OUT-filter: a request goes to the `copies` least loaded servers, any other event to its own target.
const LEAST_LOADED: &str = r"
struct input { unsigned long id; int sinks; struct { long load; } sink[16]; };
struct output { unsigned char chosen[16]; };
{
    int n = get_attribute(copies);
    for (int k = 0; k < n; k++) {
        int best = -1;
        for (int i = 0; i < input.sinks; i++)
            if (!output.chosen[i] && (best < 0 || input.sink[i].load < input.sink[best].load)) best = i;
        if (best >= 0) output.chosen[best] = 1;
    }
    return n;
}
";

/// The options of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Requests per second at the first server.
    pub rate: f64,
    /// Number of servers to which a request that waits too long is forwarded. 0: requests are not forwarded.
    pub copies: u32,
    /// Load reports per second of each server.
    pub updates: f64,
    /// The server that begins to serve a copy cancels the other copies.
    pub cancel: bool,
    /// Virtual seconds.
    pub seconds: u64,
    /// Seed of all random values.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { rate: 40.0, copies: 1, updates: 1.0, cancel: false, seconds: 60, seed: 1 }
    }
}

/// The result of the experiment. Times are in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Requests per second.
    pub rate: f64,
    /// Copies of each forwarded request.
    pub copies: u32,
    /// Load reports per second of each server.
    pub updates: f64,
    /// Mean response time of requests served by the first server.
    pub local_ms: f64,
    /// Mean response time of requests served by other servers.
    pub remote_ms: f64,
    /// Requests served by the first server.
    pub local: u64,
    /// Requests served by other servers.
    pub remote: u64,
    /// Requests abandoned after 5 s.
    pub timed_out: u64,
    /// Answers that arrived after the first answer to their request.
    pub duplicates: u64,
    /// Copies that were cancelled before they were served.
    pub cancelled: u64,
    /// Copies that were served.
    pub copies_served: u64,
    /// Number of sent events, including load reports.
    pub events: u64,
    /// Real time that the node of the first server used.
    pub overhead: Overhead,
}

/// Real time of this machine in µs per virtual second, without the longest hundredth of all calls. Does not
/// include the engine below the node. The values differ from run to run even with the same seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Overhead {
    /// Handling load reports of other servers, answers and cancellations that arrived.
    pub heard_us: f64,
    /// Reporting its own load.
    pub said_us: f64,
    /// Forwarding requests, including the filter that chooses the servers.
    pub forwarded_us: f64,
}

struct Server {
    options: Options,
    first: bool,
    rng: ChaCha8Rng,
    channel: ChannelId,
    ends: Option<(SourceId, SinkId)>,
    waiting: VecDeque<u64>,
    /// Requests of other servers: host and number.
    copies: VecDeque<(Name, u64)>,
    serving: Option<Work>,
    arrived: BTreeMap<u64, Instant>,
    answers: Answers,
    /// Time worked since the last load report.
    worked: Nanos,
    next_id: u64,
    result: Rc<RefCell<Outcome>>,
    sums: (f64, f64),
    spent: Spent,
}

/// Real time of each load report and of each sent event.
type Spent = Rc<RefCell<[Vec<Duration>; 2]>>;

const LOAD_REPORTS: usize = 0;
const SENT_EVENTS: usize = 1;

enum Work {
    Own(u64),
    Copy(Name, u64),
}

/// Timer tags.
const OPEN: u64 = 0;
const ARRIVAL: u64 = 1;
const DONE: u64 = 2;
const LOAD: u64 = 3;
const LOOK: u64 = 4;

fn spec() -> Spec {
    let id = Field { name: "id".into(), offset: 0, kind: Kind::Scalar(Scalar::U64), dims: Vec::new() };
    let event =
        |name: &str| EventType { format: Format { name: name.into(), size: 8, align: 8, fields: vec![id.clone()] } };
    Spec { types: vec![event("request"), event("answer")], ..Spec::default() }
}

impl Server {
    fn open(&mut self, here: &mut HostContext<'_>) {
        let (channel, first) = (&self.channel, self.first);
        let sink = SinkSpec::default();
        let ends = here.with(|node, now| {
            if first {
                node.create(channel, spec(), now)?
            } else {
                node.open(channel, now)?
            };
            Ok::<_, qfabric_channel::Error>((
                node.source_subscribe(channel, SourceSpec::default(), now)?,
                node.sink_subscribe(channel, sink, now)?,
            ))
        });
        let Ok(ends) = ends else { return here.after(Nanos::from_millis(100), OPEN) };
        self.ends = Some(ends);
        self.report_load(here);
        if self.first {
            self.install(here);
            here.after(Nanos::from_millis(1_000), ARRIVAL);
            here.after(Nanos::from_millis(10), LOOK);
        }
    }

    /// Adds the controller that `qfabric policy start balance` starts.
    fn manage(&self, here: &mut HostContext<'_>) {
        let balance = Balance::new(&quality(&self.channel), PATIENCE, MOST);
        let balance = if self.options.cancel { balance.cancelling() } else { balance };
        if self.options.copies > 0 {
            here.manager(|manager, _| manager.add(Box::new(balance)));
        }
    }

    /// Reports the fate of a request to the manager.
    fn report(&self, attribute: &str, id: u64, here: &mut HostContext<'_>) {
        let reading = Reading {
            attribute: AttributeId::of(attribute),
            application: SERVER,
            value: id.cast_signed(),
            at: here.now,
            over: Nanos::ZERO,
            cause: Cause::Poll,
            unit: Unit::Count,
        };
        // The channel `none` has no members, so only the controllers of this host receive the reading.
        here.report(&reading, attribute, Some(&data("none")), &Recipient::All);
    }

    fn install(&self, here: &mut HostContext<'_>) {
        let name = "least-loaded".parse().expect("a name");
        let id = FilterId { channel: self.channel.clone(), direction: Direction::Out, name };
        let copies = ("copies".parse().expect("a key"), self.options.copies.into());
        let (types, text) = (vec!["request".to_owned()], LEAST_LOADED.to_owned());
        let filter = FilterSpec { id, sink: None, types, text, parameters: vec![copies] };
        here.with(|node, _| node.install(&filter)).expect("a filter that compiles");
    }

    /// Publishes the load as an attribute of the sink, so that the filters of other servers can read it.
    fn report_load(&mut self, here: &mut HostContext<'_>) {
        let period = Nanos::from_f64(1e9 / self.options.updates);
        let busy = self.worked.as_f64() / period.as_f64() * 1e3;
        let queue = (self.waiting.len() + self.copies.len()) as f64 * 1e3;
        let load = if self.first { i64::MAX } else { (busy + queue) as i64 };
        self.worked = Nanos::ZERO;
        if let Some((_, sink)) = self.ends {
            let key = "load".parse().expect("a key");
            let begun = std::time::Instant::now();
            let result = here.with(|node, now| node.set_sink_attribute(sink, key, Some(load), now));
            result.expect("the sink belongs to this host");
            self.spend(LOAD_REPORTS, begun);
            self.result.borrow_mut().events += (SERVERS - 1) as u64;
        }
        here.after(period, LOAD);
    }

    fn send(&mut self, event_type: u16, id: u64, target: Target<'_>, here: &mut HostContext<'_>) {
        let Some((source, _)) = self.ends else { return };
        let payload = id.to_le_bytes();
        let event = Submission { event_type, target, payload: &payload, ..Submission::default() };
        let begun = std::time::Instant::now();
        let sent = here.with(|node, now| node.submit(source, &event, now));
        self.spend(SENT_EVENTS, begun);
        self.result.borrow_mut().events += sent.map_or(0, |sent| u64::from(sent.remote));
    }

    /// Records the real time, but only for the first server.
    fn spend(&self, what: usize, begun: std::time::Instant) {
        if self.first {
            self.spent.borrow_mut()[what].push(begun.elapsed());
        }
    }

    fn arrive(&mut self, here: &mut HostContext<'_>) {
        self.next_id += 1;
        self.arrived.insert(self.next_id, here.now);
        if self.waiting.len() < MOST {
            self.waiting.push_back(self.next_id);
            self.report(WAITS, self.next_id, here);
        }
        let gap = -(1.0 - self.rng.random::<f64>()).ln() / self.options.rate;
        here.after(Nanos::from_f64(gap * 1e9), ARRIVAL);
        self.work(here);
    }

    /// Forwards a request that has waited too long.
    fn forward(&mut self, id: u64, here: &mut HostContext<'_>) {
        self.waiting.retain(|waiting| *waiting != id);
        self.send(REQUEST, id, Target::All, here);
    }

    /// Abandons the requests that were not answered in time.
    fn look(&mut self, here: &mut HostContext<'_>) {
        let late: Vec<u64> =
            self.arrived.iter().filter(|(_, at)| here.now.since(**at) >= TIMEOUT).map(|(id, _)| *id).collect();
        for id in late {
            self.arrived.remove(&id);
            if let Some(at) = self.waiting.iter().position(|waiting| *waiting == id) {
                self.waiting.remove(at);
                self.report(BEGUN, id, here);
            }
            self.result.borrow_mut().timed_out += 1;
        }
        here.after(Nanos::from_millis(10), LOOK);
    }

    fn work(&mut self, here: &mut HostContext<'_>) {
        if self.serving.is_some() {
            return;
        }
        let copy = self.copies.pop_front().map(|(host, id)| Work::Copy(host, id));
        self.serving = copy.or_else(|| self.waiting.pop_front().map(Work::Own));
        let (is_copy, id) = match &self.serving {
            Some(Work::Copy(_, id)) => (true, *id),
            Some(Work::Own(id)) => (false, *id),
            None => return,
        };
        self.report(BEGUN, id, here);
        if is_copy && self.options.cancel {
            // The other servers receive a cancellation.
            self.result.borrow_mut().events += (SERVERS - 1) as u64;
        }
        here.after(SERVICE, DONE);
    }

    fn done(&mut self, here: &mut HostContext<'_>) {
        self.worked += SERVICE;
        match self.serving.take() {
            Some(Work::Own(id)) => self.served(id, true, here.now),
            Some(Work::Copy(host, id)) => {
                self.result.borrow_mut().copies_served += 1;
                self.send(ANSWER, id, Target::Host(&host), here);
            }
            None => {}
        }
        self.work(here);
    }

    fn served(&mut self, id: u64, local: bool, now: Instant) {
        let Some(at) = self.arrived.remove(&id) else { return };
        let took = now.since(at).as_f64() / 1e6;
        let mut result = self.result.borrow_mut();
        if local {
            result.local += 1;
            self.sums.0 += took;
            result.local_ms = self.sums.0 / result.local as f64;
        } else {
            result.remote += 1;
            self.sums.1 += took;
            result.remote_ms = self.sums.1 / result.remote as f64;
        }
    }
}

impl App for Server {
    fn start(&mut self, here: &mut HostContext<'_>) {
        self.manage(here);
        here.after(Nanos::from_millis(if self.first { 1 } else { 200 }), OPEN);
    }

    fn event(&mut self, event: &ReceivedEvent, here: &mut HostContext<'_>) {
        let Some(id) = event.payload.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else { return };
        match event.event_type {
            REQUEST if !self.first => {
                self.copies.push_back((event.host.clone(), id));
                self.report(COPY, id, here);
                self.work(here);
            }
            ANSWER if self.answers.first(id) => self.served(id, false, here.now),
            ANSWER => self.result.borrow_mut().duplicates += 1,
            _ => {}
        }
    }

    fn applied(&mut self, _application: AppId, attribute: AttributeId, amount: i64, here: &mut HostContext<'_>) {
        let id = amount.cast_unsigned();
        if attribute == AttributeId::of(FORWARD) {
            self.forward(id, here);
        } else if attribute == AttributeId::of(DROP) {
            let before = self.copies.len();
            self.copies.retain(|(_, waiting)| *waiting != id);
            self.result.borrow_mut().cancelled += (before - self.copies.len()) as u64;
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        match tag {
            OPEN => self.open(here),
            ARRIVAL => self.arrive(here),
            DONE => self.done(here),
            LOAD => self.report_load(here),
            _ => self.look(here),
        }
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let mut fabric = Fabric::new(Settings { seed: options.seed, ..Settings::default() });
    let (result, spent) = (Rc::new(RefCell::new(Outcome::default())), Spent::default());
    for number in 0..SERVERS {
        let server = Server {
            options: *options,
            first: number == 0,
            rng: ChaCha8Rng::seed_from_u64(options.seed ^ 0xba1a),
            channel: data("requests"),
            ends: None,
            waiting: VecDeque::new(),
            copies: VecDeque::new(),
            serving: None,
            arrived: BTreeMap::new(),
            answers: Answers::new(MOST),
            worked: Nanos::ZERO,
            next_id: 0,
            result: result.clone(),
            sums: (0.0, 0.0),
            spent: spent.clone(),
        };
        fabric.add(&format!("server{number}"), Box::new(server));
    }
    fabric.measure(0);
    fabric.run_for(Nanos::from_millis(1_000 * options.seconds));
    let Options { rate, copies, updates, seconds, .. } = *options;
    let per_second = |calls: &[Duration]| usual(calls).as_secs_f64() * 1e6 / seconds as f64;
    let spent = spent.borrow();
    let overhead = Overhead {
        heard_us: per_second(fabric.spent(0)),
        said_us: per_second(&spent[LOAD_REPORTS]),
        forwarded_us: per_second(&spent[SENT_EVENTS]),
    };
    Outcome { rate, copies, updates, overhead, ..*result.borrow() }
}

/// The sum of all calls without the longest hundredth, during which other programs probably used the processor.
fn usual(calls: &[Duration]) -> Duration {
    let mut sorted = calls.to_vec();
    sorted.sort_unstable();
    sorted[..calls.len() - calls.len().div_ceil(100)].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_requests_that_wait_too_long_prevents_time_outs() {
        let alone = run(&Options { copies: 0, ..Options::default() });
        let balanced = run(&Options::default());
        assert!(alone.timed_out > 200 && alone.local_ms > 3_000.0, "{alone:?}");
        assert!(balanced.timed_out == 0 && balanced.remote > 100, "{balanced:?}");
        assert!(balanced.local_ms < 2_600.0 && balanced.remote_ms < 3_000.0, "{balanced:?}");
    }

    #[test]
    fn below_saturation_nothing_is_forwarded() {
        let outcome = run(&Options { rate: 20.0, ..Options::default() });
        assert!(outcome.remote == 0 && outcome.local_ms < 200.0, "{outcome:?}");
    }

    #[test]
    fn only_the_first_answer_counts_and_cancelling_saves_work() {
        let copies = run(&Options { copies: 3, ..Options::default() });
        let cancelled = run(&Options { copies: 3, cancel: true, ..Options::default() });
        assert!(copies.duplicates >= copies.remote, "{copies:?}");
        assert!(cancelled.timed_out == 0 && cancelled.events > copies.events, "{cancelled:?}");
    }
}
