//! The amounts of each resource that this host's applications have: admission, and adjustment when an application
//! comes or leaves.

use std::collections::BTreeMap;

use qfabric_control::adapt::group::{Division, Group, Want};
use qfabric_types::AppId;
use qfabric_types::monitor::AttributeId;

/// The range of a resource that an application asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceRequest {
    pub application: AppId,
    pub attribute: AttributeId,
    /// The smallest amount that is of use.
    pub least: i64,
    /// The largest amount that is of use.
    pub most: i64,
    /// Applications with a larger importance keep more when the resource is scarce.
    pub importance: u32,
}

/// The minima would exceed the resource. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requested {asked} of the resource {attribute}, {free} is free; request less, or ask other hosts")]
pub struct Overcommitted {
    pub attribute: AttributeId,
    pub asked: i64,
    /// The amount that is not promised.
    pub free: i64,
}

#[derive(Debug)]
struct Resource {
    capacity: i64,
    /// Amount that is promised to, or held for, other hosts.
    lent: i64,
    group: Group,
    granted: BTreeMap<AppId, i64>,
}

/// All resources of this host that the manager divides.
#[derive(Debug, Default)]
pub(super) struct Shares {
    resources: BTreeMap<AttributeId, Resource>,
}

/// Application, resource, new amount.
pub(super) type Granted = (AppId, AttributeId, i64);

impl Shares {
    /// Sets the amount of a resource.
    pub(super) fn capacity(&mut self, attribute: AttributeId, capacity: i64) -> Vec<Granted> {
        let fresh =
            || Resource { capacity: 0, lent: 0, group: Group::new(Division::Importance), granted: BTreeMap::new() };
        self.resources.entry(attribute).or_insert_with(fresh).capacity = capacity.max(0);
        self.divide(attribute)
    }

    /// The amount that is not promised: the minima of all applications are kept.
    pub(super) fn free(&self, attribute: AttributeId) -> i64 {
        self.resources.get(&attribute).map_or(0, Resource::free)
    }

    /// Admits an application, or changes its want.
    pub(super) fn admit(&mut self, request: &ResourceRequest) -> Result<Vec<Granted>, Overcommitted> {
        let ResourceRequest { application, attribute, least, most, importance } = *request;
        let refused = |free| Overcommitted { attribute, asked: least, free };
        let resource = self.resources.get_mut(&attribute).ok_or(refused(0))?;
        let free = resource.free() + resource.floor_of(application);
        if least > free {
            return Err(refused(free));
        }
        resource.group.want(application.0, Want::range(least.max(0) as f64, most.max(least) as f64, importance));
        Ok(self.divide(attribute))
    }

    /// Removes an application.
    pub(super) fn leave(&mut self, application: AppId) -> Vec<Granted> {
        let mut changed = Vec::new();
        for attribute in self.resources.keys().copied().collect::<Vec<_>>() {
            if let Some(resource) = self.resources.get_mut(&attribute) {
                resource.group.leave(application.0);
                resource.granted.remove(&application);
            }
            changed.extend(self.divide(attribute));
        }
        changed
    }

    /// Keeps an amount for another host. `None`: there is not enough.
    pub(super) fn lend(&mut self, attribute: AttributeId, amount: i64) -> Option<Vec<Granted>> {
        let resource = self.resources.get_mut(&attribute).filter(|resource| amount <= resource.free())?;
        resource.lent += amount;
        Some(self.divide(attribute))
    }

    /// The amount kept for other hosts.
    pub(super) fn lent(&self, attribute: AttributeId) -> i64 {
        self.resources.get(&attribute).map_or(0, |resource| resource.lent)
    }

    /// Ends a loan of `amount`.
    pub(super) fn take_back(&mut self, attribute: AttributeId, amount: i64) -> Vec<Granted> {
        if let Some(resource) = self.resources.get_mut(&attribute) {
            resource.lent -= amount;
            assert!(resource.lent >= 0, "more taken back than was lent");
        }
        self.divide(attribute)
    }

    /// Divides a resource. Returns the allocations that change.
    fn divide(&mut self, attribute: AttributeId) -> Vec<Granted> {
        let Some(resource) = self.resources.get_mut(&attribute) else { return Vec::new() };
        let grants = resource.group.divide((resource.capacity - resource.lent).max(0) as f64);
        let mut changed = Vec::new();
        for (application, amount) in grants {
            // Handed out, so rounded down.
            let (application, amount) = (AppId(application), amount as i64);
            if resource.granted.insert(application, amount) != Some(amount) {
                changed.push((application, attribute, amount));
            }
        }
        changed
    }
}

impl Resource {
    fn free(&self) -> i64 {
        let floors: f64 = self.group.children().map(|(_, want)| want.floor).sum();
        (self.capacity - self.lent - floors as i64).max(0)
    }

    fn floor_of(&self, application: AppId) -> i64 {
        self.group.children().find(|(child, _)| *child == application.0).map_or(0, |(_, want)| want.floor as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CPU: AttributeId = AttributeId::of("cpu.share");

    fn request(application: u64, least: i64, most: i64) -> ResourceRequest {
        ResourceRequest { application: AppId(application), attribute: CPU, least, most, importance: 0 }
    }

    #[test]
    fn a_new_application_takes_from_those_above_their_minimum() {
        let mut shares = Shares::default();
        shares.capacity(CPU, 100);
        assert_eq!(shares.admit(&request(1, 20, 90)).unwrap(), [(AppId(1), CPU, 90)]);
        assert_eq!(shares.admit(&request(2, 60, 60)).unwrap(), [(AppId(1), CPU, 40), (AppId(2), CPU, 60)]);
        assert_eq!(shares.leave(AppId(2)), [(AppId(1), CPU, 90)]);
    }

    #[test]
    fn minima_that_do_not_fit_are_refused_and_change_nothing() {
        let mut shares = Shares::default();
        shares.capacity(CPU, 100);
        shares.admit(&request(1, 70, 70)).unwrap();
        assert_eq!(shares.admit(&request(2, 40, 50)), Err(Overcommitted { attribute: CPU, asked: 40, free: 30 }));
        assert_eq!(shares.free(CPU), 30);
        assert!(shares.admit(&request(1, 100, 100)).is_ok(), "its own part counts as free for itself");
    }

    #[test]
    fn a_lent_amount_is_not_granted_twice() {
        let mut shares = Shares::default();
        shares.capacity(CPU, 100);
        assert_eq!(shares.lend(CPU, 60), Some(vec![]));
        assert_eq!((shares.lend(CPU, 50), shares.free(CPU)), (None, 40));
        shares.take_back(CPU, 60);
        assert_eq!(shares.free(CPU), 100);
    }

    proptest! {
        #[test]
        fn minima_and_loans_never_exceed_the_resource(
            steps in proptest::collection::vec((0u8..4, 0u64..6, 0i64..80, 0i64..80), 1..60)
        ) {
            let mut shares = Shares::default();
            shares.capacity(CPU, 200);
            let mut lent = Vec::new();
            for (step, application, least, more) in steps {
                match step {
                    0 => drop(shares.admit(&request(application, least, least + more))),
                    1 => drop(shares.leave(AppId(application))),
                    2 if shares.lend(CPU, least).is_some() => lent.push(least),
                    3 => drop(lent.pop().map(|amount| shares.take_back(CPU, amount))),
                    _ => {}
                }
                let resource = &shares.resources[&CPU];
                let granted: i64 = resource.granted.values().sum();
                prop_assert!(granted + lent.iter().sum::<i64>() <= 200);
                for (application, want) in resource.group.children() {
                    prop_assert!(resource.granted[&AppId(application)] >= want.floor as i64);
                }
            }
        }
    }
}
