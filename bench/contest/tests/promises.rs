//! The promises, held in the test machine by a small contest: one CPU whose time is counted in instructions, so that
//! nothing here is a matter of luck. It has its own `main`, since the tasks are processes of this very program.

use qfabric_contest::claims;
use qfabric_contest::experiment::{Experiment, Plan};
use qfabric_contest::regime::Competitor::{self, *};
use qfabric_contest::row::Row;
use qfabric_contest::work::Work;
use qfabric_linux::testing::skip;
use qfabric_types::Nanos;

/// Experiment, number of tasks, who competes.
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
        "child" => qfabric_contest::actor::child().expect("the child's own words are above"),
        "--list" => println!("what_is_promised_holds_side_by_side: test"),
        _ if std::env::var_os("QFABRIC_VM").is_none() => {
            skip("a contest needs a machine of its own; `cargo run -p xtask -- vm test --only contest` gives it one");
        }
        _ => what_is_promised_holds_side_by_side(),
    }
}

fn what_is_promised_holds_side_by_side() {
    let work = Work::calibrate();
    let rows: Vec<_> = CONTESTS.iter().flat_map(|contest| held(contest, work)).collect();
    println!("{}", qfabric_contest::report::table(&rows));
    assert_eq!(rows.len(), 10, "everybody took part");
    let broken = claims::broken(&rows);
    assert!(broken.is_empty(), "{broken:#?}");
    println!("test result: ok. 1 passed; 0 failed");
}

fn held(&(experiment, n, competitors): &(Experiment, usize, &[Competitor]), work: Work) -> Vec<Row> {
    let (sizes, competitors) = (vec![n], competitors.to_vec());
    let plan = Plan { sizes, span: Nanos::from_millis(2_000), rounds: 1, competitors, alignment: None };
    let mut rows = Vec::new();
    let tell = |row: &Row| {
        rows.push(row.clone());
        Ok(())
    };
    experiment.run(&plan, work, tell).unwrap_or_else(|e| panic!("{}: {e:#}", experiment.name()));
    rows
}
