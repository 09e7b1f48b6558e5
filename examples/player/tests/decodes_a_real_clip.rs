//! Runs the player on a small clip that the ffmpeg program makes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FRAMES: usize = 50;

/// Makes two seconds of MPEG-2 with the group of pictures IBBPBBPBBPBB.
fn clip(folder: &Path) -> PathBuf {
    let path = folder.join("small.mkv");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=176x144:r=25:d=2"])
        .args(["-c:v", "mpeg2video", "-g", "12", "-bf", "2", "-b_strategy", "0", "-sc_threshold", "1000000000"])
        .args(["-threads", "1", "-q:v", "3"])
        .arg(&path)
        .status()
        .expect("the ffmpeg program is needed: apt-get install ffmpeg");
    assert!(made.success());
    path
}

fn player() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-player"));
    command.arg("--die-with-parent").arg(std::process::id().to_string());
    command
}

fn log_of(path: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_job_is_logged_with_its_release_cost_and_picture_type() {
    let folder = tempfile::tempdir().unwrap();
    let (clip, log) = (clip(folder.path()), folder.path().join("jobs.jsonl"));
    let status = player()
        .arg(clip)
        .args(["--seconds", "0.5", "--fps", "100", "--grace", "600", "--log"])
        .arg(&log)
        .status()
        .unwrap();
    assert!(status.success());
    let lines = log_of(&log);
    assert_eq!(lines.len(), FRAMES);
    let kinds: String = lines.iter().map(|l| l["kind"].as_str().unwrap().to_owned()).collect();
    // Packets are in decoding order: each reference frame comes before the B frames that need it.
    assert!(kinds.starts_with("IPBBPBBPBBIBB"), "{kinds}");
    let release = |k: usize| lines[k]["release_ns"].as_u64().unwrap();
    assert!((1..FRAMES).all(|k| release(k) - release(k - 1) == 10_000_000), "releases are not absolute");
    assert!(lines.iter().all(|l| l["c_ns"].as_u64().unwrap() > 0 && l["bytes"].as_u64().unwrap() > 0));
    assert!(lines.iter().all(|l| l["finish_ns"].as_u64() > l["release_ns"].as_u64()));
}

#[test]
fn a_trace_has_one_line_per_frame_and_follows_the_frame_size() {
    let folder = tempfile::tempdir().unwrap();
    let output = player().arg(clip(folder.path())).args(["--trace", "-"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let jobs: Vec<Vec<u64>> =
        text.lines().map(|l| l.split_whitespace().map(|w| w.parse().unwrap()).collect()).collect();
    assert_eq!(jobs.len(), FRAMES);
    assert!(jobs.iter().all(|j| j.len() == 2 && j[0] > 0 && j[1] > 0));
}

#[test]
fn a_player_that_waits_starts_at_the_given_time() {
    let folder = tempfile::tempdir().unwrap();
    let (clip, log) = (clip(folder.path()), folder.path().join("jobs.jsonl"));
    let mut child = player()
        .arg(&clip)
        .args(["--wait", "--seconds", "0.2", "--start-at", "17", "--shift-at", "2", "--then"])
        .arg(&clip)
        .arg("--log")
        .arg(&log)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output_line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut output_line).unwrap();
    assert_eq!(output_line, "ready\n");
    let start = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let start_ns = start.tv_sec as u64 * 1_000_000_000 + start.tv_nsec as u64 + 50_000_000;
    writeln!(child.stdin.take().unwrap(), "{start_ns}").unwrap();
    assert!(child.wait().unwrap().success());
    let lines = log_of(&log);
    assert_eq!((lines.len(), lines[0]["release_ns"].as_u64()), (5, Some(start_ns)));
    assert_eq!(lines[0]["bytes"], lines[2]["bytes"], "the second stream must start at the same frame");
}

#[test]
fn a_file_that_is_no_video_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.mkv");
    std::fs::write(&empty, b"no stream").unwrap();
    let missing = folder.path().join("missing.mkv");
    for path in [&empty, &missing] {
        let output = player().arg(path).output().unwrap();
        assert!(!output.status.success());
        let output_line = String::from_utf8(output.stderr).unwrap();
        assert!(output_line.contains(path.file_name().unwrap().to_str().unwrap()), "{output_line}");
    }
}

#[test]
fn a_hog_ends_when_its_parent_is_killed() {
    let script = format!("{} --die-with-parent $$ --hog & echo $!; wait", env!("CARGO_BIN_EXE_qfabric-player"));
    let mut parent = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output_line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut output_line).unwrap();
    let hog = PathBuf::from(format!("/proc/{}/stat", output_line.trim()));
    let state = || std::fs::read_to_string(&hog).ok().and_then(|s| s.rsplit(") ").next()?.chars().next());
    // The hog asks for the kill signal before it uses CPU time. Wait until it has used 0.1 s.
    let ticks = || -> Option<u64> {
        std::fs::read_to_string(&hog).ok()?.rsplit(") ").next()?.split_whitespace().nth(11)?.parse().ok()
    };
    while ticks().is_some_and(|ticks| ticks < 10) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(state().is_some_and(|s| s != 'Z'));
    parent.kill().unwrap();
    parent.wait().unwrap();
    // If no process reaps orphans, a zombie remains. It uses no CPU time.
    let gone = || state().is_none_or(|s| s == 'Z' || s == 'X');
    while !gone() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The pictures of the clip in decoding order, each with the headers in front of it.
fn pictures(clip: &Path) -> Vec<Vec<u8>> {
    let stream = clip.with_extension("m2v");
    let made = Command::new("ffmpeg").args(["-v", "error", "-i"]).arg(clip).args(["-c", "copy"]).arg(&stream).status();
    assert!(made.unwrap().success());
    let (stream, mut all, mut has_picture) = (std::fs::read(stream).unwrap(), vec![Vec::new()], false);
    for (at, byte) in stream.iter().enumerate() {
        let code = stream[at..].strip_prefix(&[0, 0, 1]).and_then(|rest| rest.first());
        if has_picture && matches!(code, Some(0 | 0xb3 | 0xb8)) {
            all.push(Vec::new());
            has_picture = false;
        }
        has_picture |= code == Some(&0);
        all.last_mut().unwrap().push(*byte);
    }
    all
}

#[test]
fn frames_that_another_process_hands_over_are_decoded_and_a_lost_one_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (clip, log, packets) = (clip(folder.path()), folder.path().join("jobs.jsonl"), folder.path().join("packets"));
    let pictures = pictures(&clip);
    assert_eq!(pictures.len(), FRAMES);
    let arrived = pictures.iter().enumerate().filter(|(number, _)| *number != 3);
    let frame = |(number, picture): (usize, &Vec<u8>)| {
        [&(number as u32).to_be_bytes()[..], &(picture.len() as u32).to_be_bytes(), picture].concat()
    };
    std::fs::write(&packets, arrived.flat_map(frame).collect::<Vec<u8>>()).unwrap();
    let mut player = player();
    player.arg(&clip).args(["--fps", "100", "--jobs", "40", "--grace", "600", "--packets"]).arg(&packets);
    assert!(player.arg("--log").arg(&log).status().unwrap().success());
    let lines = log_of(&log);
    let numbers: Vec<u64> = lines.iter().map(|line| line["k"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..40).filter(|number| *number != 3).collect::<Vec<u64>>(), "40 jobs were asked for");
    let kinds: String = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert!(kinds.starts_with("IPBPBBPBBIBB"), "{kinds}");
    assert!(lines.iter().all(|line| line["c_ns"].as_u64().unwrap() > 0));
}

#[test]
fn an_event_driven_player_shows_every_frame_in_order_at_the_times_that_the_daemon_computes() {
    if !qfabric_linux::testing::may_reserve() {
        return;
    }
    let _alone = qfabric_linux::testing::live_lock();
    let folder = tempfile::tempdir().unwrap();
    let mut config = qfabric_daemon::Config::default().in_directory(folder.path());
    config.log.filter = "error".into();
    let daemon = qfabric_daemon::Embedded::start(config).unwrap();
    let (clip, log) = (clip(folder.path()), folder.path().join("jobs.jsonl"));
    let mut player = player();
    player.arg(clip).args(["--event-driven", "--period", "20ms", "--jobs", "30", "--grace", "600", "--socket"]);
    assert!(player.arg(daemon.socket()).arg("--log").arg(&log).status().unwrap().success());
    let lines = log_of(&log);
    let word = |k: usize, name: &str| lines[k][name].as_u64().unwrap();
    assert_eq!((lines.len(), word(29, "k")), (30, 29));
    assert!((1..30).all(|k| word(k, "release_ns") - word(k - 1, "release_ns") == 20_000_000), "{lines:?}");
    assert!((0..30).all(|k| word(k, "finish_ns") > word(k, "release_ns")), "no frame before its display time");
}
