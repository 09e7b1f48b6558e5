//! What the control thread has to tell, without ever writing a log line itself: writing may block.
//!
//! Notes travel through a bounded queue to the API thread, which logs them. One that finds the queue full is
//! dropped and counted.

use qfabric_host::HostEvent;
use qfabric_linux::{ApplyError, capacity};
use qfabric_types::channel::Name;
use qfabric_types::{AppId, Share, ThreadId};
use tokio::sync::mpsc;

use super::command::Adjustment;

/// Notes that may wait. A burst of refusals for every thread of a large program fits.
pub(crate) const WAITING: usize = 512;

/// Something worth a log line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// The host says so.
    Host(HostEvent),
    /// The mechanism refused, for a thread of this application.
    NotApplied { app: Option<AppId>, error: ApplyError },
    /// The kernel had forgotten a throttled thread; it runs again.
    Rescued { thread: ThreadId },
    /// The kernel ended the mechanism; another one is in force now.
    Ejected { mechanism: &'static str, instead: &'static str, reason: String },
    /// CPUs came or went: so many are there now, so many were.
    Cpus { online: usize, before: usize },
    /// The kernel has booked so much for no thread: only the rest is promised.
    BookedForNobody { lost: Share, capacity: Share },
    /// The kernel subtracted so many units of 2⁻²⁰ CPU twice: it may refuse everybody.
    SubtractedTwice { units: u64 },
    /// An application was admitted.
    Joined { app: AppId, pid: i32, name: String },
    /// An application took its ring.
    RingTaken { app: AppId },
    /// An application's ring connection closed.
    RingClosed { app: AppId },
    /// The process of an application ended.
    ProcessEnded { app: AppId, pid: i32 },
    /// An application's wake-up calls were more than it can mean.
    Silenced { app: AppId },
    /// New threads came faster than they are attached; the thread stays under the normal scheduler.
    BirthsDropped { app: AppId, thread: ThreadId },
    /// The kernel dropped records of context switches.
    RecordsLost { count: u64 },
    /// A new process or thread could not be observed.
    NotObserved { pid: i32, error: String },
    /// A policy decided about an application.
    Adjusted { app: AppId, adjustment: Adjustment, refused: Option<String> },
    /// So much is kept for an application of another host.
    Lent { host: Name, share: Share },
    /// It is kept no longer, and was not claimed.
    LentNoMore { host: Name, share: Share },
    /// A descriptor could not be waited for.
    NotWaited { app: AppId, error: String },
}

/// The control thread's end.
pub(crate) struct Notes {
    queue: mpsc::Sender<Note>,
    pub dropped: u64,
}

impl Notes {
    /// Both ends.
    pub fn new() -> (Notes, mpsc::Receiver<Note>) {
        let (queue, receiver) = mpsc::channel(WAITING);
        (Notes { queue, dropped: 0 }, receiver)
    }

    /// Never blocks.
    pub fn tell(&mut self, note: Note) {
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
                "throttled and forgotten by the kernel; it runs again, nothing is to be done"
            )
        }
        Note::Ejected { mechanism, instead, reason } => {
            tracing::error!(mechanism, instead, reason, "the kernel ended the scheduler; another mechanism takes over")
        }
        Note::Cpus { online, before } => {
            tracing::warn!(online, before, "CPUs came or went; what is promised is placed anew")
        }
        Note::BookedForNobody { lost: Share::ZERO, capacity } => {
            tracing::info!(%capacity, "nothing is booked for nobody any more")
        }
        Note::BookedForNobody { lost, capacity } => tracing::warn!(
            %lost,
            %capacity,
            "the kernel has this bandwidth booked for nobody, so it is not promised; qfabric doctor --fix frees it"
        ),
        Note::SubtractedTwice { units } => tracing::error!(
            cpus = capacity::share_of(units).as_f64(),
            "the kernel's sum of reserved bandwidth is too small by this: it admits more than there is, or refuses \
             everybody; qfabric doctor --fix repairs it"
        ),
        Note::Joined { app, pid, name } => tracing::info!(app = app.0, pid, name, "admitted"),
        Note::RingTaken { app } => tracing::debug!(app = app.0, "ring taken"),
        Note::RingClosed { app } => tracing::debug!(app = app.0, "ring connection closed"),
        Note::ProcessEnded { app, pid } => tracing::info!(app = app.0, pid, "process ended"),
        Note::Silenced { app } => {
            tracing::warn!(
                app = app.0,
                "wakes the daemon more often than it can have jobs; not listened to for a while"
            )
        }
        Note::BirthsDropped { app, thread } => {
            tracing::warn!(
                app = app.0,
                thread = thread.0,
                "threads appear faster than they are attached, and some stay under the normal scheduler; let the \
                 program start fewer at once, or keep them in a pool"
            )
        }
        Note::RecordsLost { count } => tracing::warn!(
            count,
            "the kernel dropped records of context switches, so what programs use is underestimated for a moment; see \
             whether the control thread has its reservation (the line of its start), or watch fewer programs"
        ),
        Note::NotObserved { pid, error } => tracing::info!(pid, error, "a child process is not covered"),
        Note::Adjusted { app, adjustment, refused: None } => {
            tracing::info!(app = app.0, ?adjustment, "a policy changed the contract")
        }
        Note::Adjusted { app, adjustment, refused: Some(why) } => {
            tracing::warn!(app = app.0, ?adjustment, why, "a policy's decision was refused")
        }
        Note::Lent { host, share } => tracing::info!(%host, %share, "kept for an application of another host"),
        Note::LentNoMore { host, share } => tracing::info!(%host, %share, "kept no longer: nobody claimed it"),
        Note::NotWaited { app, error } => tracing::warn!(app = app.0, error, "cannot wait for a descriptor"),
    }
}

/// A program that schedules a thread itself did nothing wrong.
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
            tracing::debug!(app = app.0, %wanted, %granted, "gets less than it wants")
        }
        HostEvent::Satisfied { app, granted } => tracing::debug!(app = app.0, %granted, "gets what it wants"),
        HostEvent::TooManyThreads { app, thread, limit } => {
            tracing::warn!(
                app = app.0,
                thread = thread.0,
                limit,
                "more threads than one application may reserve for: the others stay under the normal scheduler; raise \
                 limits.max_threads"
            )
        }
        HostEvent::Denied { app, thread, errno } => {
            // Why was told by the mechanism's refusal.
            tracing::debug!(app = app.0, thread = thread.0, errno, "thread left under the normal scheduler")
        }
        HostEvent::Busy { app, thread, attempts } => {
            tracing::debug!(app = app.0, thread = thread.0, attempts, "the kernel has no room yet")
        }
        HostEvent::Rescue { app, thread } => tracing::debug!(app = app.0, thread = thread.0, "a job gets more at once"),
        HostEvent::RhythmFound { app, period, percent, after } => {
            tracing::info!(app = app.0, %period, confidence_percent = percent, %after, "found the period")
        }
        HostEvent::RhythmLost { app, period } => {
            tracing::info!(app = app.0, %period, "lost the period; its consumption decides until one is found again")
        }
        HostEvent::Suspended { app, what } => {
            tracing::warn!(app = app.0, what, "gets nothing: what it was promised cannot be given now")
        }
        HostEvent::Empty { app } => tracing::debug!(app = app.0, "no thread left"),
        HostEvent::Left { app } => tracing::info!(app = app.0, "left, its threads are put back"),
        HostEvent::GuaranteesCut { capacity, guaranteed } => {
            tracing::warn!(%capacity, %guaranteed, "the capacity fell below what is guaranteed")
        }
        HostEvent::Ignored { count } => tracing::warn!(count, "an input made no sense and was ignored"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_finds_the_queue_full_is_counted() {
        let (mut notes, mut receiver) = Notes::new();
        for _ in 0..WAITING + 3 {
            notes.tell(Note::RecordsLost { count: 1 });
        }
        assert_eq!(notes.dropped, 3);
        assert_eq!(receiver.try_recv(), Ok(Note::RecordsLost { count: 1 }));
    }

    #[test]
    fn nobody_listening_is_no_reason_to_block() {
        let (mut notes, receiver) = Notes::new();
        drop(receiver);
        notes.tell(Note::RingTaken { app: AppId(1) });
        assert_eq!(notes.dropped, 1);
    }
}
