//! Applies settings by servers: one server for each thread, or one for all threads of a group.
//!
//! | setting | effect |
//! |---|---|
//! | the first setting of a group or thread | creates a server on the CPU that the setting names |
//! | another thread of the group | joins the server; children of the thread also join |
//! | a changed budget, period, window, favour or controller | takes effect at once, also for the running job |
//! | another CPU or alignment, or an aligned period | creates a new server, moves the threads, removes the old one |
//! | none | the thread leaves; the server is removed with its last thread |

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use qfabric_types::api::Problem;
use qfabric_types::{
    AppId, Instant, MechanismFeatures, MechanismName, Reclaiming, Reservation, ServerCounts, ServerTerms, Setting,
    Share, ThreadId, Window,
};

use super::{Change, Ext, ExtConfig, ExtError, ServerId, ServerSpec};
use crate::clock;
use crate::cpus::CpuList;
use crate::mechanism::{ApplyError, Mechanism, RaiseTarget};

/// Servers for threads and groups. Needs no journal: when the owner ends, the kernel puts all threads back.
#[derive(Debug)]
pub struct ExtMechanism {
    ext: Ext,
    servers: HashMap<Key, Server>,
    keys: HashMap<ThreadId, Key>,
    ejection_reported: bool,
}

/// Owner of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Thread(ThreadId),
    Group(AppId),
}

#[derive(Debug)]
struct Server {
    id: ServerId,
    request: Request,
    members: HashSet<ThreadId>,
}

/// The parameters that were requested for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    reservation: Reservation,
    reclaiming: Reclaiming,
    terms: ServerTerms,
}

impl Request {
    /// True if a server with the parameters `other` cannot be changed to `self`, so that a new server is needed. A
    /// changed period continues from the present deadline, so it would leave the common grid.
    fn needs_new_server(&self, other: &Request) -> bool {
        let grid = |request: &Request| request.terms.aligned.then(|| request.reservation.period());
        (self.terms.cpu, grid(self)) != (other.terms.cpu, grid(other))
    }

    fn window(&self) -> Window {
        self.terms.window.unwrap_or(Window::NONE)
    }

    /// Aligned periods begin at whole multiples of their length, on a clock that all servers share.
    fn phase(&self) -> Option<Instant> {
        let period = self.reservation.period().get();
        self.terms.aligned.then(|| Instant::new((clock::now().get() / period + 1) * period))
    }

    fn spec(&self) -> ServerSpec {
        ServerSpec {
            cpu: self.terms.cpu,
            window: self.window(),
            reclaiming: self.reclaiming,
            work_conserving: self.terms.work_conserving,
            phase: self.phase(),
            wake_events: self.terms.events,
            control: self.terms.control,
            ..ServerSpec::new(self.reservation.period(), self.reservation.budget())
        }
    }

    /// Only the differences, because setting a window restarts it.
    fn change_from(&self, old: &Request) -> Change {
        fn changed<T: PartialEq>(new: T, old: T) -> Option<T> {
            (new != old).then_some(new)
        }
        Change {
            service: changed(self.reservation.budget(), old.reservation.budget()),
            period: changed(self.reservation.period(), old.reservation.period()),
            window: changed(self.window(), old.window()),
            reclaiming: changed(self.reclaiming, old.reclaiming),
            work_conserving: changed(self.terms.work_conserving, old.terms.work_conserving),
            wake_events: changed(self.terms.events, old.terms.events),
            network_probability: None,
            control: changed(self.terms.control, old.terms.control),
        }
    }
}

impl ExtMechanism {
    pub fn load(config: &ExtConfig) -> Result<ExtMechanism, ExtError> {
        let ext = Ext::load(config)?;
        Ok(ExtMechanism { ext, servers: HashMap::new(), keys: HashMap::new(), ejection_reported: false })
    }

    /// The scheduler, for access to groups, events and statistics.
    pub fn ext(&mut self) -> &mut Ext {
        &mut self.ext
    }

    pub fn server(&self, thread: ThreadId) -> Option<ServerId> {
        self.server_of(thread).map(|server| server.id)
    }

    fn server_of(&self, thread: ThreadId) -> Option<&Server> {
        self.servers.get(self.keys.get(&thread)?)
    }

    fn reserve(&mut self, thread: ThreadId, request: Request) -> Result<(), ExtError> {
        let key = request.terms.group.map_or(Key::Thread(thread), Key::Group);
        let id = self.server_for(key, request)?;
        if let Err(error) = self.ext.join(id, thread, request.terms.group.is_some()) {
            self.remove_if_empty(key);
            return Err(error);
        }
        if self.keys.get(&thread) != Some(&key) {
            self.remove_thread(thread);
            self.keys.insert(thread, key);
        }
        if let Some(server) = self.servers.get_mut(&key) {
            server.members.insert(thread);
        }
        Ok(())
    }

    /// Returns the server of `key`, created or changed to the requested parameters.
    fn server_for(&mut self, key: Key, request: Request) -> Result<ServerId, ExtError> {
        let Some(server) = self.servers.get_mut(&key) else {
            let id = self.ext.create(&request.spec())?;
            self.servers.insert(key, Server { id, request, members: HashSet::new() });
            return Ok(id);
        };
        if server.request.needs_new_server(&request) {
            return self.recreate(key, request);
        }
        if server.request != request {
            self.ext.change(server.id, &request.change_from(&server.request))?;
            server.request = request;
        }
        Ok(server.id)
    }

    /// Moves the threads before the old server is removed, so no thread is without a server in between.
    fn recreate(&mut self, key: Key, request: Request) -> Result<ServerId, ExtError> {
        let Some(server) = self.servers.get_mut(&key) else { return self.ext.create(&request.spec()) };
        let id = self.ext.create_instead(&request.spec(), server.id)?;
        for member in &server.members {
            // If the thread has ended, the mechanism forgets it when the end is reported.
            let _ = self.ext.join(id, *member, matches!(key, Key::Group(_)));
        }
        let old = std::mem::replace(&mut server.id, id);
        server.request = request;
        self.ext.destroy(old)?;
        Ok(id)
    }

    /// Removes the thread from the tables, and its server if this was the last thread.
    fn remove_thread(&mut self, thread: ThreadId) {
        let Some(key) = self.keys.remove(&thread) else { return };
        if let Some(server) = self.servers.get_mut(&key) {
            server.members.remove(&thread);
        }
        self.remove_if_empty(key);
    }

    fn remove_if_empty(&mut self, key: Key) {
        if self.servers.get(&key).is_some_and(|server| server.members.is_empty())
            && let Some(server) = self.servers.remove(&key)
        {
            // Fails only if the scheduler is no longer in charge; its servers are then gone, too.
            let _ = self.ext.destroy(server.id);
        }
    }

    fn cpus(&self) -> Vec<u32> {
        CpuList::online().iter().collect()
    }
}

/// The features of the scheduler, with servers on these CPUs.
pub(crate) fn features(cpus: Vec<u32>) -> MechanismFeatures {
    MechanismFeatures {
        terms: true,
        rescues: true,
        kernel_control: true,
        all_reclaiming: true,
        gives_back: false,
        cpus,
        slots: None,
    }
}

impl Mechanism for ExtMechanism {
    fn name(&self) -> &'static str {
        MechanismName::Ext.name()
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
        let Setting { thread, reservation, reclaiming, terms } = *setting;
        let done = match reservation {
            Some(reservation) => self.reserve(thread, Request { reservation, reclaiming, terms }),
            None => self.ext.leave(thread).map(|()| self.remove_thread(thread)),
        };
        done.map_err(|error| refusal(thread, reservation, error))
    }

    fn forget(&mut self, thread: ThreadId) {
        self.remove_thread(thread);
    }

    fn features(&self) -> MechanismFeatures {
        features(self.cpus())
    }

    fn capacity(&self) -> Option<Share> {
        let each = self.ext.config().capacity();
        Some(self.cpus().iter().map(|_| each).sum())
    }

    fn raise(&mut self, thread: ThreadId, deadline: Option<Instant>) -> bool {
        let Some(server) = self.server_of(thread).filter(|server| server.request.terms.events) else { return false };
        let id = server.id;
        self.ext.raise(id, deadline).is_ok()
    }

    fn raised_memory(&self) -> Option<OwnedFd> {
        self.ext.raised().try_clone_to_owned().ok()
    }

    fn clock_memory(&self) -> Option<OwnedFd> {
        self.ext.clock().try_clone_to_owned().ok()
    }

    fn raised_for(&self, thread: ThreadId) -> Option<RaiseTarget> {
        let server = self.server_of(thread).filter(|server| server.request.terms.events)?;
        Some(RaiseTarget { slot: server.id.0, cpu: self.ext.cpu_of(server.id).ok()? })
    }

    fn counts(&self, thread: ThreadId) -> Option<ServerCounts> {
        let seen = self.ext.statistics(self.server(thread)?).ok()?;
        Some(ServerCounts {
            served: seen.served,
            missed: seen.missed,
            violations: seen.violations,
            boosts: seen.boosts.iter().sum(),
            events: seen.boosts.iter().sum::<u64>() + seen.expired,
            throttles: seen.throttles,
            used_ns: (seen.used + seen.extra).get(),
            ..ServerCounts::default()
        })
    }

    fn ejected(&mut self) -> Option<String> {
        if self.ejection_reported {
            return None;
        }
        let reason = self.ext.exit_reason()?;
        self.ejection_reported = true;
        Some(reason)
    }

    fn restore_all(&mut self) -> Vec<ApplyError> {
        for server in self.servers.drain() {
            // The threads continue as best effort. If the scheduler is no longer in charge, they already do.
            let _ = self.ext.destroy(server.1.id);
        }
        self.keys.clear();
        Vec::new()
    }
}

/// Translates an error of the scheduler into an error that all mechanisms use.
fn refusal(thread: ThreadId, reservation: Option<Reservation>, error: ExtError) -> ApplyError {
    let cpus = |text: &str| CpuList::parse(text).unwrap_or_else(CpuList::online);
    match error {
        ExtError::Gone { reason } => ApplyError::Ejected { thread, reason },
        ExtError::NoThread { thread } => ApplyError::Gone { thread },
        ExtError::RealTime { thread, policy } => ApplyError::Foreign { thread, policy },
        ExtError::Full { limit } => ApplyError::Full { thread, limit: limit as usize },
        ExtError::NoRoom { .. } => {
            ApplyError::Busy { thread, asked: reservation.map_or(Share::ZERO, Reservation::share) }
        }
        ExtError::Affinity { thread, mask, cpu } => {
            ApplyError::Affinity { thread, mask: cpus(&mask), needed: cpus(&cpu.to_string()) }
        }
        other => {
            let Problem { message: why, next_step: fix, .. } = other.problem();
            ApplyError::Denied { thread, errno: libc::EINVAL, why, fix }
        }
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Nanos;

    use super::*;

    fn request(budget_ms: u64, terms: ServerTerms) -> Request {
        let reservation = Reservation::new(Nanos::from_millis(budget_ms), Nanos::from_millis(40)).unwrap();
        Request { reservation, reclaiming: Reclaiming::Hard, terms }
    }

    #[test]
    fn another_budget_changes_the_server_and_another_cpu_needs_a_new_server() {
        let (old, more) = (request(10, ServerTerms::default()), request(12, ServerTerms::default()));
        assert!(!more.needs_new_server(&old));
        assert_eq!(more.change_from(&old), Change::service(Nanos::from_millis(12)));
        assert!(request(10, ServerTerms { cpu: Some(1), ..ServerTerms::default() }).needs_new_server(&old));
        assert!(request(10, ServerTerms { aligned: true, ..ServerTerms::default() }).needs_new_server(&old));
    }

    #[test]
    fn another_period_needs_a_new_server_only_if_periods_are_aligned() {
        let aligned = ServerTerms { aligned: true, ..ServerTerms::default() };
        let longer = |terms: ServerTerms| {
            let reservation = Reservation::new(Nanos::from_millis(10), Nanos::from_millis(60)).unwrap();
            Request { reservation, ..request(10, terms) }
        };
        assert!(longer(aligned).needs_new_server(&request(10, aligned)));
        assert!(!request(12, aligned).needs_new_server(&request(10, aligned)));
        assert!(!longer(ServerTerms::default()).needs_new_server(&request(10, ServerTerms::default())));
    }

    #[test]
    fn only_a_changed_window_restarts() {
        let window = "1/5".parse().ok();
        let (old, new) =
            (request(10, ServerTerms::default()), request(10, ServerTerms { window, ..ServerTerms::default() }));
        assert_eq!(new.change_from(&old).window, window);
        assert_eq!(new.change_from(&new), Change::default());
    }

    #[test]
    fn aligned_periods_begin_at_multiples_of_their_length() {
        let phase = request(10, ServerTerms { aligned: true, ..ServerTerms::default() }).spec().phase.unwrap();
        assert_eq!(phase.get() % 40_000_000, 0);
        assert!(phase > clock::now() && request(10, ServerTerms::default()).spec().phase.is_none());
    }

    #[test]
    fn errors_of_the_scheduler_become_errors_of_all_mechanisms() {
        let thread = ThreadId(7);
        let of = |error| refusal(thread, None, error);
        assert_eq!(of(ExtError::NoThread { thread }), ApplyError::Gone { thread });
        let ejected = of(ExtError::Gone { reason: "stall".into() });
        assert_eq!(ejected, ApplyError::Ejected { thread, reason: "stall".into() });
        let affinity = of(ExtError::Affinity { thread, mask: "1".into(), cpu: 0 });
        assert!(affinity.to_string().contains("CPUs 1,"), "{affinity}");
        let other = of(ExtError::NoServer { id: ServerId(9) });
        assert!(
            matches!(other, ApplyError::Denied { ref fix, .. } if fix.contains("create the server first")),
            "{other}"
        );
    }
}
