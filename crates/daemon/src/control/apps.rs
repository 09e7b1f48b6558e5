//! Records the applications, their processes, and the contract that covers each thread.
//!
//! The most specific contract wins. A thread with its own contract belongs to that contract, even if its program
//! has one; when the thread's contract ends, the thread returns to its program's contract. A second contract of the
//! same kind for the same thread or process is refused.

use std::collections::{BTreeMap, HashMap};

use qfabric_host::monitor::Publisher;
use qfabric_linux::watch;
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::{AppId, Contract, Instant, JobSource, Nanos, Owner, ThreadId};

use super::births::Births;
use super::decided::Decided;
use super::rings::Ring;
use crate::energy::Checkpoints;
use crate::memory::Promise;
use crate::problem;

/// The daemon's data about one application, beside the host's.
pub(crate) struct App {
    pub pid: i32,
    pub owner: Owner,
    pub covers: ApplicationScope,
    /// The name of the table `[[contract]]` of the configuration that asked for it.
    pub table: Option<String>,
    pub period: Nanos,
    pub jobs: JobSource,
    pub watch: watch::Process,
    pub ring: Option<Ring>,
    /// Set when the connection of its ring closed: the time at which it leaves, unless the client connects again.
    pub leaves_at: Option<Instant>,
    /// Ids of its observed threads and processes, for [`qfabric_linux::observe::Observer::detach`].
    pub observed: Vec<i32>,
    pub births: Births,
    /// Publishes its numbers to monitors; set at the first request to monitor it.
    pub publisher: Option<Publisher>,
    /// Its memory; the promise ends when the application is removed.
    pub memory: Option<Promise>,
    /// The user and group that its memory counts against.
    pub memory_owner: Owner,
    /// The decisions of policies about its contract.
    pub decided: Option<Box<Decided>>,
    /// Where its checkpoints go, while it saves energy.
    pub checkpoints: Option<Checkpoints>,
}

impl App {
    pub(super) fn new(target: crate::auth::Target, covers: ApplicationScope, contract: &Contract) -> Self {
        App {
            pid: target.pid,
            owner: target.owner,
            covers,
            table: None,
            period: contract.period,
            jobs: contract.jobs,
            watch: target.watch,
            ring: None,
            leaves_at: None,
            observed: Vec::new(),
            births: Births::default(),
            publisher: None,
            memory: None,
            memory_owner: target.owner,
            decided: None,
            checkpoints: None,
        }
    }

    /// Whether its contract covers a whole program.
    pub(super) fn is_program(&self) -> bool {
        self.covers == ApplicationScope::Program
    }

    /// Whether the observer has to follow its threads.
    pub(super) fn needs_observer(&self) -> bool {
        self.is_program() || self.jobs != JobSource::Marked
    }

    /// Whether its connection is closed. It stays for the grace time only, in case the client connects again.
    pub(super) fn is_abandoned(&self) -> bool {
        self.leaves_at.is_some() || self.ring.as_ref().is_some_and(Ring::is_abandoned)
    }

    /// From now on its checkpoints go to `checkpoints`.
    pub(super) fn follow_checkpoints(&mut self, checkpoints: Checkpoints) {
        self.checkpoints = Some(checkpoints);
        self.ask_for_checkpoints();
    }

    /// Asks for its checkpoints on its present ring, if they are wanted.
    pub(super) fn ask_for_checkpoints(&self) {
        if let (Some(ring), Some(_)) = (&self.ring, &self.checkpoints) {
            ring.ask_for_checkpoints();
        }
    }

    /// Applies a changed contract.
    pub(super) fn change(&mut self, contract: &Contract) {
        self.period = contract.period;
        self.jobs = contract.jobs;
        if let Some(ring) = &mut self.ring {
            ring.set_period(contract.period);
        }
    }
}

#[derive(Default)]
pub(crate) struct Apps {
    pub by_id: BTreeMap<AppId, App>,
    covered_by: HashMap<ThreadId, AppId>,
}

impl Apps {
    /// Refuses a contract if another contract of the same kind covers the same process or thread.
    pub(super) fn check_free(&self, pid: i32, covers: ApplicationScope) -> Result<(), Problem> {
        match self.same(pid, covers) {
            Some((id, app)) => Err(problem::already_covered(id, pid, covers, app.table.as_deref())),
            None => Ok(()),
        }
    }

    /// The application whose contract covers exactly this process or thread.
    pub(super) fn same(&self, pid: i32, covers: ApplicationScope) -> Option<(AppId, &App)> {
        let mut all = self.by_id.iter().map(|(id, app)| (*id, app));
        all.find(|(_, app)| app.pid == pid && app.covers == covers)
    }

    /// Number of applications of a user.
    pub(super) fn count_of(&self, uid: u32) -> usize {
        self.by_id.values().filter(|app| app.owner.uid == uid).count()
    }

    /// The application that covers a thread.
    pub(super) fn of_thread(&self, thread: ThreadId) -> Option<AppId> {
        self.covered_by.get(&thread).copied()
    }

    /// Whether no contract covers the thread.
    pub(super) fn is_free(&self, thread: ThreadId) -> bool {
        !self.covered_by.contains_key(&thread)
    }

    /// From now on `app` covers the thread. Returns the application that covered it before, if it was another.
    pub(super) fn cover(&mut self, thread: ThreadId, app: AppId) -> Option<AppId> {
        self.covered_by.insert(thread, app).filter(|before| *before != app)
    }

    /// From now on no contract covers the thread. Returns the application that covered it.
    pub(super) fn uncover(&mut self, thread: ThreadId) -> Option<AppId> {
        self.covered_by.remove(&thread)
    }

    /// The applications whose contracts cover the process or one of its threads.
    pub(super) fn of_process(&self, pid: i32) -> impl Iterator<Item = AppId> {
        self.by_id.iter().filter(move |(_, app)| app.pid == pid).map(|(id, _)| *id)
    }

    /// The application that covers the whole process, if there is one.
    pub(super) fn program(&self, pid: i32) -> Option<AppId> {
        self.by_id.iter().find(|(_, app)| app.pid == pid && app.is_program()).map(|(id, _)| *id)
    }

    /// Removes an application. Also returns the thread that returns to its program's contract, if there is one.
    pub(super) fn remove(&mut self, id: AppId) -> Option<(App, Option<(AppId, ThreadId)>)> {
        let app = self.by_id.remove(&id)?;
        self.covered_by.retain(|_, covered_by| *covered_by != id);
        let back = match app.covers {
            ApplicationScope::Thread(thread) => self.program(app.pid).map(|program| (program, thread)),
            ApplicationScope::Program => None,
        };
        Some((app, back))
    }

    /// All covered threads, with the applications that cover them.
    pub(super) fn covered(&self) -> impl Iterator<Item = (ThreadId, AppId)> {
        self.covered_by.iter().map(|(thread, app)| (*thread, *app))
    }

    /// The threads that an application covers.
    pub(super) fn threads_of(&self, id: AppId) -> impl Iterator<Item = ThreadId> {
        self.covered_by.iter().filter(move |(_, app)| **app == id).map(|(thread, _)| *thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(covers: ApplicationScope) -> App {
        let pid = std::process::id() as i32;
        let watch = watch::Process::watch(pid).unwrap();
        let owner = Owner { uid: 7, gid: 7 };
        App::new(crate::auth::Target { pid, owner, groups: vec![], watch }, covers, &Contract::default())
    }

    fn apps() -> (Apps, i32) {
        let mut apps = Apps::default();
        apps.by_id.insert(AppId(1), app(ApplicationScope::Program));
        apps.by_id.insert(AppId(2), app(ApplicationScope::Thread(ThreadId(70))));
        apps.cover(ThreadId(69), AppId(1));
        apps.cover(ThreadId(70), AppId(2));
        (apps, std::process::id() as i32)
    }

    #[test]
    fn a_second_contract_of_the_same_kind_is_refused_with_the_holder() {
        let (apps, pid) = apps();
        assert!(apps.check_free(pid, ApplicationScope::Program).unwrap_err().message.contains("application 1"));
        assert!(
            apps.check_free(pid, ApplicationScope::Thread(ThreadId(70))).unwrap_err().message.contains("application 2")
        );
        assert!(apps.check_free(pid, ApplicationScope::Thread(ThreadId(69))).is_ok());
        assert!(apps.check_free(pid + 1, ApplicationScope::Program).is_ok());
    }

    #[test]
    fn the_refusal_of_a_second_contract_says_how_to_end_or_change_the_first_one() {
        let (mut apps, pid) = apps();
        let refusal = |apps: &Apps| apps.check_free(pid, ApplicationScope::Program).unwrap_err();
        let of_command = refusal(&apps);
        assert!(of_command.message.contains(&format!("covers process {pid} already")), "{of_command:?}");
        assert!(of_command.next_step.contains(&format!("qfabric attach {pid} --end")), "{of_command:?}");
        apps.by_id.get_mut(&AppId(1)).unwrap().table = Some("mpd".to_owned());
        let of_table = refusal(&apps);
        assert!(of_table.message.contains("[[contract]] \"mpd\""), "{of_table:?}");
        assert!(of_table.next_step.contains("SIGHUP") && of_table.next_step.contains("--end"), "{of_table:?}");
    }

    #[test]
    fn a_thread_with_its_own_contract_returns_to_its_programs_afterwards() {
        let (mut apps, _) = apps();
        assert_eq!(apps.cover(ThreadId(69), AppId(2)), Some(AppId(1)));
        let (_, back) = apps.remove(AppId(2)).unwrap();
        assert_eq!(back, Some((AppId(1), ThreadId(70))));
        assert!(apps.is_free(ThreadId(69)) && apps.is_free(ThreadId(70)));
    }

    #[test]
    fn applications_are_counted_by_user() {
        let (apps, _) = apps();
        assert_eq!((apps.count_of(7), apps.count_of(8)), (2, 0));
    }
}
