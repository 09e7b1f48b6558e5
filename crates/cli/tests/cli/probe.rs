//! `probe` with real programs: the profile that it stores, or why it stores none.

use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::Answer;
use crate::live::{live, sh, signal, wait_until};

#[test]
fn probe_stores_a_profile_that_run_starts_from() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done";
    let probed = Answer::of(&mut sh(folder.path(), "probe --period 50ms --name p --json", script));
    probed.expect(0, &["qfabric run --period 50ms --profile p --max-bandwidth", "-- sh -c"]);
    let json = probed.json();
    assert!(json["jobs"].as_u64().unwrap() > 0 && json["mean_cost_ns"].as_u64().unwrap() > 0, "{json}");
    assert!(folder.path().join("qfabric/profiles/p.json").exists());
    Answer::of(&mut sh(folder.path(), "run --period 50ms --profile p --quiet", "true")).expect(0, &[]);
    let other = Answer::of(&mut sh(folder.path(), "run --period 50ms --profile p,size=640x480 --quiet", "true"));
    other.expect(2, &["no profile p,size=640x480", "stored are p on "]);
}

#[test]
fn probe_stores_no_profile_of_a_failed_program_and_says_so() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; exit 3";
    let probed = Answer::of(&mut sh(folder.path(), "probe --period 50ms --name p", script));
    probed.expect(3, &["no profile is stored", "exit code 3"]);
    assert!(!probed.out.contains("--profile"), "{probed:?}");
    assert!(!folder.path().join("qfabric").exists(), "{probed:?}");
}

/// A trial of a server ends by Ctrl-C, whatever the exit code of the server is then.
#[test]
fn the_profile_of_an_interrupted_trial_is_stored() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = format!(
        "trap 'exit 4' INT; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done; touch {}; while :; do sleep 0.02; done",
        ready.display()
    );
    let mut command = sh(folder.path(), "probe --period 20ms --name p", &script);
    let probe = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| ready.exists());
    signal(&probe, Signal::INT);
    Answer::from(probe.wait_with_output().unwrap()).expect(4, &["profile: ", "p.json"]);
    assert!(folder.path().join("qfabric/profiles/p.json").exists());
}

/// The sum over all threads is limited by the number of CPUs, and so is the suggestion.
#[test]
fn probe_finds_no_more_bandwidth_than_the_machine_has() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "for i in 1 2 3 4; do (n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done) & done; wait";
    let probed = Answer::of(&mut sh(folder.path(), "probe --period 20ms --name p --json", script)).json();
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    for key in ["mean", "peak", "max_bandwidth"] {
        assert!(probed[key].as_f64().unwrap() <= cpus + 1e-6, "{key}: {probed}");
    }
}
