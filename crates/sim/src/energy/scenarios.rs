//! The scenarios, each named after its figure.

use qfabric_energy::Model;
use qfabric_sched::dwcs::BadTask;
use qfabric_types::Window;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::device::{CardRule, Source, Techniques, run};
use super::report::Report;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Name and title of each scenario.
pub const SCENARIOS: [(&str, &str); 1] =
    [("fig53", "Figure 53: three streams, 5 kB every 200 ms, with and without bursts, 10 s")];

/// Simulates the scenario of this name; `None` if there is none.
///
/// # Errors
/// [`BadTask`] if the model is so slow that a task does not fit into its period.
pub fn simulate(scenario: &str, model: &Model, seed: u64) -> Option<Result<Report, BadTask>> {
    let (name, title) = SCENARIOS.into_iter().find(|(name, _)| *name == scenario)?;
    let report = Report::new(name, title, seed, model);
    Some(fill(report, model, seed))
}

fn fill(report: Report, model: &Model, seed: u64) -> Result<Report, BadTask> {
    figure_53(report, model, seed)
}

/// Linux's default: the card dozes 100 ms after the last packet.
const DEFAULT_CARD: CardRule = CardRule::Doze(100 * MS);
const AT_ONCE: CardRule = CardRule::Doze(0);

fn figure_53(mut report: Report, model: &Model, seed: u64) -> Result<Report, BadTask> {
    let (period, duration) = (200 * MS, 10 * SECOND);
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    // The three phases are a third of the period apart, give or take 5 ms.
    let mut source = |third: u64| Source {
        period,
        arrival: third * period / 3 + chance.random_range(0..10 * MS),
        work: MS,
        bytes: 5_000,
        window: Window::new(1, 10).expect("1/10 is a window"),
        slack: 0,
        network: 100,
    };
    let sources = [source(0), source(1), source(2)];
    let ladder = [
        ("card always awake", CardRule::Awake, false),
        ("doze after 100 ms", DEFAULT_CARD, false),
        ("doze at once", AT_ONCE, false),
        ("bursts, doze after 100 ms", DEFAULT_CARD, true),
        ("bursts, doze at once", AT_ONCE, true),
    ];
    for (policy, card, shapes) in ladder {
        let techniques = Techniques { card, shapes, ..Techniques::NONE };
        report.add(policy, 0.0, &run(model, &sources, techniques, duration)?);
    }
    Ok(report)
}
