//! A group that is cut in two: five hosts share a resource, and a cut cable separates two of them for a while.

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_channel::Registration;
use qfabric_host::manager::GroupController;
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, Nanos};

use super::super::{App, Fabric, HostContext, Settings};
use super::{Curve, name};

/// Number of hosts, and number of hosts behind the cut.
const HOSTS: usize = 5;
const BEHIND: usize = 2;
/// The shared resource.
const SHARE: AttributeId = AttributeId::of("cpu.share");
/// Amount of the resource.
pub const CAPACITY: i64 = 100;
/// Floor and ceiling of each application.
const WANTS: (i64, i64) = (10, 40);
/// The level of all applications.
const LEVEL: u8 = 2;
/// Interval between two measurements.
const LOOK: Nanos = Nanos::from_millis(100);

/// The options of the experiment. Times are in virtual seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Duration.
    pub seconds: u64,
    /// Time of the cut.
    pub cut: u64,
    /// Time at which the cable is joined again.
    pub heal: u64,
    /// Seed of all random values.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { seconds: 60, cut: 10, heal: 35, seed: 1 }
    }
}

/// The result of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Largest amount that all hosts held together.
    pub most: i64,
    /// Time in seconds during which they held more than exists.
    pub above: f64,
    /// Seconds from the cut until the hosts behind it had given up their share.
    pub given_up_after: Option<f64>,
    /// Seconds from the cut until the other hosts had the whole amount.
    pub taken_after: Option<f64>,
    /// Seconds from the joining of the cable until all hosts had their share again.
    pub healed_after: Option<f64>,
    /// The amounts of the two parts.
    pub curves: Vec<Curve>,
}

struct Player {
    has: Rc<RefCell<i64>>,
}

impl App for Player {
    fn start(&mut self, here: &mut HostContext<'_>) {
        let group = name("class");
        let controller = GroupController::new(&group, None, LEVEL, SHARE, CAPACITY).expect("a level");
        let controller = controller.with_local(AppId(1), WANTS.0, WANTS.1, 0);
        here.manager(|manager, _| manager.add(Box::new(controller)));
        let registration =
            Registration { application: name("player"), group, parent: None, level: LEVEL, qos: Vec::new() };
        here.with(|node, now| node.register(registration, now)).expect("a group");
    }

    fn applied(&mut self, _application: AppId, _attribute: AttributeId, amount: i64, _here: &mut HostContext<'_>) {
        *self.has.borrow_mut() = amount;
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let mut fabric = Fabric::new(Settings { seed: options.seed, ..Settings::default() });
    let has: Vec<_> = (0..HOSTS).map(|_| Rc::new(RefCell::new(0))).collect();
    for (host, has) in has.iter().enumerate() {
        fabric.add(&format!("host{host}"), Box::new(Player { has: has.clone() }));
    }
    let mut points: Vec<(f64, [i64; 2])> = Vec::new();
    for tenth in 0..options.seconds * 10 {
        let cut = (options.cut * 10..options.heal * 10).contains(&tenth);
        for (a, b) in (0..HOSTS - BEHIND).flat_map(|a| (HOSTS - BEHIND..HOSTS).map(move |b| (a, b))) {
            fabric.set_cut(a, b, cut);
        }
        fabric.run_for(LOOK);
        let sum = |of: std::ops::Range<usize>| has[of].iter().map(|has| *has.borrow()).sum::<i64>();
        points.push(((tenth + 1) as f64 / 10.0, [sum(0..HOSTS - BEHIND), sum(HOSTS - BEHIND..HOSTS)]));
    }
    outcome(options, &points)
}

fn outcome(options: &Options, points: &[(f64, [i64; 2])]) -> Outcome {
    let first = |from: u64, to: u64, is: &dyn Fn([i64; 2]) -> bool| {
        let mut part = points.iter().filter(|(at, _)| *at > from as f64 && *at <= to as f64);
        part.find(|(_, parts)| is(*parts)).map(|(at, _)| at - from as f64)
    };
    // The whole amount is handed out, minus the rounding at each host.
    let all = |parts: [i64; 2]| parts[0] + parts[1] > CAPACITY - HOSTS as i64;
    let curve = |name: &str, of: fn([i64; 2]) -> i64| Curve {
        name: name.into(),
        points: points.iter().map(|(at, parts)| (*at, of(*parts) as f64)).collect(),
    };
    let above = points.iter().filter(|(_, parts)| parts.iter().sum::<i64>() > CAPACITY).count();
    Outcome {
        most: points.iter().map(|(_, parts)| parts.iter().sum()).max().unwrap_or(0),
        above: above as f64 / 10.0,
        given_up_after: first(options.cut, options.heal, &|parts| parts[1] == 0),
        taken_after: first(options.cut, options.heal, &|parts| parts[0] > CAPACITY - HOSTS as i64),
        healed_after: first(options.heal, options.seconds, &|parts| all(parts) && parts[1] > 0),
        curves: vec![
            curve("three hosts", |parts| parts[0]),
            curve("two behind the cut", |parts| parts[1]),
            curve("all", |parts| parts[0] + parts[1]),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_of_a_cut_group_together_never_exceed_the_capacity() {
        for seed in 1..=5 {
            let outcome = run(&Options { seed, ..Options::default() });
            assert!(outcome.most <= CAPACITY && outcome.above == 0.0, "{outcome:?}");
            assert!(outcome.given_up_after < outcome.taken_after && outcome.taken_after.is_some(), "{outcome:?}");
            assert!(outcome.healed_after.is_some_and(|after| after < 5.0), "{outcome:?}");
        }
    }

    #[test]
    fn a_short_cut_changes_no_grant() {
        let outcome = run(&Options { heal: 13, seconds: 20, ..Options::default() });
        assert!(outcome.most <= CAPACITY && outcome.given_up_after.is_none(), "{outcome:?}");
        let sum = &outcome.curves[2].points;
        assert!(sum.iter().filter(|(at, _)| *at > 5.0).all(|(_, all)| *all > 94.0), "{outcome:?}");
    }
}
