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
use qfabric_types::{Instant, Nanos, Owner};

use super::Ecalls;
use super::policy::EcallsConfig;
use super::problems;
use super::registry::Registry;
use crate::auth::places_for;

/// The dispatcher asks the kernel at most this often, because a client can make it ask without a pause.
const ASK_EVERY: Nanos = Nanos::from_millis(10);

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
    /// When the dispatcher last asked the kernel.
    asked: Option<Instant>,
}

impl HandedOut {
    /// Adds descriptors, before they are sent.
    pub(super) fn add(&mut self, given_for: HandedFor, handed: Handed) {
        if !handed.objects.is_empty() {
            self.all.entry(given_for).or_insert(handed);
        }
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
        check().or_else(|refused| if self.may_ask() && self.forget_freed() { check() } else { Err(refused) })
    }

    fn may_ask(&self) -> bool {
        let (now, mut registry) = (clock::now(), self.registry());
        let may_ask = registry.handed.asked.is_none_or(|asked| now.since(asked) >= ASK_EVERY);
        if may_ask {
            registry.handed.asked = Some(now);
        }
        may_ask
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
        let side = self.kernel.get()?.as_ref().ok()?;
        let held = side.kernel.held();
        let failed = |error: &io::Error| tracing::warn!(%error, "cannot find out what processes still hold");
        held.inspect_err(failed).ok()
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
