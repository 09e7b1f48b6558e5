//! What METP wants to reach beside its rivals, with the measured values. Ratios are of the same round.

use comfy_table::Table;
use qfabric_netlab::Spread;
use serde::Serialize;

use crate::Experiment;
use crate::engine::Engine;
use crate::measure::{Measure, number};
use crate::report::{self, Report};

/// A goal, with the measured value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    what: String,
    measured: Option<Spread>,
    at_most: Option<f64>,
    at_least: Option<f64>,
    /// `None` if it was not measured.
    met: Option<bool>,
}

impl Goal {
    fn at_most(what: String, measured: Option<Spread>, limit: f64) -> Goal {
        let met = measured.map(|measured| measured.median <= limit);
        Goal { what, measured, at_most: Some(limit), at_least: None, met }
    }

    fn at_least(what: String, measured: Option<Spread>, limit: f64) -> Goal {
        let met = measured.map(|measured| measured.median >= limit);
        Goal { what, measured, at_most: None, at_least: Some(limit), met }
    }
}

/// The goals of all own engines that ran; the RFC has none as numbers.
pub(crate) fn of(report: &Report) -> Vec<Goal> {
    if matches!(report.experiment, Experiment::Rfc8867 { .. }) {
        return Vec::new();
    }
    let own = report.engines.iter().copied().filter(|engine| engine.is_own());
    own.flat_map(|engine| of_engine(report, engine)).collect()
}

fn of_engine(report: &Report, engine: Engine) -> Vec<Goal> {
    let name = engine.word();
    if report.experiment == Experiment::Loopback {
        let beside = ratio(report, engine, Engine::Quic, Measure::mbit_per_s);
        return vec![Goal::at_least(format!("{name}: Mbit/s, of QUIC streams'"), beside, 0.8)];
    }
    if let Some(unreserved) = report.unreserved_bps {
        let share = report.summary((engine, 0), |measure| Some(measure.beside_bps? / unreserved));
        return vec![Goal::at_least(format!("{name}: TCP beside it, of the unreserved part"), share, 0.9)];
    }
    let best = best_rival(report);
    let (rival, least) = best.map_or(("any rival".to_owned(), 0.0), |(rival, most)| (rival.word(), most));
    let in_time = best.and_then(|_| report.summary((engine, 0), |measure| Some(measure.in_time)));
    let cpu = ratio(report, engine, Engine::Srt120, Measure::cpu_ms_per_mbit);
    vec![
        Goal::at_least(format!("{name}: frames in time, beside the best rival's, {rival}"), in_time, least),
        Goal::at_most(format!("{name}: delay p99, ms"), report.summary((engine, 0), |measure| measure.p99_ms), 150.0),
        Goal::at_most(format!("{name}: CPU time per Mbit, of SRT's"), cpu, 1.2),
    ]
}

/// The rival with the most frames in time.
fn best_rival(report: &Report) -> Option<(Engine, f64)> {
    let rivals = report.engines.iter().filter(|engine| !engine.is_own());
    let known = rivals.filter_map(|rival| Some((*rival, report.summary((*rival, 0), |m| Some(m.in_time))?.median)));
    known.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// A number of one engine over another's, of the rounds in which both ran.
fn ratio(report: &Report, one: Engine, other: Engine, number: fn(&Measure) -> Option<f64>) -> Option<Spread> {
    let of = |engine| report.values((engine, 0), number);
    let others = of(other);
    let in_round = |round: u32| others.iter().find(|(at, _)| *at == round).map(|(_, value)| *value);
    Spread::of(of(one).into_iter().filter_map(|(round, value)| Some(value / in_round(round)?)))
}

pub(crate) fn table(goals: &[Goal]) -> Table {
    let mut table = report::table(["goals", "measured", "wanted", ""].map(str::to_owned));
    for goal in goals {
        let limit = goal.at_most.map(|most| format!("≤ {}", number(most)));
        let limit = limit.or_else(|| goal.at_least.map(|least| format!("≥ {}", number(least))));
        let word = goal.met.map_or("not measured", |met| if met { "met" } else { "not met" });
        let measured = goal.measured.map_or("–".to_owned(), |measured| measured.text(number));
        table.add_row([goal.what.clone(), measured, limit.unwrap_or_default(), word.to_owned()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::report::Record;

    #[test]
    fn a_goal_without_a_figure_is_neither_met_nor_not() {
        let met = |measured| Goal::at_most(String::new(), measured, 1.0).met;
        assert_eq!(met(None), None);
        assert_eq!(met(Spread::of([1.0])), Some(true));
        assert_eq!(met(Spread::of([1.1])), Some(false));
        assert_eq!(Goal::at_least(String::new(), Spread::of([0.9]), 0.9).met, Some(true));
    }

    #[test]
    fn without_a_rival_the_goal_beside_the_best_one_is_not_measured() {
        let of = |engines: Vec<Engine>| {
            let mut report = Report::new(String::new(), &Options::example(), engines.clone(), vec![None]);
            let record = |engine| Record { round: 0, engine, flow: 0, measure: Measure::default() };
            report.records.extend(engines.into_iter().map(record));
            super::of(&report)[0].met
        };
        assert_eq!((of(vec![Engine::Metp]), of(vec![Engine::Metp, Engine::Tcp])), (None, Some(true)));
    }
}
