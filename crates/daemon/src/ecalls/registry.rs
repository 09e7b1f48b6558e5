//! The registry of services, subscriptions, connections and named handlers: values and look-ups without I/O.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use qfabric_linux::ecalls::{Installed, SocketModule, Unsupported};
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{HandlerInfo, LeaseId, OptionInfo, Origin, ServiceId, ServiceInfo, SubscriptionId};
use qfabric_types::format::Format;
use qfabric_types::{Instant, Nanos, Owner};
use tokio::sync::oneshot;

use super::compiled::Compiled;
use super::handed::HandedOut;
use super::inputs::Inputs;
use super::memory::Down;
use super::policy::EcallsConfig;
use super::problems;
use super::share::Accounts;
use super::subscription::Subscription;
use crate::auth::{Peer, places_for};
use crate::closer::Foreign;

/// Interrupts per second of all timers of a user: one timer of 1 ms, or ten of 10 ms. They interrupt every process, so
/// they must stay rare. Members of a group count as if each had an own timer.
const INTERRUPTS_OF_USER: u64 = 1_000;

/// Everything that is registered.
#[derive(Default)]
pub(crate) struct Registry {
    pub services: BTreeMap<ServiceId, Service>,
    names: HashMap<String, ServiceId>,
    pub subscriptions: BTreeMap<SubscriptionId, Arc<Subscription>>,
    pub leases: HashMap<LeaseId, Lease>,
    pub handlers: BTreeMap<String, Handler>,
    /// The receiver of each record in the kernel's ring, by the record's number.
    pub tails: HashMap<u64, Tail>,
    /// Calls that wait for their answers.
    pub calls: HashMap<u64, Call>,
    /// The user of each page of ready sockets that exists or is being opened, also for connections that have ended.
    pub modules: Vec<(u32, Weak<()>)>,
    /// What processes were given of subscriptions and connections, also of ended ones.
    pub handed: HandedOut,
    /// The CPU time of users' handlers.
    pub accounts: Accounts,
    last: u64,
}

/// A service to which processes can subscribe.
pub(crate) struct Service {
    pub name: String,
    pub about: String,
    pub origin: Origin,
    pub hook: String,
    pub format: Format,
    pub declaration: String,
    pub options: Vec<OptionInfo>,
    pub concerns_process: bool,
    pub unavailable: Option<Unsupported>,
    /// Largest number of instructions for one event, of all handlers of one user.
    pub max_instructions: u32,
    pub owner: Option<ServiceOwner>,
    /// The sinks from which the events come, if they are those of channels.
    pub inputs: Option<Arc<Inputs>>,
    pub subscriptions: Vec<Arc<Subscription>>,
    pub groups: HashMap<GroupKey, Group>,
    pub raised: u64,
    pub cpu: u64,
}

/// The connection that registered a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceOwner {
    pub lease: LeaseId,
    pub peer: Peer,
    pub open: bool,
}

/// The key of a group of subscriptions. Groups of the same name of two users are different groups, so that no user
/// receives events meant for another user's members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub uid: u32,
    pub name: String,
}

/// A wake-one group: each event goes to one of its subscriptions, in turn.
#[derive(Default)]
pub(crate) struct Group {
    /// The index of the next receiver.
    pub turn: usize,
    /// For kernel services: the hook that all members share.
    pub hook: Option<GroupHook>,
}

/// The hook of a group in the kernel, its options, and the number of its records.
pub(crate) struct GroupHook {
    pub installed: Arc<Installed>,
    pub options: BTreeMap<String, String>,
    pub only_pid: Option<i32>,
    pub tail: u64,
    /// The part of its run time, in ns, that the user's account was charged with.
    pub charged: u64,
}

/// The receiver of a record from the kernel's ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Subscription(SubscriptionId),
    Group(ServiceId, GroupKey),
}

/// A connection to `ecalls.sock`.
pub(crate) struct Lease {
    pub peer: Peer,
    pub socket: Arc<Foreign>,
    pub down: Option<Arc<Down>>,
    /// Names of the session's attributes, by number.
    pub attributes: Vec<String>,
    pub sockets: Option<Arc<SocketModule>>,
    /// Whether a thread opens [`Lease::sockets`].
    pub opens_sockets: bool,
    /// The place of [`Lease::sockets`] in [`Registry::modules`]. Dropped after them.
    pub module_place: Option<Arc<()>>,
}

pub(crate) struct Handler {
    pub info: HandlerInfo,
    pub lease: Option<LeaseId>,
    pub compiled: Compiled,
}

/// A call that waits for its answer.
pub(crate) struct Call {
    pub service: ServiceId,
    /// The user whose call waits.
    pub caller: u32,
    pub answer: oneshot::Sender<Vec<u8>>,
}

impl Registry {
    /// A number that was not used before.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn add_service(&mut self, service: Service) -> Result<ServiceId, Problem> {
        if self.names.contains_key(&service.name) {
            return Err(problems::service_exists(&service.name));
        }
        let id = self.number() as ServiceId;
        self.names.insert(service.name.clone(), id);
        self.services.insert(id, service);
        Ok(id)
    }

    pub(super) fn remove_service(&mut self, id: ServiceId) -> Option<Service> {
        let service = self.services.remove(&id)?;
        self.names.remove(&service.name);
        Some(service)
    }

    pub(super) fn service(&self, name: &str) -> Result<(ServiceId, &Service), Problem> {
        let found = self.names.get(name).and_then(|id| Some((*id, self.services.get(id)?)));
        found.ok_or_else(|| problems::no_such_service(name))
    }

    pub(super) fn lease(&mut self, id: LeaseId, peer: Peer) -> Result<&mut Lease, Problem> {
        let found = self.leases.get_mut(&id).filter(|lease| peer.may_touch(lease.peer.owner));
        found.ok_or_else(|| problems::no_such_lease(id))
    }

    pub(super) fn subscription(&self, id: SubscriptionId, peer: Peer) -> Result<&Arc<Subscription>, Problem> {
        let found = self.subscriptions.get(&id).ok_or_else(|| problems::no_such_subscription(id))?;
        match peer.may_touch(found.terms.owner) {
            true => Ok(found),
            false => Err(problems::not_your_subscription(id, found.terms.owner.uid, peer.owner.uid)),
        }
    }

    /// Removes a subscription. With the last one of a group, also removes and returns the group's hook.
    pub(super) fn remove_subscription(&mut self, id: SubscriptionId) -> Option<(Arc<Subscription>, Option<GroupHook>)> {
        let removed = self.subscriptions.remove(&id)?;
        self.tails.remove(&id);
        let Some(service) = self.services.get_mut(&removed.terms.service) else { return Some((removed, None)) };
        service.subscriptions.retain(|subscription| subscription.id != id);
        let group = removed.terms.group.as_ref();
        let is_over =
            |group: &&GroupKey| !service.subscriptions.iter().any(|other| other.terms.group.as_ref() == Some(group));
        let hook = group.filter(is_over).and_then(|group| service.groups.remove(group)?.hook);
        if let Some(hook) = &hook {
            self.tails.remove(&hook.tail);
        }
        Some((removed, hook))
    }

    /// Charges the CPU time that the hooks of users' groups took since the last charge.
    pub(super) fn charge_hooks(&mut self, now: Instant) {
        let Registry { services, accounts, .. } = self;
        for (key, group) in services.values_mut().flat_map(|service| service.groups.iter_mut()) {
            if let Some(hook) = &mut group.hook {
                let run_ns = hook.installed.counters().run_ns;
                let took = run_ns.saturating_sub(std::mem::replace(&mut hook.charged, run_ns));
                accounts.charge(key.uid, Nanos::new(took), now);
            }
        }
    }

    /// Removes the hooks of a user's groups. Returns them, to be dropped without the lock, and the groups' members.
    pub(super) fn take_hooks_of(&mut self, uid: u32) -> (Vec<GroupHook>, Vec<Arc<Subscription>>) {
        let (mut hooks, mut members) = (Vec::new(), Vec::new());
        for service in self.services.values_mut() {
            for (key, group) in service.groups.iter_mut().filter(|(key, _)| key.uid == uid) {
                let Some(hook) = group.hook.take() else { continue };
                self.tails.remove(&hook.tail);
                hooks.push(hook);
                let is_member = |one: &&Arc<Subscription>| one.terms.group.as_ref() == Some(key);
                members.extend(service.subscriptions.iter().filter(is_member).cloned());
            }
        }
        (hooks, members)
    }

    /// Removes a service whose events are those of a channel, if it has no subscription.
    pub(super) fn remove_unused(&mut self, id: ServiceId) -> Option<Service> {
        let is_unused = |service: &Service| service.inputs.is_some() && service.subscriptions.is_empty();
        self.services.get(&id).is_some_and(is_unused).then(|| self.remove_service(id)).flatten()
    }

    pub(super) fn has_subscriber(&self, service: &str) -> bool {
        self.service(service).is_ok_and(|(_, service)| !service.subscriptions.is_empty())
    }

    /// The handler of this name, if `peer` may use it.
    pub(super) fn handler(&self, name: &str, peer: Peer) -> Result<&Handler, Problem> {
        let usable = |handler: &&Handler| handler.info.open || peer.may_touch(handler.info.owner);
        self.handlers.get(name).filter(usable).ok_or_else(|| problems::no_such_handler(name))
    }

    pub(super) fn check_room_for_service(&self, owner: Owner, config: &EcallsConfig) -> Result<(), Problem> {
        let owners = || self.services.values().filter_map(|service| service.owner);
        let (all, own) = (owners().count(), owners().filter(|o| o.peer.owner.uid == owner.uid).count());
        let most = places_for(owner.uid, config.max_services);
        if all >= most {
            return Err(problems::limit(&format!("{all} services are registered"), most, "ecalls.max_services"));
        }
        of_user("services", own, owner, config.max_services_per_user, "ecalls.max_services_per_user")
    }

    pub(super) fn check_room_for_subscription(
        &self,
        owner: Owner,
        config: &EcallsConfig,
        now: Instant,
    ) -> Result<(), Problem> {
        if let Some(suspension) = self.accounts.suspension(owner.uid, now) {
            return Err(problems::suspended(&suspension.why()));
        }
        let (kept, _) = self.kept_subscriptions(None);
        let all = self.subscriptions.len() + kept;
        let most = places_for(owner.uid, config.max_subscriptions);
        if all >= most {
            return Err(problems::limit_with_kept(
                &format!("{all} subscriptions exist"),
                kept as u64,
                most,
                "ecalls.max_subscriptions",
            ));
        }
        let (kept, _) = self.kept_subscriptions(Some(owner.uid));
        let own = kept + self.subscriptions.values().filter(|s| s.terms.owner.uid == owner.uid).count();
        let most = config.max_subscriptions_per_user;
        if owner.uid != 0 && own >= most {
            let what = format!("user {} has {own} subscriptions", owner.uid);
            return Err(problems::limit_with_kept(&what, kept as u64, most, "ecalls.max_subscriptions_per_user"));
        }
        Ok(())
    }

    /// Checks that `more` interrupts per second are within the limit of all timers of a user.
    pub(super) fn check_room_for_interrupts(&self, owner: Owner, more: u64) -> Result<(), Problem> {
        let of_user = |s: &&Arc<Subscription>| s.terms.owner.uid == owner.uid && s.is_active();
        let has: u64 = self.subscriptions.values().filter(of_user).map(|s| s.terms.interrupts).sum();
        match owner.uid != 0 && more > 0 && has + more > INTERRUPTS_OF_USER {
            true => Err(problems::limit(
                &format!("the timers of user {} would interrupt CPUs {} times per second", owner.uid, has + more),
                INTERRUPTS_OF_USER,
                "the period or delay",
            )),
            false => Ok(()),
        }
    }

    pub(super) fn check_room_for_handler(&self, owner: Owner, config: &EcallsConfig) -> Result<(), Problem> {
        let own = self.handlers.values().filter(|h| h.info.owner.uid == owner.uid).count();
        of_user("named handlers", own, owner, config.max_handlers_per_user, "ecalls.max_handlers_per_user")
    }

    /// Checks that a user's handlers at a service take at most the allowed instructions for one event, including
    /// `more` of a new one. For root, only each handler alone is limited.
    pub(super) fn check_room_for_instructions(
        &self,
        owner: Owner,
        service: &ServiceInfo,
        more: u64,
        key: &str,
    ) -> Result<(), Problem> {
        let others = self.services.get(&service.id).map_or(&[][..], |service| &service.subscriptions);
        let has: u64 = others
            .iter()
            .filter(|s| owner.uid != 0 && s.terms.owner.uid == owner.uid)
            .map(|s| s.terms.instructions)
            .sum();
        match has.saturating_add(more) <= u64::from(service.max_instructions) {
            true => Ok(()),
            false => Err(problems::too_long(&service.name, more, has, service.max_instructions, key)),
        }
    }

    /// Checks that `bytes` more of shared memory and queues are within the limits.
    pub(super) fn check_room_for_memory(&self, owner: Owner, bytes: u64, config: &EcallsConfig) -> Result<(), Problem> {
        let sum = |of: &dyn Fn(&Subscription) -> bool| -> u64 {
            self.subscriptions.values().filter(|s| of(s)).map(|s| s.terms.memory_bytes).sum()
        };
        let ((_, kept), (_, own_kept)) = (self.kept_subscriptions(None), self.kept_subscriptions(Some(owner.uid)));
        let (all, own) = (sum(&|_| true) + kept + bytes, sum(&|s| s.terms.owner.uid == owner.uid) + own_kept + bytes);
        let most = places_for(owner.uid, usize::try_from(config.max_memory).unwrap_or(usize::MAX)) as u64;
        if all > most {
            let what = format!("{all} bytes of shared memory and queues");
            return Err(problems::limit_with_kept(&what, kept, most, "ecalls.max_memory"));
        }
        if owner.uid != 0 && own > config.max_memory_per_user {
            let what = format!("{own} bytes of shared memory and queues of user {}", owner.uid);
            let most = config.max_memory_per_user;
            return Err(problems::limit_with_kept(&what, own_kept, most, "ecalls.max_memory_per_user"));
        }
        Ok(())
    }
}

fn of_user(what: &str, has: usize, owner: Owner, limit: usize, key: &str) -> Result<(), Problem> {
    match owner.uid != 0 && has >= limit {
        true => Err(problems::limit(&format!("user {} has {has} {what}", owner.uid), limit, key)),
        false => Ok(()),
    }
}

impl Service {
    /// The description of the service, without its counters.
    pub(super) fn snapshot(&self, id: ServiceId) -> Snapshot {
        let hooks = self.groups.values().filter_map(|group| group.hook.as_ref());
        let hooks = hooks.map(|hook| hook.installed.clone()).collect();
        Snapshot { info: self.uncounted(id), subscriptions: self.subscriptions.clone(), hooks }
    }

    fn uncounted(&self, id: ServiceId) -> ServiceInfo {
        ServiceInfo {
            id,
            name: self.name.clone(),
            about: self.about.clone(),
            origin: self.origin,
            hook: self.hook.clone(),
            format: self.format.clone(),
            declaration: self.declaration.clone(),
            options: self.options.clone(),
            concerns_process: self.concerns_process,
            unavailable: self.unavailable.as_ref().map(ToString::to_string),
            owner: self.owner.map(|owner| owner.peer.owner),
            pid: self.owner.map(|owner| owner.peer.pid),
            subscribers: self.subscriptions.len() as u32,
            raised: self.raised,
            dropped: 0,
            cpu: self.cpu,
            max_instructions: self.max_instructions,
        }
    }

    /// The subscriptions that receive an event for `pid` (−1: all): every one without a group, and the next one of
    /// each group.
    pub(super) fn receivers(&mut self, pid: i32, concerns: Option<i32>) -> Vec<Arc<Subscription>> {
        let Service { subscriptions, groups, .. } = self;
        let wants = |s: &&Arc<Subscription>| {
            s.is_active()
                && (pid == -1 || s.terms.process_id == pid)
                && (s.terms.only_pid.is_none() || s.terms.only_pid == concerns)
        };
        let mut chosen: Vec<_> =
            subscriptions.iter().filter(wants).filter(|s| s.terms.group.is_none()).cloned().collect();
        for (key, group) in groups {
            let members: Vec<_> =
                subscriptions.iter().filter(wants).filter(|s| s.terms.group.as_ref() == Some(key)).collect();
            chosen.extend(group.next(&members));
        }
        chosen
    }
}

/// The description of a service, read without the registry's lock, because some counters are in the kernel.
pub(crate) struct Snapshot {
    info: ServiceInfo,
    subscriptions: Vec<Arc<Subscription>>,
    hooks: Vec<Arc<Installed>>,
}

impl Snapshot {
    /// Adds the counters of the daemon and of the kernel.
    pub(super) fn info(self) -> ServiceInfo {
        let Snapshot { mut info, subscriptions, hooks } = self;
        let counters: Vec<_> = subscriptions.iter().map(|subscription| subscription.counters()).collect();
        if info.origin == Origin::Kernel {
            info.raised += counters.iter().map(|counters| counters.events).sum::<u64>();
        }
        let dropped = counters
            .iter()
            .map(|c| c.dropped_memory + c.dropped_ring + c.dropped_queue + c.dropped_signals + c.late + c.contended);
        let in_hooks: u64 = hooks.iter().map(|hook| hook.counters().dropped_ring).sum();
        info.dropped = in_hooks + dropped.sum::<u64>();
        info
    }
}

impl Group {
    /// Selects the members in turn (round robin).
    pub(super) fn next(&mut self, members: &[&Arc<Subscription>]) -> Option<Arc<Subscription>> {
        let member = members.get(self.turn % members.len().max(1))?;
        self.turn = self.turn.wrapping_add(1);
        Some((*member).clone())
    }
}
