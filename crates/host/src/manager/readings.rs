//! The last readings received, for controllers that look at more than the change for which they are called.

use std::collections::BTreeMap;

use qfabric_types::AppId;
use qfabric_types::channel::Name;
use qfabric_types::monitor::{AttributeId, Reading};

/// Readings by host, attribute and application; bounded.
#[derive(Debug)]
pub struct Readings {
    known: BTreeMap<(Name, AttributeId, AppId), Reading>,
    most: usize,
}

impl Readings {
    /// No readings yet, and never more than `most`.
    pub fn new(most: usize) -> Readings {
        Readings { known: BTreeMap::new(), most }
    }

    /// Stores a host's reading in place of the one before. `false`: there is no room for another key.
    pub fn keep(&mut self, host: &Name, reading: Reading) -> bool {
        let key = (host.clone(), reading.attribute, reading.application);
        let has_room = self.known.len() < self.most || self.known.contains_key(&key);
        if has_room {
            self.known.insert(key, reading);
        }
        has_room
    }

    /// Removes the readings of a host that is gone.
    pub fn forget(&mut self, host: &Name) {
        self.known.retain(|(of, _, _), _| of != host);
    }

    pub(super) fn get(&self, host: &Name, attribute: AttributeId, application: AppId) -> Option<&Reading> {
        self.known.get(&(host.clone(), attribute, application))
    }

    pub(super) fn all(&self, attribute: AttributeId) -> impl Iterator<Item = (&Name, &Reading)> {
        self.known.iter().filter(move |(key, _)| key.1 == attribute).map(|(key, reading)| (&key.0, reading))
    }
}
