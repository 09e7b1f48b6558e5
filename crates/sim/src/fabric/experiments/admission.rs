//! Admission over several hosts. If the broker of one host refuses an application, its manager asks the managers
//! of the other hosts. Hosts with enough capacity hold it; one offer is accepted and the others are cancelled. The
//! application then starts on the chosen host, under that host's own broker.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use qfabric_channel::{EventType, SinkSpec, SourceId, SourceSpec, Spec, Submission, Target};
use qfabric_host::manager::{Ask, Lending, Outcome as Answer};
use qfabric_host::{Host, HostConfig, Input, Limits, Outcome as Carried, Output};
use qfabric_types::api::ApplicationScope;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, BitRate, Bytes, Class, Contract, Nanos, Owner, Share, ThreadId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::{App, Fabric, HostContext, ReceivedEvent, Settings};
use super::{Curve, data, quality};

/// The rule for choosing an offer.
pub use qfabric_host::manager::Rule as Offer;

/// Number of hosts. Applications arrive at the first one.
const HOSTS: usize = 4;
/// Capacity of each host: one processor minus 5 %.
const ALL: Share = Share::from_ppm(950_000);
/// The attribute requested from other hosts.
const CPU: AttributeId = AttributeId::of("cpu.guaranteed");
/// Range of the guaranteed share that an application requests, in millionths, and the mean of its lifetime in
/// seconds.
const WANTS: std::ops::Range<u32> = 150_000..350_000;
const STAYS: f64 = 10.0;
/// Fraction of the applications with an accepted offer that no longer want it.
const WITHDRAWN: f64 = 0.1;
/// Longest wait for offers of other hosts.
const PATIENCE: Nanos = Nanos::from_millis(500);

/// The options of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The rule for choosing an offer. `None`: no other host is asked.
    pub rule: Option<Offer>,
    /// Applications per second at the first host. Each requests a quarter of a processor for 10 s, in the mean.
    pub rate: f64,
    /// Virtual seconds in which applications arrive. Afterwards the simulation runs until all have ended.
    pub seconds: u64,
    /// Seed of all random values.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { rule: Some(Offer::First), rate: 1.0, seconds: 120, seed: 1 }
    }
}

/// The result of the experiment.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Outcome {
    /// Applications that arrived.
    pub came: u64,
    /// Applications admitted by the broker of their own host.
    pub here: u64,
    /// Applications refused by their own host and admitted by another host.
    pub elsewhere: u64,
    /// Applications that were promised capacity on another host but no longer wanted it.
    pub withdrawn: u64,
    /// Applications refused by all hosts.
    pub refused: u64,
    /// Applications refused by a host that had promised them capacity. Must be 0.
    pub broken: u64,
    /// Largest sum of guaranteed and lent capacity of a host, divided by its capacity.
    pub most: f64,
    /// Capacity that is still guaranteed or lent after all applications have ended, in millionths of a processor.
    /// Must be 0.
    pub left_over: u64,
    /// Guaranteed capacity of each host over time, in processors.
    pub curves: Vec<Curve>,
}

/// A host with its broker.
struct Site {
    options: Options,
    first: bool,
    channel: ChannelId,
    rng: ChaCha8Rng,
    host: Host,
    lending: Lending,
    source: Option<SourceId>,
    next: u64,
    /// Applications that this host refused: requested share and lifetime, by request.
    waiting: BTreeMap<u64, (Share, Nanos)>,
    running: BTreeMap<u64, AppId>,
    result: Rc<RefCell<Outcome>>,
    /// Guaranteed and lent capacity, in millionths.
    books: Rc<RefCell<(u32, u32)>>,
    until: qfabric_types::Instant,
}

/// Timer tags. Larger tags are `ENDS` plus the number of the ending application.
const OPEN: u64 = 0;
const ARRIVAL: u64 = 1;
const LOOK: u64 = 2;
const ENDS: u64 = 3;

/// `struct begin { unsigned long request, share_ppm, stays_ns; };`
fn spec() -> Spec {
    let field = |(at, name): (u32, &str)| {
        let (kind, dims) = (Kind::Scalar(Scalar::U64), Vec::new());
        Field { name: name.into(), offset: 8 * at, kind, dims }
    };
    let fields = [(0, "request"), (1, "share_ppm"), (2, "stays_ns")].map(field).to_vec();
    Spec {
        types: vec![EventType { format: Format { name: "begin".into(), size: 24, align: 8, fields } }],
        ..Spec::default()
    }
}

impl Site {
    fn open(&mut self, here: &mut HostContext<'_>) {
        let (channel, first) = (&self.channel, self.first);
        let sink = SinkSpec::default();
        let source = here.with(|node, now| {
            if first {
                node.create(channel, spec(), now)?
            } else {
                node.open(channel, now)?
            };
            node.sink_subscribe(channel, sink, now)?;
            node.source_subscribe(channel, SourceSpec::default(), now)
        });
        let Ok(source) = source else { return here.after(Nanos::from_millis(100), OPEN) };
        self.source = Some(source);
        self.until = here.now + Nanos::from_millis(1_000 * self.options.seconds);
        if self.first {
            here.after(Nanos::from_millis(1_000), ARRIVAL);
        }
        self.look(here);
    }

    /// Synchronises the books of the broker and the manager.
    fn settle(&mut self, here: &mut HostContext<'_>) {
        let (host, lending) = (&mut self.host, &mut self.lending);
        here.manager(|manager, now| lending.settle(host, manager, now));
        self.drain(here);
        let (guaranteed, lent) = (self.host.guaranteed().ppm(), self.lending.lent().ppm());
        *self.books.borrow_mut() = (guaranteed, lent);
        let most = f64::from(guaranteed + lent) / f64::from(ALL.ppm());
        let mut result = self.result.borrow_mut();
        result.most = result.most.max(most);
    }

    /// Carries out the broker's outputs. Returns its answer to an admission, if there is one.
    fn drain(&mut self, here: &HostContext<'_>) -> Option<Result<AppId, String>> {
        let mut answer = None;
        while let Some(output) = self.host.poll() {
            match output {
                Output::Set(setting) => {
                    let (thread, outcome) = (setting.thread, Carried::Done);
                    self.host.handle(Input::Applied { thread, outcome }, here.now);
                }
                Output::Admitted { app, .. } => answer = Some(Ok(app)),
                Output::Refused { problem, .. } => answer = Some(Err(problem.code)),
                _ => {}
            }
        }
        answer
    }

    /// Requests admission from the broker of this host.
    fn admit(&mut self, share: Share, stays: Nanos, here: &mut HostContext<'_>) -> Result<(), String> {
        self.settle(here);
        self.next += 1;
        let (request, thread) = (self.next, ThreadId(self.next as i32));
        let period = Nanos::from_millis(40);
        let contract = Contract {
            class: Class::A,
            guaranteed: Some(share),
            max_bandwidth: share,
            server_period: period,
            ..Contract::new("player", period)
        };
        let owner = Owner { uid: 1_000, gid: 1_000 };
        let (pid, covers, threads) = (thread.0, ApplicationScope::Thread(thread), vec![thread]);
        self.host.handle(Input::Join { request, pid, owner, covers, threads, contract, cpus: None }, here.now);
        let app = self.drain(here).expect("every request is answered")?;
        self.running.insert(request, app);
        here.after(stays, ENDS + request);
        self.settle(here);
        Ok(())
    }

    fn arrive(&mut self, here: &mut HostContext<'_>) {
        if here.now >= self.until {
            return;
        }
        let exponential = |rng: &mut ChaCha8Rng, mean: f64| -(1.0 - rng.random::<f64>()).ln() * mean;
        let gap = exponential(&mut self.rng, 1.0 / self.options.rate);
        here.after(Nanos::from_f64(gap * 1e9), ARRIVAL);
        let share = Share::from_ppm(self.rng.random_range(WANTS));
        let stays = Nanos::from_f64(exponential(&mut self.rng, STAYS).clamp(0.1, 6.0 * STAYS) * 1e9);
        self.result.borrow_mut().came += 1;
        match self.admit(share, stays, here) {
            Ok(()) => self.result.borrow_mut().here += 1,
            Err(code) => self.forward(&code, share, stays, here),
        }
    }

    /// Forwards a request that this host lacks the capacity for. Other refusals would be the same on every host.
    fn forward(&mut self, code: &str, share: Share, stays: Nanos, here: &mut HostContext<'_>) {
        let Some(rule) = self.options.rule.filter(|_| code == "over_committed") else {
            self.result.borrow_mut().refused += 1;
            return;
        };
        let (request, amount, patience) = (self.next, share.ppm().into(), PATIENCE);
        self.waiting.insert(request, (share, stays));
        let (channel, memory, hold) = (quality(&self.channel), Bytes::ZERO, Nanos::ZERO);
        let rate = BitRate::ZERO;
        let ask = Ask { request, channel, attribute: CPU, amount, memory, rate, rule, patience, hold };
        here.manager(|manager, now| manager.ask(ask, now));
    }

    /// Another host has promised the capacity: the application goes there, or no longer wants it.
    fn promised(&mut self, giver: &Name, request: u64, (share, stays): (Share, Nanos), here: &mut HostContext<'_>) {
        if self.rng.random::<f64>() < WITHDRAWN {
            self.result.borrow_mut().withdrawn += 1;
            let channel = quality(&self.channel);
            return here.manager(|manager, now| manager.give_back((&channel, giver), CPU, request, now));
        }
        let payload: Vec<u8> =
            [request, share.ppm().into(), stays.get()].iter().flat_map(|word| word.to_le_bytes()).collect();
        let event = Submission { target: Target::Host(giver), payload: &payload, ..Submission::default() };
        let source = self.source.expect("open");
        let sent = here.with(|node, now| node.submit(source, &event, now));
        sent.expect("the lender is reachable");
    }

    fn look(&mut self, here: &mut HostContext<'_>) {
        self.settle(here);
        here.after(Nanos::from_millis(100), LOOK);
    }

    fn end(&mut self, request: u64, here: &mut HostContext<'_>) {
        if let Some(app) = self.running.remove(&request) {
            self.host.handle(Input::Leave { app }, here.now);
            self.settle(here);
        }
    }
}

impl App for Site {
    fn start(&mut self, here: &mut HostContext<'_>) {
        here.after(Nanos::from_millis(if self.first { 1 } else { 200 }), OPEN);
    }

    /// An application arrives to which this host has promised capacity.
    fn event(&mut self, event: &ReceivedEvent, here: &mut HostContext<'_>) {
        let word = |at: usize| event.payload[8 * at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (request, share, stays) = (word(0), Share::from_ppm(word(1) as u32), Nanos::new(word(2)));
        let kept = here.manager(|manager, now| manager.redeem(&event.host, request, now));
        let admitted = kept.is_some() && self.admit(share, stays, here).is_ok();
        let mut result = self.result.borrow_mut();
        if admitted { result.elsewhere += 1 } else { result.broken += 1 }
    }

    fn answered(&mut self, request: u64, outcome: &Answer, here: &mut HostContext<'_>) {
        let Some(wanted) = self.waiting.remove(&request) else { return };
        match outcome {
            Answer::Met { host, .. } => self.promised(host, request, wanted, here),
            _ => self.result.borrow_mut().refused += 1,
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        match tag {
            OPEN => self.open(here),
            ARRIVAL => self.arrive(here),
            LOOK => self.look(here),
            ends => self.end(ends - ENDS, here),
        }
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let mut fabric = Fabric::new(Settings { seed: options.seed, ..Settings::default() });
    let result = Rc::new(RefCell::new(Outcome::default()));
    let books: Vec<_> = (0..HOSTS).map(|number| add_site(&mut fabric, number, options, &result)).collect();
    let mut curves: Vec<Curve> =
        (0..HOSTS).map(|number| Curve { name: format!("host {number}"), points: Vec::new() }).collect();
    for second in 1..=options.seconds {
        fabric.run_for(Nanos::from_millis(1_000));
        for (curve, books) in curves.iter_mut().zip(&books) {
            curve.points.push((second as f64, f64::from(books.borrow().0) / 1e6));
        }
    }
    // By then all applications have ended and all holds have expired.
    fabric.run_for(Nanos::from_f64(7.0 * STAYS * 1e9));
    let left_over = books.iter().map(|books| u64::from(books.borrow().0 + books.borrow().1)).sum();
    Outcome { left_over, curves, ..result.borrow().clone() }
}

fn add_site(
    fabric: &mut Fabric,
    number: usize,
    options: &Options,
    result: &Rc<RefCell<Outcome>>,
) -> Rc<RefCell<(u32, u32)>> {
    let books = Rc::new(RefCell::new((0, 0)));
    let limits = Limits::of_capacity(ALL);
    let site = Site {
        options: *options,
        first: number == 0,
        channel: data("pool"),
        rng: ChaCha8Rng::seed_from_u64(options.seed ^ 0xad31),
        host: Host::new(HostConfig { limits, ..HostConfig::default() }),
        lending: Lending::new(CPU, ALL),
        source: None,
        next: 0,
        waiting: BTreeMap::new(),
        running: BTreeMap::new(),
        result: result.clone(),
        books: books.clone(),
        until: qfabric_types::Instant::NEVER,
    };
    fabric.add(&format!("site{number}"), Box::new(site));
    books
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_admit_most_applications_that_one_host_refuses() {
        let alone = run(&Options { rule: None, ..Options::default() });
        assert!(alone.refused > alone.came / 3 && alone.elsewhere == 0, "{alone:?}");
        for rule in [Offer::First, Offer::BestOf(2), Offer::Nearest] {
            let together = run(&Options { rule: Some(rule), ..Options::default() });
            assert!(together.refused * 4 < alone.refused, "{rule:?}: {together:?}");
            assert!(together.elsewhere > 20 && together.withdrawn > 0, "{rule:?}: {together:?}");
        }
    }

    #[test]
    fn no_host_overcommits_breaks_a_promise_or_keeps_unused_capacity() {
        for (seed, rate) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
            for rule in [Offer::First, Offer::BestOf(3), Offer::Nearest] {
                let outcome = run(&Options { rule: Some(rule), rate, seconds: 60, seed });
                assert!(outcome.most <= 1.0, "{outcome:?}");
                assert_eq!((outcome.broken, outcome.left_over), (0, 0), "{outcome:?}");
                let ends = outcome.here + outcome.elsewhere + outcome.withdrawn + outcome.refused;
                assert_eq!(outcome.came, ends, "{outcome:?}");
            }
        }
    }
}
