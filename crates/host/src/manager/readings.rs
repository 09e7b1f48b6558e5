//! The last readings received, for controllers that look at more than the change for which they are called.

use std::collections::BTreeMap;

use qfabric_types::channel::Name;
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, Nanos};

/// Largest number of readings that are kept of one host, so that no host takes the room of the others.
const MOST_OF_A_HOST: usize = 256;

/// Without room, a reading that is older than this gives way to a new one: its application may have ended.
const OLD: Nanos = Nanos::from_millis(10_000);

/// Readings by host, attribute and application; bounded.
#[derive(Debug)]
pub struct Readings {
    known: BTreeMap<Name, BTreeMap<(AttributeId, AppId), Reading>>,
    /// Number of readings of all hosts.
    count: usize,
    most: usize,
}

impl Readings {
    /// Largest number of readings that are kept of one host.
    pub const OF_A_HOST: usize = MOST_OF_A_HOST;

    /// Without room, a reading that is older than this gives way to a new one of its host.
    pub const OLD: Nanos = OLD;

    /// No readings yet, and never more than `most`, of which one host has at most 256.
    pub fn new(most: usize) -> Readings {
        Readings { known: BTreeMap::new(), count: 0, most }
    }

    /// Stores a host's reading in place of the one before, or without room in place of an old one. `false`: there is no
    /// room for another attribute or application of this host.
    pub fn keep(&mut self, host: &Name, reading: Reading) -> bool {
        let key = (reading.attribute, reading.application);
        if let Some(before) = self.known.get_mut(host).and_then(|of| of.get_mut(&key)) {
            *before = reading;
            return true;
        }
        let of_host = self.known.get(host).map_or(0, BTreeMap::len);
        let has_room = self.count < self.most && of_host < MOST_OF_A_HOST;
        if !has_room && !self.drop_old(host, reading.at) {
            return false;
        }
        self.known.entry(host.clone()).or_default().insert(key, reading);
        self.count += 1;
        true
    }

    /// Removes the oldest reading of a host, if that is old. Returns whether it did.
    fn drop_old(&mut self, host: &Name, now: Instant) -> bool {
        let Some(of) = self.known.get_mut(host) else { return false };
        let oldest = of.iter().min_by_key(|(_, reading)| reading.at).map(|(key, reading)| (*key, reading.at));
        let Some((key, _)) = oldest.filter(|(_, at)| now.since(*at) > OLD) else { return false };
        of.remove(&key);
        self.count -= 1;
        true
    }

    /// Removes the readings of a host that is gone.
    pub fn forget(&mut self, host: &Name) {
        self.count -= self.known.remove(host).map_or(0, |of| of.len());
    }

    pub(super) fn get(&self, host: &Name, attribute: AttributeId, application: AppId) -> Option<&Reading> {
        self.known.get(host)?.get(&(attribute, application))
    }

    pub(super) fn all(&self, attribute: AttributeId) -> impl Iterator<Item = (&Name, &Reading)> {
        let of = self.known.iter().flat_map(|(host, of)| of.iter().map(move |(key, reading)| (host, key, reading)));
        of.filter(move |(_, key, _)| key.0 == attribute).map(|(host, _, reading)| (host, reading))
    }

    /// The last readings of an attribute, of all applications of a host.
    pub(super) fn of_host(&self, host: &Name, attribute: AttributeId) -> impl Iterator<Item = &Reading> {
        let range = (attribute, AppId(0))..=(attribute, AppId(u64::MAX));
        self.known.get(host).into_iter().flat_map(move |of| of.range(range.clone())).map(|(_, reading)| reading)
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::monitor::{Cause, Unit};

    use super::*;

    fn reading(application: u64) -> Reading {
        let (attribute, application, cause) = (AttributeId::of("app.cpu"), AppId(application), Cause::Poll);
        let (at, over, unit) = (Instant::ZERO, Nanos::ZERO, Unit::Count);
        Reading { attribute, application, value: 1, at, over, cause, unit }
    }

    #[test]
    fn a_host_that_reports_very_many_attributes_leaves_room_for_others() {
        let (loud, quiet): (Name, Name) = ("loud".parse().unwrap(), "quiet".parse().unwrap());
        let mut readings = Readings::new(300);
        let kept = (0..10_000).filter(|application| readings.keep(&loud, reading(*application))).count();
        assert_eq!(kept, MOST_OF_A_HOST);
        assert!(readings.keep(&loud, reading(0)), "a known key takes no room");
        let kept = (0..100).filter(|application| readings.keep(&quiet, reading(*application))).count();
        assert_eq!((kept, readings.all(AttributeId::of("app.cpu")).count()), (44, 300), "the limit of all hosts");
        readings.forget(&loud);
        assert!(readings.keep(&quiet, reading(99)), "the room of a host that is gone is free");
    }

    #[test]
    fn readings_of_applications_that_have_ended_give_way() {
        let (host, mut readings): (Name, _) = ("a".parse().unwrap(), Readings::new(300));
        (0..MOST_OF_A_HOST as u64).for_each(|application| assert!(readings.keep(&host, reading(application))));
        let mut keeps =
            |application, at| readings.keep(&host, Reading { at: Instant::ZERO + at, ..reading(application) });
        assert!(!keeps(1_000, OLD), "all are new");
        assert!(keeps(0, OLD + OLD) && keeps(1_000, OLD + OLD));
        assert!(readings.get(&host, AttributeId::of("app.cpu"), AppId(0)).is_some(), "it still reports");
        assert_eq!(readings.all(AttributeId::of("app.cpu")).count(), MOST_OF_A_HOST);
    }
}
