//! The kernel's sum of reserved bandwidth is made wrong on purpose: `doctor` and the daemon report it, the daemon
//! promises less, and `doctor --fix` repairs it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::testing::losses::{book_for_nobody, subtract_twice};
use qfabric_linux::{books, capacity, testing};
use qfabric_types::Share;
use serde_json::Value;

use crate::harness::{Answer, answer, qfabric};
use crate::live::{Daemon, live, wait_until};

/// 0.0625 CPU in the kernel's units.
const LOST: u64 = 1 << 16;

/// Locks the scheduler for this test. None if the kernel's sum cannot be read. A sum that is wrong already is the leak
/// of an earlier test or of another program: the test fails, because a leak is what these tests are about.
fn lock_with_correct_sum() -> Option<File> {
    let lock = live()?;
    let debugfs = Path::new(DEBUGFS);
    if let Err(error) = capacity::booked_units(debugfs) {
        testing::skip(format!("the kernel's sum cannot be read: {error}"));
        return None;
    }
    let books = books::lost(debugfs).expect("the kernel's sum can be read");
    let advice = "find the test or program that left this leak, then run qfabric doctor --fix";
    assert_eq!(books.without_owner(), 0, "{books:?}; {advice}");
    Some(lock)
}

fn booked(line: &str) -> (f64, Value) {
    let json = answer(line).json();
    let finding = json["findings"].as_array().unwrap().iter().find(|f| f["name"] == "booked").unwrap().clone();
    (json["booked_for_nobody"].as_f64().unwrap(), finding)
}

#[test]
fn bandwidth_booked_for_nobody_is_reported_not_promised_logged_and_freed() {
    let Some(_lock) = lock_with_correct_sum() else { return };
    let wrong = book_for_nobody(LOST);
    let (lost, finding) = booked("doctor --json");
    assert_eq!((lost, &finding["state"], &finding["fixable"]), (0.0625, &"warn".into(), &true.into()), "{finding}");

    let (folder, log) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let all = books::ceiling(Path::new(DEBUGFS)).unwrap();
    let config = format!("[limits]\ncapacity = {}\n", all.as_f64());
    let its_own = qfabric_daemon::Config::default().control_reservation().unwrap().expect("the default reserves");
    let all = all - its_own.share();
    let stderr = Stdio::from(log.reopen().unwrap());
    let daemon = Daemon::start_logging(folder.path(), &config, stderr);
    let capacity = || {
        let status = Answer::of(qfabric(folder.path()).args(["status", "--json"])).json();
        Share::from_f64(status["capacity"].as_f64().unwrap())
    };
    wait_until(|| metric(folder.path(), "qfabric_booked_for_nobody_cpus") == 0.0625);
    assert_eq!(capacity(), all - Share::from_f64(0.0625));
    wait_until(|| {
        let messages = std::fs::read_to_string(log.path()).unwrap();
        messages.contains("has booked this bandwidth for no thread") && messages.contains("qfabric doctor --fix")
    });

    let (left, finding) = booked("doctor --fix --json");
    assert_eq!((left, &finding["state"]), (0.0, &"ok".into()), "{finding}");
    wait_until(|| metric(folder.path(), "qfabric_booked_for_nobody_cpus") == 0.0);
    assert_eq!(capacity(), all);
    drop((daemon, wrong));
}

#[test]
fn a_sum_below_zero_is_reported_and_repaired() {
    let Some(_lock) = lock_with_correct_sum() else { return };
    let Some(_wrong) = subtract_twice() else {
        return testing::skip("this kernel does not rebuild root domains when its limit is read");
    };
    let (lost, finding) = booked("doctor --json");
    assert!((-0.301..-0.299).contains(&lost) && finding["fixable"] == true, "{lost} {finding}");
    let reason = finding["reason"].as_str().unwrap();
    let refuses = books::read(Path::new(DEBUGFS)).unwrap().refuses_everybody();
    assert!(
        reason.contains(if refuses {
            "so the kernel refuses every reservation"
        } else {
            "so the kernel admits more than it has"
        }),
        "{reason}"
    );
    let (left, finding) = booked("doctor --fix --json");
    assert_eq!((left, &finding["state"]), (0.0, &"ok".into()), "{finding}");
}

/// The value of a metric; NaN if the metric is not there yet.
fn metric(folder: &Path, name: &str) -> f64 {
    let mut stream = UnixStream::connect(folder.join("qfabric/qfabric.sock")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}
