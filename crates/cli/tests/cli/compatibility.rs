//! Real programs under a reservation: those of docs/guide/src/compatibility.md that are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use qfabric_linux::testing::skip;

use crate::harness::{Answer, qfabric};
use crate::live::live;

/// The example of a pool of threads with timers; None if there is no compiler.
fn executor(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c/executor.c");
    let program = folder.join("executor");
    let mut compiler = Command::new("cc");
    let Ok(built) = compiler.args(["-O2", "-pthread"]).arg(source).arg("-o").arg(&program).output() else {
        skip("cc is not installed");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// Runs `qfabric run LINE`. None if the program behind `--` is not installed, or no reservation is possible here.
fn run(line: &str) -> Option<Answer> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = words[1 + words.iter().position(|word| *word == "--").expect("a program behind --")];
    let _lock = live()?;
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().unwrap();
    if !found.status.success() {
        skip(format!("{program} is not installed"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    Some(Answer::of(qfabric(folder.path()).arg("run").args(words).current_dir(folder.path())))
}

#[test]
fn cyclictest_runs_with_after_and_its_failure_without_names_the_option() {
    let Some(refused) = run("-- cyclictest -q -l 100") else { return };
    refused.expect(1, &["cyclictest failed (exit code 1)", "SCHED_FIFO", "--after 500ms"]);
    let measured = run("--after 500ms -- cyclictest -q -i 1000 -l 2000").unwrap();
    measured.expect(0, &["C:   2000"]);
    // With -p the measuring thread sets itself to SCHED_FIFO. Q-Fabric does not change it, and the program works.
    run("--after 500ms -- cyclictest -q -p 80 -i 1000 -l 2000").unwrap().expect(0, &["C:   2000"]);
}

/// GLib gives all threads of its pools the scheduling of the thread that created the first pool.
#[test]
fn gstreamer_runs_with_after_without_a_critical_error() {
    let pipeline = "gst-launch-1.0 -q videotestsrc num-buffers=75 ! video/x-raw,framerate=25/1 ! \
                    videoconvert n-threads=4 ! fakesink sync=true";
    let Some(played) = run(&format!("--fps 25 --after 1s -- {pipeline}")) else { return };
    played.expect(0, &["reserved on average"]);
    assert!(!played.err.contains("CRITICAL"), "{played:?}");
}

#[test]
fn players_converters_and_stressors_run_without_further_options() {
    for line in [
        "--fps 25 -- mpv --no-config --really-quiet --vo=null --no-audio --length=2 av://lavfi:testsrc=rate=25",
        "--fps 25 -- ffmpeg -v error -nostdin -re -f lavfi -i testsrc=rate=25 -t 2 -f null -",
        "-- stress-ng -q --cpu 2 --timer 1 -t 1",
    ] {
        if let Some(ran) = run(line) {
            ran.expect(0, &["reserved on average"]);
        }
    }
}

/// Any free thread of the pool takes the timer that is due next, so each thread has jobs of all three periods.
#[test]
fn a_pool_of_threads_with_timers_runs_all_its_callbacks() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = executor(folder.path()) else { return };
    let line = format!("--period 10ms --max-bandwidth 0.9 -- {} 1", program.display());
    let Some(ran) = run(&line) else { return };
    let callbacks = ["every  10 ms: 100 callbacks", "every  40 ms: 25 callbacks", "every 100 ms: 10 callbacks"];
    ran.expect(0, &callbacks);
    ran.expect(0, &["reserved on average"]);
}
