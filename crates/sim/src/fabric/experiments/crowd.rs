//! Many hosts in one simulation: one source, many sinks in three roles, reports, and hosts that come and go.

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_control::adapt::capacity::Terms;
use qfabric_control::adapt::implosion::Rule;
use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{RATE, Roles, Spread};
use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::world::Counts;
use super::super::{Fabric, Settings};
use super::film::{Role, Seen, Sink, Source};
use super::{Curve, data, quality};

const SECOND: Nanos = Nanos::from_millis(1_000);

/// The options of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Number of hosts, the source included.
    pub hosts: usize,
    /// Virtual seconds.
    pub seconds: u64,
    /// Fraction of the data frames that are lost.
    pub loss: f64,
    /// Hosts killed per minute. Each restarts after ten seconds.
    pub churn_per_minute: f64,
    /// Bytes of a frame's payload.
    pub frame_bytes: usize,
    /// Seed of all random values.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { hosts: 200, seconds: 600, loss: 0.01, churn_per_minute: 6.0, frame_bytes: 200, seed: 1 }
    }
}

/// The result of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    pub hosts: usize,
    /// Virtual seconds.
    pub seconds: u64,
    /// Counters of the network.
    pub network: Counts,
    /// Frames that arrived at sinks.
    pub frames: u64,
    /// Reports that sinks sent.
    pub reports: u64,
    /// Calls of controllers at the source.
    pub controller_calls: u64,
    /// Hosts that were killed and restarted.
    pub killed: u64,
    /// Sinks in the directory of the source's node at the end.
    pub known_sinks: usize,
    /// Values per second: running hosts, sinks known to the source's node, frames at all sinks.
    pub curves: Vec<Curve>,
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let settings = Settings { seed: options.seed, loss: options.loss, bandwidth: 1e9, ..Settings::default() };
    let mut fabric = Fabric::new(settings);
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed ^ 0x5eed);
    let film = data("film");
    let bits = (options.frame_bytes * 8) as f64;
    let source_clock = Instant::ZERO;
    let controllers: Vec<Box<dyn Controller>> = vec![
        Box::new(Roles::new(&quality(&film), bits, Terms::default(), source_clock)),
        Box::new(Spread::new(&quality(&film), RATE, SECOND, Rule::Placed, options.seed, source_clock)),
    ];
    fabric.add("source", Box::new(Source::new(&film, options.frame_bytes, 5.0, controllers)));
    let seen: Vec<_> = (1..options.hosts).map(|_| Rc::new(RefCell::new(Seen::default()))).collect();
    for (i, seen) in seen.iter().enumerate() {
        fabric.add(&format!("sink{i:03}"), Box::new(sink(i, seen, &mut rng)));
    }
    let (killed, curves) = churn(&mut fabric, &seen, options, &mut rng);
    Outcome {
        hosts: options.hosts,
        seconds: options.seconds,
        network: *fabric.counts(),
        frames: seen.iter().map(|seen| seen.borrow().frames).sum(),
        reports: seen.iter().map(|seen| seen.borrow().reports).sum(),
        controller_calls: fabric.member_of(0).managed().counts().calls,
        killed,
        known_sinks: known(&fabric),
        curves,
    }
}

/// A sink with a low rate, so that a node can send to all sinks: this experiment is about the number of hosts.
fn sink(i: usize, seen: &Rc<RefCell<Seen>>, rng: &mut ChaCha8Rng) -> Sink {
    let (min, max) = [(1, 2), (2, 3), (3, 5)][i % 3];
    let role = Role { min, max, importance: (i % 3) as i64 };
    let phase = Nanos::new(rng.random_range(0..SECOND.get()));
    Sink::new(&data("film"), role, SECOND, phase, seen.clone())
}

fn known(fabric: &Fabric) -> usize {
    fabric.member_of(0).node().directory().channel(&data("film")).map_or(0, |channel| channel.sinks)
}

/// Kills a random sink from time to time, and restarts each killed sink after ten seconds.
fn churn(
    fabric: &mut Fabric,
    seen: &[Rc<RefCell<Seen>>],
    options: &Options,
    rng: &mut ChaCha8Rng,
) -> (u64, Vec<Curve>) {
    let mut dead: Vec<(u64, usize)> = Vec::new();
    let mut killed = 0;
    let mut course = Course::default();
    for second in 0..options.seconds {
        fabric.run_until(Instant::new(second * SECOND.get()));
        course.record(second, options.hosts - dead.len(), fabric, seen);
        for (_, host) in dead.extract_if(.., |(since, _)| second >= *since + 10) {
            fabric.restart(host, Box::new(sink(host - 1, &seen[host - 1], rng)));
        }
        let host = rng.random_range(1..options.hosts.max(2));
        let time = (10..options.seconds.saturating_sub(15)).contains(&second);
        if time && rng.random::<f64>() < options.churn_per_minute / 60.0 && host < fabric.len() && fabric.is_alive(host)
        {
            fabric.kill(host);
            dead.push((second, host));
            killed += 1;
        }
    }
    fabric.run_until(Instant::new(options.seconds * SECOND.get()));
    (killed, course.curves())
}

/// The values of each second.
#[derive(Default)]
struct Course {
    alive: Vec<(f64, f64)>,
    known: Vec<(f64, f64)>,
    frames: Vec<(f64, f64)>,
    before: u64,
}

impl Course {
    fn record(&mut self, second: u64, alive: usize, fabric: &Fabric, seen: &[Rc<RefCell<Seen>>]) {
        let (at, all) = (second as f64, seen.iter().map(|seen| seen.borrow().frames).sum::<u64>());
        self.alive.push((at, alive as f64));
        self.known.push((at, known(fabric) as f64));
        self.frames.push((at, (all - self.before) as f64));
        self.before = all;
    }

    fn curves(self) -> Vec<Curve> {
        let named = [("hosts that run", self.alive), ("sinks known", self.known), ("frames per second", self.frames)];
        named.into_iter().map(|(name, points)| Curve { name: name.into(), points }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hosts_are_known_again_after_loss_and_churn() {
        let options = Options { hosts: 20, seconds: 60, churn_per_minute: 30.0, ..Options::default() };
        let outcome = run(&options);
        assert!(outcome.killed > 5, "{outcome:?}");
        assert_eq!(outcome.known_sinks, 19, "{outcome:?}");
        assert!(outcome.frames > 19 * 60 && outcome.reports > 19 * 45, "{outcome:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let options = Options { hosts: 8, seconds: 20, ..Options::default() };
        assert_eq!(format!("{:?}", run(&options)), format!("{:?}", run(&options)));
    }
}
