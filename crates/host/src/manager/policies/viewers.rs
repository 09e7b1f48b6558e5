//! The viewers at a sink: applications that are registered in a group of the channel's name. A host has one stream
//! of a channel, however many of its applications watch it; the stream stays as long as one of them does.

use std::collections::BTreeMap;

use qfabric_channel::Registration;
use qfabric_control::adapt::group::Worth;
use qfabric_control::adapt::multipoint::Role;
use qfabric_control::utility::MOST_UTILITY;

/// Registrations by sink; an identical registration is stored as often as it was made.
#[derive(Debug)]
pub(super) struct Viewers<K>(BTreeMap<K, Vec<Registration>>);

impl<K> Default for Viewers<K> {
    fn default() -> Self {
        Viewers(BTreeMap::new())
    }
}

impl<K: Ord> Viewers<K> {
    /// Adds a viewer. Returns false if it has no role.
    pub(super) fn join(&mut self, sink: K, viewer: &Registration) -> bool {
        let has_role = role_of(viewer).is_some();
        if has_role {
            self.0.entry(sink).or_default().push(viewer.clone());
        }
        has_role
    }

    /// Removes a viewer. Returns false if it was not one.
    pub(super) fn leave(&mut self, sink: &K, viewer: &Registration) -> bool {
        let Some(viewers) = self.0.get_mut(sink) else { return false };
        let Some(at) = viewers.iter().position(|one| one == viewer) else { return false };
        viewers.remove(at);
        if viewers.is_empty() {
            self.0.remove(sink);
        }
        true
    }

    /// Removes all viewers of sinks for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|sink, _| keep(sink));
    }

    /// The common role of all viewers at a sink; `None` if there are none.
    pub(super) fn role(&self, sink: &K) -> Option<Role> {
        self.0.get(sink)?.iter().filter_map(role_of).reduce(Role::with)
    }

    /// All sinks with viewers.
    pub(super) fn roles(&self) -> impl Iterator<Item = (&K, Role)> {
        self.0.keys().filter_map(|sink| Some((sink, self.role(sink)?)))
    }
}

/// The range of the metric `frame_rate` is the role; `importance` decides which sinks keep their quality longest, and
/// among equals the range of `utility`: what the least and the greatest rate are worth.
fn role_of(viewer: &Registration) -> Option<Role> {
    let range = |name: &str| viewer.qos.iter().find(|range| range.metric.as_str() == name);
    let rate = range("frame_rate")?;
    let importance = range("importance").map_or(0, |range| range.min.clamp(0, 1_000) as u32);
    let amount = |value: i64| value.clamp(0, MOST_UTILITY as i64) as f64;
    let worth = range("utility").map(|range| Worth { floor: amount(range.min), ceiling: amount(range.max) });
    Some(Role { worth, ..Role::range(rate.min.max(0) as f64, rate.max.max(0) as f64, importance) })
}
