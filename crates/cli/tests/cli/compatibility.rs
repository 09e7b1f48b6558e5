//! Real programs under a reservation: those of docs/guide/src/compatibility.md that are installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use qfabric_linux::testing::skip;

use crate::harness::{Answer, qfabric};
use crate::live::live;

/// The browsers of crates/daemon/tests/web/browser.rs.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"];

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

/// Whether a program is installed; if not, prints why nothing is tested.
pub(crate) fn is_here(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().unwrap().status.success();
    if !found {
        skip(format!("{program} is not installed"));
    }
    found
}

/// Runs `qfabric run LINE`. None if the program behind `--` is not installed, or no reservation is possible here.
fn run(line: &str) -> Option<Answer> {
    run_in(tempfile::tempdir().unwrap().path(), line)
}

/// As [`run`], in `folder`.
fn run_in(folder: &Path, line: &str) -> Option<Answer> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = words[1 + words.iter().position(|word| *word == "--").expect("a program behind --")];
    let _lock = live()?;
    is_here(program).then(|| Answer::of(qfabric(folder).arg("run").args(words).current_dir(folder)))
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

/// x264 starts more threads than there are CPUs; each frame waits for rows of the frame before it in another thread.
#[test]
fn x264_encodes_every_frame_with_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = b"YUV4MPEG2 W320 H240 F25:1 C420jpeg\n".to_vec();
    for frame in 0..200_u32 {
        film.extend(b"FRAME\n");
        film.extend((0..320 * 240 * 3 / 2).map(|at: u32| (at.wrapping_mul(at) >> 7).wrapping_add(3 * frame) as u8));
    }
    std::fs::write(folder.path().join("film.y4m"), film).unwrap();
    for options in ["", "--max-bandwidth 1.4", "--fps 25"] {
        let line = format!("{options} -- x264 --no-progress --threads 6 -o film.mkv film.y4m");
        let Some(encoded) = run_in(folder.path(), &line) else { return };
        encoded.expect(0, &["encoded 200 frames", "reserved on average"]);
    }
}

/// Chromium starts several processes with many threads. The page is computed by its script and drawn as a picture. The
/// limit is for a thread that never runs again: without it, the test would not end.
#[test]
fn chromium_computes_and_draws_a_page() {
    let is_there = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let Some(browser) = BROWSERS.into_iter().find(is_there) else {
        return skip("chromium-headless-shell is not installed, nor another Chromium");
    };
    let folder = tempfile::tempdir().unwrap();
    let page = "data:text/html,<p/id=answer></p><script>answer.textContent=6*7</script>";
    let line = format!(
        "--max-bandwidth 1.4 -- timeout -s KILL 300 {browser} --headless --no-sandbox --disable-gpu --no-first-run \
         --disable-background-networking --user-data-dir={} --dump-dom --screenshot=shot.png {page}",
        folder.path().join("profile").display()
    );
    let Some(drawn) = run_in(folder.path(), &line) else { return };
    drawn.expect(0, &["<p id=\"answer\">42</p>", "reserved on average"]);
    assert!(std::fs::read(folder.path().join("shot.png")).unwrap().starts_with(b"\x89PNG"), "{drawn:?}");
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
