//! The conformance suite over real engines: four hosts on loopback addresses. The part that cuts cables is in
//! tests/host, which has cables.

mod common;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::Site;
use qfabric_channel::testing::conformance as suite;
use qfabric_channel::testing::{Delivered, World};
use qfabric_channel::{Config as NodeConfig, Frame, Incarnation, Node, Notice, Output};
use qfabric_link::{Config, EngineKind, Link, Listener, NodeOwner};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};
use rustix::time::{ClockId, clock_gettime};

const HOSTS: u8 = 4;

#[derive(Default)]
struct Recorder {
    delivered: Mutex<Vec<Delivered>>,
    notices: Mutex<Vec<Notice>>,
}

impl Listener for Recorder {
    fn on_output(&self, output: Output, _is_arrival: bool) {
        if let Output::Notice(notice) = output {
            self.notices.lock().unwrap().push(notice);
        }
    }
}

/// A node with sinks whose events are taken at once.
struct Eager {
    node: Node,
    recorder: Arc<Recorder>,
}

impl NodeOwner for Eager {
    fn call<R>(&mut self, _now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        act(&mut self.node)
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        let output = self.node.poll();
        if let Some(Output::Ready(sink)) = output {
            self.recorder.delivered.lock().unwrap().extend(Delivered::take_all(&mut self.node, sink, now));
        }
        output
    }

    fn frame(&self, frame: Frame) -> &[u8] {
        self.node.frame(frame)
    }

    fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        self.node.memory(frame)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.node.next_wakeup()
    }

    fn wake(&mut self, now: Instant) {
        self.node.wake(now);
    }
}

/// Hosts with real links. A restarted host keeps its recorder.
struct Real {
    site: Site,
    /// Multiplies the times to settle.
    slower: u32,
    starts: u32,
    links: BTreeMap<Name, Option<Link<Eager>>>,
    recorders: BTreeMap<Name, Arc<Recorder>>,
}

impl Real {
    /// Opens the hosts one after the other, because this order causes the most work.
    fn new(kind: EngineKind, slower: u32) -> Real {
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock();
        let names: Vec<Name> = (0..HOSTS).map(|host| format!("h{host}").parse().unwrap()).collect();
        let links = names.iter().map(|name| (name.clone(), None)).collect();
        let recorders = names.iter().map(|name| (name.clone(), Arc::default())).collect();
        let mut world = Real { site: Site::new(kind), slower, starts: 0, links, recorders };
        names.iter().for_each(|name| world.start(name));
        let begin = std::time::Instant::now();
        for name in &names {
            let knows = |world: &mut Real| world.with(name, |node, _| node.directory().hosts().count());
            while knows(&mut world) < names.len() {
                assert!(begin.elapsed() < common::PATIENCE, "{name} does not know all");
                thread::sleep(Duration::from_millis(20));
            }
        }
        world
    }

    fn config(&self, host: &Name) -> Config {
        let number = |name: &Name| 1 + name.as_str()[1..].parse::<u8>().unwrap();
        let mut config = Config::new(host.clone());
        config.engine = self.site.kind;
        config.listen = vec![self.site.address(number(host))];
        config.peers = self.links.keys().map(|name| self.site.address(number(name))).collect();
        config
    }
}

fn node(host: &Name, start: u32) -> Node {
    let time = clock_gettime(ClockId::Monotonic);
    let now = Instant::new(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut config = NodeConfig::new(host.clone(), Incarnation::new(since.as_secs() as u32, start));
    config.unix_offset_ns = since.as_nanos() as u64 - now.since(Instant::ZERO).get();
    Node::new(config, now)
}

impl World for Real {
    fn hosts(&self) -> Vec<Name> {
        self.links.keys().cloned().collect()
    }

    fn with<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        self.links[host].as_ref().expect("the host is up").with(|eager, now| act(&mut eager.node, now))
    }

    /// With both locks held, each by a thread of its own, no frame arrives at either node.
    fn at_once(&mut self, hosts: [&Name; 2], act: impl FnMut(usize, &mut Node, Instant) + Send) {
        let links = hosts.map(|host| self.links[host].as_ref().expect("the host is up"));
        let (act, both) = (&Mutex::new(act), &Barrier::new(2));
        thread::scope(|scope| {
            for (number, link) in links.into_iter().enumerate() {
                let act = move |eager: &mut Eager, now| {
                    both.wait();
                    act.lock().unwrap()(number, &mut eager.node, now);
                    both.wait();
                };
                scope.spawn(move || link.with(act));
            }
        });
    }

    fn run_for(&mut self, time: Nanos) {
        thread::sleep(Duration::from_nanos(time.get()));
    }

    fn cut(&mut self, _one: &Name, _other: &Name) {
        unreachable!("there are no cables within a host");
    }

    fn heal(&mut self, _one: &Name, _other: &Name) {
        unreachable!("there are no cables within a host");
    }

    fn kill(&mut self, host: &Name) {
        self.links.insert(host.clone(), None);
    }

    fn start(&mut self, host: &Name) {
        self.starts += 1;
        let recorder = Arc::clone(&self.recorders[host]);
        let eager = Eager { node: node(host, self.starts), recorder: Arc::clone(&recorder) };
        let link = Link::open(&self.config(host), eager, recorder, || {}).unwrap();
        self.links.insert(host.clone(), Some(link));
    }

    fn delivered(&mut self, host: &Name) -> Vec<Delivered> {
        std::mem::take(&mut *self.recorders[host].delivered.lock().unwrap())
    }

    fn notices(&mut self, host: &Name) -> Vec<Notice> {
        std::mem::take(&mut *self.recorders[host].notices.lock().unwrap())
    }

    /// More than for the simulated network, because these hosts share their processors with other tests.
    fn settle(&mut self) {
        self.run_for(Nanos::from_millis(u64::from(1_000 * self.slower)));
    }

    /// The accounts are complete 2 s after the last event.
    fn quiet(&mut self) {
        self.run_for(Nanos::from_millis(u64::from(4_000 * self.slower)));
    }
}

type Part = (&'static str, fn(&mut Real));

macro_rules! parts {
    ($world:ty; $($name:ident),* $(,)?) => { &[$((stringify!($name), |world: &mut $world| suite::$name(world))),*] };
}

const PARTS: &[Part] = qfabric_channel::conformance_parts! { parts! Real };
/// There are no cables within a host; tests/host runs this part.
const ELSEWHERE: &str = "what_was_changed_during_a_partition_is_known_after_it";

/// The parts mostly wait, so several run at once. What fails then on a starving machine has more time, and is alone.
fn conform(kind: EngineKind) {
    let here: Vec<Part> = PARTS.iter().filter(|part| part.0 != ELSEWHERE).copied().collect();
    assert_eq!(here.len(), PARTS.len() - 1, "{ELSEWHERE} has another name");
    let failed = here.chunks(15).flat_map(|parts| at_once(kind, parts));
    let failed: Vec<&str> = failed.filter(|part| !passes(kind, part, 8)).map(|part| part.0).collect();
    assert!(failed.is_empty(), "{kind:?}: {failed:?}");
}

fn passes(kind: EngineKind, part: &Part, slower: u32) -> bool {
    catch_unwind(AssertUnwindSafe(|| (part.1)(&mut Real::new(kind, slower)))).is_ok()
}

/// Returns the parts that failed.
fn at_once(kind: EngineKind, parts: &[Part]) -> Vec<&Part> {
    thread::scope(|scope| {
        let running: Vec<_> = parts.iter().map(|part| (part, scope.spawn(move || passes(kind, part, 1)))).collect();
        let failed = running.into_iter().filter_map(|(part, thread)| (!thread.join().unwrap()).then_some(part));
        failed.collect()
    })
}

#[test]
fn links_over_the_plain_engine_pass_the_suite() {
    conform(EngineKind::Plain);
}

#[test]
fn links_over_zenoh_pass_the_suite() {
    conform(EngineKind::Zenoh);
}
