//! `qfabric sim fabric`: the output of each experiment.

use std::path::Path;

use crate::harness::{Answer, qfabric};

fn fabric(folder: &Path, options: &str) -> Answer {
    Answer::of(qfabric(folder).current_dir(folder).args(["sim", "fabric"]).args(options.split_whitespace()))
}

#[test]
fn every_experiment_prints_and_draws_its_result() {
    let folder = tempfile::tempdir().unwrap();
    for (options, says) in [
        ("roles --seconds 50", "degraded at"),
        ("spread --clients 20 --seconds 11", "no slot above 1.3 times the mean"),
        ("balance --seconds 10", "timed out"),
        ("overhead --seconds 10", "CPU per second"),
        ("calls --seconds 5", "on event"),
        ("sync --seconds 10", "picture and sound apart"),
        ("tree --seconds 20", "for both"),
        ("cut --heal 13 --seconds 20", "all hosts had parts again"),
        ("admission --seconds 20 --rule best", "admitted elsewhere"),
        ("crowd --hosts 5 --seconds 5", "sinks known at the end 4"),
    ] {
        fabric(folder.path(), &format!("{options} --svg drawn.svg")).expect(0, &[says]);
        let drawn = std::fs::read_to_string(folder.path().join("drawn.svg")).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.contains("stroke-width=\"1.6\""), "{options}: {drawn}");
        assert!(!drawn.contains("NaN"), "{options}");
    }
}

#[test]
fn the_same_seed_gives_the_same_json() {
    let folder = tempfile::tempdir().unwrap();
    let run = |seed: u32| fabric(folder.path(), &format!("sync --seconds 10 --json --seed {seed}")).json();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn an_option_out_of_range_is_refused_with_its_range_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for (options, part) in [
        ("roles --seconds 3", "50..=3600"),
        ("spread --clients 9", "10..=1000"),
        ("spread --rule most", "none, printed, placed"),
        ("sync --drift 20000", "0..=10000"),
        ("calls --svg there/is/no/folder.svg", "folder.svg"),
    ] {
        fabric(folder.path(), options).expect(2, &[part]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    fabric(folder.path(), "calls --seconds 5 --svg -").expect(0, &["<svg"]);
}
