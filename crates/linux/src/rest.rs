//! Finds out if a reserved thread is at rest: it sleeps and has no overrun left to pay.
//!
//! If the reservation of a sleeping thread changes, its old bandwidth becomes inactive at once
//! (`dl_change_utilization`) and is free for others. The reservation of a server in debt must not be decreased: the
//! small budget would have to pay the debt, and the deadline would move many periods ahead (`replenish_dl_entity`). The
//! remaining budget is in `/proc/TID/sched`. The value is stale while the thread runs, and exact since the thread fell
//! asleep. Reads two files in 40 µs.

use std::fs;

use qfabric_types::ThreadId;

use crate::files;
use crate::threads;

/// True if this kernel shows remaining budgets (with CONFIG_SCHED_DEBUG before Linux 6.15). Does not depend on the
/// policy of the calling thread.
pub(crate) fn can_tell() -> bool {
    fs::metadata("/proc/thread-self/sched").is_ok()
}

/// True if `thread` sleeps and its server has not overrun its budget. `false` if the thread has ended or is not
/// reserved.
pub(crate) fn is_at_rest(thread: ThreadId) -> bool {
    threads::is_asleep(thread) && budget_left(thread).is_some_and(|left| left >= 0)
}

/// Remaining budget in nanoseconds, negative after an overrun. `None`: the thread has ended, or is not under
/// SCHED_DEADLINE.
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
    fn the_remaining_budget_is_read_with_its_sign() {
        let file =
            |left: &str| format!("cat (7, #threads: 1)\n---\nse.exec_start      :  12.5\ndl.runtime     :   {left}\n");
        assert_eq!(parse(&file("7000000")), Some(7_000_000));
        assert_eq!(parse(&file("-31250")), Some(-31_250));
        assert_eq!(parse("policy    :    0\n"), None);
    }

    #[test]
    fn a_thread_that_is_not_reserved_is_not_at_rest() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            id_sender.send(ThreadId(rustix::thread::gettid().as_raw_nonzero().get())).unwrap();
            ended.recv()
        });
        assert!(!is_at_rest(id_receiver.recv().unwrap()));
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }
}
