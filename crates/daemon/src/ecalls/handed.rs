//! What processes were given: descriptors of memory and of programs. A process can keep them, and pass them on, after
//! its subscription or connection has ended. So they count for the user until no process holds them.
//!
//! The kernel is asked only when a limit would refuse a request, not at regular times.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use qfabric_linux::clock;
use qfabric_linux::ecalls::KernelObject;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{LeaseId, SubscriptionId};
use qfabric_types::{Instant, LogLimit, Nanos, Owner};

use super::Ecalls;
use super::policy::EcallsConfig;
use super::problems;
use super::registry::Registry;
use crate::auth::places_for;

/// The dispatcher asks the kernel at most this often, because a client can make it ask without a pause, and for at most
/// a tenth of its time, because a host can have many maps and programs.
const ASK_EVERY: Nanos = Nanos::from_millis(10);
/// The pause after an answer, as a multiple of the time that it took.
const PAUSE_FOR_ASKING: u64 = 9;

/// What the descriptors belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HandedFor {
    /// The `memory_up` and the program of a subscription.
    Subscription(SubscriptionId),
    /// The `memory_down` of a connection.
    Connection(LeaseId),
    /// The pages of ready sockets of a connection.
    Sockets(LeaseId),
}

/// Descriptors that were given to a process of a user.
#[derive(Debug)]
pub(crate) struct Handed {
    pub uid: u32,
    /// The bytes that count against the limits of shared memory.
    pub bytes: u64,
    pub objects: Vec<KernelObject>,
    /// The place in [`Registry::modules`] that is taken until then.
    pub _module_place: Option<Arc<()>>,
}

/// The descriptors given to processes.
#[derive(Debug, Default)]
pub(crate) struct HandedOut {
    all: BTreeMap<HandedFor, Handed>,
    /// From then on the dispatcher may ask the kernel.
    ask_from: Instant,
    /// Limits the warnings that the kernel does not answer.
    warnings: LogLimit,
}

impl HandedOut {
    /// Adds descriptors, before they are sent.
    pub(super) fn add(&mut self, given_for: HandedFor, handed: Handed) {
        if !handed.objects.is_empty() {
            self.all.entry(given_for).or_insert(handed);
        }
    }

    /// Whether a program that was given is one of `held`. Its process can have added any maps to it, and closed them.
    fn has_program_of(&self, held: &BTreeSet<KernelObject>) -> bool {
        let is_held = |object: &KernelObject| matches!(object, KernelObject::Program(_)) && held.contains(object);
        self.all.values().flat_map(|handed| &handed.objects).any(is_held)
    }

    /// The dispatcher has asked the kernel from `began` until `ended`.
    fn asked(&mut self, began: Instant, ended: Instant) {
        let pause = Nanos::new(ended.since(began).get().saturating_mul(PAUSE_FOR_ASKING));
        self.ask_from = ended + pause.max(ASK_EVERY);
    }
}

impl Registry {
    /// Descriptors whose subscription or connection has ended, and that a process may still hold.
    fn kept(&self) -> impl Iterator<Item = (HandedFor, &Handed)> {
        let has_ended = move |given_for: HandedFor| match given_for {
            HandedFor::Subscription(id) => !self.subscriptions.contains_key(&id),
            HandedFor::Connection(id) | HandedFor::Sockets(id) => !self.leases.contains_key(&id),
        };
        self.handed.all.iter().map(|(given_for, handed)| (*given_for, handed)).filter(move |(of, _)| has_ended(*of))
    }

    /// The number of ended subscriptions of which processes may still hold something, of one user or of all, and the
    /// bytes of their shared memory.
    pub(super) fn kept_subscriptions(&self, uid: Option<u32>) -> (usize, u64) {
        let counts = |(of, handed): &(HandedFor, &Handed)| {
            matches!(of, HandedFor::Subscription(_)) && uid.is_none_or(|uid| handed.uid == uid)
        };
        self.kept().filter(counts).fold((0, 0), |(number, bytes), (_, handed)| (number + 1, bytes + handed.bytes))
    }

    /// Checks the number of ended connections of which processes may still hold the memory: as many as connections.
    pub(super) fn check_kept_connections(&self, owner: Owner, config: &EcallsConfig) -> Result<(), Problem> {
        let of_connections = || self.kept().filter(|(of, _)| matches!(of, HandedFor::Connection(_)));
        let (all, own) = (of_connections().count(), of_connections().filter(|(_, h)| h.uid == owner.uid).count());
        let most = places_for(owner.uid, config.max_leases);
        if all >= most {
            let what = format!("processes hold the memory of {all} ended connections");
            return Err(problems::kept(&what, most, "ecalls.max_leases"));
        }
        if owner.uid != 0 && own >= config.max_leases_per_user {
            let what = format!("processes hold the memory of {own} ended connections of user {}", owner.uid);
            return Err(problems::kept(&what, config.max_leases_per_user, "ecalls.max_leases_per_user"));
        }
        Ok(())
    }
}

impl Ecalls {
    /// Checks a limit of the registry. If it refuses, checks again without what no process holds any more.
    pub(super) fn check_room(&self, check: impl Fn(&Registry) -> Result<(), Problem>) -> Result<(), Problem> {
        let first = check(&self.registry());
        if first.is_ok() || !self.forget_freed() {
            return first;
        }
        check(&self.registry())
    }

    /// As [`Ecalls::check_room`], for the dispatcher, whose `check` takes the lock of the registry.
    pub(super) fn check_room_now<T>(&self, check: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
        let first = check();
        let (began, ask_from) = (clock::now(), self.registry().handed.ask_from);
        if first.is_ok() || began < ask_from {
            return first;
        }
        let any_kept = self.forget_freed();
        self.registry().handed.asked(began, clock::now());
        if any_kept { check() } else { first }
    }

    /// Forgets what no process holds any more. Returns false if nothing can be forgotten.
    fn forget_freed(&self) -> bool {
        // Before the kernel is asked: the daemon itself still holds what ends in the meantime.
        let kept: BTreeSet<HandedFor> = self.registry().kept().map(|(of, _)| of).collect();
        if kept.is_empty() {
            return false;
        }
        let (held, freed) = (self.held(), self.given_files.freed());
        self.registry().handed.all.retain(|of, handed| {
            handed.objects.retain(|object| match object {
                KernelObject::File(_) => !freed.contains(object),
                _ => !kept.contains(of) || held.as_ref().is_none_or(|held| held.contains(object)),
            });
            !handed.objects.is_empty()
        });
        true
    }

    /// The maps and programs that processes hold; `None`: the kernel does not say, so all of them count.
    fn held(&self) -> Option<BTreeSet<KernelObject>> {
        let kernel = &self.kernel.get()?.as_ref().ok()?.kernel;
        let asked = kernel.held().and_then(|mut held| {
            // After the list: a map without a user in it can only be in a program that was given before.
            let any_program = self.registry().handed.has_program_of(&held);
            if any_program {
                held.append(&mut kernel.maps()?);
            }
            Ok(held)
        });
        let failed = |error: &io::Error| {
            let is_due = self.registry().handed.warnings.is_due(std::time::Instant::now());
            if is_due {
                tracing::warn!(%error, "cannot find out what processes still hold, so all that they were given counts");
            }
        };
        asked.inspect_err(failed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Owner = Owner { uid: 5, gid: 5 };
    const OTHER: Owner = Owner { uid: 6, gid: 6 };

    /// A registry without subscriptions and connections, in which user 5 was given 40 bytes of shared memory for each.
    fn given(for_what: impl IntoIterator<Item = HandedFor>) -> Registry {
        let mut registry = Registry::default();
        for for_what in for_what {
            let objects = vec![KernelObject::Map(1)];
            registry.handed.add(for_what, Handed { uid: USER.uid, bytes: 40, objects, _module_place: None });
        }
        registry
    }

    #[test]
    fn what_processes_hold_of_ended_subscriptions_counts_against_the_limits_of_subscriptions() {
        let registry = given([1, 2].map(HandedFor::Subscription));
        let number = |most: usize, owner| {
            let config = EcallsConfig { max_subscriptions_per_user: most, ..EcallsConfig::default() };
            registry.check_room_for_subscription(owner, &config, Instant::ZERO)
        };
        assert!(number(3, USER).is_ok() && number(2, OTHER).is_ok());
        let refused = number(2, USER).unwrap_err();
        let says = "user 5 has 2 subscriptions, 2 of them ended but still held by processes, 2 is the limit";
        assert_eq!((refused.code.as_str(), refused.message.as_str()), ("ecalls_limit", says));
        assert!(refused.next_step.contains("close the descriptors and mappings"), "{refused:?}");
        let memory = |bytes, owner| {
            let config = EcallsConfig { max_memory_per_user: 100, ..EcallsConfig::default() };
            registry.check_room_for_memory(owner, bytes, &config)
        };
        assert!(memory(20, USER).is_ok() && memory(21, OTHER).is_ok());
        assert!(memory(21, USER).unwrap_err().message.contains("101 bytes"));
    }

    #[test]
    fn maps_may_be_in_a_program_of_any_subscription_that_is_held() {
        let mut registry = given([HandedFor::Subscription(1)]);
        let held = BTreeSet::from([KernelObject::Map(1), KernelObject::Program(7)]);
        assert!(!registry.handed.has_program_of(&held), "nobody was given the program");
        let objects = vec![KernelObject::Program(7)];
        let handed = Handed { uid: OTHER.uid, bytes: 0, objects, _module_place: None };
        registry.handed.add(HandedFor::Subscription(2), handed);
        assert!(registry.handed.has_program_of(&held));
        assert!(!registry.handed.has_program_of(&BTreeSet::from([KernelObject::Map(7)])), "the program is gone");
    }

    #[test]
    fn the_dispatcher_asks_at_most_every_10_ms_and_for_a_tenth_of_its_time() {
        let at = |ms: u64| Instant::new(ms * 1_000_000);
        let mut handed = HandedOut::default();
        handed.asked(at(100), at(101));
        assert_eq!(handed.ask_from, at(111));
        handed.asked(at(111), at(116));
        assert_eq!(handed.ask_from, at(161));
    }

    #[test]
    fn the_memory_of_ended_connections_is_limited_for_each_user_and_for_all() {
        let registry = given([1, 2].map(HandedFor::Connection));
        let check = |most, of_user, owner| {
            let config = EcallsConfig { max_leases: most, max_leases_per_user: of_user, ..EcallsConfig::default() };
            registry.check_kept_connections(owner, &config)
        };
        assert!(check(16, 3, USER).is_ok() && check(16, 2, OTHER).is_ok());
        assert!(check(16, 2, USER).unwrap_err().message.contains("of user 5, 2 is the limit"));
        assert!(check(2, 64, OTHER).unwrap_err().next_step.contains("ecalls.max_leases"));
        assert_eq!(registry.kept_subscriptions(None), (0, 0));
    }
}
