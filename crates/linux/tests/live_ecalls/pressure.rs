//! Test of `mem.pressure`. It needs a machine whose memory may be used up.

use std::process::Command;

use qfabric_linux::ecalls::Step;
use qfabric_linux::testing::skip;

use crate::common::{Request, event, kernel, number, up};

/// Uses up all memory. Its OOM score makes it the first process that the kernel ends.
const EATER: &str = "echo 1000 > /proc/self/oom_score_adj; exec tail /dev/zero";

#[test]
fn memory_shortage_is_an_event() {
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("it uses up all memory, of the test machine only: make vm-test");
    }
    let Some(kernel) = kernel() else { return };
    let format = &kernel.service("mem.pressure").unwrap().format;
    let memory = up(format);
    let ask = Request::of("mem.pressure");
    let installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let ended = Command::new("sh").args(["-c", EATER]).status().unwrap();
    assert!(!ended.success(), "memory did not run out: {ended}");
    let first = event(&memory);
    assert!((1..=3).contains(&number(format, &first, "kind")));
    assert!(installed.counters().passed > 0);
}
