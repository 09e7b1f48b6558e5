//! Which thread runs on which CPU: one perf event for each CPU that covers all threads of the host.
//!
//! A switch writes two records into the ring of its CPU: the old thread leaves, the new one arrives. Names of threads
//! come from records of `exec` and `fork`, and from `/proc` for threads that were alive before. The records of all CPUs
//! are merged by time, because a thread may be born on one CPU and get its name on another. Times on CLOCK_MONOTONIC.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use qfabric_types::{Instant, ThreadId};

use super::perf::silent;
use super::record::{CpuRecord, parse_of_cpu, time_of};
use super::ring::{LONGEST, Ring};
use crate::cpus::CpuList;
use crate::{clock, files, sys};

/// Bytes of all rings together.
const RING_BYTES: usize = 8 << 20;
/// 512 KiB hold 6,500 switches: a poll every 50 ms keeps up with 130,000 switches a second.
const LARGEST_RING: usize = 512 << 10;
/// Stands for the thread that was on a CPU before its first record.
const UNKNOWN: i32 = -1;

/// A thread that was on a CPU without interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuStretch {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// The process of the thread, in the pid namespace of this process.
    pub pid: i32,
    /// The thread, in the same namespace.
    pub thread: ThreadId,
    /// The name of the thread (`comm`); empty if the thread ended before its name could be read.
    pub name: String,
    /// When the thread got the CPU, or when the observation began.
    pub from: Instant,
    /// When it left the CPU.
    pub to: Instant,
}

/// Observes all CPUs that were online at its start.
#[derive(Debug)]
pub struct CpuObserver {
    rings: Vec<(u32, Ring)>,
    occupants: Occupants,
    polled: Instant,
}

impl CpuObserver {
    /// Begins to observe.
    ///
    /// # Errors
    /// `EACCES` or `EPERM`: this process may not observe threads of all users (`CAP_PERFMON`, or
    /// `kernel.perf_event_paranoid` below 1). Other errors: the kernel has no perf events, or no memory for the rings.
    pub fn new() -> io::Result<Self> {
        let online = CpuList::online();
        let page = rustix::param::page_size();
        let bytes = (RING_BYTES / online.len()).min(LARGEST_RING).max(8 * page);
        let pages = 1 << (bytes / page).ilog2();
        let rings = online.iter().map(|cpu| Ok((cpu, Ring::map(all_threads_of(cpu)?, pages)?)));
        let rings = rings.collect::<io::Result<Vec<_>>>()?;
        let (begin, cpus) = (clock::now(), rings.iter().map(|(cpu, _)| *cpu));
        Ok(CpuObserver { occupants: Occupants::new(cpus, begin, name_in_proc), rings, polled: begin })
    }

    /// Delivers the stretches that ended since the last poll; those of one CPU in their order. Returns the number of
    /// records that the kernel dropped meanwhile because a ring was full; poll more often then.
    pub fn poll(&mut self, sink: &mut dyn FnMut(CpuStretch)) -> u64 {
        self.polled = clock::now();
        let (before, mut room, mut records) = (self.occupants.lost, [0; LONGEST], Vec::new());
        self.rings.iter_mut().for_each(|(_, ring)| ring.read_head());
        for (cpu, ring) in &mut self.rings {
            let mut at = Instant::ZERO;
            loop {
                let record = ring.front(&mut room);
                if record.is_empty() {
                    break;
                }
                // The time of a loss may be later than that of the record behind it.
                at = at.max(time_of(record).unwrap_or(Instant::ZERO));
                let (size, record) = (record.len(), parse_of_cpu(record).unwrap_or(CpuRecord::Other));
                ring.step(size);
                records.push((at, *cpu, record));
            }
            ring.release();
        }
        self.occupants.take_all(records, sink);
        self.occupants.lost - before
    }

    /// Ends the observation, and delivers the stretches of the threads that were on a CPU at the last poll up to that
    /// poll. A CPU without any switch since the start has none, because its thread is not known.
    pub fn finish(mut self, sink: &mut dyn FnMut(CpuStretch)) {
        for (cpu, _) in &self.rings {
            self.occupants.close(*cpu, self.polled, sink);
        }
    }
}

/// An event that counts nothing, but writes a record at each switch, fork, exec and exit on a CPU.
fn all_threads_of(cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = silent();
    attr.set_context_switch(1);
    attr.set_task(1);
    attr.set_comm(1);
    sys::perf_event_open(&mut attr, -1, cpu as i32)
}

fn name_in_proc(tid: i32) -> Option<String> {
    files::text(format!("/proc/{tid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// Turns the records of all CPUs into stretches.
#[derive(Debug)]
struct Occupants {
    running: HashMap<u32, Occupant>,
    names: HashMap<i32, String>,
    /// Finds the name of a thread that was alive before the observation.
    find_name: fn(i32) -> Option<String>,
    /// Number of records that the kernel dropped.
    lost: u64,
}

#[derive(Debug)]
struct Occupant {
    pid: i32,
    tid: i32,
    from: Instant,
    /// Its last name, if the thread is ending: another thread may have its number soon.
    name: Option<String>,
}

impl Occupants {
    fn new(cpus: impl Iterator<Item = u32>, begin: Instant, find_name: fn(i32) -> Option<String>) -> Occupants {
        let unknown = |cpu| (cpu, Occupant { pid: UNKNOWN, tid: UNKNOWN, from: begin, name: None });
        Occupants { running: cpus.map(unknown).collect(), names: HashMap::new(), find_name, lost: 0 }
    }

    /// Processes the records of all CPUs by their times.
    fn take_all(&mut self, mut records: Vec<(Instant, u32, CpuRecord)>, sink: &mut dyn FnMut(CpuStretch)) {
        // The sort is stable: the records of a CPU keep their order.
        records.sort_by_key(|(at, ..)| *at);
        for (_, cpu, record) in records {
            self.take(cpu, record, sink);
        }
    }

    /// Processes one record. The records of each CPU must arrive in their order.
    fn take(&mut self, cpu: u32, record: CpuRecord, sink: &mut dyn FnMut(CpuStretch)) {
        match record {
            CpuRecord::In { pid, tid, at } => {
                self.close(cpu, at, sink);
                if tid > 0 {
                    // Its name is read now, while it is alive.
                    self.name_of(tid);
                }
                self.running.insert(cpu, Occupant { pid, tid, from: at, name: None });
            }
            CpuRecord::Out { pid, tid, at } => {
                if let Some(first) = self.running.get_mut(&cpu).filter(|occupant| occupant.tid == UNKNOWN) {
                    (first.pid, first.tid) = (pid, tid);
                }
                self.close(cpu, at, sink);
            }
            CpuRecord::Born { tid, parent } => {
                let name = self.name_of(parent);
                self.names.insert(tid, name);
            }
            CpuRecord::Named { tid, name } => {
                self.names.insert(tid, name);
            }
            CpuRecord::Gone { tid } => {
                let name = self.name_of(tid);
                self.names.remove(&tid);
                if let Some(ending) = self.running.get_mut(&cpu).filter(|occupant| occupant.tid == tid) {
                    ending.name = Some(name);
                }
            }
            CpuRecord::Lost { records } => {
                self.lost += records;
                self.running.remove(&cpu);
                // A lost record may have renamed or ended any thread.
                self.names.clear();
            }
            CpuRecord::Other => {}
        }
    }

    /// Ends the stretch on a CPU. The idle thread, and threads outside this pid namespace, have the number 0.
    fn close(&mut self, cpu: u32, at: Instant, sink: &mut dyn FnMut(CpuStretch)) {
        let Some(Occupant { pid, tid, from, name }) = self.running.remove(&cpu) else { return };
        if tid > 0 && from < at {
            let name = name.unwrap_or_else(|| self.name_of(tid));
            sink(CpuStretch { cpu, pid, thread: ThreadId(tid), name, from, to: at });
        }
    }

    fn name_of(&mut self, tid: i32) -> String {
        let find = self.find_name;
        self.names.entry(tid).or_insert_with(|| find(tid).unwrap_or_default()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::new(ns)
    }

    fn enters(tid: i32, ns: u64) -> CpuRecord {
        CpuRecord::In { pid: tid, tid, at: at(ns) }
    }

    fn leaves(tid: i32, ns: u64) -> CpuRecord {
        CpuRecord::Out { pid: tid, tid, at: at(ns) }
    }

    /// The CPU, thread, name, begin and end of each stretch; observed from 10 on.
    fn stretches(records: Vec<(u32, CpuRecord)>) -> Vec<(u32, i32, String, u64, u64)> {
        let mut occupants = Occupants::new(0..2, at(10), |tid| Some(format!("old {tid}")));
        let mut seen = Vec::new();
        let mut sink = |s: CpuStretch| seen.push((s.cpu, s.thread.0, s.name, s.from.get(), s.to.get()));
        records.into_iter().for_each(|(cpu, record)| occupants.take(cpu, record, &mut sink));
        (0..2).for_each(|cpu| occupants.close(cpu, at(100), &mut sink));
        seen
    }

    #[test]
    fn each_cpu_has_the_stretches_of_its_threads_and_none_while_it_is_idle() {
        let seen = stretches(vec![
            (0, enters(7, 20)),
            (1, enters(8, 25)),
            (0, leaves(7, 30)),
            (0, enters(0, 31)),
            (0, leaves(0, 40)),
            (0, enters(8, 41)),
            (1, leaves(8, 50)),
        ]);
        let name = |tid| format!("old {tid}");
        assert_eq!(seen, [(0, 7, name(7), 20, 30), (1, 8, name(8), 25, 50), (0, 8, name(8), 41, 100)]);
    }

    #[test]
    fn the_thread_that_was_on_a_cpu_at_the_start_is_known_when_it_leaves() {
        assert_eq!(stretches(vec![(0, leaves(7, 30))]), [(0, 7, "old 7".to_owned(), 10, 30)]);
    }

    #[test]
    fn a_thread_has_the_name_of_its_parent_until_its_own_and_keeps_its_last_one_to_its_end() {
        let seen = stretches(vec![
            (0, enters(7, 20)),
            (0, CpuRecord::Born { tid: 9, parent: 7 }),
            (0, leaves(7, 30)),
            (0, enters(9, 30)),
            (0, leaves(9, 40)),
            (0, enters(9, 50)),
            (0, CpuRecord::Named { tid: 9, name: "ls".to_owned() }),
            (0, CpuRecord::Gone { tid: 9 }),
            (1, CpuRecord::Named { tid: 9, name: "another".to_owned() }),
            (0, leaves(9, 60)),
        ]);
        let names: Vec<_> = seen.iter().map(|(_, tid, name, ..)| (*tid, name.as_str())).collect();
        assert_eq!(names, [(7, "old 7"), (9, "old 7"), (9, "ls")]);
    }

    #[test]
    fn a_name_from_one_cpu_outlasts_an_earlier_birth_on_another() {
        let mut occupants = Occupants::new(0..2, at(10), |tid| Some(format!("old {tid}")));
        let mut names = Vec::new();
        let first = vec![
            (at(22), 0, enters(9, 22)),
            (at(24), 0, CpuRecord::Named { tid: 9, name: "ls".to_owned() }),
            (at(30), 0, leaves(9, 30)),
            (at(20), 1, CpuRecord::Born { tid: 9, parent: 7 }),
        ];
        occupants.take_all(first, &mut |stretch| names.push(stretch.name));
        let second = vec![(at(40), 0, enters(9, 40)), (at(50), 0, leaves(9, 50))];
        occupants.take_all(second, &mut |stretch| names.push(stretch.name));
        assert_eq!(names, ["ls", "ls"]);
    }

    #[test]
    fn after_a_loss_nothing_is_drawn_before_the_next_thread_arrives() {
        let lost = CpuRecord::Lost { records: 3 };
        let seen = stretches(vec![(0, enters(7, 20)), (0, lost), (0, leaves(8, 60)), (0, enters(9, 70))]);
        assert_eq!(seen, [(0, 9, "old 9".to_owned(), 70, 100)]);
    }
}
