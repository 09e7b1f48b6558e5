//! Whether a reserved thread is at rest: asleep, with nothing of an overrun left to pay.
//!
//! A change of a sleeper's reservation makes its old bandwidth inactive at once (`dl_change_utilization`), so the room
//! is free for others. A server in debt must not be shrunk: the debt would be refilled from the small budget, and the
//! deadline thrown many periods ahead (`replenish_dl_entity`). What is left of the budget stands in `/proc/TID/sched`;
//! it is stale while the thread runs, exact since it went to sleep. Two files, 40 µs.

use std::fs;

use qfabric_types::ThreadId;

use crate::files;
use crate::threads;

/// Whether this kernel shows what is left of a budget (CONFIG_SCHED_DEBUG before Linux 6.15). The calling thread may
/// be under any policy.
pub(crate) fn can_tell() -> bool {
    fs::metadata("/proc/thread-self/sched").is_ok()
}

/// Whether `thread` sleeps and its server has not overrun its budget. `false` where it is gone, or not reserved.
pub(crate) fn is_at_rest(thread: ThreadId) -> bool {
    threads::is_asleep(thread) && budget_left(thread).is_some_and(|left| left >= 0)
}

/// What is left of the budget in nanoseconds, below zero in debt. `None`: gone, or not under SCHED_DEADLINE.
fn budget_left(thread: ThreadId) -> Option<i64> {
    parse(&files::text(format!("/proc/{thread}/sched")).ok()?)
}

fn parse(sched: &str) -> Option<i64> {
    let line = sched.lines().find_map(|line| line.strip_prefix("dl.runtime"))?;
    line.trim_start_matches([' ', ':']).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_read_with_its_sign() {
        let file =
            |left: &str| format!("cat (7, #threads: 1)\n---\nse.exec_start      :  12.5\ndl.runtime     :   {left}\n");
        assert_eq!(parse(&file("7000000")), Some(7_000_000));
        assert_eq!(parse(&file("-31250")), Some(-31_250));
        assert_eq!(parse("policy    :    0\n"), None);
    }

    #[test]
    fn a_thread_that_is_not_reserved_is_not_at_rest() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(ThreadId(rustix::thread::gettid().as_raw_nonzero().get())).unwrap();
            ended.recv()
        });
        assert!(!is_at_rest(told.recv().unwrap()));
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }
}
