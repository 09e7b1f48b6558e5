//! Plays the two scenarios, round by round.

use std::path::Path;

use anyhow::Result;
use qfabric_types::Nanos;

use super::load::Load;
use super::{Bench, REPEATS, disturbance};
use crate::calibrate::Calibration;
use crate::children::Interrupted;
use crate::clips;
use crate::live::Run;
use crate::plan::{Entry, Plan, Round, Scenario};
use crate::policy::{self, Policy};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::Measured;
use crate::trial::Trace;
use crate::verdict;

/// Of all rounds, at most one in this number is played again.
const REPEATED_PART: usize = 3;

/// The load of each scenario; `None` if the plan does not contain it.
type Loads = [Option<Load>; 2];

/// A planned round and its outcome.
struct PlannedRound {
    name: String,
    scenario: Scenario,
    is_claim: bool,
    run: Run,
    repeats: usize,
    /// `None` before the round is played.
    outcome: Option<Result<RunRecord>>,
}

impl PlannedRound {
    fn disturbance(&self) -> Option<String> {
        disturbance(self.outcome.as_ref()?)
    }

    fn record(&self) -> Option<&RunRecord> {
        self.outcome.as_ref()?.as_ref().ok()
    }

    /// Whether a claim compares the two rounds. Such rounds are neighbours.
    fn is_compared_with(&self, other: &PlannedRound) -> bool {
        let group = |turn: &PlannedRound| (turn.is_claim, turn.scenario, turn.run.cycle);
        self.is_claim && group(self) == group(other)
    }
}

impl Bench<'_> {
    /// Sets the loads and plays all rounds.
    pub(super) fn all(&mut self, plan: &Plan, cache: &Path, progress: &mut dyn Progress) -> Result<Measured> {
        let trials = self.fitting_trials(cache, progress)?;
        let [hogs, shift] = Scenario::ALL.map(|scenario| {
            let is_played = plan.entries.iter().any(|entry| entry.scenario == scenario);
            is_played.then(|| self.calibration(scenario, &trials, progress)).transpose()
        });
        let mut loads = [hogs?.map(Load::new), shift?.map(Load::new)];
        let mut turns = self.turns(plan);
        let count = turns.len();
        let mut played = 0;
        for unit in turns.chunk_by_mut(PlannedRound::is_compared_with) {
            self.play_unit(unit, &mut loads, progress, |i| format!("{} of {count}", played + i + 1));
            played += unit.len();
        }
        self.repeat_disturbed(&mut turns, &mut loads, progress);
        let (records, missing) = outcomes(turns);
        let machine = self.machine();
        let loads = Scenario::ALL.into_iter().zip(loads);
        let loads = loads.filter_map(|(s, load)| Some((s.name().to_owned(), load?.calibration))).collect();
        let clips = self.clips.iter().cloned().zip(trials).collect();
        Ok(Measured { records, missing, machine, clips, loads })
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
        Run { scenario: scenario.name().into(), policy, jobs, shifts, hogs: true, releases: Vec::new(), cycle }
    }

    fn turns(&self, plan: &Plan) -> Vec<PlannedRound> {
        let turn = |round: &Round| {
            let Entry { scenario, policy, .. } = &plan.entries[round.entry];
            PlannedRound {
                name: format!("{}, {}", scenario_title(*scenario), policy.label()),
                scenario: *scenario,
                is_claim: policy.is_claim(*scenario),
                run: self.run_of(*scenario, policy.clone(), round.cycle),
                repeats: 0,
                outcome: None,
            }
        };
        plan.rounds.iter().map(turn).collect()
    }

    /// Repeats disturbed and failed rounds, and compared rounds with unequal loads, a bounded number of times. They
    /// come after all others, because a slow phase of a machine often lasts for several rounds.
    fn repeat_disturbed(&self, turns: &mut [PlannedRound], loads: &mut Loads, progress: &mut dyn Progress) {
        let mut left = turns.len().div_ceil(REPEATED_PART);
        while left > 0 && self.options.stop.check().is_ok() {
            let units = turns.chunk_by_mut(PlannedRound::is_compared_with);
            let Some(unit) = to_play_again(units) else { break };
            left = left.saturating_sub(unit.len());
            unit.iter_mut().for_each(|turn| turn.repeats += 1);
            let earlier = unit.iter_mut().map(|turn| turn.outcome.take()).collect();
            self.play_unit(unit, loads, progress, |_| "again".into());
            keep_earlier(unit, earlier);
        }
    }

    /// Plays rounds that are compared with each other, or one other round. The load is set before the first.
    fn play_unit(
        &self,
        unit: &mut [PlannedRound],
        loads: &mut Loads,
        progress: &mut dyn Progress,
        which: impl Fn(usize) -> String,
    ) {
        for (i, turn) in unit.iter_mut().enumerate() {
            let Some(load) = &mut loads[turn.scenario as usize] else { continue };
            let is_set = if i == 0 { self.follow(load, &turn.run) } else { Ok(()) };
            let outcome = is_set.and_then(|()| self.play_planned(turn, &load.calibration, &which(i), progress));
            if let (Ok(record), true) = (&outcome, turn.is_claim) {
                load.note(record);
            }
            turn.outcome = Some(outcome);
            if let Some(reason) = turn.disturbance() {
                progress.note(&format!("{} does not count: {reason}", turn.name));
            }
        }
    }

    /// Plays a round unless the user interrupted the demo.
    fn play_planned(
        &self,
        turn: &PlannedRound,
        calibration: &Calibration,
        which: &str,
        progress: &mut dyn Progress,
    ) -> Result<RunRecord> {
        self.options.stop.check()?;
        let length_ms = turn.run.jobs as u64 * calibration.period.get() / 1_000_000;
        progress.stage(&format!("{which}: {}", turn.name), length_ms);
        self.play(&turn.run, calibration, progress)
    }
}

/// Puts the earlier outcomes back if fewer rounds could be played again than were played before: Ctrl-C or a failure of
/// a repetition loses no round.
fn keep_earlier(unit: &mut [PlannedRound], earlier: Vec<Option<Result<RunRecord>>>) {
    let before = earlier.iter().filter(|outcome| matches!(outcome, Some(Ok(_)))).count();
    let now = unit.iter().filter(|turn| turn.record().is_some()).count();
    if now < before {
        unit.iter_mut().zip(earlier).for_each(|(turn, outcome)| turn.outcome = outcome);
    }
}

/// The next rounds to repeat. Disturbed and failed rounds come before those with unequal loads, and rounds with a
/// claim before others. Among equals, those with the fewest repetitions come first.
fn to_play_again<'t>(units: impl Iterator<Item = &'t mut [PlannedRound]>) -> Option<&'t mut [PlannedRound]> {
    let is_disturbed = |unit: &[PlannedRound]| unit.iter().any(|turn| turn.disturbance().is_some());
    let again = units.filter(|unit| unit[0].repeats < REPEATS && (is_disturbed(unit) || is_unequal(unit)));
    again.min_by_key(|unit| (!unit[0].is_claim, !is_disturbed(unit), unit[0].repeats))
}

/// Whether the load differed too much between compared rounds, or from the designed one.
fn is_unequal(unit: &[PlannedRound]) -> bool {
    unit.windows(2).any(|pair| match (pair[0].record(), pair[1].record()) {
        (Some(a), Some(b)) => verdict::disturbance_of_pair((a, b)).is_some(),
        _ => false,
    })
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
    use crate::rows;

    fn turn(cycle: usize, is_claim: bool, outcome: Option<Result<RunRecord>>) -> PlannedRound {
        let policy = if is_claim { policy::headline() } else { policy::equal_shares(false) };
        let run =
            Run { scenario: "shift".into(), policy, jobs: 1, shifts: false, hogs: true, releases: Vec::new(), cycle };
        let scenario = Scenario::Shift;
        PlannedRound { name: format!("claim {is_claim}"), scenario, is_claim, run, repeats: 0, outcome }
    }

    fn played(cycle: usize, is_claim: bool, speed: f64) -> PlannedRound {
        let mut record = rows::tests::run(&[30], 1, 2.5);
        (record.scenario, record.cycle, record.around.speed) = ("shift".into(), cycle, Some(speed));
        turn(cycle, is_claim, Some(Ok(record)))
    }

    /// The rounds that are played again, each time with the outcome that they had before.
    fn repeated(turns: &mut [PlannedRound]) -> Vec<(usize, bool, usize)> {
        let mut order = Vec::new();
        while let Some(unit) = to_play_again(turns.chunk_by_mut(PlannedRound::is_compared_with)) {
            unit.iter_mut().for_each(|turn| turn.repeats += 1);
            order.push((unit[0].run.cycle, unit[0].is_claim, unit.len()));
        }
        order
    }

    #[test]
    fn compared_rounds_with_different_costs_are_repeated_together_a_bounded_number_of_times() {
        let mut turns = vec![
            played(0, true, 1.0),
            played(0, true, 1.02),
            played(0, false, 0.9),
            played(1, true, 1.1),
            played(1, true, 1.01),
        ];
        assert_eq!(repeated(&mut turns), [(1, true, 2); REPEATS]);
        turns[3] = played(1, true, 1.03);
        assert_eq!(repeated(&mut turns), []);
        (turns[3], turns[4]) = (played(1, true, 0.91), played(1, true, 0.92));
        assert_eq!(repeated(&mut turns), [(1, true, 2); REPEATS], "equal, and away from the designed load");
    }

    #[test]
    fn a_repetition_that_is_interrupted_or_fails_loses_no_round() {
        let speeds = |unit: &[PlannedRound]| -> Vec<Option<f64>> {
            unit.iter().map(|turn| turn.record().and_then(|record| record.around.speed)).collect()
        };
        let again = |outcomes: [Option<Result<RunRecord>>; 2]| {
            let mut unit = [played(0, true, 1.1), played(0, true, 1.0)];
            let earlier = unit.iter_mut().map(|turn| turn.outcome.take()).collect();
            unit.iter_mut().zip(outcomes).for_each(|(turn, outcome)| turn.outcome = outcome);
            keep_earlier(&mut unit, earlier);
            speeds(&unit)
        };
        let calm = |speed| played(0, true, speed).outcome;
        assert_eq!(again([calm(1.01), Some(Err(Interrupted.into()))]), [Some(1.1), Some(1.0)]);
        assert_eq!(again([Some(Err(anyhow::anyhow!("no room"))), calm(1.01)]), [Some(1.1), Some(1.0)]);
        assert_eq!(again([calm(1.02), calm(1.01)]), [Some(1.02), Some(1.01)]);
    }

    #[test]
    fn disturbed_rounds_of_claims_are_repeated_first_and_repetitions_are_bounded() {
        let failed = || Some(Err(anyhow::anyhow!("no room")));
        let mut turns = vec![
            turn(0, false, failed()),
            played(0, true, 1.1),
            played(0, true, 1.0),
            turn(1, true, failed()),
            played(1, true, 1.0),
            played(2, true, 1.2), // disturbed: more than the limit away from the calibration
            turn(3, true, Some(Err(Interrupted.into()))),
            turn(4, true, None),
        ];
        let order = repeated(&mut turns);
        let disturbed = [(1, true, 2), (2, true, 1), (1, true, 2), (2, true, 1)];
        assert_eq!(order, [&disturbed[..], &[(0, true, 2); REPEATS], &[(0, false, 1); REPEATS]].concat());
        assert_eq!(outcomes(turns).1, ["claim false: no room", "claim true: no room"]);
    }
}
