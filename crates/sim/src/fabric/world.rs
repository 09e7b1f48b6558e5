//! Hosts, what happens to them, and in which order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::time::Duration;

use qfabric_channel::{Config, Incarnation, Lane, Node, To};
use qfabric_host::manager::Member;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::app::{Happened, Outgoing, Todo};
use super::clock::Clock;
use super::network::{Lost, Network};
use super::{App, Here, Settings};

/// Which host: its place in the order of their coming.
pub type HostId = usize;

/// How long after a way is whole again hosts find each other.
const RECONNECT: Nanos = Nanos::from_millis(200);

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Frames sent, one for each receiver.
    pub frames: u64,
    /// Of them of the data lane.
    pub data_frames: u64,
    /// Dropped at a full uplink.
    pub full: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Sent where there was no way.
    pub cut: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Steps of the simulation.
    pub steps: u64,
}

enum ChangeKind {
    Frame {
        from: HostId,
        lane: Lane,
        frame: Rc<[u8]>,
        connection: (Incarnation, Incarnation),
    },
    Wake,
    Timer {
        tag: u64,
        incarnation: Incarnation,
    },
    /// Look whether the other is there.
    Look {
        other: HostId,
    },
}

struct Planned {
    at: Instant,
    order: u64,
    host: HostId,
    what: ChangeKind,
}

impl Planned {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

struct Host {
    name: Name,
    incarnation: Incarnation,
    clock: Clock,
    alive: bool,
    member: Member,
    todo: Todo,
    app: Box<dyn App>,
    /// Whom it has been told of, and which start of it.
    sees: BTreeMap<HostId, Incarnation>,
    /// The earliest wake-up that is planned.
    woken_at: Instant,
    /// When it was woken last, and how often at that moment.
    wakes: (Instant, u32),
    /// Real time that its node took for each frame that arrived, where it is measured.
    spent: Option<Vec<Duration>>,
}

/// Who wants to be woken again at once for the thousandth time will never be content.
const MOST_WAKES: u32 = 1_000;

/// The made-up network with its hosts.
pub struct Fabric {
    now: Instant,
    order: u64,
    planned: BinaryHeap<Reverse<Planned>>,
    hosts: Vec<Host>,
    names: BTreeMap<Name, HostId>,
    network: Network,
    settings: Settings,
    rng: ChaCha8Rng,
    counts: Counts,
}

impl Fabric {
    /// Without hosts.
    pub fn new(settings: Settings) -> Fabric {
        Fabric {
            now: Instant::ZERO,
            order: 0,
            planned: BinaryHeap::new(),
            hosts: Vec::new(),
            names: BTreeMap::new(),
            network: Network::new(settings),
            settings,
            rng: ChaCha8Rng::seed_from_u64(settings.seed),
            counts: Counts::default(),
        }
    }

    /// Starts a host. Its name must not be taken.
    pub fn add(&mut self, name: &str, app: Box<dyn App>) -> HostId {
        self.add_with(name, app, |_| {})
    }

    /// Starts a host whose configuration differs.
    pub fn add_with(&mut self, name: &str, app: Box<dyn App>, configure: impl FnOnce(&mut Config)) -> HostId {
        let name: Name = name.parse().expect("a host's name");
        let id = self.hosts.len();
        assert!(self.names.insert(name.clone(), id).is_none(), "two hosts of the name {name}");
        let drift = self.rng.random_range(-self.settings.drift_ppm..=self.settings.drift_ppm);
        let clock = Clock::new(self.rng.random_range(0..=self.settings.offset.get()), drift);
        let (incarnation, member) = self.member(&name, &clock, configure);
        let (todo, sees, woken_at, wakes) = (Todo::default(), BTreeMap::new(), Instant::NEVER, (Instant::ZERO, 0));
        let (alive, spent) = (true, None);
        self.hosts.push(Host { name, incarnation, clock, alive, member, todo, app, sees, woken_at, wakes, spent });
        self.network.add_host();
        self.begin(id);
        id
    }

    fn member(&mut self, name: &Name, clock: &Clock, configure: impl FnOnce(&mut Config)) -> (Incarnation, Member) {
        let seconds = (self.now.get() / 1_000_000_000) as u32;
        let incarnation = Incarnation::new(seconds, self.rng.random());
        let mut config = Config::new(name.clone(), incarnation);
        // Wall clocks agree but for their drift; what a host's own clock counts from is its own affair.
        let shown = clock.shows(self.now);
        config.unix_offset_ns = (1_700_000_000_000_000_000 + self.now.get()).wrapping_sub(shown.get());
        configure(&mut config);
        (incarnation, Member::new(config, shown))
    }

    fn begin(&mut self, id: HostId) {
        for other in (0..self.hosts.len()).filter(|other| *other != id) {
            self.look_after(id, other, self.settings.delay);
        }
        self.act(id, |app, here| app.start(here));
    }

    /// Ends a host as `kill -9` does.
    pub fn kill(&mut self, id: HostId) {
        self.hosts[id].alive = false;
        for other in (0..self.hosts.len()).filter(|other| *other != id) {
            self.look_after(id, other, self.settings.closed);
        }
    }

    /// Starts a killed host anew: nothing of what it was is left but its name and its clock.
    pub fn restart(&mut self, id: HostId, app: Box<dyn App>) {
        assert!(!self.hosts[id].alive, "{} runs", self.hosts[id].name);
        let (name, clock) = (self.hosts[id].name.clone(), self.hosts[id].clock);
        let (incarnation, member) = self.member(&name, &clock, |_| {});
        let host = &mut self.hosts[id];
        (host.incarnation, host.member, host.app, host.alive) = (incarnation, member, app, true);
        (host.todo, host.woken_at) = (Todo::default(), Instant::NEVER);
        host.sees.clear();
        self.begin(id);
    }

    /// Cuts the way between two hosts, or heals it.
    pub fn set_cut(&mut self, a: HostId, b: HostId, cut: bool) {
        if self.network.is_cut(a, b) == cut {
            return;
        }
        self.network.set_cut(a, b, cut);
        self.look_after(a, b, if cut { self.settings.lease } else { RECONNECT });
    }

    /// Both look whether the other is there.
    fn look_after(&mut self, a: HostId, b: HostId, time: Nanos) {
        let at = self.now + time;
        self.plan(at, a, ChangeKind::Look { other: b });
        self.plan(at, b, ChangeKind::Look { other: a });
    }

    /// What is left of a host's uplink for its frames, in bits per second.
    pub fn set_bandwidth(&mut self, host: HostId, bandwidth: f64) {
        self.network.set_bandwidth(host, bandwidth);
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many hosts there are, dead ones included.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Whether a host runs.
    pub fn is_alive(&self, id: HostId) -> bool {
        self.hosts[id].alive
    }

    /// A host's name.
    pub fn name(&self, id: HostId) -> &Name {
        &self.hosts[id].name
    }

    /// A host's member, to look at.
    pub fn member_of(&self, id: HostId) -> &Member {
        &self.hosts[id].member
    }

    /// From now on the real time is measured that a host takes for what arrives: the one thing that no seed repeats.
    pub fn measure(&mut self, id: HostId) {
        self.hosts[id].spent = Some(Vec::new());
    }

    /// The real time that a host took for each frame that arrived since [`Fabric::measure`].
    pub fn spent(&self, id: HostId) -> &[Duration] {
        self.hosts[id].spent.as_deref().unwrap_or_default()
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Does something on a host as its application would. A dead host does nothing.
    pub fn on<R>(&mut self, id: HostId, act: impl FnOnce(&mut Here<'_>) -> R) -> R {
        self.act(id, |_, here| act(here))
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Nanos) {
        self.run_until(self.now + time);
    }

    /// Lets time pass until then.
    pub fn run_until(&mut self, until: Instant) {
        while self.planned.peek().is_some_and(|Reverse(next)| next.at <= until) {
            let Some(Reverse(planned)) = self.planned.pop() else { break };
            self.now = planned.at;
            self.counts.steps += 1;
            self.step(planned);
        }
        self.now = self.now.max(until);
    }

    fn plan(&mut self, at: Instant, host: HostId, what: ChangeKind) {
        self.order += 1;
        self.planned.push(Reverse(Planned { at, order: self.order, host, what }));
    }

    fn step(&mut self, planned: Planned) {
        let id = planned.host;
        if !self.hosts[id].alive {
            return;
        }
        match planned.what {
            ChangeKind::Frame { from, lane, frame, connection } => {
                if connection == (self.hosts[from].incarnation, self.hosts[id].incarnation) {
                    let name = self.hosts[from].name.clone();
                    let begun = self.hosts[id].spent.is_some().then(std::time::Instant::now);
                    self.node(id, |node, now| node.arrive(&name, lane, &frame, now));
                    if let (Some(begun), Some(spent)) = (begun, &mut self.hosts[id].spent) {
                        spent.push(begun.elapsed());
                    }
                }
            }
            ChangeKind::Wake if self.hosts[id].woken_at == planned.at => {
                self.woken(id);
                self.act(id, |_, here| {
                    let now = here.now;
                    here.call(|member| member.wake(now))
                });
            }
            ChangeKind::Timer { tag, incarnation } if incarnation == self.hosts[id].incarnation => {
                self.act(id, |app, here| app.timer(tag, here));
            }
            ChangeKind::Look { other } => self.look(id, other),
            ChangeKind::Wake | ChangeKind::Timer { .. } => {}
        }
    }

    fn woken(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        host.woken_at = Instant::NEVER;
        let before = if host.wakes.0 == self.now { host.wakes.1 } else { 0 };
        host.wakes = (self.now, before + 1);
        assert!(before < MOST_WAKES, "{} wants to be woken at {:?} again and again", host.name, self.now);
    }

    fn node(&mut self, id: HostId, act: impl FnOnce(&mut Node, Instant)) {
        self.act(id, |_, here| here.with(act));
    }

    fn look(&mut self, id: HostId, other: HostId) {
        let there = self.hosts[other].alive && !self.network.is_cut(id, other);
        let (name, incarnation) = (self.hosts[other].name.clone(), self.hosts[other].incarnation);
        let seen = self.hosts[id].sees.get(&other).copied();
        if seen.is_some() && seen != Some(incarnation).filter(|_| there) {
            self.hosts[id].sees.remove(&other);
            self.node(id, |node, now| node.vanished(&name, now));
        }
        if there && seen != Some(incarnation) {
            self.hosts[id].sees.insert(other, incarnation);
            self.node(id, |node, now| node.appeared(&name, now));
        }
    }

    /// Does something on a host, tells the application what came of it, sends what is to be sent.
    fn act<R>(&mut self, id: HostId, act: impl FnOnce(&mut dyn App, &mut Here<'_>) -> R) -> R {
        let host = &mut self.hosts[id];
        let now = host.clock.shows(self.now);
        let mut here = Here { now, truth: self.now, member: &mut host.member, todo: &mut host.todo };
        let result = act(host.app.as_mut(), &mut here);
        while let Some(happened) = here.todo.happened.pop_front() {
            match happened {
                Happened::Ready(sink) => host.app.ready(sink, &mut here),
                Happened::Applied(app, attribute, amount) => host.app.applied(app, attribute, amount, &mut here),
                Happened::Answered(request, outcome) => host.app.answered(request, &outcome, &mut here),
                Happened::Notice(notice) => host.app.noticed(&notice, &mut here),
            }
        }
        self.flush(id);
        result
    }

    fn flush(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        let (incarnation, clock) = (host.incarnation, host.clock);
        let outgoing = std::mem::take(&mut host.todo.outgoing);
        let timers = std::mem::take(&mut host.todo.timers);
        for (at, tag) in timers {
            let at = clock.when(at).max(self.now);
            self.plan(at, id, ChangeKind::Timer { tag, incarnation });
        }
        outgoing.into_iter().for_each(|outgoing| self.send(id, outgoing));
        self.plan_wake(id);
    }

    fn plan_wake(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        let Some(at) = host.member.next_wakeup() else { return };
        let at = host.clock.when(at).max(self.now);
        if at < host.woken_at {
            host.woken_at = at;
            self.plan(at, id, ChangeKind::Wake);
        }
    }

    fn send(&mut self, from: HostId, outgoing: Outgoing) {
        let Outgoing { to, lane, frame } = outgoing;
        match to {
            To::Host(name) => {
                if let Some(to) = self.names.get(&name).copied() {
                    self.send_one(from, to, lane, &frame);
                }
            }
            To::Everyone => (0..self.hosts.len()).for_each(|to| self.send_one(from, to, lane, &frame)),
            To::Channel(channel) => {
                for to in 0..self.hosts.len() {
                    if self.hosts[to].todo.listens.contains(&channel) {
                        self.send_one(from, to, lane, &frame);
                    }
                }
            }
        }
    }

    /// Only to who is taken for there: a connection is what presence is about.
    fn send_one(&mut self, from: HostId, to: HostId, lane: Lane, frame: &Rc<[u8]>) {
        let there = self.hosts[to].incarnation;
        if from == to || self.hosts[from].sees.get(&to) != Some(&there) {
            return;
        }
        self.counts.frames += 1;
        self.counts.data_frames += u64::from(lane == Lane::Data);
        self.counts.bytes += frame.len() as u64;
        match self.network.send((from, to), lane, frame.len(), self.now, &mut self.rng) {
            Ok(at) => {
                let connection = (self.hosts[from].incarnation, there);
                self.plan(at, to, ChangeKind::Frame { from, lane, frame: frame.clone(), connection });
            }
            Err(Lost::Full) => self.counts.full += 1,
            Err(Lost::Way) => self.counts.lost += 1,
            Err(Lost::Cut) => self.counts.cut += 1,
        }
    }
}
