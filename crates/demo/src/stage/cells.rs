//! Plays the grid, cell by cell.

use std::path::Path;

use anyhow::Result;
use qfabric_types::Nanos;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::{Bench, REPEATS, disturbance};
use crate::calibrate::Calibration;
use crate::children::Interrupted;
use crate::clips::{self, Clip};
use crate::grid::{self, Cell, Pattern};
use crate::live::Run;
use crate::policy::{self, Policy};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::Measured;
use crate::trial;

/// Largest number of rounds of a cell that are played again because the speed of the machine differed.
const MOST_OUTLIERS: usize = 4;
/// Longest frame period. A longer one gets a smaller clip.
const LONGEST_PERIOD_NS: f64 = 100e6;

impl Bench<'_> {
    /// Plays every cell with its policies, in random order.
    pub(super) fn grid(&mut self, cells: &[Cell], cache: &Path, progress: &mut dyn Progress) -> Result<Measured> {
        let mut random = ChaCha8Rng::seed_from_u64(self.options.seed);
        let mut measured = Measured {
            records: Vec::new(),
            missing: Vec::new(),
            machine: self.machine(),
            clips: Vec::new(),
            loads: Vec::new(),
        };
        self.repeats_left = 2 * cells.len();
        for (i, cell) in cells.iter().enumerate() {
            let mut policies = grid::policies(self.options.mechanism, self.options.all, i);
            policies.shuffle(&mut random);
            match self.cell(i, cell, &policies, cache, &mut measured, progress) {
                Ok(()) => (),
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => {
                    let reason = format!("{}: {error:#}", cell.name());
                    progress.note(&format!("could not play {reason}"));
                    measured.missing.extend(policies.iter().map(|_| reason.clone()));
                }
            }
        }
        Ok(measured)
    }

    /// Sets the load of a cell and plays its policies.
    fn cell(
        &mut self,
        i: usize,
        cell: &Cell,
        policies: &[Policy],
        cache: &Path,
        measured: &mut Measured,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let run = |policy| Run {
            scenario: cell.name(),
            policy,
            jobs: cell.jobs(),
            shifts: cell.shifts,
            hogs: cell.hogs,
            releases: cell.releases(self.options.seed.wrapping_add(i as u64)),
            cycle: i,
        };
        progress.stage(&format!("cell {}: {}", i + 1, cell.name()), policies.len() as u64);
        let clips = self.clips_of(cell, cache, progress)?;
        let traces = self.trials_of(&clips, cell.hogs)?;
        let trial = Calibration {
            players: cell.players,
            clips,
            period: Nanos::ZERO,
            traces,
            trace_files: Vec::new(),
            demand: 0.0,
            designed: cell.load * self.room_for(cell.players),
        };
        let calibration = self.calibrated(trial, &run(policy::equal_shares(true)), grid::PILOT_JOBS, progress)?;
        measured.loads.push((cell.name(), calibration.clone()));
        let mut rounds: Vec<(&Policy, RunRecord)> = Vec::new();
        let mut ended = Ok(());
        for policy in policies {
            match self.play_undisturbed(&run(policy.clone()), &calibration, progress) {
                Ok(record) => rounds.push((policy, record)),
                Err(error) if error.is::<Interrupted>() => {
                    ended = Err(error);
                    break;
                }
                Err(error) => measured.missing.push(format!("{}, {}: {error:#}", cell.name(), policy.label())),
            }
        }
        let ended = ended
            .and_then(|()| self.repeat_outliers(&mut rounds, |policy| run(policy.clone()), &calibration, progress));
        // Also after Ctrl-C: the report has all rounds that were played.
        measured.records.extend(rounds.into_iter().map(|(_, record)| record));
        ended
    }

    /// Plays a round again if its frame costs differ too much from those of the rounds that it is compared with.
    /// Bounded by [`MOST_OUTLIERS`]. If that fails, the round that was played before stays.
    fn repeat_outliers(
        &mut self,
        rounds: &mut [(&Policy, RunRecord)],
        run: impl Fn(&Policy) -> Run,
        calibration: &Calibration,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        for _ in 0..MOST_OUTLIERS {
            let compared = rounds.iter().filter(|(policy, _)| grid::is_compared(policy)).map(|(_, record)| record);
            let Some((odd, reason)) = grid::speed_outlier(compared).filter(|_| self.repeats_left > 0) else { break };
            progress.note(&format!("playing {odd} again: {reason}"));
            self.repeats_left -= 1;
            let Some((policy, record)) = rounds.iter_mut().find(|(_, record)| record.policy == odd) else { break };
            match self.play_undisturbed(&run(policy), calibration, progress) {
                Ok(again) => *record = again,
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => progress.note(&format!("the earlier round of {odd} stays: {error:#}")),
            }
        }
        Ok(())
    }

    /// The bandwidth that this number of players can use: a thread runs on one CPU at a time.
    fn room_for(&self, players: usize) -> f64 {
        self.room.as_f64().min(0.95 * players as f64)
    }

    /// The clips of a cell: a quarter of the size if the frame period would be longer than 100 ms.
    fn clips_of(&self, cell: &Cell, cache: &Path, progress: &mut dyn Progress) -> Result<Vec<Clip>> {
        let stop = &self.options.stop;
        let kinds = match (cell.shifts, cell.pattern) {
            (true, _) => self.clips.clone(),
            (false, Pattern::Closed) => vec![self.clips[0].clone()],
            (false, Pattern::Mixed) => vec![self.clips[1].clone()],
            (false, Pattern::None) => vec![clips::unpatterned(cache, &self.clips[1], stop, progress)?],
        };
        let share = cell.load * self.room_for(cell.players) / cell.players as f64;
        let designed: f64 = kinds.iter().map(clips::designed_share).sum::<f64>() / kinds.len() as f64;
        if designed / share * trial::PERIOD_NS <= LONGEST_PERIOD_NS {
            return Ok(kinds);
        }
        kinds.iter().map(|clip| clips::resized(cache, clip, 0.25, stop, progress)).collect()
    }

    /// Plays a round, and repeats it a bounded number of times if it is disturbed or fails.
    fn play_undisturbed(
        &mut self,
        run: &Run,
        calibration: &Calibration,
        progress: &mut dyn Progress,
    ) -> Result<RunRecord> {
        for _ in 0..REPEATS {
            let played = self.play(run, calibration, progress);
            let Some(reason) = disturbance(&played).filter(|_| self.repeats_left > 0) else { return played };
            self.repeats_left -= 1;
            progress.note(&format!("playing {} again: {reason}", run.policy.label()));
        }
        self.play(run, calibration, progress)
    }
}
