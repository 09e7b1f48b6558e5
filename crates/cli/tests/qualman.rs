//! `qfabric demo --only qualman`, short, with the real decoder, daemons and links. Counts decide, never times: the quality is
//! measured by the command itself, on a machine without other load.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use qfabric_linux::testing::{live_lock, may_reserve, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Builds the player beside the program, with the same profile.
fn player() -> &'static Path {
    static PLAYER: OnceLock<PathBuf> = OnceLock::new();
    PLAYER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_qfabric")).parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "-q", "-p", "qfabric-player", "--target-dir"]).arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "qfabric-player does not build");
        folder.join("qfabric-player")
    })
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
    command.args(["demo", "--only", "qualman", "--hogs", "3", "--seed", "1"]).args(arguments);
    command
}

/// One run of 30 frames of each reservation, as JSON.
fn measured(experiment: &str, more: &[&str]) -> Value {
    let mut command = demo(&["--only", experiment, "--frames", "30", "--runs", "1", "--json", "-"]);
    let Output { status, stdout, stderr } = command.args(more).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

/// Every run has been played, with the keys of the contract.
fn check(report: &Value, reservations: &[&str], streams: usize) {
    let runs = report["runs"].as_array().unwrap();
    let reserved: Vec<&str> = runs.iter().map(|run| run["reserved"].as_str().unwrap()).collect();
    assert!(reservations.iter().all(|wanted| reserved.contains(wanted)), "{reserved:?}, {}", report["notes"]);
    assert!(report["is_complete"].as_bool().unwrap() && report["factor"].as_f64().unwrap() < 0.1);
    for stream in runs.iter().flat_map(|run| run["streams"].as_array().unwrap()) {
        let number = |key: &str| stream[key].as_u64().unwrap_or_else(|| panic!("{key}: {stream}"));
        assert!(number("missing") <= number("frames") && number("beyond") <= number("frames"), "{stream}");
        let intra = stream["intra_frame_ms"].as_array().unwrap().len() as u64;
        assert!(
            intra <= number("frames")
                && ["mean_ms", "largest_ms", "period_ms"].iter().all(|key| stream.get(key).is_some())
        );
    }
    assert!(runs.iter().all(|run| run["streams"].as_array().unwrap().len() == streams));
}

#[test]
fn one_player_is_played_under_each_reservation_and_drawn() {
    if !may_reserve() || Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status().is_err() {
        skip("needs SCHED_DEADLINE and ffmpeg");
        return;
    }
    let (_alone, _) = (live_lock(), player());
    let folder = tempfile::tempdir().unwrap();
    let report = measured("cpu-1", &["--out", folder.path().to_str().unwrap()]);
    check(&report, &["nothing", "cpu", "cpu-memory"], 1);
    for extension in ["png", "svg"] {
        let picture = folder.path().join(format!("qualman-cpu-1.{extension}"));
        assert!(picture.metadata().unwrap().len() > 1_000, "{picture:?}");
    }
}

#[test]
#[cfg(feature = "metp")]
fn picture_and_sound_cross_the_link_with_everything_reserved() {
    if !may_reserve() || !Path::new("/dev/net/tun").exists() || !rustix::process::geteuid().is_root() {
        skip("needs SCHED_DEADLINE, root and /dev/net/tun");
        return;
    }
    let _alone = live_lock();
    let report = measured("lip", &[]);
    check(&report, &["nothing", "everything"], 2);
    for part in ["sender", "receiver"] {
        let says = |note: &Value| note.as_str().unwrap().contains(&format!("of the {part}'s memory are "));
        assert!(report["notes"].as_array().unwrap().iter().any(says), "{part}: {}", report["notes"]);
    }
    for run in report["runs"].as_array().unwrap() {
        let (within, samples) =
            (run["skew"]["within_10_ms"].as_f64().unwrap(), run["skew"]["samples"].as_u64().unwrap());
        assert!((0.0..=1.0).contains(&within) && samples <= 30, "{}", run["skew"]);
    }
}

/// The background programs of a demo that is the parent of all of them.
fn background(demo: &Child) -> usize {
    let parent = demo.id().to_string();
    let is_ours = |folder: &std::fs::DirEntry| {
        let line = std::fs::read(folder.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&b"background".as_slice()) && words.contains(&parent.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(is_ours).count()
}

#[test]
fn ctrl_c_and_a_kill_leave_no_process_behind() {
    if !may_reserve() || Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status().is_err() {
        skip("needs SCHED_DEADLINE and ffmpeg");
        return;
    }
    let (_alone, _) = (live_lock(), player());
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let mut command = demo(&["--only", "cpu-1"]);
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while background(&running) < 3 {
            assert!(running.try_wait().unwrap().is_none(), "it ended too early");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        kill_process(Pid::from_child(&running), signal).unwrap();
        assert_eq!(running.wait().unwrap().code(), code);
        // The kernel kills them a moment after their parent.
        while background(&running) > 0 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

#[test]
fn an_unknown_experiment_and_too_few_seconds_are_refused_with_the_next_step() {
    for (arguments, named) in [(["--only", "cpu-9"], "cpu-1"), (["--seconds", "5"], "at least")] {
        let output = demo(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(named), "{text}");
    }
}
