//! Ownership of filters. A filter belongs to the connection that installed it, on all hosts: only the connection's
//! user and root may change it, hosts that join later receive it, and all hosts remove it when the connection ends
//! for any reason.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_channel::{Direction, FilterCommand, FilterId, FilterSpec, Key, Limits, MemberId, Notice};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{FilterScope, LeaseId};
use qfabric_types::channel::{ChannelId, Name};

use super::registry::Registry;
use super::{Fabric, lock, problems};
use crate::auth::Peer;

/// Filters that belong to a connection. This lock is taken last, and never held while another one is taken.
#[derive(Debug, Default)]
pub(super) struct Owned(Lock<BTreeMap<FilterId, Belonging>, { rank::OWNED }>);

#[derive(Debug)]
struct Belonging {
    lease: LeaseId,
    uid: u32,
    /// With the current values of its parameters.
    filter: FilterSpec,
    /// Instructions of one call, at worst; 0 for administrators, who have no limit for all their filters together.
    instructions: u64,
    to: FilterScope,
    /// Hosts that were asked to install the filter; this host may be one.
    hosts: BTreeSet<Name>,
}

impl Owned {
    /// Records that the hosts installed or replaced the filter.
    pub(super) fn installed(
        &self,
        (lease, uid): (LeaseId, u32),
        (filter, instructions): (FilterSpec, u64),
        to: FilterScope,
        hosts: impl Iterator<Item = Name>,
    ) {
        let (id, hosts) = (filter.id.clone(), hosts.collect());
        let mut all = lock(&self.0);
        let before = all.insert(id.clone(), Belonging { lease, uid, filter, instructions, to, hosts });
        if let (Some(before), Some(now)) = (before, all.get_mut(&id)) {
            now.hosts.extend(before.hosts);
        }
    }

    /// Records the new value for hosts that join later.
    pub(super) fn parametrized(&self, id: &FilterId, key: &Key, value: i64) {
        if let Some(belonging) = lock(&self.0).get_mut(id) {
            let parameters = &mut belonging.filter.parameters;
            parameters.retain(|(name, _)| name != key);
            parameters.push((key.clone(), value));
        }
    }

    /// Records that the hosts removed the filter.
    pub(super) fn removed<'a>(&self, id: &FilterId, hosts: impl Iterator<Item = &'a Name>) {
        let mut all = lock(&self.0);
        let Some(belonging) = all.get_mut(id) else { return };
        hosts.for_each(|host| _ = belonging.hosts.remove(host));
        if belonging.hosts.is_empty() {
            all.remove(id);
        }
    }

    /// Number of other filters of the user on the same channel and in the same direction, and their instructions.
    fn beside(&self, id: &FilterId, uid: u32) -> (usize, u64) {
        let all = lock(&self.0);
        let others = all.iter().filter(|(other, belonging)| belonging.uid == uid && *other != id);
        let beside = others.filter(|(other, _)| other.channel == id.channel && other.direction == id.direction);
        beside.fold((0, 0), |(count, sum), (_, belonging)| (count + 1, sum + belonging.instructions))
    }

    /// The hosts that a connection of the user asked to install the filter.
    pub(super) fn hosts(&self, id: &FilterId, uid: u32) -> BTreeSet<Name> {
        let all = lock(&self.0);
        all.get(id).filter(|belonging| belonging.uid == uid).map_or_else(BTreeSet::new, |own| own.hosts.clone())
    }

    fn lease(&self, id: &FilterId) -> Option<LeaseId> {
        lock(&self.0).get(id).map(|belonging| belonging.lease)
    }

    /// Removes the filters of a connection that has ended; returns them with their hosts.
    fn take(&self, lease: LeaseId) -> Vec<(FilterId, BTreeSet<Name>)> {
        let (mut all, mut gone) = (lock(&self.0), Vec::new());
        all.retain(|id, belonging| {
            let ends = belonging.lease == lease;
            if ends {
                gone.push((id.clone(), std::mem::take(&mut belonging.hosts)));
            }
            !ends
        });
        gone
    }

    /// A host has lost the filters that this host sent.
    fn forget(&self, host: &Name) {
        lock(&self.0).values_mut().for_each(|belonging| _ = belonging.hosts.remove(host));
    }

    /// Filters for a host that has not been asked to install them.
    fn missing(&self, channel: &ChannelId, direction: Direction, host: &Name) -> Vec<(FilterSpec, FilterScope)> {
        let all = lock(&self.0);
        let here = |id: &FilterId| id.channel == *channel && id.direction == direction;
        let missing = all.iter().filter(|(id, belonging)| here(id) && !belonging.hosts.contains(host));
        missing.map(|(_, belonging)| (belonging.filter.clone(), belonging.to.clone())).collect()
    }

    fn asked(&self, id: &FilterId, host: &Name) {
        if let Some(belonging) = lock(&self.0).get_mut(id) {
            belonging.hosts.insert(host.clone());
        }
    }
}

impl Fabric {
    /// Whether the user may change the filter, if it exists.
    pub(super) fn check_owner(&self, peer: Peer, id: &FilterId) -> Result<(), Problem> {
        let owner = self.owned.lease(id).map(|lease| self.registry().keeper(lease, &id.channel));
        match owner.flatten() {
            _ if peer.owner.uid == 0 => Ok(()),
            Some(owner) if peer.may_touch(owner) => Ok(()),
            Some(owner) => Err(problems::not_your_filter(&id.name, &format!("user {}", owner.uid))),
            None => self.check_stranger(id),
        }
    }

    /// Refuses filters above a user's limits: their number, so that other users have room, and the instructions of all
    /// of them for one event. Returns the instructions of this filter.
    pub(super) fn check_room(&self, peer: Peer, filter: &FilterSpec) -> Result<u64, Problem> {
        if peer.administers() {
            return Ok(0);
        }
        let (most, limit) = (Limits::FILTERS / 4, self.config().max_filter_instructions);
        let (count, has) = self.owned.beside(&filter.id, peer.owner.uid);
        if count >= most {
            return Err(problems::too_many_filters(most));
        }
        let more = self.network.look(|node| node.filter_instructions(filter)).map_err(|error| error.problem())?;
        match has + more <= u64::from(limit) {
            true => Ok(more),
            false => Err(problems::filters_too_long(&filter.id.channel, more, has, limit)),
        }
    }

    /// Refuses a filter that belongs to no connection here: another host or root installed it.
    fn check_stranger(&self, id: &FilterId) -> Result<(), Problem> {
        let author = self.network.look(|node| {
            let there = node.filters(&id.channel).iter().any(|(filter, _)| filter == id);
            there.then(|| node.filter_author(id).map_or("root".to_owned(), |host| format!("the host {host}")))
        });
        author.map_or(Ok(()), |author| Err(problems::not_your_filter(&id.name, &author)))
    }

    /// Removes the filters of a connection that has ended.
    pub(super) fn end_filters(&self, lease: LeaseId) {
        for (id, mut hosts) in self.owned.take(lease) {
            self.network.with(|node, now| {
                if hosts.remove(&self.host) {
                    // The channel may have been closed before.
                    let _ = node.remove_filter(&id);
                }
                let hosts: Vec<_> = hosts.into_iter().collect();
                if !hosts.is_empty() {
                    node.ship(&hosts, &FilterCommand::Remove(id), now);
                }
            });
        }
    }

    /// Sends filters to the hosts of sources and sinks that join later, and again to hosts that come back.
    pub(super) fn follow(&self, notice: &Notice) {
        match notice {
            Notice::HostVanished(host) => self.owned.forget(host),
            Notice::SourceJoined(channel, member, _) => self.bring(channel, Direction::Out, member),
            Notice::SinkJoined(channel, member, _) => self.bring(channel, Direction::In, member),
            _ => {}
        }
    }

    fn bring(&self, channel: &ChannelId, direction: Direction, MemberId { host, .. }: &MemberId) {
        for (filter, to) in self.owned.missing(channel, direction, host) {
            let wanted = self.wanted(channel, &to).is_ok_and(|(_, others)| others.contains(host));
            if wanted {
                self.owned.asked(&filter.id, host);
                let order = FilterCommand::Install(filter);
                self.network.with(|node, now| node.ship(std::slice::from_ref(host), &order, now));
            }
        }
    }
}

impl Registry {
    /// The user of the connection; none if the connection has ended or does not hold the channel.
    fn keeper(&self, id: LeaseId, channel: &ChannelId) -> Option<qfabric_types::Owner> {
        let lease = self.leases.get(&id)?;
        let keeps = lease.peer.owner.uid == 0 || lease.opened.contains(channel);
        keeps.then_some(lease.peer.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(name: &str) -> FilterSpec {
        let (channel, direction) = ("video".parse().unwrap(), Direction::Out);
        let id = FilterId { channel, direction, name: name.parse().unwrap() };
        FilterSpec { id, sink: None, types: vec![], text: "return 1;".into(), parameters: vec![] }
    }

    fn names(names: &[&str]) -> impl Iterator<Item = Name> {
        names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn a_host_that_was_away_has_to_get_the_filter_again_as_it_is_by_now() {
        let (owned, one) = (Owned::default(), filter("one"));
        let id = one.id.clone();
        owned.installed((7, 1), (one, 9), FilterScope::All, names(&["a", "b"]));
        let (a, video) = ("a".parse().unwrap(), id.channel.clone());
        assert!(owned.missing(&video, Direction::Out, &a).is_empty());
        owned.forget(&a);
        owned.parametrized(&id, &"most".parse().unwrap(), 1);
        owned.parametrized(&id, &"most".parse().unwrap(), 2);
        let missing = owned.missing(&video, Direction::Out, &a);
        assert_eq!(missing[0].0.parameters, [("most".parse().unwrap(), 2)]);
        assert!(owned.missing(&video, Direction::In, &a).is_empty());
    }

    #[test]
    fn what_a_connection_leaves_is_told_with_all_hosts_that_may_have_it() {
        let owned = Owned::default();
        owned.installed((7, 1), (filter("one"), 9), FilterScope::All, names(&["a"]));
        owned.installed((7, 1), (filter("one"), 9), FilterScope::All, names(&["b"]));
        owned.installed((8, 1), (filter("two"), 9), FilterScope::Here, names(&["a"]));
        owned.removed(&filter("two").id, names(&["a"]).collect::<Vec<_>>().iter());
        assert_eq!(owned.take(8), []);
        assert_eq!(owned.take(7), [(filter("one").id, names(&["a", "b"]).collect())]);
        assert_eq!(owned.take(7), []);
    }
}
