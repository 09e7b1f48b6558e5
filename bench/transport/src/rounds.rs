//! Rounds in which all engines take turns, in random order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use qfabric_types::RandomNumbers;

use crate::Options;
use crate::engine::{Engine, Programs};
use crate::measure::Measure;
use crate::place::Place;
use crate::plan::Plan;
use crate::report::{Record, Report};
use crate::stolen::Ticks;
use crate::trial::Stage;

/// A run whose emulator was later than this, at p99, does not count.
const LATEST: Duration = Duration::from_millis(2);
/// Runs of one engine in one round until one counts.
const ATTEMPTS: u32 = 3;

/// Runs all rounds, up to the stop; adds records, repetitions and failures to the report.
pub(crate) fn run(options: &Options, programs: &Programs, plan: &Plan, report: &mut Report) -> Result<()> {
    let plan_file = programs.folder.join("plan");
    plan.write(&plan_file)?;
    let mut numbers = RandomNumbers::new(options.seed);
    for round in 0..options.rounds {
        let order = shuffled(&report.engines, &mut numbers);
        for (at, engine) in order.iter().enumerate() {
            let turn = format!("round {} of {}, {} of {}", round + 1, options.rounds, at + 1, order.len());
            for attempt in 0..ATTEMPTS {
                if options.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                (options.progress)(&format!("{turn}: {}", engine.word()));
                let run = || measure(options, programs, plan, &plan_file, *engine, round);
                if take_turn(report, *engine, round, attempt, run) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Whether the turn is over: with a run that counts, or one that failed.
fn take_turn(
    report: &mut Report,
    engine: Engine,
    round: u32,
    attempt: u32,
    run: impl FnOnce() -> Result<Measure>,
) -> bool {
    let (name, in_round) = (engine.word(), round + 1);
    match run() {
        Ok(measure) if measure.late_p99_ms > LATEST.as_secs_f64() * 1e3 => {
            let (late, attempt) = (measure.late_p99_ms, attempt + 1);
            report.invalid.push(format!(
                "{name}, round {in_round}: run {attempt} of {ATTEMPTS} does not count, the emulator was {late:.1} ms late"
            ));
            false
        }
        Ok(measure) => {
            report.records.push(Record { round, engine, measure });
            true
        }
        Err(error) => {
            report.failures.push(format!("{name}, round {in_round}: failed: {error:#}"));
            true
        }
    }
}

fn measure(
    options: &Options,
    programs: &Programs,
    plan: &Plan,
    plan_file: &std::path::Path,
    engine: Engine,
    round: u32,
) -> Result<Measure> {
    let place = Place::start(options, round)?;
    let before = Ticks::read();
    let arrived = Stage { programs, place: &place, plan, plan_file }.run(engine, options.beside)?;
    let stolen = before.stolen_percent(Ticks::read());
    Ok(Measure::new(plan, &arrived, place.counts()?, stolen))
}

/// Fisher and Yates.
fn shuffled(engines: &[Engine], numbers: &mut RandomNumbers) -> Vec<Engine> {
    let mut order = engines.to_vec();
    for last in (1..order.len()).rev() {
        order.swap(last, (numbers.draw() % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report::new(String::new(), 1, 400, vec![Engine::Tcp])
    }

    #[test]
    fn a_run_with_a_late_emulator_is_repeated() {
        let mut report = report();
        let late = Measure { late_p99_ms: 2.1, ..Measure::default() };
        assert!(!take_turn(&mut report, Engine::Tcp, 0, 0, || Ok(late)));
        assert!(report.records.is_empty() && report.invalid[0].contains("2.1 ms"), "{:?}", report.invalid);
        assert!(take_turn(&mut report, Engine::Tcp, 0, 1, || Ok(Measure::default())));
        assert_eq!(report.records.len(), 1);
    }

    #[test]
    fn a_failed_run_ends_the_turn_and_is_told() {
        let mut report = report();
        assert!(take_turn(&mut report, Engine::Tcp, 1, 0, || anyhow::bail!("no route")));
        assert_eq!(report.failures, ["tcp, round 2: failed: no route"]);
    }

    #[test]
    fn the_order_of_a_round_depends_on_the_seed_only() {
        let engines = [Engine::Tcp, Engine::TcpBbr, Engine::Srt120, Engine::Srt200, Engine::Rist200];
        let order = |seed| shuffled(&engines, &mut RandomNumbers::new(seed));
        assert_eq!(order(1), order(1));
        assert!((2..20).any(|seed| order(seed) != order(1)));
        assert!(engines.iter().all(|engine| order(7).contains(engine)));
    }
}
