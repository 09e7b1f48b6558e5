//! Whose threads are whose: applications, their processes, and which contract covers a thread.
//!
//! The most specific contract wins. A thread under a contract of its own belongs to that, also where its
//! program has one; when its own ends, it goes back to its program's. Two contracts of the same kind for the
//! same thread, or process, are refused.

use std::collections::{BTreeMap, HashMap};

use qfabric_host::monitor::Publisher;
use qfabric_linux::watch;
use qfabric_types::api::{Covers, Problem};
use qfabric_types::{AppId, Contract, Instant, JobSource, Nanos, Owner, ThreadId};

use super::births::Births;
use super::rings::Ring;
use crate::problem;

/// One application, as the daemon knows it beside the host.
pub(crate) struct App {
    pub pid: i32,
    pub owner: Owner,
    pub covers: Covers,
    pub period: Nanos,
    pub jobs: JobSource,
    pub watch: watch::Process,
    pub ring: Option<Ring>,
    /// Its ring's connection closed; it leaves then, unless it comes back.
    pub leaves_at: Option<Instant>,
    /// What is observed for it, as [`qfabric_linux::observe::Observer::detach`] wants it.
    pub observed: Vec<i32>,
    pub births: Births,
    /// Its numbers for monitors, once somebody asked for them.
    pub publisher: Option<Publisher>,
}

impl App {
    pub fn new(target: crate::auth::Target, covers: Covers, contract: &Contract) -> Self {
        App {
            pid: target.pid,
            owner: target.owner,
            covers,
            period: contract.period,
            jobs: contract.jobs,
            watch: target.watch,
            ring: None,
            leaves_at: None,
            observed: Vec::new(),
            births: Births::default(),
            publisher: None,
        }
    }

    /// Whether its contract is for a whole program.
    pub fn is_program(&self) -> bool {
        self.covers == Covers::Program
    }

    /// Its connection is closed: it is kept for the grace only, in case the client comes back.
    pub fn is_abandoned(&self) -> bool {
        self.leaves_at.is_some() || self.ring.as_ref().is_some_and(Ring::is_abandoned)
    }

    /// Takes over what a changed contract changes here.
    pub fn change(&mut self, contract: &Contract) {
        self.period = contract.period;
        self.jobs = contract.jobs;
        if let Some(ring) = &mut self.ring {
            ring.set_period(contract.period);
        }
    }
}

/// All applications.
#[derive(Default)]
pub(crate) struct Apps {
    pub by_id: BTreeMap<AppId, App>,
    covered_by: HashMap<ThreadId, AppId>,
}

impl Apps {
    /// Refuses a contract for what is covered by one of the same kind already.
    pub fn check_free(&self, pid: i32, covers: Covers) -> Result<(), Problem> {
        let thread = match covers {
            Covers::Program => ThreadId(pid),
            Covers::Thread(thread) => thread,
        };
        match self.same(pid, covers) {
            Some((id, _)) => Err(problem::already_covered(thread, id)),
            None => Ok(()),
        }
    }

    /// The application that has a contract for exactly this.
    pub fn same(&self, pid: i32, covers: Covers) -> Option<(AppId, &App)> {
        let mut all = self.by_id.iter().map(|(id, app)| (*id, app));
        all.find(|(_, app)| app.pid == pid && app.covers == covers)
    }

    /// How many applications a user has.
    pub fn count_of(&self, uid: u32) -> usize {
        self.by_id.values().filter(|app| app.owner.uid == uid).count()
    }

    /// Which application a thread belongs to.
    pub fn of_thread(&self, thread: ThreadId) -> Option<AppId> {
        self.covered_by.get(&thread).copied()
    }

    /// Whether a thread is free for a program's contract: nobody's, or already that program's.
    pub fn is_free(&self, thread: ThreadId) -> bool {
        !self.covered_by.contains_key(&thread)
    }

    /// The thread belongs to `app` from now on; answers whose it was.
    pub fn cover(&mut self, thread: ThreadId, app: AppId) -> Option<AppId> {
        self.covered_by.insert(thread, app).filter(|before| *before != app)
    }

    /// The thread belongs to nobody any more.
    pub fn uncover(&mut self, thread: ThreadId) -> Option<AppId> {
        self.covered_by.remove(&thread)
    }

    /// The applications of a process.
    pub fn of_process(&self, pid: i32) -> impl Iterator<Item = AppId> {
        self.by_id.iter().filter(move |(_, app)| app.pid == pid).map(|(id, _)| *id)
    }

    /// The application that covers the whole process, if there is one.
    pub fn program(&self, pid: i32) -> Option<AppId> {
        self.by_id.iter().find(|(_, app)| app.pid == pid && app.is_program()).map(|(id, _)| *id)
    }

    /// Forgets an application; answers it, and the thread that goes back to its program's contract.
    pub fn remove(&mut self, id: AppId) -> Option<(App, Option<(AppId, ThreadId)>)> {
        let app = self.by_id.remove(&id)?;
        self.covered_by.retain(|_, covered_by| *covered_by != id);
        let back = match app.covers {
            Covers::Thread(thread) => self.program(app.pid).map(|program| (program, thread)),
            Covers::Program => None,
        };
        Some((app, back))
    }

    /// The threads an application covers.
    pub fn threads_of(&self, id: AppId) -> impl Iterator<Item = ThreadId> {
        self.covered_by.iter().filter(move |(_, app)| **app == id).map(|(thread, _)| *thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(covers: Covers) -> App {
        let pid = std::process::id() as i32;
        let watch = watch::Process::watch(pid).unwrap();
        let owner = Owner { uid: 7, gid: 7 };
        App::new(crate::auth::Target { pid, owner, groups: vec![], watch }, covers, &Contract::default())
    }

    fn apps() -> (Apps, i32) {
        let mut apps = Apps::default();
        apps.by_id.insert(AppId(1), app(Covers::Program));
        apps.by_id.insert(AppId(2), app(Covers::Thread(ThreadId(70))));
        apps.cover(ThreadId(69), AppId(1));
        apps.cover(ThreadId(70), AppId(2));
        (apps, std::process::id() as i32)
    }

    #[test]
    fn two_contracts_of_the_same_kind_are_refused_by_name() {
        let (apps, pid) = apps();
        assert!(apps.check_free(pid, Covers::Program).unwrap_err().message.contains("application 1"));
        assert!(apps.check_free(pid, Covers::Thread(ThreadId(70))).unwrap_err().message.contains("application 2"));
        assert!(apps.check_free(pid, Covers::Thread(ThreadId(69))).is_ok());
        assert!(apps.check_free(pid + 1, Covers::Program).is_ok());
    }

    #[test]
    fn a_thread_of_a_program_may_get_a_contract_of_its_own_and_goes_back_after() {
        let (mut apps, _) = apps();
        assert_eq!(apps.cover(ThreadId(69), AppId(2)), Some(AppId(1)));
        let (_, back) = apps.remove(AppId(2)).unwrap();
        assert_eq!(back, Some((AppId(1), ThreadId(70))));
        assert!(apps.is_free(ThreadId(69)) && apps.is_free(ThreadId(70)));
    }

    #[test]
    fn places_are_counted_by_user() {
        let (apps, _) = apps();
        assert_eq!((apps.count_of(7), apps.count_of(8)), (2, 0));
    }
}
