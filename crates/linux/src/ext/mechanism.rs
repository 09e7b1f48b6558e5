//! Settings carried out on servers: one for each thread, or one for all threads of a group.
//!
//! | setting | server |
//! |---|---|
//! | the first of a group, or of a thread | made on the CPU that the setting names |
//! | another thread of the group | joins it; what it starts joins as well |
//! | another budget, period, window, favour, controller | changed at once: it helps the job that is running |
//! | another CPU or alignment | made anew there, its threads moved, the old one removed |
//! | none | the thread leaves; with the last one its server goes |

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use qfabric_types::api::Problem;
use qfabric_types::{
    Abilities, AppId, Instant, MechanismName, Reclaiming, Reservation, ServerCounts, Setting, Share, Terms, ThreadId,
    Window,
};

use super::{Change, Ext, ExtConfig, ExtError, ServerId, ServerSpec};
use crate::clock;
use crate::cpus::CpuList;
use crate::mechanism::{ApplyError, Mechanism, RaiseTarget};

/// Servers for threads and groups. No journal: when the owner ends, the kernel puts all back.
#[derive(Debug)]
pub struct ExtMechanism {
    ext: Ext,
    servers: HashMap<Key, Server>,
    keys: HashMap<ThreadId, Key>,
    told: bool,
}

/// Whose a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Thread(ThreadId),
    Group(AppId),
}

#[derive(Debug)]
struct Server {
    id: ServerId,
    asked: Asked,
    members: HashSet<ThreadId>,
}

/// What a server was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    reservation: Reservation,
    reclaiming: Reclaiming,
    terms: Terms,
}

impl Asked {
    /// Whether a server for the one cannot become one for the other.
    fn needs_another(&self, other: &Asked) -> bool {
        let fixed = |asked: &Asked| (asked.terms.cpu, asked.terms.aligned);
        fixed(self) != fixed(other)
    }

    fn window(&self) -> Window {
        self.terms.window.unwrap_or(Window::NONE)
    }

    /// Aligned periods begin at whole multiples of themselves on the clock: for all servers alike.
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

    /// Only what differs: a window that is set anew begins anew.
    fn change_from(&self, old: &Asked) -> Change {
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
    /// Loads the scheduler.
    pub fn load(config: &ExtConfig) -> Result<ExtMechanism, ExtError> {
        let ext = Ext::load(config)?;
        Ok(ExtMechanism { ext, servers: HashMap::new(), keys: HashMap::new(), told: false })
    }

    /// The scheduler, for groups, events and statistics.
    pub fn ext(&mut self) -> &mut Ext {
        &mut self.ext
    }

    /// The server of a thread.
    pub fn server(&self, thread: ThreadId) -> Option<ServerId> {
        self.server_of(thread).map(|server| server.id)
    }

    fn server_of(&self, thread: ThreadId) -> Option<&Server> {
        self.servers.get(self.keys.get(&thread)?)
    }

    fn reserve(&mut self, thread: ThreadId, asked: Asked) -> Result<(), ExtError> {
        let key = asked.terms.group.map_or(Key::Thread(thread), Key::Group);
        let id = self.server_for(key, asked)?;
        if let Err(error) = self.ext.join(id, thread, asked.terms.group.is_some()) {
            self.remove_if_empty(key);
            return Err(error);
        }
        if self.keys.get(&thread) != Some(&key) {
            self.take_out(thread);
            self.keys.insert(thread, key);
        }
        if let Some(server) = self.servers.get_mut(&key) {
            server.members.insert(thread);
        }
        Ok(())
    }

    /// The server of `key` as it is asked for.
    fn server_for(&mut self, key: Key, asked: Asked) -> Result<ServerId, ExtError> {
        let Some(server) = self.servers.get_mut(&key) else {
            let id = self.ext.create(&asked.spec())?;
            self.servers.insert(key, Server { id, asked, members: HashSet::new() });
            return Ok(id);
        };
        if server.asked.needs_another(&asked) {
            return self.make_anew(key, asked);
        }
        if server.asked != asked {
            self.ext.change(server.id, &asked.change_from(&server.asked))?;
            server.asked = asked;
        }
        Ok(server.id)
    }

    /// The threads move before the old one goes: none is without a server in between.
    fn make_anew(&mut self, key: Key, asked: Asked) -> Result<ServerId, ExtError> {
        let id = self.ext.create(&asked.spec())?;
        let Some(server) = self.servers.get_mut(&key) else { return Ok(id) };
        for member in &server.members {
            // One that is gone meanwhile is forgotten when that is told.
            let _ = self.ext.join(id, *member, matches!(key, Key::Group(_)));
        }
        let old = std::mem::replace(&mut server.id, id);
        server.asked = asked;
        self.ext.destroy(old)?;
        Ok(id)
    }

    /// The books without the thread; its server goes with the last one.
    fn take_out(&mut self, thread: ThreadId) {
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
            // Refused only where the scheduler is gone, and its servers with it.
            let _ = self.ext.destroy(server.id);
        }
    }

    fn cpus(&self) -> Vec<u32> {
        CpuList::online().iter().collect()
    }
}

impl Mechanism for ExtMechanism {
    fn name(&self) -> &'static str {
        MechanismName::Ext.name()
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
        let Setting { thread, reservation, reclaiming, terms } = *setting;
        let done = match reservation {
            Some(reservation) => self.reserve(thread, Asked { reservation, reclaiming, terms }),
            None => self.ext.leave(thread).map(|()| self.take_out(thread)),
        };
        done.map_err(|error| refusal(thread, reservation, error))
    }

    fn forget(&mut self, thread: ThreadId) {
        self.take_out(thread);
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            terms: true,
            rescues: true,
            kernel_control: true,
            all_reclaiming: true,
            gives_back: false,
            cpus: self.cpus(),
        }
    }

    fn capacity(&self) -> Option<Share> {
        let each = self.ext.config().capacity();
        Some(self.cpus().iter().map(|_| each).sum())
    }

    fn raise(&mut self, thread: ThreadId, deadline: Option<Instant>) -> bool {
        let Some(server) = self.server_of(thread).filter(|server| server.asked.terms.events) else { return false };
        let id = server.id;
        self.ext.raise(id, deadline).is_ok()
    }

    fn raised_memory(&self) -> Option<OwnedFd> {
        self.ext.raised().try_clone_to_owned().ok()
    }

    fn raised_for(&self, thread: ThreadId) -> Option<RaiseTarget> {
        let server = self.server_of(thread).filter(|server| server.asked.terms.events)?;
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
        })
    }

    fn ejected(&mut self) -> Option<String> {
        if self.told {
            return None;
        }
        let reason = self.ext.exit_reason()?;
        self.told = true;
        Some(reason)
    }

    fn restore_all(&mut self) -> Vec<ApplyError> {
        for server in self.servers.drain() {
            // Its threads go on as best effort; where the scheduler is gone, they do already.
            let _ = self.ext.destroy(server.1.id);
        }
        self.keys.clear();
        Vec::new()
    }
}

/// In the words that every mechanism uses.
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

    fn asked(budget_ms: u64, terms: Terms) -> Asked {
        let reservation = Reservation::new(Nanos::from_millis(budget_ms), Nanos::from_millis(40)).unwrap();
        Asked { reservation, reclaiming: Reclaiming::Hard, terms }
    }

    #[test]
    fn another_budget_is_a_change_and_another_cpu_another_server() {
        let (old, more) = (asked(10, Terms::default()), asked(12, Terms::default()));
        assert!(!more.needs_another(&old));
        assert_eq!(more.change_from(&old), Change::service(Nanos::from_millis(12)));
        assert!(asked(10, Terms { cpu: Some(1), ..Terms::default() }).needs_another(&old));
        assert!(asked(10, Terms { aligned: true, ..Terms::default() }).needs_another(&old));
    }

    #[test]
    fn only_a_new_window_begins_anew() {
        let window = "1/5".parse().ok();
        let (old, new) = (asked(10, Terms::default()), asked(10, Terms { window, ..Terms::default() }));
        assert_eq!(new.change_from(&old).window, window);
        assert_eq!(new.change_from(&new), Change::default());
    }

    #[test]
    fn aligned_periods_begin_at_multiples_of_themselves() {
        let phase = asked(10, Terms { aligned: true, ..Terms::default() }).spec().phase.unwrap();
        assert_eq!(phase.get() % 40_000_000, 0);
        assert!(phase > clock::now() && asked(10, Terms::default()).spec().phase.is_none());
    }

    #[test]
    fn refusals_of_the_scheduler_are_those_of_every_mechanism() {
        let thread = ThreadId(7);
        let of = |error| refusal(thread, None, error);
        assert_eq!(of(ExtError::NoThread { thread }), ApplyError::Gone { thread });
        let ejected = of(ExtError::Gone { reason: "stall".into() });
        assert_eq!(ejected, ApplyError::Ejected { thread, reason: "stall".into() });
        let affinity = of(ExtError::Affinity { thread, mask: "1".into(), cpu: 0 });
        assert!(affinity.to_string().contains("CPUs 1,"), "{affinity}");
        let other = of(ExtError::NoServer { id: ServerId(9) });
        assert!(matches!(other, ApplyError::Denied { ref fix, .. } if fix.contains("create it first")), "{other}");
    }
}
