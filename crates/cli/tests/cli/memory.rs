//! Memory at a terminal: `run --memory`, `status`, and the limits of memory, with a real daemon.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Answer, qfabric};
use crate::live::{Daemon, live, wait_until};

fn run(folder: &Path, line: &str) -> Answer {
    Answer::of(qfabric(folder).args(line.split_whitespace()))
}

fn status(folder: &Path) -> Value {
    run(folder, "status --json").json()
}

#[test]
fn limits_of_memory_are_shown_changed_and_never_below_the_promises() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _daemon = Daemon::start(at, "[memory]\nglobal_reserve = \"64M\"\n");
    run(at, "limits").expect(0, &["memory", "64 MiB", "each other user", "32 MiB"]);
    let set = "limits set --memory-reserve 48M --memory-user 1000=16M --memory-group 44=none --json";
    let limits = run(at, set).json();
    assert_eq!(
        (&limits["memory"]["global_reserve"], &limits["memory"]["users"]["1000"]),
        (&50_331_648.into(), &16_777_216.into())
    );

    let mut command = qfabric(at);
    command.args(["run", "--memory", "40M", "--fps", "25", "--quiet", "--", "sleep", "60"]);
    let mut program = command.spawn().unwrap();
    wait_until(|| status(at)["applications"][0]["memory"]["promised_bytes"] == 41_943_040);
    let refused = run(at, "limits set --memory-reserve 39M --capacity 0.1");
    refused.expect(3, &["cannot be 39 MiB", "40 MiB is promised", "sleep", "at least 41943040 bytes"]);
    assert_eq!(run(at, "limits show --json").json(), limits, "a refusal changes nothing, also no other limit");
    run(at, "run --memory 9M --fps 25 -- true").expect(3, &["asked for 9 MiB", "8 MiB of 48 MiB is free", "sleep"]);
    run(at, "limits set --memory-reserve lots").expect(2, &["such as 64M", "none"]);

    let memory = status(at)["applications"][0]["memory"].clone();
    for key in ["used_bytes", "swapped_bytes", "locked_bytes", "major_faults", "prefaulted_bytes", "protection"] {
        assert!(!memory[key].is_null(), "{memory} lacks {key}");
    }
    run(at, "status").expect(0, &["of 40 MiB", "memory: 40 MiB promised"]);
    kill_process(Pid::from_child(&program), Signal::TERM).unwrap();
    program.wait().unwrap();
    wait_until(|| status(at)["memory"]["promised_bytes"] == 0);
}
