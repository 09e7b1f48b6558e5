//! Rounds in which all engines take turns, in random order.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use qfabric_linux::testing::stolen;
use qfabric_types::{Nanos, RandomNumbers};

use crate::engine::Engine;
use crate::measure::Measure;
use crate::place::Place;
use crate::report::{Record, Report};
use crate::trial::{PORT, Stage};
use crate::{Experiment, Options};

/// Runs of one engine in one round until one counts.
const ATTEMPTS: u32 = 3;

/// Runs all rounds, up to the stop; adds records, repetitions and failures to the report.
pub(crate) fn run(options: &Options, stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    let is_stopped = || options.stop.load(Ordering::Relaxed);
    let mut numbers = RandomNumbers::new(options.seed);
    for round in 0..options.rounds {
        let order = shuffled(&report.engines, &mut numbers);
        for (at, engine) in order.iter().enumerate() {
            let turn = format!("round {} of {}, {} of {}", round + 1, options.rounds, at + 1, order.len());
            for attempt in 0..ATTEMPTS {
                (options.progress)(&format!("{turn}: {}", engine.word()));
                let outcome = measure(stage, *engine, options, round);
                // Ctrl-C ends the processes too; their errors are not reported.
                if is_stopped() {
                    return Ok(());
                }
                if take_turn(report, *engine, round, attempt, outcome) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Notes the outcome of a run. Returns whether the turn is over: with a run that counts, or one that failed.
fn take_turn(
    report: &mut Report,
    engine: Engine,
    round: u32,
    attempt: u32,
    outcome: Result<(Vec<Measure>, Vec<String>)>,
) -> bool {
    let (name, in_round) = (engine.word(), round + 1);
    match outcome {
        Ok((measures, reasons)) if reasons.is_empty() => {
            let record = |(flow, measure)| Record { round, engine, flow, measure };
            report.records.extend(measures.into_iter().enumerate().map(record));
        }
        Ok((_, reasons)) => {
            let (attempt, reasons) = (attempt + 1, reasons.join("; "));
            report.invalid.push(format!(
                "{name}, round {in_round}: run {attempt} of at most {ATTEMPTS} does not count: {reasons}"
            ));
            return false;
        }
        Err(error) => report.failures.push(format!("{name}, round {in_round}: failed: {error:#}")),
    }
    true
}

/// The numbers of each flow in one run, and the reasons why the run does not count.
fn measure(stage: &Stage<'_>, engine: Engine, options: &Options, round: u32) -> Result<(Vec<Measure>, Vec<String>)> {
    // The seed of a round is the same for all engines.
    let seed = options.seed.wrapping_add(round.into());
    let place = match options.experiment {
        Experiment::Loopback => Place::Loopback,
        _ => Place::link(&options.lab(seed))?,
    };
    let is_beside = options.experiment == Experiment::BesideTcp;
    if let Some(link) = options.link.rate.mean().filter(|_| is_beside) {
        place.reserve(link, options.granted, PORT)?;
    }
    let (before, since) = (stolen(), Instant::now());
    let arrived = stage.run(&place, engine, seed)?;
    let (taken, link) = (stolen_percent(stolen() - before, since.elapsed()), place.counts()?);
    let flows = stage.flows.iter().zip(&arrived);
    let measures = flows.map(|(flow, arrived)| Measure::new(&flow.plan, arrived, &link, taken)).collect();
    Ok((measures, link.reasons))
}

/// Time that the hypervisor took from all CPUs, in percent of their time.
fn stolen_percent(stolen: Nanos, time: Duration) -> f64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    100.0 * stolen.as_secs_f64() / (time.as_secs_f64() * cpus as f64).max(f64::MIN_POSITIVE)
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
        Report::new(String::new(), &Options::example(), vec![Engine::Tcp], vec![None])
    }

    #[test]
    fn a_run_with_a_late_emulator_is_repeated() {
        let mut report = report();
        let late = vec!["the emulator was late".to_owned()];
        assert!(!take_turn(&mut report, Engine::Tcp, 0, 0, Ok((vec![Measure::default()], late))));
        assert!(report.records.is_empty() && report.invalid[0].ends_with("the emulator was late"));
        assert!(take_turn(&mut report, Engine::Tcp, 0, 1, Ok((vec![Measure::default()], Vec::new()))));
        assert_eq!(report.records.len(), 1);
    }

    #[test]
    fn a_failed_run_ends_the_turn_and_is_told() {
        let mut report = report();
        assert!(take_turn(&mut report, Engine::Tcp, 1, 0, Err(anyhow::anyhow!("no route"))));
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
