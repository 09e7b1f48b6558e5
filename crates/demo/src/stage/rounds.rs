//! Plays the two scenarios, round by round.

use std::path::Path;

use anyhow::Result;
use qfabric_types::Nanos;

use super::{Bench, REPEATS, disturbance};
use crate::calibrate::Calibration;
use crate::children::Interrupted;
use crate::clips;
use crate::disturbance::Drift;
use crate::live::Run;
use crate::plan::{Entry, Plan, Round, Scenario};
use crate::policy::{self, Policy};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::Measured;
use crate::rows;
use crate::trial::Trace;

/// At most one in this number of rounds is played again.
const REPEATED_PART: usize = 3;
/// Largest number of calibrations of the load. It is set again if the first third of the rounds shows a changed speed.
const SETTINGS: usize = 2;

/// A planned round and its outcome.
struct PlannedRound<'a> {
    name: String,
    is_claim: bool,
    run: Run,
    calibration: &'a Calibration,
    repeats: usize,
    /// `None` before the round is played.
    outcome: Option<Result<RunRecord>>,
}

impl PlannedRound<'_> {
    fn disturbance(&self) -> Option<String> {
        disturbance(self.outcome.as_ref()?)
    }

    fn record(&self) -> Option<&RunRecord> {
        self.outcome.as_ref()?.as_ref().ok()
    }
}

impl Bench<'_> {
    /// Sets the loads and plays all rounds.
    pub(super) fn all(&mut self, plan: &Plan, cache: &Path, progress: &mut dyn Progress) -> Result<Measured> {
        let mut settings_left = SETTINGS;
        loop {
            settings_left -= 1;
            let trials = self.fitting_trials(cache, progress)?;
            let calibrations = Scenario::ALL.map(|scenario| {
                let is_played = plan.entries.iter().any(|entry| entry.scenario == scenario);
                is_played.then(|| self.calibration(scenario, &trials, progress)).transpose()
            });
            let [hogs, shift] = calibrations;
            let calibrations = [hogs?, shift?];
            let mut turns = self.turns(plan, &calibrations);
            if self.shows_another_machine(&mut turns, progress) && settings_left > 0 {
                progress.note("the speed of the machine has changed since the calibration: starting again");
                continue;
            }
            self.play_remaining(&mut turns, progress);
            self.repeat_disturbed(&mut turns, progress);
            let (records, missing) = outcomes(turns);
            let machine = self.machine();
            let loads = Scenario::ALL.into_iter().zip(calibrations);
            let loads = loads.filter_map(|(s, c)| Some((s.name().to_owned(), c?))).collect();
            let clips = self.clips.iter().cloned().zip(trials).collect();
            return Ok(Measured { records, missing, machine, clips, loads });
        }
    }

    /// Decodes the clips beside the hogs. Replaces clips whose cost differs much from their design by clips of
    /// other sizes.
    fn fitting_trials(&mut self, cache: &Path, progress: &mut dyn Progress) -> Result<Vec<Trace>> {
        let mut trials = self.trials(progress)?;
        let corrections: Vec<Option<f64>> = self
            .clips
            .iter()
            .zip(&trials)
            .map(|(clip, trial)| clips::cost_correction(clip, trial.mean_share()))
            .collect();
        if corrections.iter().any(Option::is_some) {
            for (clip, factor) in self.clips.iter_mut().zip(corrections) {
                let Some(factor) = factor else { continue };
                *clip = clips::resized(cache, clip, factor, &self.options.stop, progress)?;
                progress.note(&format!("using {} in the size {}, which fits this machine", clip.title, clip.size));
            }
            trials = self.trials(progress)?;
        }
        Ok(trials)
    }

    /// Decodes each clip once at full speed beside the hogs.
    fn trials(&self, progress: &mut dyn Progress) -> Result<Vec<Trace>> {
        progress.stage("trial execution", 1);
        let traces = self.trials_of(&self.clips, true);
        progress.advance(1);
        traces
    }

    fn calibration(&self, scenario: Scenario, trials: &[Trace], progress: &mut dyn Progress) -> Result<Calibration> {
        let trial = Calibration {
            players: scenario.players(self.cpus),
            rho: scenario.rho(),
            clips: self.clips.clone(),
            period: Nanos::ZERO,
            traces: trials.to_vec(),
            trace_files: Vec::new(),
            demand: 0.0,
            designed: scenario.designed_demand(self.room),
        };
        let run = self.run_of(scenario, policy::equal_shares(true), 0);
        progress.stage(&format!("pilot round: {}", scenario_title(scenario)), 1);
        self.calibrated(trial, &run, scenario.jobs() / 2, progress)
    }

    fn run_of(&self, scenario: Scenario, policy: Policy, cycle: usize) -> Run {
        let (shifts, jobs) = (scenario == Scenario::Shift, scenario.jobs());
        Run { scenario: scenario.name().into(), policy, jobs, shifts, hogs: true, cycle }
    }

    fn turns<'a>(&self, plan: &Plan, calibrations: &'a [Option<Calibration>; 2]) -> Vec<PlannedRound<'a>> {
        let turn = |round: &Round| {
            let Entry { scenario, policy, .. } = &plan.entries[round.entry];
            Some(PlannedRound {
                name: format!("{}, {}", scenario_title(*scenario), policy.label()),
                is_claim: policy.is_claim(*scenario),
                run: self.run_of(*scenario, policy.clone(), round.cycle),
                calibration: calibrations[*scenario as usize].as_ref()?,
                repeats: 0,
                outcome: None,
            })
        };
        plan.rounds.iter().filter_map(turn).collect()
    }

    /// Plays the first third of the rounds. Returns true, and stops early, if the speed of the machine has changed
    /// since the calibration.
    fn shows_another_machine(&self, turns: &mut [PlannedRound], progress: &mut dyn Progress) -> bool {
        let (count, mut drift) = (turns.len(), Drift::default());
        turns.iter_mut().enumerate().take(count / 3).any(|(i, turn)| {
            self.play_planned(turn, &format!("{} of {count}", i + 1), progress);
            matches!(&turn.outcome, Some(Ok(record)) if drift.is_shown_by(record.around.speed))
        })
    }

    /// Plays the rounds that have not been played.
    fn play_remaining(&self, turns: &mut [PlannedRound], progress: &mut dyn Progress) {
        let count = turns.len();
        for (i, turn) in turns.iter_mut().enumerate().filter(|(_, turn)| turn.outcome.is_none()) {
            self.play_planned(turn, &format!("{} of {count}", i + 1), progress);
        }
    }

    /// Repeats disturbed and failed rounds a bounded number of times. They come after all others, because a slow
    /// phase of a machine often lasts for several rounds.
    fn repeat_disturbed(&self, turns: &mut [PlannedRound], progress: &mut dyn Progress) {
        for _ in 0..turns.len().div_ceil(REPEATED_PART) {
            let Some(turn) = to_play_again(turns) else { break };
            turn.repeats += 1;
            self.play_planned(turn, "again", progress);
        }
    }

    /// Plays a round unless the user interrupted the demo.
    fn play_planned(&self, turn: &mut PlannedRound, which: &str, progress: &mut dyn Progress) {
        let (run, calibration) = (&turn.run, turn.calibration);
        let outcome = self.options.stop.check().and_then(|()| {
            progress.stage(&format!("{which}: {}", turn.name), run.jobs as u64 * calibration.period.get() / 1_000_000);
            self.play(run, calibration, progress)
        });
        turn.outcome = Some(outcome);
        if let Some(reason) = turn.disturbance() {
            progress.note(&format!("{} does not count: {reason}", turn.name));
        }
    }
}

/// The next round to repeat: a disturbed or failed one, and if there is none, one whose frames cost more or less
/// than those of the rival. Rounds with a claim come first, and among them the round with the fewest repetitions.
fn to_play_again<'t, 'a>(turns: &'t mut [PlannedRound<'a>]) -> Option<&'t mut PlannedRound<'a>> {
    let again = turns.iter().enumerate().filter(|(_, turn)| turn.repeats < REPEATS && turn.disturbance().is_some());
    let disturbed = again.min_by_key(|(_, turn)| (!turn.is_claim, turn.repeats)).map(|(i, _)| i);
    let next = disturbed.or_else(|| unequal(turns))?;
    turns.get_mut(next)
}

/// Of two compared rounds whose frames cost too different amounts, the round whose costs are farther from the
/// median of all compared rounds.
fn unequal(turns: &[PlannedRound]) -> Option<usize> {
    let played = || turns.iter().enumerate().filter(|(_, turn)| turn.is_claim);
    let speed = |turn: &PlannedRound| turn.record()?.around.speed;
    let is_apart = |a: &RunRecord, b: &RunRecord| {
        (a.cycle, &a.scenario) == (b.cycle, &b.scenario) && a.around.speed_difference(&b.around).is_some()
    };
    let has_partner = |turn: &PlannedRound| {
        let record = turn.record();
        record.is_some_and(|a| played().filter_map(|(_, other)| other.record()).any(|b| is_apart(a, b)))
    };
    let middle = rows::median(played().filter_map(|(_, turn)| speed(turn)).collect());
    let off = |turn: &PlannedRound| speed(turn).map_or(0.0, |speed| (speed / middle).ln().abs());
    let again = played().filter(|(_, turn)| turn.repeats < REPEATS && has_partner(turn));
    again.max_by(|a, b| off(a.1).total_cmp(&off(b.1))).map(|(i, _)| i)
}

/// The records of the played rounds, and the rounds that could not be played, with the reason.
fn outcomes(turns: Vec<PlannedRound>) -> (Vec<RunRecord>, Vec<String>) {
    let (mut records, mut missing) = (Vec::new(), Vec::new());
    for turn in turns {
        match turn.outcome {
            Some(Ok(record)) => records.push(record),
            Some(Err(error)) if !error.is::<Interrupted>() => missing.push(format!("{}: {error:#}", turn.name)),
            _ => (),
        }
    }
    (records, missing)
}

fn scenario_title(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Hogs => "one player",
        Scenario::Shift => "near capacity",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn<'a>(calibration: &'a Calibration, is_claim: bool, outcome: Option<Result<RunRecord>>) -> PlannedRound<'a> {
        let policy = if is_claim { policy::headline() } else { policy::equal_shares(false) };
        let run = Run { scenario: "hogs".into(), policy, jobs: 1, shifts: false, hogs: true, cycle: 0 };
        PlannedRound { name: format!("claim {is_claim}"), is_claim, run, calibration, repeats: 0, outcome }
    }

    fn calibration() -> Calibration {
        Calibration {
            players: 1,
            rho: 0.5,
            clips: Vec::new(),
            period: Nanos::ZERO,
            traces: Vec::new(),
            trace_files: Vec::new(),
            demand: 0.0,
            designed: 0.0,
        }
    }

    #[test]
    fn compared_rounds_with_different_costs_are_repeated_a_bounded_number_of_times() {
        let calibration = calibration();
        let played = |cycle, is_claim, speed| {
            let mut record = rows::tests::run(&[30], 1, 2.5);
            (record.cycle, record.around.speed) = (cycle, Some(speed));
            turn(&calibration, is_claim, Some(Ok(record)))
        };
        let mut turns = vec![
            played(0, true, 1.0),
            played(0, true, 1.02),
            played(1, true, 1.1),
            played(1, true, 1.01),
            played(1, false, 0.9),
        ];
        for repeats in 1..=REPEATS {
            let again = to_play_again(&mut turns).unwrap();
            again.repeats = repeats;
            assert_eq!(again.record().unwrap().around.speed, Some(1.1));
        }
        let partner = to_play_again(&mut turns).unwrap();
        assert_eq!(partner.record().unwrap().around.speed, Some(1.01));
        turns[2] = played(1, true, 1.03);
        assert!(to_play_again(&mut turns).is_none());
    }

    #[test]
    fn rounds_of_claims_are_repeated_first_and_repetitions_are_bounded() {
        let calibration = calibration();
        let failed = || Some(Err(anyhow::anyhow!("no room")));
        let mut turns: Vec<_> =
            [false, true, true].into_iter().map(|is_claim| turn(&calibration, is_claim, failed())).collect();
        turns.push(turn(&calibration, true, Some(Err(Interrupted.into()))));
        turns.push(turn(&calibration, true, None));
        let mut order = Vec::new();
        while let Some(turn) = to_play_again(&mut turns) {
            turn.repeats += 1;
            order.push(turn.is_claim);
        }
        assert_eq!(order, [true, true, true, true, false, false]);
        assert_eq!(outcomes(turns).1, ["claim false: no room", "claim true: no room", "claim true: no room"]);
    }
}
