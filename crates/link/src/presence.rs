//! The hosts that are present, with their incarnations.

use std::collections::HashMap;

use qfabric_channel::Incarnation;
use qfabric_types::channel::Name;

use crate::MAX_HOSTS;

/// The effect of a report: an old incarnation may end, and a new one begin.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub vanished: Option<Incarnation>,
    pub appeared: Option<Incarnation>,
}

/// The hosts that are present. Reports may be repeated and come in any order; for each host the changes alternate
/// between appearing and vanishing.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    present: HashMap<Name, Incarnation>,
}

impl Presence {
    /// Number of hosts.
    pub(crate) fn count(&self) -> usize {
        self.present.len()
    }

    /// An incarnation of a host is reported to have begun.
    pub(crate) fn begins(&mut self, host: &Name, incarnation: Incarnation) -> Change {
        let full = self.present.len() >= MAX_HOSTS;
        match self.present.get_mut(host) {
            Some(old) if *old == incarnation => Change::default(),
            Some(old) => Change { vanished: Some(std::mem::replace(old, incarnation)), appeared: Some(incarnation) },
            None if full => Change::default(),
            None => {
                self.present.insert(host.clone(), incarnation);
                Change { vanished: None, appeared: Some(incarnation) }
            }
        }
    }

    /// An incarnation of a host is reported to have ended.
    pub(crate) fn ends(&mut self, host: &Name, incarnation: Incarnation) -> Change {
        if self.present.get(host) != Some(&incarnation) {
            return Change::default();
        }
        self.present.remove(host);
        Change { vanished: Some(incarnation), appeared: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_restart_is_an_end_and_a_beginning_in_whatever_order_it_is_reported() {
        let mut presence = Presence::default();
        let host: Name = "a".parse().unwrap();
        assert_eq!(presence.begins(&host, Incarnation(1)), Change { vanished: None, appeared: Some(Incarnation(1)) });
        assert_eq!(presence.begins(&host, Incarnation(1)), Change::default());
        assert_eq!(
            presence.begins(&host, Incarnation(2)),
            Change { vanished: Some(Incarnation(1)), appeared: Some(Incarnation(2)) }
        );
        assert_eq!(presence.ends(&host, Incarnation(1)), Change::default());
        assert_eq!(presence.ends(&host, Incarnation(2)), Change { vanished: Some(Incarnation(2)), appeared: None });
        assert_eq!(presence.ends(&host, Incarnation(2)), Change::default());
    }
}
