//! Turns records of single context switches into stretches, and tracks the threads. Pure: no clock, no kernel.
//!
//! ```text
//!             In                       Out: Ran
//!   off CPU ------------> running(from) ----------> off CPU    cut: Ran up to now, running(now)
//!                                                              attached: running or off CPU, not known which:
//!   unknown(since) --In--> running      unknown(since) --Out: Ran from `since`--> off CPU
//! ```
//! A thread that starts while its program is being attached may be covered twice. Its records then arrive twice, and
//! the second record of each pair changes nothing.

use std::collections::HashMap;

use qfabric_types::{Instant, Sample, ThreadId};

use super::record::Record;
use super::{MAX_FOLLOWED, Observation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Attached at this time; not known if the thread was running.
    Unknown(Instant),
    Running(Instant),
    OffCpu,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    pid: i32,
    /// Id under which the thread was attached, directly or through an ancestor.
    root: i32,
    state: State,
    /// True if records were lost since the thread's last switch.
    suspect: bool,
}

#[derive(Debug)]
pub(super) struct Stretches {
    followed: HashMap<i32, Followed>,
    /// Number of threads left out because [`MAX_FOLLOWED`] are already followed.
    pub(super) left_out: u64,
    /// Number of records that the kernel dropped.
    pub(super) lost: u64,
}

impl Stretches {
    pub(super) fn new() -> Self {
        Stretches { followed: HashMap::with_capacity(1_024), left_out: 0, lost: 0 }
    }

    pub(super) fn follows(&self, tid: i32) -> bool {
        self.followed.contains_key(&tid)
    }

    /// Whether every further thread is left out.
    pub(super) fn is_full(&self) -> bool {
        self.followed.len() >= MAX_FOLLOWED
    }

    /// Follows a thread that was already alive.
    pub(super) fn attached(&mut self, tid: i32, pid: i32, root: i32, at: Instant) {
        self.follow(tid, Followed { pid, root, state: State::Unknown(at), suspect: false });
    }

    /// Forgets all threads that were attached under `root`.
    pub(super) fn detached(&mut self, root: i32) {
        self.followed.retain(|_, entry| entry.root != root);
    }

    /// Processes one record. Records must arrive in the order of their time.
    pub(super) fn take(&mut self, record: Record, sink: &mut dyn FnMut(Observation)) {
        match record {
            Record::In { pid, tid, at } => self.got_cpu(pid, tid, at, sink),
            Record::Out { tid, at, slept } => self.left_cpu(tid, at, slept, sink),
            Record::Born { pid, tid, parent, .. } => self.born(pid, tid, parent, sink),
            Record::Gone { tid, at } => self.gone(tid, at, sink),
            Record::Exec { pid, tid, at } => self.exec(pid, tid, at, sink),
            Record::Lost { records } => {
                self.lost += records;
                self.followed.values_mut().for_each(|entry| entry.suspect = true);
            }
            Record::Other => {}
        }
    }

    /// Ends the stretch of each running thread at `now` and begins the next one.
    pub(super) fn cut(&mut self, now: Instant, sink: &mut dyn FnMut(Observation)) {
        for (&tid, entry) in &mut self.followed {
            if let State::Running(from) = entry.state
                && from < now
            {
                sink(ran(tid, from, now, false));
                entry.state = State::Running(now);
            }
        }
    }

    fn got_cpu(&mut self, pid: i32, tid: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        if !self.follows(tid) {
            self.born(pid, tid, pid, sink); // the record of its start was lost
        }
        let Some(entry) = self.followed.get_mut(&tid) else { return };
        if !matches!(entry.state, State::Running(_)) || entry.suspect {
            entry.state = State::Running(at);
            entry.suspect = false;
        }
    }

    fn left_cpu(&mut self, tid: i32, at: Instant, slept: bool, sink: &mut dyn FnMut(Observation)) {
        let Some(entry) = self.followed.get_mut(&tid) else { return };
        let state = std::mem::replace(&mut entry.state, State::OffCpu);
        let whole = !std::mem::take(&mut entry.suspect);
        match state {
            State::Running(from) | State::Unknown(from) if whole && from <= at => sink(ran(tid, from, at, slept)),
            _ => {}
        }
    }

    fn born(&mut self, pid: i32, tid: i32, parent: i32, sink: &mut dyn FnMut(Observation)) {
        let Some(root) = self.followed.get(&parent).map(|entry| entry.root) else { return };
        if self.follows(tid) {
            return;
        }
        let entry = Followed { pid, root, state: State::OffCpu, suspect: false };
        if self.follow(tid, entry) {
            sink(Observation::Born { tid: ThreadId(tid), pid, parent: ThreadId(parent) });
        }
    }

    /// The kernel writes no switch record for a thread that ends, so its stretch ends here.
    fn gone(&mut self, tid: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        self.left_cpu(tid, at, true, sink);
        if self.followed.remove(&tid).is_some() {
            sink(Observation::Gone { tid: ThreadId(tid) });
        }
    }

    /// The thread that called exec continues under the id of the process; all other threads end.
    fn exec(&mut self, pid: i32, tid: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        let others: Vec<i32> =
            self.followed.iter().filter(|(t, l)| l.pid == pid && **t != tid).map(|(t, _)| *t).collect();
        let root = self.followed.values().find(|l| l.pid == pid).map(|l| l.root);
        let Some(root) = root else { return };
        for other in others {
            self.gone(other, at, sink);
        }
        let running = Followed { pid, root, state: State::Running(at), suspect: false };
        if !matches!(self.followed.get(&tid), Some(Followed { state: State::Running(_), .. })) {
            self.follow(tid, running);
        }
        sink(Observation::Exec { tid: ThreadId(tid) });
    }

    fn follow(&mut self, tid: i32, entry: Followed) -> bool {
        if self.is_full() && !self.follows(tid) {
            self.left_out += 1;
            return false;
        }
        self.followed.insert(tid, entry);
        true
    }
}

fn ran(tid: i32, from: Instant, to: Instant, slept: bool) -> Observation {
    Observation::Ran(Sample { thread: ThreadId(tid), from, to, used: to.since(from), slept })
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i32 = 7;

    fn at(ns: u64) -> Instant {
        Instant::new(ns)
    }
    fn get(ns: u64) -> Record {
        Record::In { pid: T, tid: T, at: at(ns) }
    }
    fn leave(ns: u64, slept: bool) -> Record {
        Record::Out { tid: T, at: at(ns), slept }
    }
    fn born(tid: i32, parent: i32) -> Record {
        Record::Born { pid: T, tid, parent, at: at(0) }
    }
    fn feed(stretches: &mut Stretches, records: &[Record]) -> Vec<Observation> {
        let mut observed = Vec::new();
        records.iter().for_each(|r| stretches.take(*r, &mut |o| observed.push(o)));
        observed
    }
    fn attached() -> Stretches {
        let mut stretches = Stretches::new();
        stretches.attached(T, T, T, at(10));
        stretches
    }

    #[test]
    fn a_stretch_has_its_begin_its_end_and_the_reason_for_the_end() {
        let observed = feed(&mut attached(), &[get(20), leave(30, true), get(40), leave(45, false)]);
        assert_eq!(observed, [ran(T, at(20), at(30), true), ran(T, at(40), at(45), false)]);
    }

    #[test]
    fn the_stretch_of_a_running_thread_begins_when_it_is_attached() {
        assert_eq!(feed(&mut attached(), &[leave(30, true)]), [ran(T, at(10), at(30), true)]);
    }

    #[test]
    fn a_thread_covered_twice_is_counted_once() {
        let twice = [get(20), get(20), leave(30, true), leave(30, true), get(40), get(40), leave(50, true)];
        assert_eq!(feed(&mut attached(), &twice).len(), 2);
    }

    #[test]
    fn two_stretches_are_not_joined_after_a_loss() {
        let lost = Record::Lost { records: 3 };
        let mut stretches = attached();
        let observed = feed(&mut stretches, &[get(20), lost, get(90), leave(95, true)]);
        assert_eq!(observed, [ran(T, at(90), at(95), true)]);
        assert_eq!(stretches.lost, 3);
        assert_eq!(feed(&mut attached(), &[get(20), lost, leave(95, true)]), []);
    }

    #[test]
    fn children_and_grandchildren_are_followed_until_they_end() {
        let mut stretches = attached();
        let grandchild_runs = Record::In { pid: T, tid: 9, at: at(50) };
        let gone = Record::Gone { tid: 9, at: at(60) };
        let observed = feed(&mut stretches, &[born(8, T), born(9, 8), grandchild_runs, gone]);
        let parents: Vec<_> = observed
            .iter()
            .filter_map(|o| if let Observation::Born { parent, .. } = o { Some(parent.0) } else { None })
            .collect();
        assert_eq!(parents, [T, 8]);
        assert_eq!(observed[2..], [ran(9, at(50), at(60), true), Observation::Gone { tid: ThreadId(9) }]);
        assert!(stretches.follows(8) && !stretches.follows(9));
    }

    #[test]
    fn a_thread_whose_start_was_lost_is_reported_when_it_runs() {
        let mut stretches = attached();
        let observed = feed(&mut stretches, &[Record::In { pid: T, tid: 8, at: at(50) }]);
        assert_eq!(observed, [Observation::Born { tid: ThreadId(8), pid: T, parent: ThreadId(T) }]);
    }

    #[test]
    fn an_exec_ends_the_other_threads_first() {
        let mut stretches = attached();
        let exec = Record::Exec { pid: T, tid: T, at: at(70) };
        let observed = feed(&mut stretches, &[born(8, T), exec, leave(80, true)]);
        assert_eq!(observed[1..3], [Observation::Gone { tid: ThreadId(8) }, Observation::Exec { tid: ThreadId(T) }]);
        assert_eq!(observed[3], ran(T, at(70), at(80), true));
    }

    #[test]
    fn a_cut_splits_a_stretch_without_losing_time() {
        let mut stretches = attached();
        let mut observed = feed(&mut stretches, &[get(20)]);
        stretches.cut(at(50), &mut |o| observed.push(o));
        observed.extend(feed(&mut stretches, &[leave(60, true)]));
        assert_eq!(observed, [ran(T, at(20), at(50), false), ran(T, at(50), at(60), true)]);
    }

    #[test]
    fn detached_threads_are_not_reported() {
        let mut stretches = attached();
        feed(&mut stretches, &[born(8, T)]);
        stretches.detached(T);
        assert_eq!(feed(&mut stretches, &[get(20), leave(30, true), born(9, 8)]), []);
    }

    #[test]
    fn threads_beyond_the_limit_are_counted_and_left_out() {
        let mut stretches = attached();
        for tid in 0..MAX_FOLLOWED as i32 {
            feed(&mut stretches, &[born(100 + tid, T)]);
        }
        assert_eq!(stretches.left_out, 1);
    }
}
