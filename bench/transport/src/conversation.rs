//! What the conductor and the processes of an engine tell each other, by lines.
//!
//! | from → to | line | meaning |
//! |---|---|---|
//! | process → conductor | `ready` | the receiver listens; the sender is connected |
//! | conductor → process | `go` | the sender begins; CPU time counts from here |
//! | sender → conductor | `sent` | the engine has taken the last frame |
//! | receiver → conductor | `all` | every frame has come |
//! | conductor → process | `tell` | the end: answer with the lines below |
//! | receiver → conductor | `frame NUMBER DUE ARRIVED` | one frame that came, times in ns of CLOCK_MONOTONIC |
//! | process → conductor | `cpu_ns N`, `bytes N`, `end` | CPU time of the process; bytes of a bulk flow |
//!
//! A process ends when its input ends. The rivals in C (`rivals/player.h`) speak the same lines.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::plan::Plan;
use crate::stamp::Stamp;

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

pub(crate) fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Without a conductor nobody reads; the end of the input ends the process.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Waits for a line of the conductor. Ends the process at the end of the input.
pub(crate) fn wait_for(word: &str) {
    let found = std::io::stdin().lock().lines().map_while(Result::ok).any(|line| line == word);
    if !found {
        std::process::exit(0);
    }
}

/// Waits for `go`; returns the CPU time that the process has used so far.
pub(crate) fn wait_for_go() -> u64 {
    wait_for("go");
    clock_ns(ClockId::ProcessCPUTime)
}

/// Answers `tell` with these lines and the CPU time since `go`, and waits for the end.
pub(crate) fn answer(cpu_at_go: u64, lines: impl FnOnce() -> String) -> ! {
    wait_for("tell");
    let used = clock_ns(ClockId::ProcessCPUTime).saturating_sub(cpu_at_go);
    say(&format!("{}cpu_ns {used}\nend", lines()));
    wait_for("(the end)");
    std::process::exit(0)
}

/// The arrivals at a receiver: of each frame when it was due, and when it arrived first; 0 is never.
pub(crate) struct Arrivals {
    due_ns: Vec<AtomicU64>,
    arrived_ns: Vec<AtomicU64>,
    left: AtomicU64,
}

impl Arrivals {
    pub(crate) fn new(plan: &Plan) -> Arrivals {
        let zeros = || plan.frames.iter().map(|_| AtomicU64::new(0)).collect();
        Arrivals { due_ns: zeros(), arrived_ns: zeros(), left: AtomicU64::new(plan.count() as u64) }
    }

    /// A frame has come now; a second copy counts for nothing.
    pub(crate) fn on_frame(&self, stamp: Stamp) {
        let at = stamp.number as usize;
        if self.arrived_ns[at].load(Ordering::Relaxed) != 0 {
            return;
        }
        self.due_ns[at].store(stamp.due_ns, Ordering::Relaxed);
        self.arrived_ns[at].store(now_ns(), Ordering::Release);
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            say("all");
        }
    }

    pub(crate) fn lines(&self) -> String {
        let times = self.due_ns.iter().zip(&self.arrived_ns).enumerate();
        let line = |(number, (due, arrived)): (usize, (&AtomicU64, &AtomicU64))| {
            let arrived = arrived.load(Ordering::Acquire);
            (arrived > 0).then(|| format!("frame {number} {} {arrived}\n", due.load(Ordering::Relaxed)))
        };
        times.filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Frame, Kind};

    #[test]
    fn a_second_copy_of_a_frame_does_not_count() {
        let frame = |size| Frame { kind: Kind::I, size };
        let arrivals = Arrivals::new(&Plan { frames: vec![frame(20), frame(20), frame(0)], ..Plan::example() });
        let stamp = Stamp { due_ns: 5, number: 1, size: 20 };
        arrivals.on_frame(stamp);
        let first = arrivals.lines();
        arrivals.on_frame(Stamp { due_ns: 9, ..stamp });
        assert!(first.starts_with("frame 1 5 ") && first.lines().count() == 1, "{first}");
        assert_eq!(arrivals.lines(), first);
        assert_eq!(arrivals.left.load(Ordering::Relaxed), 1);
    }
}
