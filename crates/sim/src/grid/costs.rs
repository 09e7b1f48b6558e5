//! The costs of the players' jobs, from one seed and equal for every policy. Costs are in nanoseconds.

use qfabric_control::traces;
use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Cell, Pattern, Phases, ROOM};
use crate::control_loop::{Job, parse};
use crate::video::StreamJob;

/// Largest relative difference of a cost from the recorded cost; uniformly distributed.
const NOISE: f64 = 0.03;
/// Independent costs are log-normal. This is the standard deviation of the logarithm: mean 1.1, one cost in 40
/// above 2.6.
const SPREAD: f64 = 0.45;
/// Relative error of the hint of an independent cost.
const HINT_NOISE: f64 = 0.06;

/// The costs of all players of one run.
pub(super) struct Costs {
    cell: Cell,
    seed: u64,
    period: Nanos,
    trace: Vec<Job>,
}

impl Costs {
    /// Costs of jobs every `period`.
    pub(super) fn new(cell: Cell, seed: u64, period: Nanos) -> Self {
        Costs { cell, seed, period, trace: trace(cell.pattern, seed) }
    }

    fn random(&self, player: usize, purpose: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(player as u64 * 2 + purpose);
        random
    }

    /// Release of a player's first job.
    pub(super) fn start(&self, player: usize) -> Instant {
        let first = Instant::new(1_000_000);
        match self.cell.phases {
            Phases::Together => first,
            Phases::Random => first + Nanos::new(self.random(player, 0).random_range(0..self.period.get())),
        }
    }

    /// The jobs of a player: a part of the trace from a random offset, twice as expensive in one half of the run unless
    /// the players are equal.
    pub(super) fn jobs(&self, player: usize, jobs: usize) -> Vec<StreamJob> {
        let mut random = self.random(player, 1);
        let offset = random.random_range(0..self.trace.len());
        let mean_ns = self.trace.iter().map(|job| job.c_ns).sum::<f64>() / self.trace.len() as f64;
        let job = |k: usize| {
            let recorded = &self.trace[(offset + k) % self.trace.len()];
            let scale = self.part(player, 2 * k >= jobs) / mean_ns;
            let noise = 1.0 + NOISE * random.random_range(-1.0..1.0);
            let cost = Nanos::from_f64((recorded.c_ns * scale * noise).max(10_000.0));
            StreamJob { cost, hint: recorded.hint.unwrap_or(1.0) * scale }
        };
        (0..jobs).map(job).collect()
    }

    /// Mean cost of a player's jobs in one half of the run, in ns.
    fn part(&self, player: usize, second_half: bool) -> f64 {
        let is_cheap = |player: usize| self.cell.equal || player % 2 == usize::from(second_half);
        let weight = |player: usize| if is_cheap(player) { 1.0 } else { 2.0 };
        let sum: f64 = (0..self.cell.players).map(weight).sum();
        self.cell.load * ROOM.as_f64() * self.period.as_f64() * weight(player) / sum
    }
}

fn trace(pattern: Pattern, seed: u64) -> Vec<Job> {
    let recorded = match pattern {
        Pattern::Closed => traces::H264_GROUPS,
        Pattern::Mpeg2 => traces::MPEG2,
        Pattern::Mixed => traces::H264_MIXED,
        Pattern::None => return independent(seed),
    };
    parse(recorded).expect("a recording is a valid trace")
}

fn independent(seed: u64) -> Vec<Job> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::MAX);
    let mut bell = || (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0;
    let mut job = |_| {
        let c_ns = 1e7 * (SPREAD * bell()).exp();
        Job { c_ns, hint: Some(c_ns * 0.004 * (1.0 + HINT_NOISE * bell()).max(0.5)) }
    };
    (0..600).map(&mut job).collect()
}

#[cfg(test)]
mod tests {
    use super::super::PERIOD;
    use super::*;

    #[test]
    fn the_mean_demand_is_the_load_times_the_room_and_roles_change_half_way() {
        for pattern in [Pattern::Closed, Pattern::Mpeg2, Pattern::Mixed, Pattern::None] {
            let phases = Phases::Random;
            let cell = Cell { players: 6, load: 0.8, pattern, phases, steal: 0, hogs: 6, equal: false };
            let costs = Costs::new(cell, 3, PERIOD);
            let mean = |jobs: &[StreamJob]| {
                jobs.iter().map(|job| job.cost.as_f64()).sum::<f64>() / jobs.len() as f64 / PERIOD.as_f64()
            };
            let players: Vec<_> = (0..6).map(|i| costs.jobs(i, 1_200)).collect();
            let demand: f64 = players.iter().map(|jobs| mean(jobs)).sum();
            assert!((demand / (0.8 * 1.8) - 1.0).abs() < 0.01, "{pattern:?}: {demand}");
            let ratio = mean(&players[1][..600]) / mean(&players[1][600..]);
            assert!((ratio - 2.0).abs() < 0.02 || (ratio - 0.5).abs() < 0.02, "{pattern:?}: {ratio}");
        }
    }

    #[test]
    fn equal_players_cost_the_same_from_begin_to_end() {
        let phases = Phases::Together;
        let cell = Cell { players: 8, load: 1.0, pattern: Pattern::Closed, phases, steal: 0, hogs: 12, equal: true };
        for period in [PERIOD, Nanos::from_millis(72)] {
            let costs = Costs::new(cell, 3, period);
            let part = 1.8 / 8.0 * period.as_f64();
            assert!((0..8).all(|i| [false, true].iter().all(|&half| (costs.part(i, half) / part - 1.0).abs() < 1e-9)));
        }
    }
}
