//! Observes threads with perf events: a software event that counts nothing, but writes a record at every context
//! switch, fork, exit and exec of the covered threads.
//!
//! The observer has one ring per CPU. Every event of a thread writes into the ring of its CPU (the kernel allows
//! inherited events to write only into per-CPU rings). Descriptors: one per CPU for the rings, and one per CPU and
//! thread that is alive when its program is attached; threads that start later need none. Records of all rings are
//! merged by time, up to a horizon that is taken before the rings are read. The kernel writes the record of a thread
//! that leaves one CPU before it can write the record of its arrival on another, so the merged records keep this order.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perf_event_open_sys::bindings as abi;
use qfabric_types::{Instant, ThreadId};

use super::record::{self, Record};
use super::ring::{LONGEST, Ring};
use super::stretches::Stretches;
use super::{Observation, Observer, POLL_LIMIT, Polled};
use crate::cpus::CpuList;
use crate::{clock, sys, threads};

/// Bytes of all rings together; each ring has at least 8 pages. 256 KiB hold 8 000 switches.
const RING_BYTES: usize = 8 << 20;
const LARGEST_RING: usize = 256 << 10;
/// Largest number of searches for threads that started meanwhile.
const ROUNDS: usize = 8;

#[derive(Debug)]
pub struct SwitchObserver {
    rings: Vec<(u32, Ring)>,
    /// Perf events of each attached program or thread.
    events: HashMap<i32, Vec<OwnedFd>>,
    stretches: Stretches,
    horizon: Instant,
    lost_before: u64,
}

impl SwitchObserver {
    /// Maps the rings. `EACCES`/`EPERM`: perf is refused on this host (`kernel.perf_event_paranoid`, CAP_PERFMON).
    pub fn new() -> io::Result<Self> {
        let online = CpuList::online();
        let page = rustix::param::page_size();
        let bytes = (RING_BYTES / online.len()).min(LARGEST_RING).max(8 * page);
        let pages = 1 << (bytes / page).ilog2();
        let rings = online.iter().map(|cpu| Ok((cpu, anchor(cpu, pages * page).and_then(|a| Ring::map(a, pages))?)));
        Ok(SwitchObserver {
            rings: rings.collect::<io::Result<_>>()?,
            events: HashMap::new(),
            stretches: Stretches::new(),
            horizon: Instant::ZERO,
            lost_before: 0,
        })
    }

    /// Number of threads that were left out because too many are followed.
    pub fn left_out(&self) -> u64 {
        self.stretches.left_out
    }

    /// Number of descriptors that the covered threads use.
    pub fn descriptors_used(&self) -> usize {
        self.rings.len() + self.events.values().map(Vec::len).sum::<usize>()
    }

    /// Opens one event per CPU for a thread; each event writes into the ring of its CPU.
    fn cover(&mut self, tid: i32, inherit: bool) -> io::Result<Vec<OwnedFd>> {
        let mut events = Vec::with_capacity(self.rings.len());
        for (cpu, ring) in &self.rings {
            let event = sys::perf_event_open(&mut switches(inherit), tid, *cpu as i32)?;
            sys::perf_redirect(&event, ring.event())?;
            events.push(event);
        }
        Ok(events)
    }

    /// Covers the threads that are not yet followed. Returns `true` if there were any.
    fn cover_new(&mut self, pid: i32, events: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let unknown: Vec<_> = threads::list(pid)?.into_iter().filter(|t| !self.stretches.follows(t.0)).collect();
        if self.stretches.is_full() {
            // They are left out, so no events are opened for them.
            self.stretches.left_out += unknown.len() as u64;
            return Ok(false);
        }
        for thread in &unknown {
            let at = clock::now();
            let made = match self.cover(thread.0, true) {
                Ok(made) => made,
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(e) => return Err(explained(e)),
            };
            self.stretches.attached(thread.0, pid, pid, at);
            // A thread that is left out needs no events.
            if self.stretches.follows(thread.0) {
                events.extend(made);
            }
        }
        Ok(!unknown.is_empty())
    }

    /// Index of the ring with the oldest record, the size of that record, and its time.
    fn oldest(&mut self, room: &mut [u8; LONGEST]) -> Option<(usize, usize, Instant)> {
        let mut oldest: Option<(usize, usize, Instant)> = None;
        for (index, (_, ring)) in self.rings.iter_mut().enumerate() {
            let record = ring.front(room);
            let Some(size) = Some(record.len()).filter(|&n| n > 0) else { continue };
            let at = record::time_of(record).unwrap_or(Instant::ZERO);
            if oldest.is_none_or(|(_, _, earliest)| at < earliest) {
                oldest = Some((index, size, at));
            }
        }
        oldest
    }
}

impl Observer for SwitchObserver {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn attach(&mut self, pid: i32) -> io::Result<Vec<ThreadId>> {
        let mut events = Vec::new();
        for _ in 0..ROUNDS {
            match self.cover_new(pid, &mut events) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    self.detach(pid);
                    return Err(e);
                }
            }
        }
        // A process may be attached again; the threads that are followed already keep their events.
        self.events.entry(pid).or_default().extend(events);
        threads::list(pid)
    }

    fn attach_thread(&mut self, thread: ThreadId) -> io::Result<()> {
        let pid = threads::process_of(thread).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let at = clock::now();
        let events = self.cover(thread.0, false).map_err(explained)?;
        // The first thread of a process has the number of the process, which may be attached.
        self.events.entry(thread.0).or_default().extend(events);
        self.stretches.attached(thread.0, pid, thread.0, at);
        Ok(())
    }

    fn detach(&mut self, id: i32) {
        self.events.remove(&id);
        self.stretches.detached(id);
    }

    fn follows(&self, thread: ThreadId) -> bool {
        self.stretches.follows(thread.0)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Observation)) -> Polled {
        self.horizon = clock::now();
        self.rings.iter_mut().for_each(|(_, ring)| ring.read_head());
        let (mut polled, mut room) = (Polled::default(), [0; LONGEST]);
        for handled in 0.. {
            let Some((index, size, at)) = self.oldest(&mut room) else { break };
            polled.more = handled >= POLL_LIMIT;
            if polled.more || at > self.horizon {
                self.horizon = at.min(self.horizon);
                break;
            }
            let ring = &mut self.rings[index].1;
            let record = record::parse(ring.front(&mut room)).unwrap_or(Record::Other);
            ring.step(size);
            self.stretches.take(record, &mut |o| {
                polled.observations += 1;
                sink(o);
            });
        }
        self.rings.iter_mut().for_each(|(_, ring)| ring.release());
        polled.lost = self.stretches.lost - std::mem::replace(&mut self.lost_before, self.stretches.lost);
        polled
    }

    fn cut(&mut self, sink: &mut dyn FnMut(Observation)) {
        self.stretches.cut(self.horizon, sink);
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.iter().map(|(_, ring)| ring.as_fd()).collect()
    }
}

/// Attributes of every event: no counting, times on CLOCK_MONOTONIC, and thread, time and CPU at the end of each
/// record.
pub(super) fn silent() -> abi::perf_event_attr {
    let mut attr = abi::perf_event_attr::default();
    (attr.type_, attr.config) = (abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_DUMMY.into());
    attr.sample_type = (abi::PERF_SAMPLE_TID | abi::PERF_SAMPLE_TIME | abi::PERF_SAMPLE_CPU).into();
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

fn switches(inherit: bool) -> abi::perf_event_attr {
    let mut attr = silent();
    attr.set_context_switch(1);
    attr.set_task(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_inherit(inherit.into());
    attr
}

/// The event that owns a CPU's ring. It covers only the calling thread and writes no records. Its descriptor becomes
/// readable when the ring is half full.
fn anchor(cpu: u32, bytes: usize) -> io::Result<OwnedFd> {
    let mut attr = silent();
    attr.set_watermark(1);
    attr.wakeup_watermark = bytes as u32 / 2;
    sys::perf_event_open(&mut attr, 0, cpu as i32)
}

fn explained(error: io::Error) -> io::Error {
    let fix = match error.raw_os_error() {
        Some(libc::EMFILE) => "raise the limit of open files: perf needs one per thread and CPU",
        Some(libc::EACCES | libc::EPERM) => "observing a process of another user needs CAP_PERFMON",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {fix}"))
}
