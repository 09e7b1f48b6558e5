//! The hosts, and the queue of planned events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::time::Duration;

use qfabric_channel::{Config, Destination, Incarnation, Lane, Node};
use qfabric_host::manager::Member;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::app::{Notification, Outgoing, PendingOutputs};
use super::clock::Clock;
use super::network::{Lost, Network};
use super::{App, HostContext, Settings};

/// Index of a host, in the order of their creation.
pub type HostId = usize;

/// Time after the healing of a path until the hosts find each other again.
const RECONNECT: Nanos = Nanos::from_millis(200);

/// The counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Frames sent, counted once per receiver.
    pub frames: u64,
    /// Frames of the data lane among them.
    pub data_frames: u64,
    /// Frames dropped at a full uplink.
    pub full: u64,
    /// Frames lost on the path.
    pub lost: u64,
    /// Frames sent over a cut path.
    pub cut: u64,
    /// Bytes of all frames.
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
    /// Check whether the other host is present.
    CheckPresence {
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
    pending: PendingOutputs,
    app: Box<dyn App>,
    /// The hosts that this host sees, with their incarnations.
    sees: BTreeMap<HostId, Incarnation>,
    /// The earliest planned wake-up.
    woken_at: Instant,
    /// Time of the last wake-up, and number of wake-ups at that time.
    wakes: (Instant, u32),
    /// Real time that the node used for each received frame, if it is measured.
    spent: Option<Vec<Duration>>,
}

/// Largest number of wake-ups of a host at the same time; more means an endless loop.
const MOST_WAKES: u32 = 1_000;

/// The simulated network with its hosts.
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
    /// Creates a network without hosts.
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

    /// Starts a host. No other host may have its name.
    pub fn add(&mut self, name: &str, app: Box<dyn App>) -> HostId {
        self.add_with(name, app, |_| {})
    }

    /// Starts a host with a changed configuration.
    pub fn add_with(&mut self, name: &str, app: Box<dyn App>, configure: impl FnOnce(&mut Config)) -> HostId {
        let name: Name = name.parse().expect("a host's name");
        let id = self.hosts.len();
        assert!(self.names.insert(name.clone(), id).is_none(), "two hosts have the name {name}");
        let drift = self.rng.random_range(-self.settings.drift_ppm..=self.settings.drift_ppm);
        let clock = Clock::new(self.rng.random_range(0..=self.settings.offset.get()), drift);
        let (incarnation, member) = self.member(&name, &clock, configure);
        let (pending, sees, woken_at, wakes) =
            (PendingOutputs::default(), BTreeMap::new(), Instant::NEVER, (Instant::ZERO, 0));
        let (alive, spent) = (true, None);
        self.hosts.push(Host { name, incarnation, clock, alive, member, pending, app, sees, woken_at, wakes, spent });
        self.network.add_host();
        self.begin(id);
        id
    }

    fn member(&mut self, name: &Name, clock: &Clock, configure: impl FnOnce(&mut Config)) -> (Incarnation, Member) {
        let seconds = (self.now.get() / 1_000_000_000) as u32;
        let incarnation = Incarnation::new(seconds, self.rng.random());
        let mut config = Config::new(name.clone(), incarnation);
        // Wall clocks agree except for their drift, although each host's own clock starts at a different value.
        let shown = clock.shows(self.now);
        config.unix_offset_ns = (1_700_000_000_000_000_000 + self.now.get()).wrapping_sub(shown.get());
        configure(&mut config);
        (incarnation, Member::new(config, shown))
    }

    fn begin(&mut self, id: HostId) {
        for other in (0..self.hosts.len()).filter(|other| *other != id) {
            self.plan_presence_check(id, other, self.settings.delay);
        }
        self.act(id, |app, here| app.start(here));
    }

    /// Ends a host as `kill -9` does.
    pub fn kill(&mut self, id: HostId) {
        self.hosts[id].alive = false;
        for other in (0..self.hosts.len()).filter(|other| *other != id) {
            self.plan_presence_check(id, other, self.settings.closed);
        }
    }

    /// Restarts a killed host. Only its name and its clock stay the same.
    pub fn restart(&mut self, id: HostId, app: Box<dyn App>) {
        assert!(!self.hosts[id].alive, "{} still runs", self.hosts[id].name);
        let (name, clock) = (self.hosts[id].name.clone(), self.hosts[id].clock);
        let (incarnation, member) = self.member(&name, &clock, |_| {});
        let host = &mut self.hosts[id];
        (host.incarnation, host.member, host.app, host.alive) = (incarnation, member, app, true);
        (host.pending, host.woken_at) = (PendingOutputs::default(), Instant::NEVER);
        host.sees.clear();
        self.begin(id);
    }

    /// Cuts or heals the path between two hosts.
    pub fn set_cut(&mut self, a: HostId, b: HostId, cut: bool) {
        if self.network.is_cut(a, b) == cut {
            return;
        }
        self.network.set_cut(a, b, cut);
        self.plan_presence_check(a, b, if cut { self.settings.lease } else { RECONNECT });
    }

    /// Plans a presence check in both hosts.
    fn plan_presence_check(&mut self, a: HostId, b: HostId, time: Nanos) {
        let at = self.now + time;
        self.plan(at, a, ChangeKind::CheckPresence { other: b });
        self.plan(at, b, ChangeKind::CheckPresence { other: a });
    }

    /// Sets the bandwidth of a host's uplink that remains for its frames, in bits per second.
    pub fn set_bandwidth(&mut self, host: HostId, bandwidth: f64) {
        self.network.set_bandwidth(host, bandwidth);
    }

    /// Sets the bandwidth of the way into a host, in bits per second, and the bytes that may wait there; infinite: no
    /// limit, as at first.
    pub fn set_downlink(&mut self, host: HostId, bandwidth: f64, queue: usize) {
        self.network.set_downlink(host, bandwidth, queue);
    }

    /// Current virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of hosts, including killed ones.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Whether the host runs.
    pub fn is_alive(&self, id: HostId) -> bool {
        self.hosts[id].alive
    }

    pub fn name(&self, id: HostId) -> &Name {
        &self.hosts[id].name
    }

    /// The member of a host, for inspection.
    pub fn member_of(&self, id: HostId) -> &Member {
        &self.hosts[id].member
    }

    /// Starts to measure the real time that a host uses for received frames. No seed repeats these values.
    pub fn measure(&mut self, id: HostId) {
        self.hosts[id].spent = Some(Vec::new());
    }

    /// The real time that a host used for each frame received since [`Fabric::measure`].
    pub fn spent(&self, id: HostId) -> &[Duration] {
        self.hosts[id].spent.as_deref().unwrap_or_default()
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Runs `act` on a host as its application would.
    pub fn on<R>(&mut self, id: HostId, act: impl FnOnce(&mut HostContext<'_>) -> R) -> R {
        self.act(id, |_, here| act(here))
    }

    /// Advances the virtual time by `time`.
    pub fn run_for(&mut self, time: Nanos) {
        self.run_until(self.now + time);
    }

    /// Advances the virtual time to `until`.
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
            ChangeKind::CheckPresence { other } => self.check_presence(id, other),
            ChangeKind::Wake | ChangeKind::Timer { .. } => {}
        }
    }

    fn woken(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        host.woken_at = Instant::NEVER;
        let before = if host.wakes.0 == self.now { host.wakes.1 } else { 0 };
        host.wakes = (self.now, before + 1);
        assert!(before < MOST_WAKES, "{} requests a wake-up at {:?} without end", host.name, self.now);
    }

    fn node(&mut self, id: HostId, act: impl FnOnce(&mut Node, Instant)) {
        self.act(id, |_, here| here.with(act));
    }

    fn check_presence(&mut self, id: HostId, other: HostId) {
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

    /// Runs `act` on a host, passes notifications to its application, and sends its frames.
    fn act<R>(&mut self, id: HostId, act: impl FnOnce(&mut dyn App, &mut HostContext<'_>) -> R) -> R {
        let host = &mut self.hosts[id];
        let now = host.clock.shows(self.now);
        let mut here = HostContext { now, virtual_now: self.now, member: &mut host.member, pending: &mut host.pending };
        let result = act(host.app.as_mut(), &mut here);
        while let Some(notification) = here.pending.notifications.pop_front() {
            match notification {
                Notification::Ready(sink) => host.app.ready(sink, &mut here),
                Notification::Applied(app, attribute, amount) => host.app.applied(app, attribute, amount, &mut here),
                Notification::Answered(request, outcome) => host.app.answered(request, &outcome, &mut here),
                Notification::Notice(notice) => host.app.noticed(&notice, &mut here),
            }
        }
        self.flush(id);
        result
    }

    fn flush(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        let (incarnation, clock) = (host.incarnation, host.clock);
        let outgoing = std::mem::take(&mut host.pending.outgoing);
        let timers = std::mem::take(&mut host.pending.timers);
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
            Destination::Host(name) => {
                if let Some(to) = self.names.get(&name).copied() {
                    self.send_one(from, to, lane, &frame);
                }
            }
            Destination::Everyone => (0..self.hosts.len()).for_each(|to| self.send_one(from, to, lane, &frame)),
            Destination::Channel(channel) => {
                for to in 0..self.hosts.len() {
                    if self.hosts[to].pending.listens.contains(&channel) {
                        self.send_one(from, to, lane, &frame);
                    }
                }
            }
        }
    }

    /// Sends a frame to a host that counts as present: presence stands for a connection.
    fn send_one(&mut self, from: HostId, to: HostId, lane: Lane, frame: &Rc<[u8]>) {
        let there = self.hosts[to].incarnation;
        if from == to || self.hosts[from].sees.get(&to) != Some(&there) {
            return;
        }
        self.counts.frames += 1;
        self.counts.data_frames += u64::from(lane != Lane::Control);
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
