//! Promises of delay are kept under load that respects the admission, in the test machine: its only CPU counts
//! instructions as time, so the results do not depend on chance. This test has its own `main`, because the streams are
//! processes of this program.

use qfabric_contest::delays;
use qfabric_contest::regime::Competitor;
use qfabric_contest::work::Work;
use qfabric_linux::testing::skip;
use qfabric_types::Nanos;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        "child" => qfabric_contest::actor::child().expect("the child's output above gives the reason"),
        "--list" => println!("promises_of_delay_are_kept: test"),
        _ if std::env::var_os("QFABRIC_VM").is_none() => {
            skip("promises of delay need the test machine: make vm-test ARGS='--only contest'");
        }
        _ => promises_of_delay_are_kept(),
    }
}

fn promises_of_delay_are_kept() {
    let work = Work::calibrate();
    for competitor in [Competitor::Dwcs, Competitor::Htb] {
        let outcome = delays::run(competitor, Nanos::from_millis(4_000), work).expect("the error gives the reason");
        println!("{}", outcome.text());
        let kept = outcome.kept();
        assert!(kept.total > 500 && outcome.promised.get() > delays::RATE_BPS / 2, "{outcome:?}");
        assert!(outcome.refused.iter().any(|why| why.contains("B: ")), "the link was not filled: {outcome:?}");
        // HTB keeps no deadlines; it is printed for comparison.
        assert!(competitor == Competitor::Htb || kept.ratio() >= 0.99, "{kept:?}");
    }
    println!("test result: ok. 1 passed; 0 failed");
}
