//! The conference under every adaptation. A failure names scenario, adaptation and seed.

use qfabric_sim::conference::{Adaptation, Options, Run, Scenario, run};

/// Number of seeds; `QFABRIC_SEEDS` sets another number.
fn seeds() -> u64 {
    std::env::var("QFABRIC_SEEDS").map_or(1, |text| text.parse().expect("a number of seeds"))
}

fn conference(scenario: Scenario, adaptation: Adaptation, seed: u64) -> Run {
    run(&Options { scenario, adaptation, hosts: 3, seed, ..Options::default() })
}

#[test]
fn integrated_control_is_at_least_as_good_as_each_adaptation_alone() {
    for (scenario, seed) in
        Scenario::ALL.into_iter().flat_map(|scenario| (1..=seeds()).map(move |seed| (scenario, seed)))
    {
        let utility = |adaptation| conference(scenario, adaptation, seed).utility();
        let (app, cpu) = (utility(Adaptation::App), utility(Adaptation::Cpu));
        let both = utility(Adaptation::Integrated);
        println!("{scenario:?} seed {seed}: app {app:.3}, cpu {cpu:.3}, integrated {both:.3}");
        assert!(both >= app.max(cpu) * 0.99, "{scenario:?} seed {seed}: {both} of {app} and {cpu}");
    }
}

#[test]
fn the_wanted_rate_is_back_within_three_seconds() {
    for (scenario, seed) in [Scenario::B, Scenario::C, Scenario::D, Scenario::E].into_iter().zip(1..) {
        let run = conference(scenario, Adaptation::Integrated, seed);
        for row in &run.rows {
            let back = row.recovery_s.expect("a disturbance");
            assert!((0.0..=3.0).contains(&back), "seed {seed}: {row:?}");
        }
    }
}

/// Without the delays as a sign, the ladder would wait 60 to 240 s, and then climb a rung in ten seconds.
#[test]
fn levels_return_within_half_a_minute_after_a_link_has_recovered() {
    for (adaptation, seed) in [Adaptation::App, Adaptation::Integrated].into_iter().zip(1..) {
        let options = Options { scenario: Scenario::G, adaptation, hosts: 3, seconds: 300, seed, ..Options::default() };
        let (run, recovered) = (run(&options), 180.0);
        let lowest = run.changes.iter().filter(|(at, _)| *at < recovered).map(|(_, rung)| *rung).max();
        assert!(lowest.is_some_and(|rung| rung >= 3), "{adaptation:?} seed {seed}: {:?}", run.changes);
        let best = run.changes.iter().find(|(at, rung)| *at > recovered && *rung == 0);
        let is_soon = best.is_some_and(|(at, _)| *at <= recovered + 30.0);
        assert!(is_soon, "{adaptation:?} seed {seed}: {:?}", run.changes);
    }
}

#[test]
fn a_steady_shortage_causes_at_most_two_changes_per_minute() {
    for scenario in [Scenario::A, Scenario::E, Scenario::F] {
        let options = Options { scenario, hosts: 3, seconds: 300, ..Options::default() };
        let run = run(&options);
        let steady: Vec<f64> = run.changes.iter().map(|(at, _)| *at).filter(|at| *at > 60.0).collect();
        let busiest = steady.iter().map(|from| steady.iter().filter(|at| (*from..from + 60.0).contains(*at)).count());
        assert!(busiest.max().unwrap_or(0) <= 2, "{scenario:?}: {:?}", run.changes);
    }
}

#[test]
fn one_bad_link_of_five_changes_nothing_for_the_others() {
    let options = Options { scenario: Scenario::A, hosts: 6, seconds: 60, ..Options::default() };
    let (good, bad) = (run(&options), run(&Options { has_bad_link: true, ..options }));
    assert_eq!((bad.changes.len(), bad.rows.len()), (0, 5));
    assert!(bad.rows[0].utility < 0.5, "{:?}", bad.rows[0]);
    for (good, bad) in good.rows.iter().zip(&bad.rows).skip(1) {
        assert!((good.utility - bad.utility).abs() < 0.01, "{good:?} {bad:?}");
    }
}

#[test]
fn lost_events_and_a_crash_do_not_degrade_the_others() {
    let options = Options { hosts: 5, has_faults: true, ..Options::default() };
    let run = run(&options);
    assert!(run.rows[..3].iter().all(|row| row.utility > 0.97), "{:?}", run.rows);
    assert!(run.rows[3].utility > 0.85, "the client that was away for 5 of 120 s: {:?}", run.rows[3]);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = Options { hosts: 3, seconds: 40, has_faults: true, ..Options::default() };
    assert_eq!(run(&options).rows, run(&options).rows);
    assert_ne!(run(&options).rows, run(&Options { seed: 2, ..options }).rows);
}
