//! From records of single switches to stretches and lives of threads. Pure: no clock, no kernel.
//!
//! ```text
//!             In                      Out: Ran
//!   away ------------> running(from) ----------> away        cut: Ran up to now, running(now)
//!                                                            attached: running(then) or away, unknown which:
//!   unknown(since) --In--> running     unknown(since) --Out: Ran from `since`--> away
//! ```
//! A thread may be covered twice when it was born while its program was being attached: its records then come
//! twice, and the second of each pair changes nothing.

use std::collections::HashMap;

use qfabric_types::{Instant, ThreadId};

use super::record::Record;
use super::{MAX_FOLLOWED, Observation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Attached then; whether it was running is not known.
    Unknown(Instant),
    Running(Instant),
    Away,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    pid: i32,
    /// What it was attached under, itself or through its ancestors.
    root: i32,
    state: State,
    /// Records were lost since its last switch.
    suspect: bool,
}

/// The followed threads.
#[derive(Debug)]
pub(super) struct Stretches {
    lives: HashMap<i32, Life>,
    /// Threads left out because [`MAX_FOLLOWED`] are followed already.
    pub(super) left_out: u64,
    /// Records the kernel dropped.
    pub(super) lost: u64,
}

impl Stretches {
    pub(super) fn new() -> Self {
        Stretches { lives: HashMap::with_capacity(1_024), left_out: 0, lost: 0 }
    }

    /// Whether it is followed.
    pub(super) fn knows(&self, tid: i32) -> bool {
        self.lives.contains_key(&tid)
    }

    /// Follows a thread that was alive already.
    pub(super) fn attached(&mut self, tid: i32, pid: i32, root: i32, at: Instant) {
        self.follow(tid, Life { pid, root, state: State::Unknown(at), suspect: false });
    }

    /// Forgets everything attached under `root`.
    pub(super) fn detached(&mut self, root: i32) {
        self.lives.retain(|_, life| life.root != root);
    }

    /// Takes one record in order of time.
    pub(super) fn take(&mut self, record: Record, sink: &mut dyn FnMut(Observation)) {
        match record {
            Record::In { pid, tid, at } => self.got_cpu(pid, tid, at, sink),
            Record::Out { tid, at, slept } => self.left_cpu(tid, at, slept, sink),
            Record::Born { pid, tid, parent, at } => self.born(pid, tid, parent, at, sink),
            Record::Gone { tid, at } => self.gone(tid, at, sink),
            Record::Exec { pid, tid, at } => self.exec(pid, tid, at, sink),
            Record::Lost { records } => {
                self.lost += records;
                self.lives.values_mut().for_each(|life| life.suspect = true);
            }
            Record::Other => {}
        }
    }

    /// Ends the stretch of each running thread at `now` and begins another.
    pub(super) fn cut(&mut self, now: Instant, sink: &mut dyn FnMut(Observation)) {
        for (&tid, life) in &mut self.lives {
            if let State::Running(from) = life.state
                && from < now
            {
                sink(ran(tid, from, now, false));
                life.state = State::Running(now);
            }
        }
    }

    fn got_cpu(&mut self, pid: i32, tid: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        if !self.knows(tid) {
            self.born(pid, tid, pid, at, sink); // its birth was lost
        }
        let Some(life) = self.lives.get_mut(&tid) else { return };
        if !matches!(life.state, State::Running(_)) || life.suspect {
            life.state = State::Running(at);
            life.suspect = false;
        }
    }

    fn left_cpu(&mut self, tid: i32, at: Instant, slept: bool, sink: &mut dyn FnMut(Observation)) {
        let Some(life) = self.lives.get_mut(&tid) else { return };
        let state = std::mem::replace(&mut life.state, State::Away);
        let whole = !std::mem::take(&mut life.suspect);
        match state {
            State::Running(from) | State::Unknown(from) if whole && from <= at => sink(ran(tid, from, at, slept)),
            _ => {}
        }
    }

    fn born(&mut self, pid: i32, tid: i32, parent: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        let Some(root) = self.lives.get(&parent).map(|life| life.root) else { return };
        if self.knows(tid) {
            return;
        }
        let newborn = Life { pid, root, state: State::Away, suspect: false };
        if self.follow(tid, newborn) {
            sink(Observation::Born { tid: ThreadId(tid), pid, parent: ThreadId(parent) });
        }
        let _ = at;
    }

    /// The kernel writes no switch for the last time: the stretch ends here.
    fn gone(&mut self, tid: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        self.left_cpu(tid, at, true, sink);
        if self.lives.remove(&tid).is_some() {
            sink(Observation::Gone { tid: ThreadId(tid) });
        }
    }

    /// Whichever thread called exec goes on under the number of the process; all others end.
    fn exec(&mut self, pid: i32, tid: i32, at: Instant, sink: &mut dyn FnMut(Observation)) {
        let others: Vec<i32> = self.lives.iter().filter(|(t, l)| l.pid == pid && **t != tid).map(|(t, _)| *t).collect();
        let root = self.lives.values().find(|l| l.pid == pid).map(|l| l.root);
        let Some(root) = root else { return };
        for other in others {
            self.gone(other, at, sink);
        }
        let running = Life { pid, root, state: State::Running(at), suspect: false };
        if !matches!(self.lives.get(&tid), Some(Life { state: State::Running(_), .. })) {
            self.follow(tid, running);
        }
        sink(Observation::Exec { tid: ThreadId(tid) });
    }

    fn follow(&mut self, tid: i32, life: Life) -> bool {
        if self.lives.len() >= MAX_FOLLOWED && !self.knows(tid) {
            self.left_out += 1;
            return false;
        }
        self.lives.insert(tid, life);
        true
    }
}

fn ran(tid: i32, from: Instant, to: Instant, slept: bool) -> Observation {
    Observation::Ran { tid: ThreadId(tid), from, to, used: to.since(from), slept }
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
    fn told(stretches: &mut Stretches, records: &[Record]) -> Vec<Observation> {
        let mut told = Vec::new();
        records.iter().for_each(|r| stretches.take(*r, &mut |o| told.push(o)));
        told
    }
    fn attached() -> Stretches {
        let mut stretches = Stretches::new();
        stretches.attached(T, T, T, at(10));
        stretches
    }

    #[test]
    fn a_stretch_is_told_with_both_ends_and_whether_the_thread_sleeps() {
        let told = told(&mut attached(), &[get(20), leave(30, true), get(40), leave(45, false)]);
        assert_eq!(told, [ran(T, at(20), at(30), true), ran(T, at(40), at(45), false)]);
    }

    #[test]
    fn a_thread_attached_while_it_ran_has_run_since_then() {
        assert_eq!(told(&mut attached(), &[leave(30, true)]), [ran(T, at(10), at(30), true)]);
    }

    #[test]
    fn a_thread_covered_twice_is_counted_once() {
        let twice = [get(20), get(20), leave(30, true), leave(30, true), get(40), get(40), leave(50, true)];
        assert_eq!(told(&mut attached(), &twice).len(), 2);
    }

    #[test]
    fn after_a_loss_no_stretch_is_made_up_of_two() {
        let lost = Record::Lost { records: 3 };
        let mut stretches = attached();
        let told = told(&mut stretches, &[get(20), lost, get(90), leave(95, true)]);
        assert_eq!(told, [ran(T, at(90), at(95), true)]);
        assert_eq!(stretches.lost, 3);
        assert_eq!(super::tests::told(&mut attached(), &[get(20), lost, leave(95, true)]), []);
    }

    #[test]
    fn children_and_grandchildren_are_followed_until_they_end() {
        let mut stretches = attached();
        let grandchild_runs = Record::In { pid: T, tid: 9, at: at(50) };
        let gone = Record::Gone { tid: 9, at: at(60) };
        let told = told(&mut stretches, &[born(8, T), born(9, 8), grandchild_runs, gone]);
        let parents: Vec<_> = told
            .iter()
            .filter_map(|o| if let Observation::Born { parent, .. } = o { Some(parent.0) } else { None })
            .collect();
        assert_eq!(parents, [T, 8]);
        assert_eq!(told[2..], [ran(9, at(50), at(60), true), Observation::Gone { tid: ThreadId(9) }]);
        assert!(stretches.knows(8) && !stretches.knows(9));
    }

    #[test]
    fn a_thread_whose_birth_was_lost_is_born_when_it_runs() {
        let mut stretches = attached();
        let told = told(&mut stretches, &[Record::In { pid: T, tid: 8, at: at(50) }]);
        assert_eq!(told, [Observation::Born { tid: ThreadId(8), pid: T, parent: ThreadId(T) }]);
    }

    #[test]
    fn an_exec_ends_the_other_threads_first() {
        let mut stretches = attached();
        let exec = Record::Exec { pid: T, tid: T, at: at(70) };
        let told = told(&mut stretches, &[born(8, T), exec, leave(80, true)]);
        assert_eq!(told[1..3], [Observation::Gone { tid: ThreadId(8) }, Observation::Exec { tid: ThreadId(T) }]);
        assert_eq!(told[3], ran(T, at(70), at(80), true));
    }

    #[test]
    fn a_cut_splits_a_stretch_without_losing_time() {
        let mut stretches = attached();
        let mut told = told(&mut stretches, &[get(20)]);
        stretches.cut(at(50), &mut |o| told.push(o));
        told.extend(super::tests::told(&mut stretches, &[leave(60, true)]));
        assert_eq!(told, [ran(T, at(20), at(50), false), ran(T, at(50), at(60), true)]);
    }

    #[test]
    fn what_is_detached_is_not_told_any_more() {
        let mut stretches = attached();
        told(&mut stretches, &[born(8, T)]);
        stretches.detached(T);
        assert_eq!(told(&mut stretches, &[get(20), leave(30, true), born(9, 8)]), []);
    }

    #[test]
    fn beyond_the_limit_threads_are_counted_and_left_out() {
        let mut stretches = attached();
        for tid in 0..MAX_FOLLOWED as i32 {
            told(&mut stretches, &[born(100 + tid, T)]);
        }
        assert_eq!(stretches.left_out, 1);
    }
}
