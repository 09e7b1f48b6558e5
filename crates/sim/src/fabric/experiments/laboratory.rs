//! The policy laboratory: a camera with three viewers under any policy, while a link becomes narrow and wide again.

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_host::manager::Controller;
use qfabric_types::channel::ChannelId;
use qfabric_types::{Instant, Nanos};

use super::super::{Fabric, HostId, Settings};
use super::film::{Role, Seen, Sink, Source};
use super::{Curve, data};

/// Events per second that the camera makes. No decision raises them.
const CAMERA: f64 = 25.0;
/// Bytes of an event.
const FRAME: usize = 1_000;
/// Bits of an event on the wire, with all headers.
pub const FRAME_BITS: f64 = 8.0 * 1_130.0;
/// Bits per second of the source's link. The camera needs 9/10 of it.
const LINK: f64 = 3.0 * CAMERA * FRAME_BITS / 0.9;
/// Bits per second of a narrow link: to all viewers, and to one.
const NARROW: [f64; 2] = [LINK * 0.4, 60e3];
/// Bytes that wait at a narrow link.
const QUEUE: usize = 6_000;
/// Times in seconds at which the link becomes narrow, is wide again, and the scenario ends.
const TIMES: [u64; 3] = [30, 90, 120];
/// The viewers with their wanted rates, least important first.
const VIEWERS: [(&str, Role); 3] = [
    ("low", Role { min: 10, max: 15, importance: 0 }),
    ("medium", Role { min: 15, max: 20, importance: 1 }),
    ("high", Role { min: 20, max: 25, importance: 2 }),
];

/// What happens to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The source's link has two fifths of its bandwidth for a minute, enough for one viewer and a part of another.
    SourceLink,
    /// The link of the most important viewer has 60 kbit/s for a minute, enough for six events per second.
    ViewerLink,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    pub scenario: Scenario,
    /// Seed of all random values.
    pub seed: u64,
}

/// The result of one viewer.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Viewer {
    pub viewer: &'static str,
    /// Wanted events per second.
    pub min: i64,
    pub max: i64,
    /// Mean events per second that arrived: before the link is narrow, while it is, and in the last 15 s.
    pub before: f64,
    pub narrow: f64,
    pub after: f64,
    /// Events that arrived.
    pub arrived: u64,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Least important first.
    pub viewers: Vec<Viewer>,
    /// Data frames that were dropped at a full queue.
    pub lost: u64,
    /// Decisions about rates.
    pub decisions: usize,
    /// Events per second that arrived at each viewer, over the seconds.
    pub curves: Vec<Curve>,
}

/// The channel of the camera.
pub fn channel() -> ChannelId {
    data("film")
}

/// Runs a scenario under a policy of the source's host, or under none.
pub fn run(options: &Options, policy: Option<Box<dyn Controller>>) -> Outcome {
    let mut fabric = Fabric::new(Settings { seed: options.seed, bandwidth: LINK, queue: QUEUE, ..Settings::default() });
    let source = Source::new(&channel(), FRAME, CAMERA, policy.into_iter().collect()).at_most(CAMERA);
    let asked = source.asked();
    let source = fabric.add("source", Box::new(source));
    let period = Nanos::from_millis(500);
    let (hosts, seen): (Vec<HostId>, Vec<_>) = VIEWERS
        .map(|(host, role)| {
            let seen = Rc::new(RefCell::new(Seen::default()));
            (fabric.add(host, Box::new(Sink::new(&channel(), role, period, period, seen.clone()))), seen)
        })
        .into_iter()
        .unzip();
    for (second, narrow) in [(TIMES[0], true), (TIMES[1], false), (TIMES[2], false)] {
        fabric.run_until(Instant::ZERO + Nanos::from_millis(1_000 * second));
        let viewer = hosts[hosts.len() - 1];
        match (options.scenario, narrow) {
            (Scenario::SourceLink, true) => fabric.set_bandwidth(source, NARROW[0]),
            (Scenario::SourceLink, false) => fabric.set_bandwidth(source, LINK),
            (Scenario::ViewerLink, true) => fabric.set_downlink(viewer, NARROW[1], QUEUE),
            (Scenario::ViewerLink, false) => fabric.set_downlink(viewer, f64::INFINITY, QUEUE),
        }
    }
    let viewers = VIEWERS.iter().zip(&seen).map(|((viewer, role), seen)| shown(viewer, *role, &seen.borrow()));
    let curve = |((viewer, _), seen): (&(&str, Role), &Rc<RefCell<Seen>>)| Curve {
        name: (*viewer).to_owned(),
        points: seen.borrow().rates.clone(),
    };
    let curves = VIEWERS.iter().zip(&seen).map(curve).collect();
    let decisions = asked.borrow().len();
    Outcome { viewers: viewers.collect(), lost: fabric.counts().full, decisions, curves }
}

fn shown(viewer: &'static str, role: Role, seen: &Seen) -> Viewer {
    let mean = |from: u64, to: u64| {
        let part = seen.rates.iter().filter(|(at, _)| (from as f64..to as f64).contains(at));
        let (count, sum) = part.fold((0.0, 0.0), |(count, sum), (_, rate)| (count + 1.0, sum + rate));
        if count > 0.0 { sum / count } else { 0.0 }
    };
    let [narrow, wide, end] = TIMES;
    let Role { min, max, .. } = role;
    let (before, after) = (mean(5, narrow), mean(end - 15, end));
    Viewer { viewer, min, max, before, narrow: mean(narrow + 5, wide), after, arrived: seen.frames }
}

#[cfg(test)]
mod tests {
    use qfabric_channel::interpreter;
    use qfabric_control::adapt::capacity::Terms;
    use qfabric_host::manager::policies::{Code, Roles};
    use qfabric_types::api::channel::CodePolicy;

    use super::super::quality;
    use super::*;

    fn code(text: &str) -> Option<Box<dyn Controller>> {
        let policy = CodePolicy {
            code: text.to_owned(),
            file: None,
            attributes: Vec::new(),
            control: false,
            filter: None,
            silence_ns: None,
            channel: channel().name,
            name: None,
        };
        Some(Box::new(Code::new(&policy, &interpreter(), Box::new(|_| {})).unwrap()))
    }

    fn options(scenario: Scenario) -> Options {
        Options { scenario, seed: 1 }
    }

    #[test]
    fn without_a_policy_a_narrow_link_drops_events_of_all_and_roles_keeps_the_most_important() {
        let none = run(&options(Scenario::SourceLink), None);
        let roles = Roles::new(&quality(&channel()), FRAME_BITS, Terms::default(), Instant::ZERO);
        let roles = run(&options(Scenario::SourceLink), Some(Box::new(roles)));
        assert!(none.viewers.iter().all(|viewer| (viewer.before - CAMERA).abs() < 1.0), "{:?}", none.viewers);
        assert!(none.decisions == 0 && none.lost > 1_000, "{none:?}");
        assert!(roles.lost < none.lost / 4, "{} and {} were lost", roles.lost, none.lost);
        let [low, _, high] = &roles.viewers[..] else { panic!("three viewers") };
        assert!(high.narrow > 18.0 && low.narrow < 10.0, "{:?}", roles.viewers);
    }

    #[test]
    fn a_decided_rate_takes_effect_and_none_is_above_the_cameras() {
        let half = run(
            &options(Scenario::ViewerLink),
            code("struct output { long rate_milli; }; output.rate_milli = 12500; return 1;"),
        );
        assert_eq!(half.decisions, 3);
        assert!(half.viewers.iter().all(|viewer| (viewer.after - 12.5).abs() < 0.5), "{:?}", half.viewers);
        let most = code("struct output { long rate_milli; }; output.rate_milli = 9223372036854775807; return 1;");
        let most = run(&options(Scenario::ViewerLink), most);
        assert!(most.viewers.iter().all(|viewer| viewer.after < CAMERA + 1.0), "{:?}", most.viewers);
    }

    #[test]
    fn extreme_decisions_do_not_stop_the_simulation() {
        for value in ["-9223372036854775807", "9223372036854775807", "0"] {
            let text = format!(
                "struct output {{ long delay_ns, level, cpu_most, rate_milli; }};
                output.delay_ns = output.level = output.cpu_most = output.rate_milli = {value}; return 1;"
            );
            let outcome = run(&options(Scenario::SourceLink), code(&text));
            assert_eq!(outcome.viewers.len(), 3);
        }
    }
}
