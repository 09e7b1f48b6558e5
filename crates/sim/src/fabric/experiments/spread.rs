//! Table 3: the reports of 100 clients, one per second each, counted in slots of 100 ms at the server, with and
//! without delay requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use qfabric_control::adapt::implosion::Rule;
use qfabric_host::manager::policies::{RATE, Spread};
use qfabric_host::manager::{Change, Controller, Decisions, Interest, Topic, View};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::AttributeId;
use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::{Fabric, Settings};
use super::film::{Role, Seen, Sink, Source};
use super::{data, quality};

const SECOND: Nanos = Nanos::from_millis(1_000);

/// The options of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    pub clients: usize,
    /// Virtual seconds.
    pub seconds: u64,
    /// The rule for delay requests; `None`: no delay requests.
    pub rule: Option<Rule>,
    /// All clients begin within a tenth of a second instead of within one second.
    pub crowd: bool,
    /// Seed of all random values.
    pub seed: u64,
}

/// The result of the experiment.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Reports in each slot of the 10th second.
    pub at_10: Vec<u64>,
    /// Reports in each slot of the last second.
    pub at_end: Vec<u64>,
    /// For each second: the largest slot as a multiple of the mean.
    pub largest: Vec<f64>,
    /// The second from which no slot exceeded 1.3 times the mean.
    pub settled_at: Option<usize>,
    /// Number of delay requests that clients obeyed.
    pub delayed: u64,
}

/// Records the arrival times of reports.
struct Count {
    channel: ChannelId,
    times: Arc<Mutex<Vec<Instant>>>,
}

impl Controller for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::on(&self.channel, Topic::Reading(AttributeId::of(RATE)))]
    }

    fn changed(&mut self, _change: &Change, view: &View<'_>, _decisions: &mut Decisions) {
        self.times.lock().expect("no other thread holds the lock").push(view.now);
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let settings = Settings { seed: options.seed, jitter: Nanos::from_millis(3), ..Settings::default() };
    let mut fabric = Fabric::new(settings);
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed ^ 0x07ab_1e03);
    let talk = data("talk");
    let times = Arc::new(Mutex::new(Vec::new()));
    let mut controllers: Vec<Box<dyn Controller>> =
        vec![Box::new(Count { channel: quality(&talk), times: times.clone() })];
    if let Some(rule) = options.rule {
        let spread = Spread::new(&quality(&talk), RATE, SECOND, rule, options.seed, Instant::ZERO);
        controllers.push(Box::new(spread));
    }
    fabric.add("server", Box::new(Source::new(&talk, 8, 0.0, controllers)));
    let role = Role { min: 0, max: 1, importance: 0 };
    let within = if options.crowd { SECOND.get() / 10 } else { SECOND.get() };
    let seen: Vec<_> = (0..options.clients).map(|_| Rc::new(RefCell::new(Seen::default()))).collect();
    for (i, seen) in seen.iter().enumerate() {
        let phase = SECOND + Nanos::new(rng.random_range(0..within));
        fabric.add(&format!("client{i:03}"), Box::new(Sink::new(&talk, role, SECOND, phase, seen.clone())));
    }
    fabric.run_for(SECOND.saturating_mul(options.seconds + 2));
    let delayed = seen.iter().map(|seen| seen.borrow().delayed).sum();
    let times = times.lock().expect("no other thread holds the lock");
    outcome(&times, options, delayed)
}

/// Counts slots from the first report on, by the server's clock, as the policy does.
fn outcome(times: &[Instant], options: &Options, delayed: u64) -> Outcome {
    let begun = times.first().map_or(0, |first| first.get() / SECOND.get() * SECOND.get());
    let seconds = options.seconds as usize;
    let mut slots = vec![[0u64; 10]; seconds];
    for at in times {
        let slot = (at.get() - begun) / (SECOND.get() / 10);
        if let Some(second) = slots.get_mut(slot as usize / 10) {
            second[slot as usize % 10] += 1;
        }
    }
    let multiple = |second: &[u64; 10]| {
        let (most, sum) = (second.iter().max().copied().unwrap_or(0), second.iter().sum::<u64>());
        if sum == 0 { 0.0 } else { most as f64 * 10.0 / sum as f64 }
    };
    let largest: Vec<f64> = slots.iter().map(multiple).collect();
    let last_bad = largest.iter().rposition(|multiple| *multiple > 1.3);
    let settled_at = last_bad.map_or(Some(0), |bad| (bad + 1 < seconds).then_some(bad + 1));
    let row = |second: usize| slots.get(second).map_or_else(Vec::new, |row| row.to_vec());
    Outcome { at_10: row(10), at_end: row(seconds.saturating_sub(1)), largest, settled_at, delayed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_placed_delay_requests_no_slot_stays_above_1_3_times_the_mean() {
        for (seed, crowd) in [(1, false), (2, false), (3, true)] {
            let outcome = run(&Options { clients: 100, seconds: 60, rule: Some(Rule::Placed), crowd, seed });
            assert!(outcome.settled_at.is_some_and(|second| second <= 30), "{outcome:?}");
        }
    }

    #[test]
    fn without_delay_requests_the_slots_stay_uneven() {
        let outcome = run(&Options { clients: 100, seconds: 30, rule: None, crowd: false, seed: 1 });
        assert!(outcome.largest[25] > 1.3 && outcome.delayed == 0, "{outcome:?}");
    }
}
