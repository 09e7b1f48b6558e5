//! Utility functions of a contract: E-code texts become tables, for the solver and for the supervisor.
//!
//! A text is hostile: it is compiled, called once for each level with bounded instructions, and never kept. Its table
//! must not fall, because the supervisor relies on it (thesis §2.1: «a non-decreasing relationship»).

use qfabric_broker::{Steps, UtilityStep};
use qfabric_control::utility::{self, Choices, Level, MOST_UTILITY, Tables};
use qfabric_ecode::{CallContext, Engine, Environment, Interpreter, Limits, compile};
use qfabric_types::api::Problem;
use qfabric_types::format::{Kind, Scalar};
use qfabric_types::{MetricLevel, Share, Utility, UtilityMetric, UtilityStatus};

/// Limit of the instructions of all loops of one call; bounds all texts of a contract to about a million.
const FUEL: u32 = 2_000;

/// A text that cannot serve as a utility function.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("metric {metric}: its {what} does not compile: {reason}")]
    DoesNotCompile { metric: String, what: &'static str, reason: String },
    #[error("metric {metric}: its {what} takes {found}; use one number, such as `int f(int level) {{ … }}`")]
    Input { metric: String, what: &'static str, found: String },
    #[error(
        "metric {metric}: its {what} failed at level {level}: {reason}; a call may take {FUEL} instructions in loops"
    )]
    Fault { metric: String, what: &'static str, level: i64, reason: String },
    #[error("metric {metric}: its {what} is {value} at level {level}; use 0 to {most}")]
    OutOfRange { metric: String, what: &'static str, level: i64, value: i64, most: u64 },
    #[error("metric {metric}: its {what} falls from {before} to {after} at level {level}; it may only grow or stay")]
    Falls { metric: String, what: &'static str, level: i64, before: u64, after: u64 },
}

/// The tables of a contract's utility, with the weight of the contract.
pub(crate) fn tables(utility: &Utility, weight: u32) -> Result<Tables, Problem> {
    let metrics: Result<Vec<Vec<Level>>, Unusable> = utility.metrics.iter().map(levels).collect();
    let next = "correct the function; `qfabric ecode check FILE` shows errors with their place";
    let metrics = metrics.map_err(|reason| Problem::new("invalid_utility", reason.to_string(), next))?;
    Ok(Tables { weight: weight.max(1), metrics })
}

fn levels(metric: &UtilityMetric) -> Result<Vec<Level>, Unusable> {
    let gains = values(metric, "utility", &metric.utility, MOST_UTILITY)?;
    let shares = values(metric, "CPU time", &metric.cpu, Share::MAX.ppm().into())?;
    let level = |((value, utility), share)| Level { value, utility, needs: vec![share] };
    Ok(metric.levels().zip(gains).zip(shares).map(level).collect())
}

/// The values of a text at all levels of a metric: 0 to `most`, and never falling.
fn values(metric: &UtilityMetric, what: &'static str, text: &str, most: u64) -> Result<Vec<u64>, Unusable> {
    let name = || metric.name.clone();
    let program = compile(text, &Environment::default()).map_err(|reason| Unusable::DoesNotCompile {
        metric: name(),
        what,
        reason: reason.to_string(),
    })?;
    let mut engine = Interpreter::new(&program, Limits { fuel: FUEL, emissions: 0 });
    let [field] = &program.input.fields[..] else {
        return Err(Unusable::Input { metric: name(), what, found: format!("{} values", program.input.fields.len()) });
    };
    let size = match (&field.kind, field.dims.is_empty()) {
        (Kind::Scalar(Scalar::I32), true) => 4,
        (Kind::Scalar(Scalar::I64), true) => 8,
        _ => return Err(Unusable::Input { metric: name(), what, found: field.type_text() }),
    };
    let mut before = 0;
    let at = |level: i64| {
        let word = level.to_le_bytes();
        let value = engine.call(&word[..size], &CallContext::default(), &mut |_| ());
        let value =
            value.map_err(|fault| Unusable::Fault { metric: name(), what, level, reason: fault.to_string() })?;
        let after = u64::try_from(value).ok().filter(|value| *value <= most);
        let after = after.ok_or_else(|| Unusable::OutOfRange { metric: name(), what, level, value, most })?;
        if after < before {
            return Err(Unusable::Falls { metric: name(), what, level, before, after });
        }
        before = after;
        Ok(after)
    };
    metric.levels().map(at).collect()
}

/// The preferences of an application, as the supervisor uses them.
pub(crate) fn steps(tables: &Tables) -> Steps {
    let (floor, steps) = utility::steps(tables, 0);
    let share = |ppm: u64| Share::from_ppm(ppm.min(Share::MAX.ppm().into()) as u32);
    let step =
        |step: &utility::Step| UtilityStep { share: share(step.need), gain: step.gain.min(u64::MAX.into()) as u64 };
    Steps { floor: share(floor), steps: steps.iter().map(step).collect() }
}

/// The best levels for a share, and their utility.
pub(crate) fn status(utility: &Utility, tables: &Tables, granted: Share) -> UtilityStatus {
    let own = Tables { weight: 1, metrics: tables.metrics.clone() };
    let most = own.metrics.iter().filter_map(|levels| Some(levels.last()?.utility)).sum();
    let plan = utility::solve(&Choices { applications: vec![own], capacity: vec![granted.ppm().into()] });
    let (at, value) = match &plan {
        Ok(plan) => (plan.levels[0].clone(), plan.utility as u64),
        Err(_) => (vec![0; tables.metrics.len()], 0),
    };
    let chosen: Vec<&Level> = tables.metrics.iter().zip(&at).map(|(levels, at)| &levels[*at]).collect();
    let needs: u64 = chosen.iter().map(|level| level.needs[0]).sum();
    let level =
        |(metric, level): (&UtilityMetric, &&Level)| MetricLevel { metric: metric.name.clone(), level: level.value };
    UtilityStatus {
        utility: value,
        most,
        needs: Share::from_ppm(needs.min(Share::MAX.ppm().into()) as u32),
        levels: utility.metrics.iter().zip(&chosen).map(level).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(utility: &str, cpu: &str) -> Utility {
        let (utility, cpu) = (utility.to_owned(), cpu.to_owned());
        Utility { metrics: vec![UtilityMetric { name: "rate".to_owned(), min: 5, max: 25, step: 5, utility, cpu }] }
    }

    const CPU: &str = "int cpu(int rate) { return rate * 10000; }";

    #[test]
    fn the_function_of_the_thesis_becomes_a_table_and_steps() {
        let utility = metric("int utility1 (int rate) { return rate*4; }", CPU);
        let tables = tables(&utility, 3).unwrap();
        let values: Vec<_> =
            tables.metrics[0].iter().map(|level| (level.value, level.utility, level.needs[0])).collect();
        assert_eq!(values[0], (5, 20, 50_000));
        assert_eq!(values[4], (25, 100, 250_000));
        let steps = steps(&tables);
        assert_eq!((steps.floor, steps.steps.iter().map(|s| s.gain).sum::<u64>()), (Share::from_ppm(50_000), 3 * 80));
        let at = |ppm| status(&utility, &tables, Share::from_ppm(ppm));
        assert_eq!((at(170_000).utility, at(170_000).levels[0].level, at(170_000).most), (60, 15, 100));
        assert_eq!((at(40_000).utility, at(40_000).levels[0].level), (0, 5), "the grant is below the minimum");
    }

    #[test]
    fn a_text_that_cannot_serve_is_refused_with_the_metric_and_the_reason() {
        let refusal = |utility: &str| tables(&metric(utility, CPU), 1).unwrap_err().message;
        assert!(refusal("int u(int rate) { return rat; }").contains("metric rate: its utility does not compile"));
        assert!(refusal("int u(int rate) { return 100 - rate; }").contains("falls from 95 to 90 at level 10"));
        assert!(refusal("int u(int rate) { return -rate; }").contains("is -5 at level 5; use 0 to 1000000000"));
        assert!(refusal("int u(int rate) { return rate / (rate - 5); }").contains("failed at level 5"));
        assert!(refusal("int u(int rate, int other) { return rate; }").contains("2 values"));
        let endless = refusal("int u(int rate) { int i = 0; while (i < 1000000000) i++; return rate; }");
        assert!(endless.contains("2000 instructions"), "{endless}");
        let message = tables(&metric("int u(int r) { return r; }", "int c(int r) { return 0 - r; }"), 1).unwrap_err();
        assert!(message.message.contains("its CPU time is -5"), "{message:?}");
    }
}
