//! Observes threads by comparing `/proc` from poll to poll; used if perf is refused. A stretch is the time that a
//! thread ran between two polls. It ends in a sleep if the thread gave up the CPU voluntarily in between. The kernel's
//! values for a running thread are up to one tick old.

use std::collections::{HashMap, HashSet};
use std::io;

use qfabric_types::{Instant, Nanos, Sample, ThreadId};

use super::{MAX_FOLLOWED, Observation, Observer, Polled};
use crate::{clock, threads};

#[derive(Debug, Default)]
pub struct PollObserver {
    roots: HashMap<i32, Root>,
    followed: HashMap<i32, Followed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Program,
    Thread,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    root: i32,
    start: u64,
    seen: Figures,
    at: Instant,
}

/// Values of one thread from `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    run_ns: u64,
    sleeps: u64,
}

impl PollObserver {
    pub fn new() -> Self {
        PollObserver::default()
    }

    /// The threads below a root, each with its process.
    fn members(&self, root: i32) -> Vec<(ThreadId, i32)> {
        if self.roots.get(&root) == Some(&Root::Thread) {
            return vec![(ThreadId(root), root)];
        }
        let processes = std::iter::once(root).chain(threads::descendants(root));
        let of = |pid| threads::list(pid).unwrap_or_default().into_iter().map(move |t| (t, pid));
        processes.flat_map(of).take(MAX_FOLLOWED).collect()
    }

    fn follow(&mut self, thread: ThreadId, root: i32, at: Instant) -> bool {
        let Some((start, seen)) = threads::start_time(thread).zip(figures(thread)) else { return false };
        self.followed.len() < MAX_FOLLOWED
            && self.followed.insert(thread.0, Followed { root, start, seen, at }).is_none()
    }
}

impl Observer for PollObserver {
    fn name(&self) -> &'static str {
        "poll"
    }

    fn attach(&mut self, pid: i32) -> io::Result<Vec<ThreadId>> {
        threads::list(pid)?;
        self.roots.insert(pid, Root::Program);
        let members = self.members(pid);
        for (thread, _) in &members {
            self.follow(*thread, pid, clock::now());
        }
        Ok(members.into_iter().map(|(thread, _)| thread).collect())
    }

    fn attach_thread(&mut self, thread: ThreadId) -> io::Result<()> {
        self.roots.insert(thread.0, Root::Thread);
        match self.follow(thread, thread.0, clock::now()) {
            true => Ok(()),
            false if self.followed.len() >= MAX_FOLLOWED => Err(io::Error::other("too many threads are observed")),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    fn detach(&mut self, id: i32) {
        self.roots.remove(&id);
        self.followed.retain(|_, entry| entry.root != id);
    }

    fn follows(&self, thread: ThreadId) -> bool {
        self.followed.contains_key(&thread.0)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Observation)) -> Polled {
        let (now, mut polled, mut alive) = (clock::now(), Polled::default(), HashSet::new());
        let mut emit = |o| {
            polled.observations += 1;
            sink(o);
        };
        for root in self.roots.keys().copied().collect::<Vec<_>>() {
            for (tid, pid) in self.members(root) {
                alive.insert(tid.0);
                let known = self.followed.get(&tid.0).map(|l| l.start);
                if known.is_some() && known != threads::start_time(tid) {
                    self.followed.remove(&tid.0);
                    emit(Observation::Gone { tid });
                }
                if self.followed.contains_key(&tid.0) {
                    continue;
                }
                if self.follow(tid, root, now) {
                    emit(Observation::Born { tid, pid, parent: ThreadId(root) });
                }
            }
        }
        self.followed.retain(|tid, entry| {
            let tid = ThreadId(*tid);
            match figures(tid).filter(|_| alive.contains(&tid.0)) {
                Some(figures) => entry.advance(tid, figures, now).into_iter().for_each(&mut emit),
                None => emit(Observation::Gone { tid }),
            }
            alive.contains(&tid.0)
        });
        polled
    }

    fn cut(&mut self, _sink: &mut dyn FnMut(Observation)) {} // every poll already ends the stretches of running threads
}

impl Followed {
    fn advance(&mut self, tid: ThreadId, figures: Figures, now: Instant) -> Option<Observation> {
        let used = Nanos::new(figures.run_ns.saturating_sub(self.seen.run_ns));
        let slept = figures.sleeps != self.seen.sleeps;
        let from = std::mem::replace(&mut self.at, now);
        self.seen = figures;
        (used > Nanos::ZERO).then_some(Observation::Ran(Sample { thread: tid, from, to: now, used, slept }))
    }
}

fn figures(tid: ThreadId) -> Option<Figures> {
    Some(Figures { run_ns: threads::cpu_time(tid)?, sleeps: threads::switches(tid)?.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_the_time_used_between_two_polls() {
        let seen = Figures { run_ns: 100, sleeps: 1 };
        let mut entry = Followed { root: 1, start: 1, seen, at: Instant::new(10) };
        let tid = ThreadId(1);
        assert_eq!(entry.advance(tid, seen, Instant::new(20)), None);
        let observed = entry.advance(tid, Figures { run_ns: 150, sleeps: 2 }, Instant::new(30));
        let (from, to, used) = (Instant::new(20), Instant::new(30), Nanos::new(50));
        assert_eq!(observed, Some(Observation::Ran(Sample { thread: tid, from, to, used, slept: true })));
    }
}
