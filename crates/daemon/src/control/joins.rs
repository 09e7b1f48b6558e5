//! Executes the requests of the API on the engine: admission, changes, limits and the end of applications.

use qfabric_host::Input;
use qfabric_linux::ApplyError;
use qfabric_linux::cpus::CpuList;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope, Claim, HostLimits, LimitsPatch, Problem};
use qfabric_types::channel::Name;
use qfabric_types::{AppId, Contract, Instant, JobSource, Reclaiming, Share, ThreadId};

use super::apps::App;
use super::command::{Adjust, AdjustmentTarget, Command, Monitored, NewRing, Report};
use super::decided::{Decided, Decision, guaranteed};
use super::engine::Engine;
use super::history;
use super::loans::{ControlWord, Grant};
use super::notes::Note;
use super::rings::Ring;
use super::sources::Source;
use crate::auth::{Peer, Target, places_for};
use crate::config::{Reclaim, counted_for};
use crate::energy::Checkpoints;
use crate::problem;

impl Engine {
    pub(super) fn execute(&mut self, command: Command, now: Instant) {
        // An answer without a receiver is dropped, except that of a join: the application would have no owner, so
        // it leaves.
        match command {
            Command::Join { peer, target, request, claim, reply } => {
                let answer = self.join(peer, target, *request, claim.as_ref(), now);
                if let Err(Ok(application)) = reply.send(answer) {
                    self.leave(application.id, now);
                }
            }
            Command::Change { peer, app, contract, reply } => {
                let _ = reply.send(self.change(peer, app, *contract, now));
            }
            Command::Leave { peer, app, reply } => self.leave_then_answer(peer, app, reply, now),
            Command::Show { app, reply } => {
                let _ = reply.send(self.show(app));
            }
            Command::Monitor { peer, app, reply } => {
                let _ = reply.send(self.monitor(peer, app));
            }
            Command::Status { reply } => {
                let _ = reply.send(Ok(self.status(now)));
            }
            Command::Report { reply } => {
                let _ = reply.send(Ok(Box::new(self.report(now))));
            }
            Command::TakeRing { peer, app, ring, reply } => {
                let _ = reply.send(self.take_ring(peer, app, ring));
            }
            Command::Favour { pid, deadline } => self.favour(pid, deadline),
            Command::Aim { pid, aim } => self.core.aims.add(pid, aim),
            Command::FollowCheckpoints { app, checkpoints } => self.follow_checkpoints(app, checkpoints),
            Command::Adjust(adjust) => self.adjust(*adjust, now),
            Command::Withdraw { policy, member } => self.withdraw(&policy, member, now),
            Command::Keep(keep) => self.keep(*keep, now),
            Command::LetGo(claim) => self.let_go(&claim, now),
            Command::HoldShare { hold, reply } => {
                let _ = reply.send(self.hold_share(*hold, now)); // without a receiver the service is ending
            }
            Command::FreeShare { id, reply } => {
                self.free_share(&id, now);
                let _ = reply.send(());
            }
            Command::Lost(units) => self.core.lose(units, now),
            Command::Grantable { probes, reply } => {
                let units = probes.grantable();
                // If the receiver is gone, the probe threads end with the dropped value.
                let _ = reply.send((probes, units));
            }
            Command::Limits { reply } => drop(reply.send(Ok(self.limits.clone()))),
            Command::SetBounds(bounds) => self.set_bounds(bounds),
            Command::SetLimits { limits, reply } => {
                let _ = reply.send(self.set_limits(*limits, now));
            }
            Command::ChangeLimits { patch, reply } => {
                let _ = reply.send(self.change_limits(&patch, now));
            }
        }
    }

    fn join(
        &mut self,
        peer: Peer,
        target: Target,
        request: ApplicationRequest,
        claim: Option<&Claim>,
        now: Instant,
    ) -> Result<Application, Problem> {
        let ApplicationRequest { pid, covers, mut contract } = request;
        contract = contract.settled();
        contract.check().map_err(|why| why.problem())?;
        self.decide_reclaim(&mut contract);
        self.end_abandoned(peer, pid, covers, now);
        self.apps.check_free(pid, covers)?;
        self.check_places(peer, target.owner.uid)?;
        // Before the memory is promised, and the control group of the program is changed.
        claim.map_or(Ok(()), |claim| self.check_drawer(peer, claim))?;
        let memory = self.promise(&target, covers, &contract, claim)?;
        let memory_owner = self.memory.counted_for(target.owner, &target.groups);
        let owner = counted_for(&self.limits, target.owner, &target.groups);
        let table = peer.is_service().then(|| contract.name.clone());
        let mut app = App { memory, memory_owner, table, ..App::new(Target { owner, ..target }, covers, &contract) };
        let threads = match self.begin_observing(&mut app, covers) {
            Ok(threads) => threads,
            Err(problem) => {
                self.stop_observing(&app, now);
                return Err(problem);
            }
        };
        let name = contract.name.clone();
        self.requests_made += 1;
        let input = Input::Join {
            request: self.requests_made,
            pid,
            owner: app.owner,
            covers,
            cpus: cpus_of(&threads),
            threads: threads.clone(),
            contract,
        };
        match self.ask_for(input, claim, now) {
            Ok(id) => self.admitted(id, app, threads, name, now),
            Err(problem) => {
                self.stop_observing(&app, now);
                Err(problem)
            }
        }
    }

    /// Ends an older application of the same thread or process whose connection is lost. Otherwise the new request
    /// would be refused until the grace time is over.
    fn end_abandoned(&mut self, peer: Peer, pid: i32, covers: ApplicationScope, now: Instant) {
        let same = self.apps.same(pid, covers).filter(|(_, app)| peer.may_touch(app.owner) && app.is_abandoned());
        if let Some(id) = same.map(|(id, _)| id) {
            self.leave(id, now);
        }
    }

    /// Applies all limits in one turn, so that no decision uses only a part of them. Only those of memory can be
    /// refused; then nothing changes. Returns the limits in force.
    fn set_limits(&mut self, limits: HostLimits, now: Instant) -> Result<HostLimits, Problem> {
        self.memory.set_limits(&limits.memory)?;
        self.core.configure(&limits, now);
        self.limits = limits;
        Ok(self.limits.clone())
    }

    /// Reads and writes in one turn, so that no concurrent change is lost.
    fn change_limits(&mut self, patch: &LimitsPatch, now: Instant) -> Result<HostLimits, Problem> {
        let limits = patch.apply(&self.limits).map_err(|why| why.problem())?;
        self.set_limits(limits, now)
    }

    /// Favours every application of the process: which of them handles the event is up to the process.
    fn favour(&mut self, pid: i32, deadline: Option<Instant>) {
        let apps: Vec<AppId> = self.apps.of_process(pid).collect();
        let favoured = apps.into_iter().filter(|app| self.core.favour(*app, deadline)).count();
        let counters = &mut self.core.counters;
        *(if favoured > 0 { &mut counters.favoured } else { &mut counters.not_favoured }) += 1;
    }

    fn decide_reclaim(&self, contract: &mut Contract) {
        match self.bounds.reclaim {
            Reclaim::AsAsked => {}
            Reclaim::Always => contract.reclaiming = Reclaiming::Grub,
            Reclaim::Never => contract.reclaiming = Reclaiming::Hard,
        }
    }

    fn check_places(&self, peer: Peer, uid: u32) -> Result<(), Problem> {
        let most = places_for(peer.owner.uid, self.limits.max_applications);
        if peer.owner.uid != 0 && self.apps.by_id.len() >= most {
            return Err(problem::too_many_of_users(self.apps.by_id.len(), most));
        }
        let limit = self.limits.max_applications_per_user;
        match peer.owner.uid != 0 && self.apps.count_of(uid) >= limit {
            true => Err(problem::too_many_of_user(uid, limit)),
            false => Ok(()),
        }
    }

    /// Attaches the observer if it is needed. Returns the threads that the contract covers first.
    fn begin_observing(&mut self, app: &mut App, covers: ApplicationScope) -> Result<Vec<ThreadId>, Problem> {
        match covers {
            ApplicationScope::Program => self.observe_program(app),
            ApplicationScope::Thread(thread) => {
                if app.jobs != JobSource::Marked {
                    self.observe_thread(app, thread)?;
                }
                Ok(vec![thread])
            }
        }
    }

    /// Registers an application that the host admitted. The answer includes the kernel's: if the kernel refused
    /// every thread permanently, the promise is withdrawn.
    fn admitted(
        &mut self,
        id: AppId,
        app: App,
        threads: Vec<ThreadId>,
        name: String,
        now: Instant,
    ) -> Result<Application, Problem> {
        let pid = app.pid;
        if let Some(promise) = &app.memory {
            promise.belongs_to(id);
        }
        if let Err(error) = self.sources.add(&app.watch, Source::Exit(id)) {
            self.core.notes.push(Note::NotWaited { app: id, error: error.to_string() });
        }
        for thread in &threads {
            self.apps.cover(*thread, id);
        }
        self.apps.by_id.insert(id, app);
        self.plan_observing(now);
        let refused = |thread: &ThreadId| self.core.failures.iter().find(|failure| failure.thread() == *thread);
        let are_all_refused = threads.iter().all(|thread| refused(thread).is_some());
        let why = threads.first().and_then(refused).filter(|_| are_all_refused).map(ApplyError::problem);
        if let Some(why) = why {
            self.leave(id, now);
            return Err(why);
        }
        self.core.notes.push(Note::Joined { app: id, pid, name });
        self.show(id)
    }

    /// The owner changes the contract. Decisions of policies stand about the new one as well.
    fn change(&mut self, peer: Peer, id: AppId, mut contract: Contract, now: Instant) -> Result<Application, Problem> {
        self.check_owner(peer, id)?;
        let mut decided = self.decided(id);
        if let Some(decided) = &mut decided {
            contract = decided.owners(&self.show(id)?.contract, contract);
        }
        let mut shown = self.replace(id, contract, now)?;
        if let Some(mut decided) = decided {
            decided.owner_has(&shown);
            // If the host refuses what was decided about the former contract, the owner's own one is in force.
            let with_decisions = decided.contract(&self.in_force(id)?);
            shown = self.replace(id, with_decisions, now).unwrap_or(shown);
            decided.tell(&shown);
            self.keep_decided(id, Some(decided));
        }
        Ok(shown)
    }

    /// Replaces the contract in force, if the host admits the new one.
    fn replace(&mut self, id: AppId, mut contract: Contract, now: Instant) -> Result<Application, Problem> {
        contract = contract.settled();
        contract.check().map_err(|why| why.problem())?;
        self.decide_reclaim(&mut contract);
        self.observe_if_needed(id, contract.jobs)?;
        self.requests_made += 1;
        let input = Input::Change { request: self.requests_made, app: id, contract: contract.clone() };
        let former = self.enlarge_memory(id, &contract)?;
        if let Err(problem) = self.core.ask(input, now) {
            self.set_memory(id, former);
            return Err(problem);
        }
        self.set_memory(id, contract.memory);
        if let Some(app) = self.apps.by_id.get_mut(&id) {
            app.change(&contract);
        }
        self.plan_observing(now);
        self.show(id)
    }

    /// A policy's decision is an ordinary change of the contract: checked, then admitted or refused. The policy is told
    /// what is guaranteed afterwards; of several applications of a process, the least.
    fn adjust(&mut self, adjust: Adjust, now: Instant) {
        let Adjust { peer, whom, decision } = adjust;
        let apps: Vec<AppId> = match whom {
            AdjustmentTarget::Application(app) => vec![app],
            AdjustmentTarget::Process(pid) => self.apps.of_process(pid).collect(),
        };
        let (member, adjustment) = (decision.member, decision.adjustment);
        let mut least: Option<Grant> = None;
        for app in apps {
            let decided = self.decide(peer, app, &decision, now);
            let refused = decided.as_ref().err().map(ToString::to_string);
            let own = self.decided(app).map(|decided| decided.own_share());
            let granted = self.show(app).map_or(Share::ZERO, |shown| guaranteed(&shown));
            let grant = Grant { member, own: own.unwrap_or(granted), granted };
            least = Some(least.filter(|least| least.granted <= granted).unwrap_or(grant));
            self.core.timeline.add(now, history::adjusted(app, adjustment, refused.as_deref()));
            self.core.notes.push(Note::Adjusted { app, adjustment, refused });
        }
        // A process without a contract is guaranteed nothing.
        let none = Grant { member, own: Share::ZERO, granted: Share::ZERO };
        decision.teller.tell(ControlWord::Granted(least.unwrap_or(none)));
    }

    /// Adds a decision to those that stand about the contract, if the host admits the result.
    fn decide(&mut self, peer: Peer, id: AppId, decision: &Decision, now: Instant) -> Result<(), Problem> {
        self.check_owner(peer, id)?;
        let (shown, in_force) = (self.show(id)?, self.in_force(id)?);
        let mut decided = self.decided(id).unwrap_or_else(|| Decided::new(&shown));
        decided.add(decision)?;
        let contract = decided.contract(&in_force);
        if contract != in_force {
            self.replace(id, contract, now)?;
        }
        self.keep_decided(id, Some(decided));
        Ok(())
    }

    /// Ends decisions of a policy: the owner's contract comes back, with the decisions of other policies.
    fn withdraw(&mut self, policy: &Name, member: Option<AppId>, now: Instant) {
        let all: Vec<AppId> = self.apps.by_id.keys().copied().collect();
        for id in all {
            let Some(mut decided) = self.decided(id) else { continue };
            let (Ok(shown), Ok(in_force)) = (self.show(id), self.in_force(id)) else { continue };
            if !decided.remove(policy, member) {
                continue;
            }
            let restored = self.replace(id, decided.contract(&in_force), now);
            let refused = restored.as_ref().err().map(ToString::to_string);
            decided.tell(restored.as_ref().unwrap_or(&shown));
            // After a refusal the owner's contract is still to come back: with the next decision or change.
            let is_over = decided.is_empty() && refused.is_none();
            self.keep_decided(id, Some(decided).filter(|_| !is_over));
            self.core.timeline.add(now, history::restored(id, policy, refused.as_deref()));
            self.core.notes.push(Note::Restored { app: id, policy: policy.clone(), refused });
        }
    }

    fn decided(&self, id: AppId) -> Option<Decided> {
        self.apps.by_id.get(&id).and_then(|app| app.decided.as_deref()).cloned()
    }

    fn keep_decided(&mut self, id: AppId, decided: Option<Decided>) {
        if let Some(app) = self.apps.by_id.get_mut(&id) {
            app.decided = decided.map(Box::new);
        }
    }

    /// Attaches the observer if a changed contract no longer finds its jobs by marks.
    fn observe_if_needed(&mut self, id: AppId, jobs: JobSource) -> Result<(), Problem> {
        let Some(mut app) = self.apps.by_id.remove(&id) else { return Ok(()) };
        let result = match app.covers {
            ApplicationScope::Thread(thread) if jobs != JobSource::Marked && app.observed.is_empty() => {
                self.observe_thread(&mut app, thread)
            }
            _ => Ok(()),
        };
        self.apps.by_id.insert(id, app);
        result
    }

    pub(super) fn check_owner(&self, peer: Peer, id: AppId) -> Result<(), Problem> {
        let app = self.apps.by_id.get(&id).ok_or_else(|| problem::not_found(id))?;
        match peer.may_touch(app.owner) {
            true => Ok(()),
            false => Err(problem::not_your_application(id, app.owner.uid, peer.owner.uid)),
        }
    }

    fn show(&self, id: AppId) -> Result<Application, Problem> {
        self.core.application(id).ok_or_else(|| problem::not_found(id))
    }

    /// The contract in force, with the profile that [`Application`] lacks.
    fn in_force(&self, id: AppId) -> Result<Contract, Problem> {
        self.core.host.contract(id).cloned().ok_or_else(|| problem::not_found(id))
    }

    fn monitor(&mut self, peer: Peer, id: AppId) -> Result<Monitored, Problem> {
        self.check_owner(peer, id)?;
        let app = self.apps.by_id.get_mut(&id).ok_or_else(|| problem::not_found(id))?;
        let publisher = app.publisher.get_or_insert_default();
        publisher.publish(&self.core.host, id);
        Ok(Monitored { pid: app.pid, numbers: publisher.reader() })
    }

    fn report(&self, now: Instant) -> Report {
        let rings = self.apps.by_id.iter().filter_map(|(id, app)| Some((*id, app.ring.as_ref()?.counters())));
        Report {
            status: self.status(now),
            rings: rings.collect(),
            counters: self.core.counters_now(),
            notes_dropped: self.core.notes.dropped,
        }
    }

    fn take_ring(&mut self, peer: Peer, id: AppId, ring: NewRing) -> Result<(), Problem> {
        self.check_owner(peer, id)?;
        let app = self.apps.by_id.get_mut(&id).ok_or_else(|| problem::not_found(id))?;
        if peer.pid != app.pid {
            return Err(problem::not_your_ring(id, app.pid, peer.pid));
        }
        if app.ring.is_some() {
            return Err(problem::already_held(id));
        }
        let NewRing { memory, wake, lease } = ring;
        let waited =
            self.sources.add(&wake, Source::Ring(id)).and_then(|()| self.sources.add(&lease, Source::Lease(id)));
        waited.map_err(|error| problem::internal(format!("cannot wait for events of the ring: {error}")))?;
        app.ring = Some(Ring::new(memory, wake, lease, app.period));
        app.leaves_at = None;
        app.ask_for_checkpoints();
        self.core.notes.push(Note::RingTaken { app: id });
        Ok(())
    }

    /// An application that has left meanwhile has no checkpoints.
    fn follow_checkpoints(&mut self, id: AppId, checkpoints: Checkpoints) {
        if let Some(app) = self.apps.by_id.get_mut(&id) {
            app.follow_checkpoints(checkpoints);
        }
    }

    /// Restores the threads of an application and removes it. Does nothing if it has left already.
    pub(super) fn leave(&mut self, id: AppId, now: Instant) {
        let removed = self.apps.remove(id);
        let back = removed.as_ref().and_then(|(_, back)| *back);
        if let Some((program, thread)) = back.filter(|(_, thread)| self.core.host.covering(*thread) == Some(id)) {
            // Before the application leaves, so that the thread is never without a reservation.
            self.apps.cover(thread, program);
            self.core.handle(Input::HandBack { app: id, thread, to: program }, now);
        }
        self.core.handle(Input::Leave { app: id }, now);
        self.drawer_left(id, now);
        let Some((app, _)) = removed else { return };
        self.sources.remove(&app.watch);
        if let Some(ring) = &app.ring {
            // The application may hold the eventfd open, so closing our copy alone would not remove it from the
            // epoll set.
            self.sources.remove(&ring.wake);
            self.sources.remove(&ring.lease);
        }
        self.stop_observing(&app, now);
        self.plan_observing(now);
    }

    /// Ends all applications and restores every thread that still has a reservation.
    pub(super) fn put_back(&mut self, now: Instant) {
        while let Some(id) = self.apps.by_id.keys().next().copied() {
            self.leave(id, now);
        }
        self.core.restore_all();
    }
}

/// The CPUs on which all `threads` may run. If they have no CPU in common, those of the first one. `None`: all have
/// ended.
fn cpus_of(threads: &[ThreadId]) -> Option<Vec<u32>> {
    let mut lists = threads.iter().filter_map(|thread| CpuList::allowed(thread.0));
    let first: Vec<u32> = lists.next()?.iter().collect();
    let common = lists.fold(first.clone(), |mut common, list| {
        common.retain(|cpu| list.contains(*cpu));
        common
    });
    Some(if common.is_empty() { first } else { common })
}
