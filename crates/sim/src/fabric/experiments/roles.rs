//! Figure 35: three streams in roles of 20–25, 15–20 and 10–15 frames per second, while a disturbing load grows
//! and disappears.

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_control::adapt::capacity::Terms;
use qfabric_host::manager::policies::{Roles, stream_of};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Fabric, Settings};
use super::film::{Role, Seen, Sink, Source};
use super::{Curve, data, name, quality};

/// Bits per second of the source's uplink. 60 frames per second of [`FRAME`] bytes need 9/10 of it.
const LINK: f64 = 600e3;
/// Bytes of a frame.
const FRAME: usize = 1_000;
/// Bits of a frame on the wire, with all headers.
const FRAME_BITS: f64 = 8.0 * 1_130.0;
/// Times in seconds at which the disturber begins, uses the whole link, begins to shrink, and is gone.
const DISTURBER: [f64; 4] = [40.0, 110.0, 130.0, 200.0];
/// The roles with their names, least important first.
const ROLES: [(&str, Role); 3] = [
    ("low", Role { min: 10, max: 15, importance: 0 }),
    ("medium", Role { min: 15, max: 20, importance: 1 }),
    ("high", Role { min: 20, max: 25, importance: 2 }),
];

/// The options of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Virtual seconds.
    pub seconds: u64,
    /// Streams fade below their minimum, as in the figure, instead of stopping.
    pub fade: bool,
    /// Seed of all random values.
    pub seed: u64,
}

/// The result of one role.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Course {
    pub role: &'static str,
    /// Mean rate before the disturber, in frames per second.
    pub before: f64,
    /// Time in seconds at which the controller first decided a rate 1 frame per second below the best.
    pub degraded_at: Option<f64>,
    /// Time in seconds at which the stream stopped.
    pub stopped_at: Option<f64>,
    /// Time in seconds at which the stream ran again.
    pub resumed_at: Option<f64>,
    /// Mean rate at the end, in frames per second.
    pub after: f64,
}

/// The result of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Least important role first.
    pub roles: Vec<Course>,
    /// Frames per second that the sinks reported, and the rate that the disturber leaves, in frames per second.
    pub curves: Vec<Curve>,
}

/// Bits per second of the link that the disturber leaves at a time.
fn left(second: f64) -> f64 {
    let [begin, full, ends, gone] = DISTURBER;
    let load = ((second - begin) / (full - begin)).clamp(0.0, 1.0) - ((second - ends) / (gone - ends)).clamp(0.0, 1.0);
    LINK * (1.0 - load).max(0.02)
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let settings = Settings { seed: options.seed, bandwidth: LINK, queue: 6_000, ..Settings::default() };
    let mut fabric = Fabric::new(settings);
    let film = data("film");
    let roles = Roles::new(&quality(&film), FRAME_BITS, Terms::default(), Instant::ZERO);
    let roles = if options.fade { roles.fading() } else { roles };
    let source = Source::new(&film, FRAME, 0.0, vec![Box::new(roles)]);
    let asked = source.asked();
    fabric.add("source", Box::new(source));
    let period = Nanos::from_millis(500);
    let seen = ROLES.map(|(host, role)| {
        let seen = Rc::new(RefCell::new(Seen::default()));
        fabric.add(host, Box::new(Sink::new(&film, role, period, period, seen.clone())));
        seen
    });
    for tenth in 0..options.seconds * 10 {
        fabric.set_bandwidth(0, left(tenth as f64 / 10.0));
        fabric.run_until(Instant::new(tenth * 100_000_000));
    }
    let asked = asked.borrow();
    let roles = ROLES.iter().zip(&seen).map(|((role, Role { max, .. }), seen)| {
        let AppId(stream) = stream_of(&name(role));
        let asked: Vec<(f64, f64)> =
            asked.iter().filter(|(_, of, _)| *of == stream).map(|(at, _, rate)| (*at, *rate)).collect();
        course(role, *max as f64, &asked, &seen.borrow().rates)
    });
    let roles = roles.collect();
    let curve =
        |(name, seen): (&str, &Rc<RefCell<Seen>>)| Curve { name: name.into(), points: seen.borrow().rates.clone() };
    let mut curves: Vec<Curve> = ROLES.iter().map(|(role, _)| *role).zip(&seen).map(curve).collect();
    let points = (0..options.seconds).map(|second| (second as f64, left(second as f64) / FRAME_BITS)).collect();
    curves.push(Curve { name: "what the disturber leaves".into(), points });
    Outcome { roles, curves }
}

/// The result of a role. Its times come from the controller's decisions, its rates from the frames that arrived.
fn course(role: &'static str, best: f64, asked: &[(f64, f64)], rates: &[(f64, f64)]) -> Course {
    let mean = |from: f64, to: f64| {
        let part: Vec<f64> = rates.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, rate)| *rate).collect();
        part.iter().fold(0.0, |sum, rate| sum + rate) / part.len().max(1) as f64
    };
    let first = |from: f64, is: &dyn Fn(f64) -> bool| {
        asked.iter().find(|(at, rate)| *at >= from && is(*rate)).map(|(at, _)| *at)
    };
    let stopped_at = first(DISTURBER[0], &|rate| rate <= 0.0);
    let end = rates.last().map_or(0.0, |(at, _)| *at);
    Course {
        role,
        before: mean(10.0, DISTURBER[0]),
        degraded_at: first(DISTURBER[0], &|rate| rate < best - 1.0),
        stopped_at,
        resumed_at: stopped_at.and_then(|_| first(DISTURBER[2], &|rate| rate > 0.0)),
        after: mean(end - 15.0, end + 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order(times: [Option<f64>; 3]) -> bool {
        times.iter().all(Option::is_some) && times.is_sorted_by(|a, b| a <= b)
    }

    #[test]
    fn streams_degrade_from_low_to_high_and_recover_in_reverse() {
        for seed in 1..=3 {
            let outcome = run(&Options { seconds: 240, fade: false, seed });
            let [low, medium, high] = &outcome.roles[..] else { panic!("three roles") };
            assert!((low.before - 15.0).abs() < 1.0 && (high.before - 25.0).abs() < 1.0, "{:?}", outcome.roles);
            let of = |part: fn(&Course) -> Option<f64>| [part(low), part(medium), part(high)];
            assert!(in_order(of(|role| role.degraded_at)), "{:?}", outcome.roles);
            assert!(in_order(of(|role| role.stopped_at)), "{:?}", outcome.roles);
            assert!(high.resumed_at <= medium.resumed_at && medium.resumed_at <= low.resumed_at, "{:?}", outcome.roles);
            assert!(low.after > 13.0 && medium.after > 18.0 && high.after > 23.0, "{:?}", outcome.roles);
        }
    }
}
