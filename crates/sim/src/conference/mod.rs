//! A video conference over 2 to 200 simulated hosts, each with a processor and links, under the policies of the daemon.
//!
//! ```text
//!   camera ─> encoder on a processor ─> channel: uplink, downlink of each client ─> decoder on a processor ─> shown
//!               └─ reports: generated, used, pressure      controllers      reports: arrived, shown, used, pressure ─┘
//! ```
//! Nodes, managers and controllers are those of the daemon; the network is [`crate::fabric`]. Jobs run by the same rule
//! of division ([`qfabric_control::flow::Processor`]) by which the controllers predict. But they predict with costs that
//! they measured; the real ones differ by picture, and the rule of costs per rung is another one. The rival is
//! the priority step of the paper. Source: thesis §5.3–5.5, Figures 37–43.

mod apps;
mod parts;
mod priority;
mod rows;

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_control::ladder::{self, Dimension, Ladder};
use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Adapt, Cpu, Integrated, IntegratedTerms, ShareTerms};
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::{Instant, Nanos};

use crate::fabric::{Fabric, HostId, Settings};
use apps::{Client, Server};
use parts::Load;
use priority::PriorityStep;
pub use rows::{Row, Run};

/// Wanted pictures per second.
pub const WANTED: f64 = 20.0;
/// Bits per second of a narrow link: 14 kB/s, as in the paper.
const NARROW: f64 = 14e3 * 8.0;
/// Bytes that wait at a narrow link.
const QUEUE: usize = 8_000;
/// Programs that use all CPU time, at a disturbed host.
const HOGS: f64 = 4.0;

/// What disturbs the conference. Times are parts of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Nothing.
    A,
    /// Other programs use the server's processor.
    B,
    /// Other programs use the clients' processors.
    C,
    /// Other programs use the server's processor, later the clients'.
    D,
    /// The links of the clients fall to 14 kB/s, and stay there.
    E,
    /// The pictures are JPEG: too expensive for the server's processor, from the beginning.
    F,
    /// As e, but the links recover.
    G,
}

impl Scenario {
    pub const ALL: [Scenario; 7] =
        [Scenario::A, Scenario::B, Scenario::C, Scenario::D, Scenario::E, Scenario::F, Scenario::G];

    /// The disturbances: the part, and the parts of the run at which it begins and ends.
    fn disturbances(self) -> &'static [(Part, f64, f64)] {
        match self {
            Scenario::A => &[],
            Scenario::B => &[(Part::Server, 0.3, 0.6)],
            Scenario::C => &[(Part::Clients, 0.3, 0.6)],
            Scenario::D => &[(Part::Server, 0.2, 0.45), (Part::Clients, 0.6, 0.85)],
            Scenario::E => &[(Part::Links, 0.1, 1.0)],
            Scenario::F => &[],
            Scenario::G => &[(Part::Links, 0.1, 0.6)],
        }
    }
}

/// A part that is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Server,
    Clients,
    Links,
}

/// What adapts to the disturbances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Adaptation {
    None,
    /// The quality, by the policy `adapt`.
    App,
    /// The contracts, by the policy `cpu`.
    Cpu,
    /// Both, by the policy `integrated`.
    Integrated,
    /// The paper's step of one real-time priority per report, with SCHED_RR.
    Priority,
}

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// All hosts, with the server's: 2 to 200.
    pub hosts: usize,
    pub scenario: Scenario,
    pub adaptation: Adaptation,
    /// Virtual seconds.
    pub seconds: u64,
    /// One event of 200 is lost, and the last client crashes and returns (if there are three or more).
    pub has_faults: bool,
    /// The first client's link is narrow all the time.
    pub has_bad_link: bool,
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            hosts: 4,
            scenario: Scenario::D,
            adaptation: Adaptation::Integrated,
            seconds: 120,
            has_faults: false,
            has_bad_link: false,
            seed: 1,
        }
    }
}

/// The dimensions that the application gives up: JPEG or H.261 quality, then the width of the picture.
fn ladder() -> Ladder {
    let dimensions = vec![Dimension::new("quality", &[30, 20, 12, 8, 5]), Dimension::new("size", &[352, 176])];
    Ladder::new(dimensions, ladder::Terms::new(WANTED)).expect("a valid ladder")
}

fn channel(plane: Plane) -> ChannelId {
    ChannelId { plane, name: "video".parse().expect("a name") }
}

impl Adaptation {
    fn controllers(self, is_server: bool) -> Vec<Box<dyn Controller>> {
        let quality = channel(Plane::Quality);
        match self {
            Adaptation::None => Vec::new(),
            Adaptation::App if is_server => vec![Box::new(Adapt::new(&quality, ladder()))],
            Adaptation::App => Vec::new(),
            Adaptation::Cpu => vec![Box::new(Cpu::new(&quality, WANTED, ShareTerms::default()))],
            Adaptation::Integrated => {
                vec![Box::new(Integrated::new(&quality, ladder(), IntegratedTerms::default()))]
            }
            Adaptation::Priority => vec![Box::new(PriorityStep::new(&quality, is_server))],
        }
    }
}

/// Runs the conference.
pub fn run(options: &Options) -> Run {
    let loss = if options.has_faults { 0.005 } else { 0.0 };
    let settings = Settings { seed: options.seed, queue: 2 << 20, loss, bandwidth: 1e9, ..Settings::default() };
    let mut fabric = Fabric::new(settings);
    let clients = options.hosts.clamp(2, 200) - 1;
    let loads: Vec<Rc<RefCell<Load>>> = (0..=clients).map(|_| Rc::default()).collect();
    let server = Server::new(options, loads[0].clone());
    let changes = server.changes();
    fabric.add("server", Box::new(server));
    let mut seen = Vec::new();
    for (number, load) in loads.iter().enumerate().skip(1) {
        let client = Client::new(options, number, load.clone());
        seen.push(client.seen());
        fabric.add(&format!("client{number}"), Box::new(client));
    }
    for tenth in 0..options.seconds * 10 {
        disturb(&mut fabric, options, &loads, tenth);
        if options.has_faults && clients >= 3 {
            crash(&mut fabric, options, (clients, &loads), &mut seen, tenth);
        }
        fabric.run_until(Instant::new((tenth + 1) * 100_000_000));
    }
    Run::new(options, &changes.borrow(), &seen)
}

/// Sets the load of processors and links at a tenth of a second.
fn disturb(fabric: &mut Fabric, options: &Options, loads: &[Rc<RefCell<Load>>], tenth: u64) {
    let at = tenth as f64 / (options.seconds * 10) as f64;
    let is_disturbed = |part: Part| {
        options.scenario.disturbances().iter().any(|(of, from, to)| *of == part && (*from..*to).contains(&at))
    };
    for (host, load) in loads.iter().enumerate() {
        let part = if host == 0 { Part::Server } else { Part::Clients };
        let hogs = if is_disturbed(part) { HOGS } else { 0.0 };
        if load.borrow().hogs != hogs {
            load.borrow_mut().hogs = hogs;
            fabric.on(host, |here| here.after(Nanos::new(1), apps::RESUME));
        }
        if host > 0 {
            let is_narrow = is_disturbed(Part::Links) || (options.has_bad_link && host == 1);
            fabric.set_downlink(host, if is_narrow { NARROW } else { f64::INFINITY }, QUEUE);
        }
    }
}

/// The last client crashes in the middle of the run, and is back five seconds later.
fn crash(
    fabric: &mut Fabric,
    options: &Options,
    (last, loads): (HostId, &[Rc<RefCell<Load>>]),
    seen: &mut [Rc<RefCell<apps::Seen>>],
    tenth: u64,
) {
    let middle = options.seconds * 5;
    if tenth == middle {
        fabric.kill(last);
    }
    if tenth == middle + 50 {
        let mut client = Client::new(options, last, loads[last].clone());
        client.continue_as(&seen[last - 1]);
        fabric.restart(last, Box::new(client));
    }
}
