//! One thread of a group: its attributes for each standing, and its CPU time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use qfabric_sched::dispatch::Standing;
use qfabric_types::{Nanos, ThreadId};

use super::{RUNNING, affinity};
use crate::cpus::CpuList;
use crate::journal::{Dispatched, Touched, put_slack_back};
use crate::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use crate::threads;

/// A thread as the CPU's dispatcher sees it.
#[derive(Debug)]
pub(super) struct Member {
    pub thread: ThreadId,
    /// Its attributes before the reservation.
    was: SchedAttr,
    /// Its CPU time in the kernel. An open file names the thread itself, not its id, so a read fails when the thread
    /// has ended, even if its id belongs to another thread.
    meter: File,
    joined_at: Nanos,
    last: Nanos,
    ended: bool,
    /// Its CPU time was read in the present dispatch, so it has not ended.
    is_fresh: bool,
    /// The program moved the thread away from the CPU; it keeps its own policy until it returns.
    pub is_away: bool,
}

impl Member {
    pub(super) fn new(thread: &Touched) -> io::Result<Member> {
        let meter = File::open(threads::file(thread.tid, "schedstat"))?;
        let zero = Nanos::ZERO;
        let (thread, was) = (thread.tid, thread.was);
        let mut member =
            Member { thread, was, meter, joined_at: zero, last: zero, ended: false, is_fresh: false, is_away: false };
        member.joined_at = member.read().ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        member.last = member.joined_at;
        Ok(member)
    }

    /// CPU time since the thread joined; after its end, the last value.
    pub(super) fn used(&mut self) -> Nanos {
        match self.read() {
            Some(time) => self.last = time.max(self.last),
            None => self.ended = true,
        }
        self.is_fresh = true;
        self.last.saturating_sub(self.joined_at)
    }

    /// The first number of the file, in nanoseconds. Allocates nothing.
    fn read(&self) -> Option<Nanos> {
        let mut text = [0; 64];
        let length = self.meter.read_at(&mut text, 0).ok()?;
        let digits = text[..length].iter().take_while(|byte| byte.is_ascii_digit());
        let number = digits.fold(0u64, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
        (length > 0).then(|| Nanos::new(number))
    }

    /// Says that the next placement must find out whether the thread has ended.
    pub(super) fn forget_reading(&mut self) {
        self.is_fresh = false;
    }

    /// Gives the thread the policy of a standing. Does nothing if it has ended.
    pub(super) fn place(&mut self, standing: Standing) {
        if !self.is_fresh {
            self.used();
        }
        if self.ended {
            return;
        }
        let standing = if self.is_away { Standing::Demoted } else { standing };
        if attributes(self.was, standing).give(self.thread).is_err() {
            self.used();
        }
    }
}

/// The attributes under a standing; `was` are those before the reservation.
fn attributes(was: SchedAttr, standing: Standing) -> SchedAttr {
    match standing {
        Standing::Running => SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(RUNNING) },
        Standing::Waiting => SchedAttr { policy: Policy::IDLE, flags: RESET_ON_FORK, ..SchedAttr::fair(was.nice) },
        Standing::Demoted => was,
    }
}

/// True for attributes that only this mechanism gives.
pub(super) fn is_ours(attr: SchedAttr) -> bool {
    let running = attr.policy == Policy::FIFO && attr.priority == RUNNING;
    (running || attr.policy == Policy::IDLE) && attr.flags & RESET_ON_FORK != 0
}

/// Gives a thread of the journal its former policy and CPUs. Returns false if it has ended or was put back already.
pub(crate) fn put_back(record: &Dispatched) -> io::Result<bool> {
    let thread = record.thread.tid;
    if threads::start_time(thread) != Some(record.thread.start) {
        return Ok(false);
    }
    match give_back(record) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        other => other,
    }
}

/// True if a thread of the journal still has what the dispatcher gave it, or this cannot be read.
pub(crate) fn is_changed(record: &Dispatched) -> bool {
    let thread = record.thread.tid;
    if threads::start_time(thread) != Some(record.thread.start) {
        return false;
    }
    let policy = SchedAttr::of(thread).map_or(true, |now| is_ours(now) && now != record.thread.was);
    policy || affinity::of(thread).map_or(true, |bound| is_bound(record, &bound))
}

fn is_bound(record: &Dispatched, bound: &CpuList) -> bool {
    bound.len() == 1 && *bound != record.cpus && record.cpus.contains_all(bound)
}

fn give_back(record: &Dispatched) -> io::Result<bool> {
    let (thread, was) = (record.thread.tid, record.thread.was);
    let now = SchedAttr::of(thread)?;
    let is_ours = is_ours(now) && now != was;
    if is_ours {
        was.give(thread)?;
    }
    put_slack_back(&record.thread);
    let bound = affinity::of(thread)?;
    let is_bound = is_bound(record, &bound);
    if is_bound {
        affinity::give(thread, &record.cpus)?;
    }
    Ok(is_ours || is_bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal;
    use crate::testing::{Worker, may_reserve};

    fn record(worker: &Worker) -> Dispatched {
        let (tid, was) = (worker.thread, SchedAttr::of(worker.thread).unwrap());
        let start = threads::start_time(tid).unwrap();
        let thread = Touched { tid, start, was, slack_ns: journal::timer_slack(tid) };
        Dispatched { thread, cpus: affinity::of(tid).unwrap() }
    }

    #[test]
    fn a_thread_is_put_back_from_every_standing() {
        if !may_reserve() {
            return;
        }
        let worker = Worker::sleeping();
        SchedAttr::fair(4).give(worker.thread).unwrap();
        let record = record(&worker);
        let mut member = Member::new(&record.thread).unwrap();
        for standing in [Standing::Running, Standing::Waiting] {
            member.place(standing);
            assert!(is_ours(SchedAttr::of(worker.thread).unwrap()), "{standing:?}");
            affinity::give(worker.thread, &affinity::only(record.cpus.iter().next().unwrap())).unwrap();
            assert!(put_back(&record).unwrap(), "{standing:?}");
            let now = SchedAttr::of(worker.thread).unwrap();
            assert_eq!((now.policy, now.nice), (Policy::OTHER, 4));
            assert_eq!(affinity::of(worker.thread).unwrap(), record.cpus);
        }
        assert!(!put_back(&record).unwrap(), "nothing is left to do");
    }

    #[test]
    fn an_ended_thread_keeps_its_last_cpu_time_and_is_never_changed() {
        let worker = Worker::burning();
        let mut member = Member::new(&record(&worker).thread).unwrap();
        while member.used() < Nanos::from_millis(2) {
            std::thread::yield_now();
        }
        drop(worker);
        // A thread that was joined is in the kernel's tables a moment longer.
        while !member.ended {
            member.used();
        }
        let used = member.used();
        assert!(used >= Nanos::from_millis(2));
        member.place(Standing::Running);
        assert!(member.used() == used);
    }
}
