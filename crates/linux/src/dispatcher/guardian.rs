//! A process that puts all threads back if this process dies for whatever reason, or if a dispatching thread hangs.
//!
//! Problem: a thread that its dispatcher left at a real-time priority could take its CPU from all others until somebody
//! runs `qfabric restore`. Approach: a forked child shares one page range with this process. It holds the former policy
//! of every thread, and the time at which each dispatching thread is to run next. The child sleeps in `poll` on a pipe:
//!
//! ```text
//!   end of the pipe (this process has ended) ──> policies and CPUs of all threads back, exit
//!   every 250 ms: a dispatcher is late by 1 s ──> policies back, alarm; `tend` puts the threads in their places again
//! ```
//!
//! The child runs as SCHED_FIFO above every group. It uses only system calls, no lock and no allocation, because it is
//! a copy of a process with several threads. It keeps no descriptor except the pipe. It exists while a group exists.
#![allow(unsafe_code)] // fork, shared memory, and system calls of the child

use std::io::{self, PipeWriter, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use qfabric_types::{Instant, Nanos, ThreadId};

use super::{DISPATCHING, member};
use crate::clock;
use crate::fork;
use crate::journal::Dispatched;
use crate::sched_attr::{RESET_ON_FORK, SchedAttr};
use crate::sys::{RawSchedAttr, SCHED_ATTR_SIZE};

/// Dispatchers of CPUs with a larger number are not checked for hangs.
const CPUS: usize = 1_024;
const THREADS: usize = 4_096;
/// Milliseconds between two checks of the dispatchers.
const CHECK_MS: i32 = 250;
/// A dispatcher that is later than this hangs.
const LATEST: Nanos = Nanos::from_millis(1_000);
const MASK_WORDS: usize = CPUS / 64;

/// The shared memory. All zeros is its empty state.
#[repr(C)]
struct Ward {
    /// Time at which the dispatcher of a CPU is to run next, in ns of CLOCK_MONOTONIC; 0: it has nothing to do.
    expected: [AtomicU64; CPUS],
    /// 1 after the child has put the threads back because a dispatcher hung.
    alarm: AtomicU32,
    entries: [Entry; THREADS],
}

/// A thread under the mechanism.
#[repr(C)]
struct Entry {
    /// 0: the entry is free. Written last.
    thread: AtomicI32,
    /// The former attributes, as the words of a `RawSchedAttr`.
    was: [AtomicU64; ATTR_WORDS],
    cpus: [AtomicU64; MASK_WORDS],
}

const ATTR_WORDS: usize = size_of::<RawSchedAttr>() / 8;
const _: () = assert!(ATTR_WORDS * 8 == SCHED_ATTR_SIZE as usize);

/// The mapping of the shared memory; unmapped when dropped.
#[derive(Debug)]
struct Region(*mut Ward);

// SAFETY: the memory behind the pointer consists of atomics only, and lives as long as the region.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn map() -> io::Result<Region> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory; no existing mapping is touched.
        let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<Ward>(), protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Region(address.cast()))
    }

    fn ward(&self) -> &Ward {
        // SAFETY: the mapping is as large as a `Ward`, aligned to a page, zeroed by the kernel (a valid `Ward`), and
        // exists until the region is dropped.
        unsafe { &*self.0 }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map`, and no reference to it outlives the region.
        unsafe { libc::munmap(self.0.cast(), size_of::<Ward>()) };
    }
}

/// The child. Dropping it ends the child; threads that are still watched are then put back.
#[derive(Debug)]
pub(super) struct Guardian {
    region: Arc<Region>,
    pid: i32,
    /// Closing it tells the child that this process has ended.
    pipe: Option<PipeWriter>,
}

/// Tells the guardian when a dispatching thread is to run next.
#[derive(Debug)]
pub(super) struct Pulse {
    region: Arc<Region>,
    cpu: usize,
}

impl Pulse {
    pub(super) fn expect(&self, next: Option<Instant>) {
        if let Some(expected) = self.region.ward().expected.get(self.cpu) {
            expected.store(next.map_or(0, Instant::get), Ordering::Release);
        }
    }
}

impl Guardian {
    pub(super) fn start() -> io::Result<Guardian> {
        let region = Arc::new(Region::map()?);
        let (reader, writer) = pipe()?;
        let pid = fork::copy_process(|| watch(region.ward(), reader.as_raw_fd()))?;
        Ok(Guardian { region, pid, pipe: Some(writer) })
    }

    pub(super) fn pulse(&self, cpu: u32) -> Pulse {
        Pulse { region: self.region.clone(), cpu: cpu as usize }
    }

    /// Records what the child gives back to a thread. At most 4,096 threads are watched; the mechanism has no more.
    pub(super) fn watch(&self, record: &Dispatched) {
        let thread = record.thread.tid.0;
        let entries = &self.region.ward().entries;
        let of = |id: i32| entries.iter().find(|entry| entry.thread.load(Ordering::Relaxed) == id);
        let Some(entry) = of(thread).or_else(|| of(0)) else { return };
        entry.thread.store(0, Ordering::Release);
        let words = words_of(RawSchedAttr { size: SCHED_ATTR_SIZE, ..record.thread.was.into() });
        entry.was.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        for (word, first) in entry.cpus.iter().zip((0u32..).step_by(64)) {
            let bits = (0..64).filter(|bit| record.cpus.contains(first + bit)).fold(0u64, |bits, bit| bits | 1 << bit);
            word.store(bits, Ordering::Relaxed);
        }
        entry.thread.store(thread, Ordering::Release);
    }

    pub(super) fn unwatch(&self, thread: ThreadId) {
        let mut entries = self.region.ward().entries.iter();
        if let Some(entry) = entries.find(|entry| entry.thread.load(Ordering::Relaxed) == thread.0) {
            entry.thread.store(0, Ordering::Release);
        }
    }

    /// True once after the child has put all threads back because a dispatcher hung.
    pub(super) fn take_alarm(&self) -> bool {
        self.region.ward().alarm.swap(0, Ordering::AcqRel) == 1
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.pipe = None;
        fork::wait_for(self.pid);
    }
}

fn words_of(attr: RawSchedAttr) -> [u64; ATTR_WORDS] {
    // SAFETY: both types have the same size and no padding, and every bit pattern is valid for both.
    unsafe { std::mem::transmute(attr) }
}

fn attr_of(words: [u64; ATTR_WORDS]) -> RawSchedAttr {
    // SAFETY: as in `words_of`.
    unsafe { std::mem::transmute(words) }
}

/// The life of the child.
fn watch(ward: &Ward, pipe: RawFd) -> ! {
    fork::detach(c"qf-guardian", [pipe]);
    let fifo = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(DISPATCHING) };
    let _ = fifo.give(ThreadId(0));
    let mut is_late = false;
    while !pipe_has_ended() {
        let late = is_any_late(ward, clock::now());
        if late && !is_late {
            put_policies_back(ward);
            ward.alarm.store(1, Ordering::Release);
        }
        is_late = late;
    }
    put_policies_back(ward);
    put_cpus_back(ward);
    // SAFETY: ends the child without running code of the copied process.
    unsafe { libc::_exit(0) }
}

/// Waits for the next check. True if the other end of the pipe is closed.
fn pipe_has_ended() -> bool {
    let mut end = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    let ready = unsafe { libc::poll(&raw mut end, 1, CHECK_MS) };
    ready > 0 && end.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

fn is_any_late(ward: &Ward, now: Instant) -> bool {
    let late = |expected: u64| expected != 0 && now.get() > expected.saturating_add(LATEST.get());
    ward.expected.iter().any(|expected| late(expected.load(Ordering::Acquire)))
}

/// Threads with a policy of the mechanism get their former one.
fn put_policies_back(ward: &Ward) {
    for (thread, entry) in watched(ward) {
        if SchedAttr::of(thread).is_ok_and(member::is_ours) {
            let words = std::array::from_fn(|at| entry.was[at].load(Ordering::Relaxed));
            let _ = SchedAttr::from(attr_of(words)).give(thread); // it may end meanwhile
        }
    }
}

fn put_cpus_back(ward: &Ward) {
    for (thread, entry) in watched(ward) {
        let mask: [u64; MASK_WORDS] = std::array::from_fn(|at| entry.cpus[at].load(Ordering::Relaxed));
        // SAFETY: the kernel reads the live mask of the given length.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread.0, size_of_val(&mask), mask.as_ptr()) };
    }
}

fn watched(ward: &Ward) -> impl Iterator<Item = (ThreadId, &Entry)> {
    let entries = ward.entries.iter().map(|entry| (ThreadId(entry.thread.load(Ordering::Acquire)), entry));
    entries.filter(|(thread, _)| thread.0 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::CpuList;
    use crate::dispatcher::{RUNNING, affinity};
    use crate::journal::Touched;
    use crate::sched_attr::Policy;
    use crate::testing::{Worker, may_reserve};
    use crate::threads;

    /// A sleeping thread at the running priority, watched by the guardian.
    fn abandoned(guardian: &Guardian) -> (Worker, CpuList) {
        let worker = Worker::sleeping();
        SchedAttr::fair(6).give(worker.thread).unwrap();
        let (was, cpus) = (SchedAttr::of(worker.thread).unwrap(), affinity::of(worker.thread).unwrap());
        let start = threads::start_time(worker.thread).unwrap();
        let thread = Touched { tid: worker.thread, start, was, slack_ns: None };
        guardian.watch(&Dispatched { thread, cpus: cpus.clone() });
        affinity::give(worker.thread, &affinity::only(cpus.iter().next().unwrap())).unwrap();
        SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(RUNNING) }.give(worker.thread).unwrap();
        (worker, cpus)
    }

    fn policy(worker: &Worker) -> (Policy, i32) {
        let now = SchedAttr::of(worker.thread).unwrap();
        (now.policy, now.nice)
    }

    #[test]
    fn the_end_of_the_process_puts_policy_and_cpus_back() {
        if !may_reserve() {
            return;
        }
        let guardian = Guardian::start().unwrap();
        let (worker, cpus) = abandoned(&guardian);
        let (other, _) = abandoned(&guardian);
        guardian.unwatch(other.thread);
        drop(guardian);
        assert_eq!((policy(&worker), affinity::of(worker.thread).unwrap()), ((Policy::OTHER, 6), cpus));
        assert_eq!(policy(&other).0, Policy::FIFO, "no longer watched");
        SchedAttr::fair(0).give(other.thread).unwrap();
    }

    #[test]
    fn a_dispatcher_that_hangs_loses_its_threads_and_raises_the_alarm_once() {
        if !may_reserve() {
            return;
        }
        let guardian = Guardian::start().unwrap();
        let (worker, _) = abandoned(&guardian);
        let pulse = guardian.pulse(1);
        assert!(!guardian.take_alarm());
        pulse.expect(Some(Instant::new(1)));
        while !guardian.take_alarm() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(policy(&worker), (Policy::OTHER, 6));
        pulse.expect(None);
        assert!(!guardian.take_alarm());
    }

    #[test]
    fn attributes_survive_as_words() {
        let attr = SchedAttr { nice: -7, runtime_ns: 3, ..SchedAttr::fifo(9) };
        assert_eq!(SchedAttr::from(attr_of(words_of(attr.into()))), attr);
    }
}
