//! Checks the claims with a small contest in the test machine. Its only CPU counts instructions as time, so the
//! results do not depend on chance. This test has its own `main`, because the tasks are processes of this program.

use qfabric_contest::claims;
use qfabric_contest::experiment::{Experiment, Plan};
use qfabric_contest::regime::Competitor::{self, *};
use qfabric_contest::row::Row;
use qfabric_contest::work::Work;
use qfabric_linux::testing::skip;
use qfabric_types::Nanos;

/// Experiment, number of tasks, competitors.
const CONTESTS: [(Experiment, usize, &[Competitor]); 5] = [
    (Experiment::Windows, 5, &[Deadline, Ext]),
    (Experiment::Overload, 5, &[Deadline, Ext]),
    (Experiment::Rate, 20, &[Default, ExtEvents]),
    (Experiment::Packets, 3, &[Fifo, Dwcs]),
    (Experiment::Both, 1, &[Neither, Together]),
];

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        "child" => qfabric_contest::actor::child().expect("the child's output above gives the reason"),
        "--list" => println!("the_claims_hold_in_a_small_contest: test"),
        _ if std::env::var_os("QFABRIC_VM").is_none() => {
            skip("a contest needs a separate machine; run `cargo run -p xtask -- vm test --only contest`");
        }
        _ => the_claims_hold_in_a_small_contest(),
    }
}

fn the_claims_hold_in_a_small_contest() {
    let work = Work::calibrate();
    let rows: Vec<_> = CONTESTS.iter().flat_map(|contest| run_contest(contest, work)).collect();
    println!("{}", qfabric_contest::report::table(&rows));
    assert_eq!(rows.len(), 10, "one row per competitor");
    let failed = claims::failed(&rows);
    assert!(failed.is_empty(), "{failed:#?}");
    println!("test result: ok. 1 passed; 0 failed");
}

fn run_contest(&(experiment, n, competitors): &(Experiment, usize, &[Competitor]), work: Work) -> Vec<Row> {
    let (sizes, competitors) = (vec![n], competitors.to_vec());
    let plan = Plan { sizes, span: Nanos::from_millis(2_000), rounds: 1, competitors, alignment: None };
    let mut rows = Vec::new();
    let report = |row: &Row| {
        rows.push(row.clone());
        Ok(())
    };
    experiment.run(&plan, work, report).unwrap_or_else(|e| panic!("{}: {e:#}", experiment.name()));
    rows
}
