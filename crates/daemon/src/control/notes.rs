//! Messages of the control thread for the log. The control thread does not write log lines, because writing may
//! block.
//!
//! Notes go through a bounded queue to the API thread, which logs them. A note that finds the queue full is dropped
//! and counted.

use qfabric_host::HostEvent;
use qfabric_linux::{ApplyError, capacity};
use qfabric_types::channel::Name;
use qfabric_types::{AppId, Share, ThreadId};
use tokio::sync::mpsc;

use super::command::Adjustment;

/// Capacity of the queue: enough for refusals of every thread of a large program.
pub(crate) const WAITING: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// An event of the host.
    Host(HostEvent),
    /// The mechanism refused a setting for a thread of this application.
    NotApplied {
        app: Option<AppId>,
        error: ApplyError,
    },
    /// The kernel had forgotten a throttled thread; the thread runs again.
    Rescued {
        thread: ThreadId,
    },
    /// The kernel ejected the mechanism; `instead` is in force now.
    Ejected {
        mechanism: &'static str,
        instead: &'static str,
        reason: String,
    },
    /// The number of online CPUs changed.
    Cpus {
        online: usize,
        before: usize,
    },
    /// The kernel has booked bandwidth for no thread; only the rest is promised.
    BookedForNobody {
        lost: Share,
        capacity: Share,
    },
    /// The kernel subtracted bandwidth twice, in units of 2⁻²⁰ CPU; it may refuse every reservation.
    SubtractedTwice {
        units: u64,
    },
    Joined {
        app: AppId,
        pid: i32,
        name: String,
    },
    RingTaken {
        app: AppId,
    },
    /// The connection of an application's ring closed.
    RingClosed {
        app: AppId,
    },
    ProcessEnded {
        app: AppId,
        pid: i32,
    },
    /// An application sent more wake-ups than the limit.
    Silenced {
        app: AppId,
    },
    /// New threads came faster than the limit; this thread stays under the normal scheduler.
    BirthsDropped {
        app: AppId,
        thread: ThreadId,
    },
    /// The kernel dropped records of context switches.
    RecordsLost {
        count: u64,
    },
    /// A new process or thread cannot be observed.
    NotObserved {
        pid: i32,
        error: String,
    },
    /// Threads of an application are not observed any more.
    ObservationLost {
        app: AppId,
        error: String,
    },
    /// A policy decided about an application.
    Adjusted {
        app: AppId,
        adjustment: Adjustment,
        refused: Option<String>,
    },
    /// The decisions of a policy about an application ended.
    Restored {
        app: AppId,
        policy: Name,
        refused: Option<String>,
    },
    /// A loan for an application of another host begins.
    LoanGranted {
        host: Name,
        share: Share,
    },
    /// A loan ended without a claim.
    LoanEnded {
        host: Name,
        share: Share,
    },
    /// The application drew from a joint contract that has ended.
    JointEnded {
        app: AppId,
    },
    /// The end of a process cannot be waited for.
    NotWaited {
        app: AppId,
        error: String,
    },
}

/// The control thread's end of the queue.
pub(crate) struct Notes {
    queue: mpsc::Sender<Note>,
    pub dropped: u64,
}

impl Notes {
    pub(super) fn new() -> (Notes, mpsc::Receiver<Note>) {
        let (queue, receiver) = mpsc::channel(WAITING);
        (Notes { queue, dropped: 0 }, receiver)
    }

    /// Queues a note for the log. Never blocks.
    pub(super) fn push(&mut self, note: Note) {
        self.dropped += u64::from(self.queue.try_send(note).is_err());
    }
}

/// Writes a note to the log.
pub(crate) fn log(note: Note) {
    match note {
        Note::Host(event) => log_event(event),
        Note::NotApplied { app, error } => log_refusal(app.map(|app| app.0), &error),
        Note::Rescued { thread } => {
            tracing::warn!(
                thread = thread.0,
                "the kernel left this thread throttled; it runs again, no action is needed"
            )
        }
        Note::Ejected { mechanism, instead, reason } => {
            tracing::error!(
                mechanism,
                instead,
                reason,
                "the kernel ejected the mechanism; `instead` is in force until the daemon restarts"
            )
        }
        Note::Cpus { online, before } => {
            tracing::warn!(online, before, "the number of online CPUs changed; servers are placed again")
        }
        Note::BookedForNobody { lost, capacity } => log_lost_bandwidth(lost, capacity),
        Note::SubtractedTwice { units } => log_subtracted_twice(units),
        Note::Joined { app, pid, name } => tracing::info!(app = app.0, pid, name, "admitted"),
        Note::RingTaken { app } => tracing::debug!(app = app.0, "ring taken"),
        Note::RingClosed { app } => tracing::debug!(app = app.0, "ring connection closed"),
        Note::ProcessEnded { app, pid } => tracing::info!(app = app.0, pid, "process ended"),
        Note::Silenced { app } => {
            tracing::warn!(
                app = app.0,
                "the application sends more wake-ups than it can have jobs; its wake-ups are ignored for up to 100 ms"
            )
        }
        Note::BirthsDropped { app, thread } => log_dropped_births(app, thread),
        Note::RecordsLost { count } => tracing::warn!(
            count,
            "the kernel dropped records of context switches, so the CPU time of programs is underestimated for a \
             moment; check in the log of the start that the control thread has its reservation, or observe fewer programs"
        ),
        Note::NotObserved { pid, error } => {
            tracing::info!(pid, error, "cannot observe a child process; it stays under the normal scheduler")
        }
        Note::ObservationLost { app, error } => log_lost_observation(app, &error),
        Note::Adjusted { app, adjustment, refused } => log_adjustment(app, &adjustment, refused),
        Note::Restored { app, policy, refused } => log_restored(app, &policy, refused),
        Note::LoanGranted { host, share } => {
            tracing::info!(%host, %share, "loan: capacity is kept for an application of another host")
        }
        Note::LoanEnded { host, share } => tracing::info!(%host, %share, "loan ended: no application claimed it"),
        Note::JointEnded { app } => {
            tracing::info!(app = app.0, "the joint contract has ended, and with it the contract of the application")
        }
        Note::NotWaited { app, error } => tracing::warn!(
            app = app.0,
            error,
            "cannot wait for the end of the process, so the application stays until it is removed"
        ),
    }
}

fn log_lost_observation(app: AppId, error: &str) {
    tracing::warn!(app = app.0, error, "threads are not observed any more, so their jobs are not seen; join again")
}

fn log_lost_bandwidth(lost: Share, capacity: Share) {
    if lost == Share::ZERO {
        tracing::info!(%capacity, "the lost bandwidth is free again; the whole capacity can be promised");
        return;
    }
    tracing::warn!(
        %lost,
        %capacity,
        "the kernel has booked this bandwidth for no thread, so it cannot be promised; run `qfabric doctor --fix`"
    );
}

fn log_subtracted_twice(units: u64) {
    tracing::error!(
        cpus = capacity::share_of(units).as_f64(),
        "the kernel's sum of reserved bandwidth is too small by this amount: it admits too much or refuses every \
         reservation; run `qfabric doctor --fix`"
    );
}

fn log_dropped_births(app: AppId, thread: ThreadId) {
    tracing::warn!(
        app = app.0,
        thread = thread.0,
        "new threads appear faster than the limit, and some stay under the normal scheduler; start fewer \
         threads at once, or keep them in a pool"
    );
}

fn log_restored(app: AppId, policy: &Name, refused: Option<String>) {
    match refused {
        None => tracing::info!(app = app.0, %policy, "the contract is as without the policy"),
        Some(why) => tracing::warn!(app = app.0, %policy, why, "the contract without the policy was refused"),
    }
}

fn log_adjustment(app: AppId, adjustment: &Adjustment, refused: Option<String>) {
    match refused {
        None => tracing::info!(app = app.0, ?adjustment, "a policy changed the contract"),
        Some(why) => {
            tracing::warn!(app = app.0, ?adjustment, why, "a policy's change of the contract was refused")
        }
    }
}

/// A thread whose program chose its scheduling policy itself is no fault of anyone, so it is not a warning.
fn log_refusal(app: Option<u64>, error: &ApplyError) {
    let (thread, errno) = (error.thread().0, error.errno());
    match error {
        ApplyError::Foreign { .. } => tracing::info!(app, thread, "{error}"),
        _ => tracing::warn!(app, thread, errno, "{error}; this thread stays under the normal scheduler"),
    }
}

fn log_event(event: HostEvent) {
    match event {
        HostEvent::Saturated { app, wanted, granted } => {
            tracing::debug!(app = app.0, %wanted, %granted, "granted less than wanted")
        }
        HostEvent::Satisfied { app, granted } => tracing::debug!(app = app.0, %granted, "granted as wanted"),
        HostEvent::TooManyThreads { app, thread, limit } => {
            tracing::warn!(
                app = app.0,
                thread = thread.0,
                limit,
                "the application has more threads than the limit; the others stay under the normal scheduler; raise \
                 limits.max_threads"
            )
        }
        HostEvent::Denied { app, thread, errno } => {
            // The mechanism's refusal was logged with its reason.
            tracing::debug!(app = app.0, thread = thread.0, errno, "thread left under the normal scheduler")
        }
        HostEvent::Busy { app, thread, attempts } => {
            tracing::debug!(app = app.0, thread = thread.0, attempts, "the kernel has no bandwidth for the setting yet")
        }
        HostEvent::Rescue { app, thread } => {
            tracing::debug!(app = app.0, thread = thread.0, "a running job received a larger budget")
        }
        HostEvent::RhythmFound { app, period, percent, after } => {
            tracing::info!(app = app.0, %period, confidence_percent = percent, %after, "period found")
        }
        HostEvent::RhythmLost { app, period } => {
            tracing::info!(app = app.0, %period, "period lost; budgets follow the CPU time used until a period is \
                                                  found again")
        }
        HostEvent::Suspended { app, what } => {
            tracing::warn!(
                app = app.0,
                what,
                "receives no CPU time: its promise cannot be kept now; bring the CPU back, end another application or \
                 request less"
            )
        }
        HostEvent::Empty { app } => tracing::debug!(app = app.0, "the application has no thread left"),
        HostEvent::Left { app } => tracing::info!(app = app.0, "application left, its threads are restored"),
        HostEvent::GuaranteesCut { capacity, guaranteed } => {
            tracing::warn!(%capacity, %guaranteed, "the capacity fell below the sum of guarantees; end an application \
                                                    or bring CPUs back")
        }
        HostEvent::Ignored { count } => {
            tracing::warn!(count, "ignored inconsistent inputs, such as impossible job times of an application")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_finds_the_queue_full_is_counted() {
        let (mut notes, mut receiver) = Notes::new();
        for _ in 0..WAITING + 3 {
            notes.push(Note::RecordsLost { count: 1 });
        }
        assert_eq!(notes.dropped, 3);
        assert_eq!(receiver.try_recv(), Ok(Note::RecordsLost { count: 1 }));
    }

    #[test]
    fn a_note_without_a_receiver_does_not_block() {
        let (mut notes, receiver) = Notes::new();
        drop(receiver);
        notes.push(Note::RingTaken { app: AppId(1) });
        assert_eq!(notes.dropped, 1);
    }
}
