//! Programs that do not report their jobs: attaches the observer and converts its records into inputs for the host.

use std::collections::BTreeSet;
use std::io;

use qfabric_host::Input;
use qfabric_linux::observe::{Observation, Observer};
use qfabric_linux::threads;
use qfabric_types::api::Problem;
use qfabric_types::{AppId, Instant, JobSource, Nanos, ThreadId};

use super::apps::{App, Apps};
use super::births::Birth;
use super::core::Core;
use super::engine::Engine;
use super::notes::Note;
use crate::problem;

/// Shortest and longest interval between polls of the observer, while something is observed.
const INTERVAL: (Nanos, Nanos) = (Nanos::from_millis(2), Nanos::from_millis(50));
/// Largest number of child processes that are covered when a program joins. Children that are created later have no
/// such limit.
const MAX_CHILDREN: usize = 64;

impl Engine {
    /// Observes a process and its children. Returns the threads that this contract may cover.
    pub(super) fn observe_program(&mut self, app: &mut App) -> Result<Vec<ThreadId>, Problem> {
        take_over(&mut self.apps, &mut *self.observer, app.pid);
        let own = self.observer.attach(app.pid).map_err(|error| problem::unwatchable(app.pid, &error))?;
        app.observed.push(app.pid);
        let takes = |thread: &ThreadId| self.apps.of_thread(*thread).is_none_or(|id| self.is_program(id));
        let mut covered: Vec<_> = own.into_iter().filter(takes).collect();
        for child in threads::descendants(app.pid).into_iter().take(MAX_CHILDREN) {
            match self.observer.attach(child) {
                Ok(children) => {
                    app.observed.push(child);
                    covered.extend(children.into_iter().filter(|thread| self.apps.is_free(*thread)));
                }
                // Usually the child has ended in the meantime and needs no contract.
                Err(error) => self.core.notes.push(Note::NotObserved { pid: child, error: error.to_string() }),
            }
        }
        covered.truncate(self.limits.max_threads);
        Ok(covered)
    }

    /// Observes a single thread, unless its program is observed already. When that program leaves,
    /// [`Engine::stop_observing`] attaches the observer to the thread.
    pub(super) fn observe_thread(&mut self, app: &mut App, thread: ThreadId) -> Result<(), Problem> {
        if self.apps.program(app.pid).is_some() {
            return Ok(());
        }
        self.observer.attach_thread(thread).map_err(|error| problem::unwatchable(thread.0, &error))?;
        app.observed.push(thread.0);
        Ok(())
    }

    /// Ends the observation for an application that covers no threads any more. Threads that it shared with other
    /// applications stay observed.
    pub(super) fn stop_observing(&mut self, app: &App, now: Instant) {
        for id in &app.observed {
            self.observer.detach(*id);
        }
        let (left, mut tried) = (unobserved(&self.apps, &*self.observer), BTreeSet::new());
        for (thread, id) in &left {
            match observe_again(&mut self.apps, &mut *self.observer, (*id, *thread), &mut tried) {
                Ok(true) => {}
                Ok(false) => {
                    let ended = Observation::Gone { tid: *thread };
                    handle_observation(&mut self.apps, &mut self.core, ended, now);
                }
                Err(error) => self.core.notes.push(Note::ObservationLost { app: *id, error: error.to_string() }),
            }
        }
        // Threads that started in the meantime were not reported.
        let programs: BTreeSet<AppId> = left.into_iter().map(|(_, id)| id).collect();
        programs.into_iter().for_each(|id| self.recount(id, now));
    }

    fn is_program(&self, id: AppId) -> bool {
        self.apps.by_id.get(&id).is_some_and(App::is_program)
    }

    pub(super) fn plan_observing(&mut self, now: Instant) {
        let observed = |app: &&App| !app.observed.is_empty() || app.needs_observer();
        let fastest = self.apps.by_id.values().filter(observed).map(|app| app.period).min();
        let (rescues, slot) = (self.core.rescues, self.core.slot);
        self.observe_at = fastest.map_or(Instant::NEVER, |period| now + interval(period, rescues, slot));
    }

    /// Polls the observer and gives its records to the host.
    pub(super) fn observe(&mut self, now: Instant) {
        let Engine { observer, apps, core, .. } = self;
        let mut executed = Vec::new();
        let mut handle = |observation| executed.extend(handle_observation(apps, core, observation, now));
        let polled = observer.poll(&mut handle);
        observer.cut(&mut handle);
        core.counters.observations += polled.observations as u64;
        self.more |= polled.more;
        if polled.lost > 0 {
            self.records_lost(polled.lost, now);
        }
        executed.dedup();
        for app in executed {
            self.recount(app, now);
        }
        self.attach_due(now);
        self.plan_observing(now);
    }

    /// Starts and ends of threads may be among the lost records, so every program's threads are listed again.
    fn records_lost(&mut self, count: u64, now: Instant) {
        self.core.counters.observations_lost += count;
        self.core.notes.push(Note::RecordsLost { count });
        let programs: Vec<_> = self.apps.by_id.iter().filter(|(_, app)| app.is_program()).map(|(id, _)| *id).collect();
        for id in programs {
            self.recount(id, now);
        }
    }

    /// Compares the covered threads with those that exist.
    fn recount(&mut self, id: AppId, now: Instant) {
        let Some(app) = self.apps.by_id.get(&id).filter(|app| app.is_program()) else { return };
        let processes = std::iter::once(app.pid).chain(threads::descendants(app.pid)).take(MAX_CHILDREN + 1);
        let there: Vec<ThreadId> = processes.filter_map(|pid| threads::list(pid).ok()).flatten().collect();
        let gone: Vec<_> = self.apps.threads_of(id).filter(|thread| !there.contains(thread)).collect();
        for thread in gone {
            self.apps.uncover(thread);
            self.core.handle(Input::ThreadGone { app: id, thread }, now);
        }
        for thread in there.into_iter().take(self.limits.max_threads) {
            if self.apps.is_free(thread) {
                born(&mut self.apps, &mut self.core, id, thread, now);
            }
        }
    }

    /// Attaches threads that waited because of the rate limit.
    fn attach_due(&mut self, now: Instant) {
        let Engine { apps, core, .. } = self;
        let waiting: Vec<_> =
            apps.by_id.iter().filter(|(_, app)| app.births.next_turn().is_some()).map(|(id, _)| *id).collect();
        for id in waiting {
            while let Some(thread) = apps.by_id.get_mut(&id).and_then(|app| app.births.due(now)) {
                core.handle(Input::ThreadBorn { app: id, thread }, now);
            }
        }
    }
}

/// Before a program is observed: ends the observation of single threads of the process, because it leaves out the
/// threads that these start.
fn take_over(apps: &mut Apps, observer: &mut dyn Observer, pid: i32) {
    for app in apps.by_id.values_mut().filter(|app| app.pid == pid && !app.is_program()) {
        app.observed.drain(..).for_each(|id| observer.detach(id));
    }
}

/// The covered threads that the observer has to follow and does not.
fn unobserved(apps: &Apps, observer: &dyn Observer) -> Vec<(ThreadId, AppId)> {
    let needs = |id: &AppId| apps.by_id.get(id).is_some_and(App::needs_observer);
    apps.covered().filter(|(thread, id)| needs(id) && !observer.follows(*thread)).collect()
}

/// Attaches the observer for an application whose thread was observed on behalf of another one. Returns false if the
/// thread has ended. Each process is attached once for a program (`tried`): a second attempt would fail like the first
/// one, or leave out the same threads, and takes long if there are many.
fn observe_again(
    apps: &mut Apps,
    observer: &mut dyn Observer,
    (id, thread): (AppId, ThreadId),
    tried: &mut BTreeSet<(AppId, i32)>,
) -> io::Result<bool> {
    let Some(app) = apps.by_id.get_mut(&id) else { return Ok(true) };
    let Some(pid) = threads::process_of(thread) else { return Ok(false) };
    if observer.follows(thread) || app.is_program() && !tried.insert((id, pid)) {
        // It was attached with another thread of its process, or left out.
        return Ok(true);
    }
    let attached = match app.is_program() {
        true => observer.attach(pid).map(|_| pid),
        false => observer.attach_thread(thread).map(|()| thread.0),
    };
    let attached = match attached {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
        attached => attached?,
    };
    if !app.observed.contains(&attached) {
        app.observed.push(attached);
    }
    Ok(true)
}

/// Time until the next poll. Polls twice per period of the fastest observed application, so that a new thread is reserved
/// within one period. Polls eight times if a larger budget helps the running job, so that the need is seen in time. Polls
/// twice per slot if threads run in slots, so that a child gets into the slot in which its parent started it.
fn interval(period: Nanos, rescues: bool, slot: Option<Nanos>) -> Nanos {
    let part = |time: Nanos, looks: u64| Nanos::new(time.get() / looks);
    let in_period = part(period, if rescues { 8 } else { 2 });
    slot.map_or(in_period, |slot| in_period.min(part(slot, 2))).clamp(INTERVAL.0, INTERVAL.1)
}

/// Converts one record into an input. Returns the program whose threads must be listed again.
fn handle_observation(apps: &mut Apps, core: &mut Core, observation: Observation, now: Instant) -> Option<AppId> {
    match observation {
        Observation::Ran(sample) => {
            let app = apps.of_thread(sample.thread)?;
            if apps.by_id.get(&app)?.jobs != JobSource::Marked {
                core.handle(Input::Ran { app, sample }, now);
            }
        }
        Observation::Born { tid, parent, .. } => {
            let app = covering_program(apps, parent)?;
            if apps.is_free(tid) {
                core.born(tid, parent);
                born(apps, core, app, tid, now);
            }
        }
        Observation::Gone { tid } => {
            let app = apps.uncover(tid)?;
            if let Some(app) = apps.by_id.get_mut(&app) {
                app.births.gone(tid);
            }
            core.handle(Input::ThreadGone { app, thread: tid }, now);
        }
        Observation::Exec { tid } => return covering_program(apps, tid),
    }
    None
}

/// Children of a thread with its own contract belong to the contract of the program.
fn covering_program(apps: &Apps, thread: ThreadId) -> Option<AppId> {
    let id = apps.of_thread(thread)?;
    let app = apps.by_id.get(&id)?;
    if app.is_program() { Some(id) } else { apps.program(app.pid) }
}

fn born(apps: &mut Apps, core: &mut Core, id: AppId, thread: ThreadId, now: Instant) {
    let Some(app) = apps.by_id.get_mut(&id) else { return };
    let birth = app.births.born(thread, now);
    match birth {
        Birth::Now => core.handle(Input::ThreadBorn { app: id, thread }, now),
        Birth::Later => core.counters.births_deferred += 1,
        Birth::Never => {
            core.counters.births_dropped += 1;
            core.notes.push(Note::BirthsDropped { app: id, thread });
        }
    }
    if birth != Birth::Never {
        apps.cover(thread, id);
    }
}

#[cfg(test)]
mod tests {
    use qfabric_linux::observe::PollObserver;
    use qfabric_linux::watch;
    use qfabric_types::api::ApplicationScope;
    use qfabric_types::{Contract, Owner};

    use super::*;

    const PROGRAM: AppId = AppId(1);
    const THREAD: AppId = AppId(2);

    fn pid() -> i32 {
        std::process::id() as i32
    }

    fn app(covers: ApplicationScope) -> App {
        let (pid, owner) = (pid(), Owner { uid: 7, gid: 7 });
        let watch = watch::Process::watch(pid).unwrap();
        let contract = Contract { jobs: JobSource::Activations, ..Contract::default() };
        App::new(crate::auth::Target { pid, owner, groups: vec![], watch }, covers, &contract)
    }

    /// A contract of the first thread of this process, which is observed.
    fn with_thread() -> (Apps, PollObserver, ThreadId) {
        let (mut apps, mut observer, thread) = (Apps::default(), PollObserver::new(), ThreadId(pid()));
        let own = App { observed: vec![thread.0], ..app(ApplicationScope::Thread(thread)) };
        observer.attach_thread(thread).unwrap();
        apps.by_id.insert(THREAD, own);
        apps.cover(thread, THREAD);
        (apps, observer, thread)
    }

    #[test]
    fn a_thread_stays_observed_when_the_contract_of_its_program_ends() {
        let (mut apps, mut observer, thread) = with_thread();
        take_over(&mut apps, &mut observer, thread.0);
        assert!(!observer.follows(thread) && apps.by_id[&THREAD].observed.is_empty());
        observer.attach(thread.0).unwrap();
        assert_eq!(unobserved(&apps, &observer), []);
        observer.detach(thread.0);
        assert_eq!(unobserved(&apps, &observer), [(thread, THREAD)]);
        assert!(observe_again(&mut apps, &mut observer, (THREAD, thread), &mut BTreeSet::new()).unwrap());
        assert!(observer.follows(thread) && apps.by_id[&THREAD].observed == [thread.0]);
    }

    #[test]
    fn a_thread_stays_observed_when_it_returns_to_its_program() {
        let (mut apps, mut observer, thread) = with_thread();
        apps.by_id.insert(PROGRAM, App { observed: vec![thread.0], ..app(ApplicationScope::Program) });
        apps.cover(thread, PROGRAM);
        observer.detach(thread.0);
        assert_eq!(unobserved(&apps, &observer), [(thread, PROGRAM)]);
        let mut tried = BTreeSet::new();
        assert!(observe_again(&mut apps, &mut observer, (PROGRAM, thread), &mut tried).unwrap());
        assert!(observer.follows(thread) && apps.by_id[&PROGRAM].observed == [thread.0]);
        observer.detach(thread.0);
        assert!(observe_again(&mut apps, &mut observer, (PROGRAM, thread), &mut tried).unwrap());
        assert!(!observer.follows(thread), "the process was attached already");
        let ended = ThreadId(i32::MAX);
        assert!(!observe_again(&mut apps, &mut observer, (PROGRAM, ended), &mut tried).unwrap());
    }

    #[test]
    fn threads_in_slots_are_looked_for_twice_per_slot() {
        let ms = Nanos::from_millis;
        for (period, rescues, slot, expected) in [
            (ms(40), false, None, ms(20)),
            (ms(40), true, None, ms(5)),
            (ms(1_000), false, None, ms(50)),
            (ms(100), false, Some(ms(10)), ms(5)),
            (ms(6), false, Some(ms(10)), ms(3)),
            (ms(100), false, Some(ms(1)), ms(2)),
        ] {
            assert_eq!(interval(period, rescues, slot), expected, "{period} {rescues} {slot:?}");
        }
    }
}
