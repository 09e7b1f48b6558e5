//! The two scenarios, round by round.

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
use crate::trial::Trace;

/// All rounds together are played again at most so often: this part of their number.
const REPEATED_PART: usize = 3;
/// The load is set at most so often: anew where the first third of the rounds shows another machine.
const SETTINGS: usize = 2;

/// A round, and what came of it.
struct Turn<'a> {
    name: String,
    is_claim: bool,
    run: Run,
    calibration: &'a Calibration,
    repeats: usize,
    /// None before it was played.
    outcome: Option<Result<RunRecord>>,
}

impl Turn<'_> {
    fn disturbance(&self) -> Option<String> {
        disturbance(self.outcome.as_ref()?)
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
                progress.note("the machine has another speed than when the load was set: from the beginning");
                continue;
            }
            self.rest(&mut turns, progress);
            self.disturbed(&mut turns, progress);
            let (records, missing) = outcomes(turns);
            let machine = self.machine();
            let loads = Scenario::ALL.into_iter().zip(calibrations);
            let loads = loads.filter_map(|(s, c)| Some((s.name().to_owned(), c?))).collect();
            let clips = self.clips.iter().cloned().zip(trials).collect();
            return Ok(Measured { records, missing, machine, clips, loads });
        }
    }

    /// Decodes the clips beside the hogs; other sizes where they cost much more or less than they were made for.
    fn fitting_trials(&mut self, cache: &Path, progress: &mut dyn Progress) -> Result<Vec<Trace>> {
        let mut trials = self.trials(progress)?;
        let misfits: Vec<Option<f64>> =
            self.clips.iter().zip(&trials).map(|(clip, trial)| clips::misfit(clip, trial.mean_share())).collect();
        if misfits.iter().any(Option::is_some) {
            for (clip, factor) in self.clips.iter_mut().zip(misfits) {
                let Some(factor) = factor else { continue };
                *clip = clips::resized(cache, clip, factor, &self.options.stop, progress)?;
                progress.note(&format!("{} is decoded in {}, which fits this machine now", clip.title, clip.size));
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

    fn turns<'a>(&self, plan: &Plan, calibrations: &'a [Option<Calibration>; 2]) -> Vec<Turn<'a>> {
        let turn = |round: &Round| {
            let Entry { scenario, policy, .. } = &plan.entries[round.entry];
            Some(Turn {
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

    /// Plays the first third; true, and the rest of it is left out, where the machine is another than the load was set on.
    fn shows_another_machine(&self, turns: &mut [Turn], progress: &mut dyn Progress) -> bool {
        let (count, mut drift) = (turns.len(), Drift::default());
        turns.iter_mut().enumerate().take(count / 3).any(|(i, turn)| {
            self.take(turn, &format!("{} of {count}", i + 1), progress);
            matches!(&turn.outcome, Some(Ok(record)) if drift.is_shown_by(record.around.speed))
        })
    }

    /// Plays what was not played yet.
    fn rest(&self, turns: &mut [Turn], progress: &mut dyn Progress) {
        let count = turns.len();
        for (i, turn) in turns.iter_mut().enumerate().filter(|(_, turn)| turn.outcome.is_none()) {
            self.take(turn, &format!("{} of {count}", i + 1), progress);
        }
    }

    /// Plays disturbed and failed rounds again, a bounded number of times. After all others, since what slows a machine down
    /// often lasts for some rounds.
    fn disturbed(&self, turns: &mut [Turn], progress: &mut dyn Progress) {
        for _ in 0..turns.len().div_ceil(REPEATED_PART) {
            let Some(turn) = to_play_again(turns) else { break };
            turn.repeats += 1;
            self.take(turn, "again", progress);
        }
    }

    /// Plays a round, unless the demo was interrupted.
    fn take(&self, turn: &mut Turn, which: &str, progress: &mut dyn Progress) {
        let (run, calibration) = (&turn.run, turn.calibration);
        let outcome = self.options.stop.check().and_then(|()| {
            progress.stage(&format!("{which}: {}", turn.name), run.jobs as u64 * calibration.period.get() / 1_000_000);
            self.play(run, calibration, progress)
        });
        turn.outcome = Some(outcome);
        if let Some(reason) = turn.disturbance() {
            progress.note(&format!("not counted, {}: {reason}", turn.name));
        }
    }
}

/// Of the disturbed and failed rounds, the next: one behind a claim before all others, and the one least often played again.
fn to_play_again<'t, 'a>(turns: &'t mut [Turn<'a>]) -> Option<&'t mut Turn<'a>> {
    let again = turns.iter_mut().filter(|turn| turn.repeats < REPEATS && turn.disturbance().is_some());
    again.min_by_key(|turn| (!turn.is_claim, turn.repeats))
}

/// What was played; and what could not be, with the reason.
fn outcomes(turns: Vec<Turn>) -> (Vec<RunRecord>, Vec<String>) {
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

    fn turn<'a>(calibration: &'a Calibration, is_claim: bool, outcome: Option<Result<RunRecord>>) -> Turn<'a> {
        let policy = if is_claim { policy::headline() } else { policy::equal_shares(false) };
        let run = Run { scenario: "hogs".into(), policy, jobs: 1, shifts: false, hogs: true, cycle: 0 };
        Turn { name: format!("claim {is_claim}"), is_claim, run, calibration, repeats: 0, outcome }
    }

    #[test]
    fn a_claims_rounds_are_played_again_first_and_none_for_ever() {
        let calibration = Calibration {
            players: 1,
            rho: 0.5,
            clips: Vec::new(),
            period: Nanos::ZERO,
            traces: Vec::new(),
            trace_files: Vec::new(),
            demand: 0.0,
            designed: 0.0,
        };
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
