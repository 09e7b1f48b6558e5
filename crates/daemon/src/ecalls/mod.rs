//! ECalls: services, subscriptions, and the thread that delivers events to subscriptions.
//!
//! ```text
//!   hooks in the kernel ── ring ──┐
//!   processes ── ecalls.sock ─────┤  queue: users   ┌─ shared memory, and a wake-up of its reader
//!   HTTP, command line ───────────┼─> in turn, each ┼─ real-time signal
//!   control thread (misses) ──────┘  by EDF         ├─ handler thread of the user: handler by the JIT
//!                                    late: dropped   │ (verdict 0 ends the chain), then the remaining steps
//!                                                     └─ hold: the remaining steps at a moment in the event
//! ```
//! | file | contents |
//! |---|---|
//! | `policy` | limits and rights |
//! | `registry` | services, subscriptions, connections, named handlers |
//! | `plan`, `checks`, `compiled`, `draft`, `install` | from a request to a working subscription: all or nothing |
//! | `subscription`, `handler`, `memory`, `pool`, `crew` | a working chain |
//! | `redirect`, `inputs`, `far` | events to and from channels, of several at once; handlers between hosts |
//! | `raise`, `dispatcher` | events: into the queue, out of the queue |
//! | `hub`, `sources` | the queue and the registry; sleep and wake-up of the dispatcher |
//! | `favour` | the servers that an event favours |
//! | `lease` | messages through `ecalls.sock`; hostile |
//! | `handed` | what processes were given, and may still hold |
//! | `misses` | `sched.deadline_miss`, from the control thread without a wait |
//!
//! The API's worker threads install subscriptions, one at a time; they compile and call the kernel without the
//! registry's lock. The lock is held for look-ups only, never while a handler runs.
//!
//! Order of locks: `setup`, then `registry`, then a leaf: `queue`, or a lock of a subscription or the pool
//! ([`qfabric_sync::rank`]; debug builds assert the order). A thread that holds a leaf takes no other lock.

mod call;
mod checks;
mod compiled;
mod crew;
mod dispatcher;
mod draft;
mod far;
mod favour;
mod files;
mod handed;
mod handler;
mod hub;
mod inputs;
mod install;
mod lease;
mod memory;
mod misses;
mod plan;
mod policy;
mod pool;
mod problems;
mod raise;
mod redirect;
mod registry;
mod services;
mod share;
mod sources;
mod subscription;
mod sync;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use qfabric_linux::clock;
use qfabric_linux::ecalls::{EventRing, FileWatch, Installed, Kernel, Unsupported};
use qfabric_sync::{Guard, Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{SubscriptionId, SubscriptionInfo};
use qfabric_types::{Nanos, Share};

use crate::auth::Peer;
use crate::channels::Outlet;
use crate::closer::Closer;
use crate::ending::{Ending, contain};
use crate::timeline::Recorder;
use favour::Favours;
use files::ServiceFiles;
use hub::{Hub, Subscribed};
use pool::Pool;
use raise::Queued;
use redirect::Redirects;
use registry::{GroupHook, Registry, Service};
use share::Accounts;
use sources::{Source, Sources};
use subscription::Subscription;

pub(crate) use dispatcher::start_dispatcher;
use far::Far;
pub(crate) use far::{Inbox, start_far};
pub(crate) use misses::{Miss, Misses};
pub use policy::EcallsConfig;
pub(crate) use registry::ServiceOwner;

/// Size in bytes of the ring through which events leave the kernel: room for some thousand events.
const RING_BYTES: u32 = 1 << 20;

/// The state of ECalls, shared by the API's threads and the dispatcher.
pub(crate) struct Ecalls {
    /// The limits and grants in force.
    config: Lock<Arc<EcallsConfig>, { rank::ECALLS_CONFIG }>,
    kernel: OnceLock<Result<KernelSide, Unsupported>>,
    hub: Arc<Hub<Registry, Queued>>,
    /// Allows one installation at a time, so that the attributes of a session are numbered in order.
    setup: Lock<(), { rank::SETUP }>,
    pool: Pool,
    files: ServiceFiles,
    /// The memory without maps that was given to processes.
    given_files: FileWatch,
    closer: Closer,
    misses: Misses,
    /// The ways by which events favour servers; set when the service is assembled.
    favours: OnceLock<Favours>,
    /// Where delivered events are recorded; set when the service is assembled.
    timeline: OnceLock<Arc<Recorder>>,
    /// The channels to and from which chains redirect events; set when the service is assembled.
    redirects: OnceLock<Redirects>,
    far: Far,
    ending: Ending,
    /// Whether a thread runs [`Ecalls::check_aside`].
    checking: AtomicBool,
    totals: Totals,
}

/// The parts of an ended subscription that its caller must drop outside of the registry's lock.
pub(crate) struct Remains {
    _installed: Option<Installed>,
    _hook: Option<GroupHook>,
    subscription: Arc<Subscription>,
    /// The service of a channel that has no other subscription.
    unused: Option<Service>,
}

impl Drop for Remains {
    /// Chains may still have events; from now on the channel refuses them.
    fn drop(&mut self) {
        self.subscription.chain.outlet.iter().for_each(Outlet::leave);
        self.unused.iter().flat_map(|service| &service.inputs).for_each(|inputs| inputs.leave());
    }
}

/// The share at which handler threads pause: a little below the limit, so that a user whose handlers run in the daemon
/// is slowed and no handler is removed.
fn paused_at(limit: Share) -> Share {
    Share::from_ppm((limit.ppm() / 8 * 7).max(1))
}

/// Drops a value in a separate thread, so that the dispatcher does not wait for hooks to be removed. For values
/// that this service created; the [`Closer`] closes descriptors of others.
fn drop_aside<T: Send + 'static>(what: T) {
    let thread = std::thread::Builder::new().name("qf-ecalls-end".to_owned());
    // If no thread can be started, the value is dropped here.
    let _ = thread.spawn(move || contain(|| drop(what)));
}

/// The kernel, and the ring through which its events arrive.
pub(crate) struct KernelSide {
    pub kernel: Kernel,
    pub ring: EventRing,
}

/// Counters over all subscriptions, including ended ones.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub raised: AtomicU64,
    pub delivered: AtomicU64,
    pub late: AtomicU64,
    pub dropped_queue: AtomicU64,
    pub nonsense: AtomicU64,
    pub taken_out: AtomicU64,
    pub cpu: AtomicU64,
    pub favours_dropped: AtomicU64,
}

/// The numbers that `/metrics` shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EcallsReport {
    pub subscriptions: Vec<SubscriptionInfo>,
    pub services: u64,
    pub leases: u64,
    pub threads: u64,
    pub waiting: u64,
    pub raised: u64,
    pub delivered: u64,
    pub late: u64,
    pub dropped_queue: u64,
    pub nonsense: u64,
    pub taken_out: u64,
    /// Events that missed handlers in the kernel because 15 handlers before them were just being removed.
    pub missed: u64,
    pub misses_dropped: u64,
    pub cpu: u64,
    pub favours_dropped: u64,
}

impl Subscribed for Registry {
    fn is_subscribed(&self) -> bool {
        !self.subscriptions.is_empty()
    }
}

impl Ecalls {
    /// Does not open the kernel yet; the first request for a service does.
    pub(crate) fn new(config: EcallsConfig, directory: &Path, ending: &Ending) -> io::Result<Arc<Ecalls>> {
        let sources = Sources::new()?;
        let misses = Misses::new(sources.wake().clone());
        let ecalls = Ecalls {
            kernel: OnceLock::new(),
            hub: Arc::new(Hub::new(config.queue, config.queue_per_subscription, sources)),
            setup: Lock::default(),
            pool: Pool::new(
                config.handler_threads,
                config.max_subscriptions,
                paused_at(config.max_cpu_per_user),
                ending,
            ),
            files: ServiceFiles::new(directory),
            given_files: FileWatch::default(),
            closer: Closer::default(),
            misses,
            favours: OnceLock::new(),
            timeline: OnceLock::new(),
            redirects: OnceLock::new(),
            far: Far::default(),
            ending: ending.clone(),
            checking: AtomicBool::new(false),
            totals: Totals::default(),
            config: Lock::new(Arc::new(config)),
        };
        ecalls.registry().accounts = Accounts::new(ecalls.config().max_cpu_per_user);
        ecalls.add_own_services();
        Ok(Arc::new(ecalls))
    }

    /// Delivered events are recorded in `timeline` from now on.
    pub(crate) fn record_in(&self, timeline: Arc<Recorder>) {
        // Set once, when the service is assembled.
        let _ = self.timeline.set(timeline);
    }

    /// The limits and grants in force.
    fn config(&self) -> Arc<EcallsConfig> {
        self.config.with(|config| config.clone())
    }

    /// From now on `new` holds for requests, except for its keys that need a restart. What exists stays. Returns what is in
    /// force.
    pub(crate) fn configure(&self, new: &EcallsConfig) -> EcallsConfig {
        let config = self.config().reloaded(new);
        self.config.with(|running| *running = Arc::new(config.clone()));
        let mut registry = self.registry();
        registry.accounts.set_most(config.max_cpu_per_user);
        for service in registry.services.values_mut() {
            (service.max_instructions, _) = config.instructions_at(&service.name, service.origin);
        }
        drop(registry);
        self.pool.set_share(paused_at(config.max_cpu_per_user));
        config
    }

    fn registry(&self) -> Guard<'_, Registry, { rank::ECALLS_REGISTRY }> {
        self.hub.registry()
    }

    fn watch(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        self.hub.sources.watch(fd, source)
    }

    fn forget(&self, fd: impl AsFd) {
        self.hub.sources.forget(fd);
    }

    /// Wakes the dispatcher.
    fn nudge(&self) {
        self.hub.nudge();
    }

    /// The kernel, opened at the first call; from then on its services are registered.
    fn kernel(&self) -> Result<&KernelSide, &Unsupported> {
        let opened = self.kernel.get_or_init(|| {
            let kernel = Kernel::open().inspect_err(|why| self.add_kernel_services(&Kernel::services_without(why)))?;
            let broken = |error: io::Error| Unsupported {
                what: format!("cannot create the ring for events: {error}"),
                remedy: "run qfabric doctor".to_owned(),
            };
            let ring = EventRing::new(RING_BYTES).map_err(broken)?;
            self.watch(ring.fd(), Source::Ring).map_err(broken)?;
            self.add_kernel_services(kernel.services());
            Ok(KernelSide { kernel, ring })
        });
        opened.as_ref()
    }

    /// Where messages of other hosts about ECalls wait.
    pub(crate) fn far_inbox(&self) -> Arc<Inbox> {
        self.far.inbox.clone()
    }

    /// The list in which the control thread puts misses.
    pub(crate) fn misses(&self) -> Misses {
        self.misses.clone()
    }

    /// The subscriptions of a user, here and on other hosts; for root, all.
    pub(crate) fn subscriptions(&self, peer: Peer) -> Vec<SubscriptionInfo> {
        let registry = self.registry();
        let own: Vec<_> = registry.subscriptions.values().filter(|s| peer.may_touch(s.terms.owner)).cloned().collect();
        drop(registry);
        let here = own.iter().map(|subscription| subscription.info());
        here.chain(self.deployed(peer)).collect()
    }

    pub(crate) fn subscription(&self, peer: Peer, id: SubscriptionId) -> Result<SubscriptionInfo, Problem> {
        if let Some(deployed) = self.deployed_one(peer, id) {
            return deployed;
        }
        let found = self.registry().subscription(id, peer)?.clone();
        Ok(found.info())
    }

    /// Sets attributes of a subscription's session.
    pub(crate) fn set_attributes<'a>(
        &self,
        peer: Peer,
        id: SubscriptionId,
        values: impl IntoIterator<Item = (&'a String, &'a i64)>,
    ) -> Result<SubscriptionInfo, Problem> {
        let subscription = self.registry().subscription(id, peer)?.clone();
        let numbered = checks::numbered(&subscription.terms.attributes, values)?;
        for (number, value) in numbered {
            subscription.chain.down.words().set_attribute(number, value);
        }
        Ok(subscription.info())
    }

    pub(crate) fn unsubscribe(&self, peer: Peer, id: SubscriptionId) -> Result<(), Problem> {
        if let Some(deployed) = self.deployed_one(peer, id) {
            return deployed.map(|_| self.undeploy(id));
        }
        self.registry().subscription(id, peer)?;
        drop(self.end_subscription(id));
        Ok(())
    }

    /// Removes a subscription from the registry. Returns its parts in the kernel; the caller drops them outside of
    /// the lock, because the removal of a hook may take milliseconds.
    #[must_use]
    fn end_subscription(&self, id: SubscriptionId) -> Option<Remains> {
        let mut registry = self.registry();
        let (subscription, hook) = registry.remove_subscription(id)?;
        let unused = registry.remove_unused(subscription.terms.service);
        self.misses.want(registry.has_subscriber(misses::SERVICE));
        drop(registry);
        subscription.processes().for_each(|process| self.forget(process));
        let installed = subscription.take_out("it has ended");
        // The next subscription of the user does not begin with a new second.
        let took = subscription.tally.not_charged(subscription.tally.run_ns.load(Ordering::Relaxed));
        let of_hook = hook.as_ref().map_or(0, |hook| hook.installed.counters().run_ns.saturating_sub(hook.charged));
        let took = took + Nanos::new(of_hook);
        self.registry().accounts.charge(subscription.terms.owner.uid, took, clock::now());
        Some(Remains { _installed: installed, _hook: hook, subscription, unused })
    }

    /// Ends subscriptions to processes that have executed a set-uid program, and attaches handlers of packets to
    /// interfaces that have come up. In a separate thread: it reads files of each process, and the kernel may be slow.
    fn check_aside(self: &Arc<Self>) {
        if self.registry().subscriptions.is_empty() || self.checking.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = self.clone();
        let check = move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 0);
            let body = || {
                own.lost_processes().into_iter().for_each(|id| own.process_lost(id));
                own.follow_interfaces();
                own.read_priorities();
            };
            let _ = own.ending.guard("qf-ecalls-check", body);
            own.checking.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("qf-ecalls-check".to_owned()).spawn(check).is_err() {
            self.checking.store(false, Ordering::Release);
        }
    }

    fn read_priorities(&self) {
        let all: Vec<_> = self.registry().subscriptions.values().cloned().collect();
        all.iter().for_each(|subscription| subscription.read_priority());
    }

    fn follow_interfaces(&self) {
        let all: Vec<_> = self.registry().subscriptions.values().cloned().collect();
        let hooks: Vec<_> = self
            .registry()
            .services
            .values()
            .flat_map(|service| service.groups.values())
            .filter_map(|group| group.hook.as_ref())
            .filter_map(|hook| hook.installed.followed().cloned())
            .collect();
        let of_chain = |one: &Arc<Subscription>| one.installed.lock().as_ref()?.followed().cloned();
        for one in all.iter().filter_map(of_chain).chain(hooks) {
            let found = match one.attach_new() {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "cannot list the interfaces for handlers");
                    continue;
                }
            };
            if !found.attached.is_empty() {
                tracing::info!(interfaces = found.attached.join(", "), "handlers attached to new interfaces");
            }
            for (interface, error) in &found.refused {
                tracing::warn!(interface, %error, "cannot attach handlers to a new interface; tried again every second");
            }
        }
    }

    /// The numbers for `/metrics`.
    pub(crate) fn report(&self) -> EcallsReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (seen, waiting) = self.hub.look(|registry| {
            let all: Vec<_> = registry.subscriptions.values().cloned().collect();
            (all, registry.services.len(), registry.leases.len())
        });
        let (all, services, leases) = seen;
        EcallsReport {
            subscriptions: all.iter().map(|subscription| subscription.info()).collect(),
            services: services as u64,
            leases: leases as u64,
            threads: self.pool.threads() as u64,
            waiting: waiting as u64,
            raised: of(&self.totals.raised),
            delivered: of(&self.totals.delivered),
            late: of(&self.totals.late),
            dropped_queue: of(&self.totals.dropped_queue),
            nonsense: of(&self.totals.nonsense),
            taken_out: of(&self.totals.taken_out),
            missed: self
                .kernel
                .get()
                .and_then(|side| side.as_ref().ok())
                .map_or(0, |side| side.kernel.missed_by_removals()),
            misses_dropped: self.misses.dropped(),
            cpu: of(&self.totals.cpu),
            favours_dropped: of(&self.totals.favours_dropped),
        }
    }

    /// Ends the dispatcher and the handler threads, and removes everything that was installed.
    pub(crate) fn stop(&self) {
        self.hub.stop();
        self.pool.stop();
        drop(self.hub.clear());
        self.files.clear();
    }
}
