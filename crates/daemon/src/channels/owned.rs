//! Ownership of filters. A filter belongs to the connection that installed it, on all hosts: only the connection's
//! user and root may change it, hosts that join later receive it, and all hosts remove it when the connection ends
//! for any reason.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_channel::{Direction, FilterCommand, FilterId, FilterSpec, Key, Limits, MemberId, Notice, RequestId};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{FilterScope, HostAnswer, LeaseId};
use qfabric_types::channel::{ChannelId, Name};

use super::registry::Registry;
use super::{Fabric, Network, lock, problems};
use crate::auth::Peer;

/// Filters that belong to a connection or to root. This lock is taken last, and never held while another one is taken.
#[derive(Debug, Default)]
pub(super) struct Owned(Lock<Table, { rank::OWNED }>);

#[derive(Debug, Default)]
struct Table {
    /// The filters of connections.
    belongings: BTreeMap<FilterId, Belonging>,
    /// The hosts on which root installed a filter without a connection. Other hosts know only that this host installed
    /// it.
    of_root: BTreeMap<FilterId, BTreeSet<Name>>,
    /// Requests to single hosts that have not been answered; nobody waits for the answers.
    expected: BTreeMap<RequestId, Expected>,
}

/// What a host was asked to install.
#[derive(Debug)]
struct Expected {
    id: FilterId,
    parameters: Vec<(Key, i64)>,
}

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
    /// Those that have confirmed it. Another one may have refused, because its own filter has the name.
    confirmed: BTreeSet<Name>,
}

impl Owned {
    /// Records the answers of the hosts that were asked to install or replace the filter.
    pub(super) fn installed(
        &self,
        (lease, uid): (LeaseId, u32),
        (filter, instructions): (FilterSpec, u64),
        to: FilterScope,
        answers: &[HostAnswer],
    ) {
        let (id, hosts) = (filter.id.clone(), answers.iter().map(|answer| answer.host.clone()).collect());
        let done = confirmed(answers).cloned().collect();
        let mut table = lock(&self.0);
        if uid == 0 {
            // It has replaced root's filters without a connection, and ends with the connection. No other user could.
            confirmed(answers).for_each(|host| table.root_lost(&id, host));
        }
        let all = &mut table.belongings;
        let belonging = Belonging { lease, uid, filter, instructions, to, hosts, confirmed: done };
        let before = all.insert(id.clone(), belonging);
        if let (Some(before), Some(now)) = (before, all.get_mut(&id)) {
            now.hosts.extend(before.hosts);
            now.confirmed.extend(before.confirmed);
        }
    }

    /// Records that root installed a filter without a connection. It has replaced a connection's filter of this name.
    pub(super) fn installed_by_root(&self, id: &FilterId, answers: &[HostAnswer]) {
        let mut table = lock(&self.0);
        for host in confirmed(answers) {
            table.of_root.entry(id.clone()).or_default().insert(host.clone());
            table.lost(id, host);
        }
    }

    /// The hosts on which root installed the filter without a connection.
    pub(super) fn of_root(&self, id: &FilterId) -> BTreeSet<Name> {
        lock(&self.0).of_root.get(id).cloned().unwrap_or_default()
    }

    /// A channel was closed on this host, and with it the filters here.
    fn closed(&self, channel: &ChannelId, here: &Name) {
        lock(&self.0).of_root.retain(|id, hosts| {
            let is_gone = id.channel == *channel && hosts.remove(here);
            !is_gone || !hosts.is_empty()
        });
    }

    /// Records the new value for hosts that join later.
    pub(super) fn parametrized(&self, id: &FilterId, key: &Key, value: i64) {
        if let Some(belonging) = lock(&self.0).belongings.get_mut(id) {
            let parameters = &mut belonging.filter.parameters;
            parameters.retain(|(name, _)| name != key);
            parameters.push((key.clone(), value));
        }
    }

    /// Records that the hosts removed the filter.
    pub(super) fn removed<'a>(&self, id: &FilterId, hosts: impl Iterator<Item = &'a Name>) {
        let mut table = lock(&self.0);
        for host in hosts {
            table.lost(id, host);
            table.root_lost(id, host);
        }
    }

    /// Number of other filters of the user on the same channel and in the same direction, and their instructions.
    fn beside(&self, id: &FilterId, uid: u32) -> (usize, u64) {
        let all = &lock(&self.0).belongings;
        let others = all.iter().filter(|(other, belonging)| belonging.uid == uid && *other != id);
        let beside = others.filter(|(other, _)| other.channel == id.channel && other.direction == id.direction);
        beside.fold((0, 0), |(count, sum), (_, belonging)| (count + 1, sum + belonging.instructions))
    }

    /// The hosts that have confirmed the filter of a connection of the user.
    pub(super) fn hosts(&self, id: &FilterId, uid: u32) -> BTreeSet<Name> {
        let all = &lock(&self.0).belongings;
        all.get(id).filter(|belonging| belonging.uid == uid).map_or_else(BTreeSet::new, |own| own.confirmed.clone())
    }

    /// The hosts that a connection of the user asked to install the filter. It can be removed from all: a host removes
    /// no filter of its own for another one.
    pub(super) fn asked_hosts(&self, id: &FilterId, uid: u32) -> BTreeSet<Name> {
        let all = &lock(&self.0).belongings;
        all.get(id).filter(|belonging| belonging.uid == uid).map_or_else(BTreeSet::new, |own| own.hosts.clone())
    }

    fn lease(&self, id: &FilterId) -> Option<LeaseId> {
        lock(&self.0).belongings.get(id).map(|belonging| belonging.lease)
    }

    /// Removes the filters of a connection that has ended; returns them with their hosts.
    fn take(&self, lease: LeaseId) -> Vec<(FilterId, BTreeSet<Name>)> {
        let mut gone = Vec::new();
        lock(&self.0).belongings.retain(|id, belonging| {
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
        let Table { belongings, of_root, .. } = &mut *lock(&self.0);
        for belonging in belongings.values_mut() {
            belonging.hosts.remove(host);
            belonging.confirmed.remove(host);
        }
        of_root.retain(|_, hosts| {
            hosts.remove(host);
            !hosts.is_empty()
        });
    }

    /// Filters for a host that has not been asked to install them, and on which root has none of their names.
    fn missing(&self, channel: &ChannelId, direction: Direction, host: &Name) -> Vec<(FilterSpec, FilterScope)> {
        let Table { belongings, of_root, .. } = &*lock(&self.0);
        let here = |id: &FilterId| id.channel == *channel && id.direction == direction;
        let is_roots = |id: &FilterId| of_root.get(id).is_some_and(|hosts| hosts.contains(host));
        let missing = belongings.iter().filter(|(id, belonging)| here(id) && !belonging.hosts.contains(host));
        let missing = missing.filter(|(id, _)| !is_roots(id));
        missing.map(|(_, belonging)| (belonging.filter.clone(), belonging.to.clone())).collect()
    }

    /// Records that a host was asked to install the filter with these parameters.
    fn asked(&self, id: &FilterId, host: &Name, request: RequestId, parameters: Vec<(Key, i64)>) {
        let Table { belongings, expected, .. } = &mut *lock(&self.0);
        if let Some(belonging) = belongings.get_mut(id) {
            belonging.hosts.insert(host.clone());
            expected.insert(request, Expected { id: id.clone(), parameters });
        }
    }

    /// The host has answered such a request, or did not in time. Returns the changes of parameters since the request,
    /// which were not sent to the host.
    fn answered(&self, request: RequestId, host: &Name, is_done: bool) -> Vec<FilterCommand> {
        let Table { belongings, expected, .. } = &mut *lock(&self.0);
        let Some(Expected { id, parameters }) = expected.remove(&request).filter(|_| is_done) else { return vec![] };
        let asked = belongings.get_mut(&id).filter(|belonging| belonging.hosts.contains(host));
        let Some(belonging) = asked else { return vec![] };
        belonging.confirmed.insert(host.clone());
        let changed = belonging.filter.parameters.iter().filter(|parameter| !parameters.contains(parameter));
        changed.map(|(key, value)| FilterCommand::Parameter(id.clone(), key.clone(), *value)).collect()
    }
}

impl Table {
    /// A host has no filter of this name of a connection any more.
    fn lost(&mut self, id: &FilterId, host: &Name) {
        let Some(belonging) = self.belongings.get_mut(id) else { return };
        belonging.hosts.remove(host);
        belonging.confirmed.remove(host);
        if belonging.hosts.is_empty() {
            self.belongings.remove(id);
        }
    }

    /// A host has no filter of this name of root any more.
    fn root_lost(&mut self, id: &FilterId, host: &Name) {
        let Some(hosts) = self.of_root.get_mut(id) else { return };
        hosts.remove(host);
        if hosts.is_empty() {
            self.of_root.remove(id);
        }
    }
}

/// The hosts that have carried out a request.
fn confirmed(answers: &[HostAnswer]) -> impl Iterator<Item = &Name> {
    answers.iter().filter(|answer| answer.refused.is_none()).map(|answer| &answer.host)
}

impl Fabric {
    /// Whether the user may change the filter, if it exists.
    pub(super) fn check_owner(&self, peer: Peer, id: &FilterId) -> Result<(), Problem> {
        let owner = self.owned.lease(id).map(|lease| self.registry().keeper(lease, &id.channel));
        match owner.flatten() {
            _ if peer.owner.uid == 0 => Ok(()),
            Some(owner) if peer.may_touch(owner) => Ok(()),
            Some(owner) => Err(problems::not_your_filter(&id.name, &format!("user {}", owner.uid))),
            None => self.network.check_stranger(id),
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

    /// Refuses other users a filter that root has installed without a connection on one of these hosts: they would
    /// believe that root replaces or changes it.
    pub(super) fn check_roots(&self, peer: Peer, id: &FilterId, to: &FilterScope) -> Result<(), Problem> {
        if peer.owner.uid == 0 {
            return Ok(());
        }
        let ((here, others), of_root) = (self.network.wanted(&id.channel, to)?, self.owned.of_root(id));
        let host = others.iter().chain(here.then_some(&self.network.host)).find(|host| of_root.contains(*host));
        host.map_or(Ok(()), |host| Err(problems::not_your_filter(&id.name, &format!("root on host {host}"))))
    }

    /// Removes the filters of a connection that has ended.
    pub(super) fn end_filters(&self, lease: LeaseId) {
        for (id, mut hosts) in self.owned.take(lease) {
            self.network.with(|node, now| {
                if hosts.remove(&self.network.host) {
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
            Notice::Closed(channel) => self.owned.closed(channel, &self.network.host),
            Notice::Answered { request, host, result } => {
                for order in self.owned.answered(*request, host, result.is_ok()) {
                    self.network.with(|node, now| node.ship(std::slice::from_ref(host), &order, now));
                }
            }
            Notice::SourceJoined(channel, member, _) => self.bring(channel, Direction::Out, member),
            Notice::SinkJoined(channel, member, _) => self.bring(channel, Direction::In, member),
            _ => {}
        }
    }

    fn bring(&self, channel: &ChannelId, direction: Direction, MemberId { host, .. }: &MemberId) {
        for (filter, to) in self.owned.missing(channel, direction, host) {
            let wanted = self.network.wanted(channel, &to).is_ok_and(|(_, others)| others.contains(host));
            if wanted {
                let (id, parameters) = (filter.id.clone(), filter.parameters.clone());
                let order = FilterCommand::Install(filter);
                self.network.with(|node, now| {
                    let request = node.ship(std::slice::from_ref(host), &order, now);
                    // Before the node is free, so that the answer comes later.
                    self.owned.asked(&id, host, request, parameters);
                });
            }
        }
    }
}

impl Network {
    /// Refuses a filter that belongs to no connection here: another host or root installed it.
    fn check_stranger(&self, id: &FilterId) -> Result<(), Problem> {
        let author = self.look(|node| {
            let there = node.filters(&id.channel).iter().any(|(filter, _)| filter == id);
            there.then(|| node.filter_author(id).map_or("root".to_owned(), |host| format!("the host {host}")))
        });
        author.map_or(Ok(()), |author| Err(problems::not_your_filter(&id.name, &author)))
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

    fn set(hosts: &[&str]) -> BTreeSet<Name> {
        names(hosts).collect()
    }

    /// The hosts have done it.
    fn done(hosts: &[&str]) -> Vec<HostAnswer> {
        names(hosts).map(|host| HostAnswer { host, refused: None, kernel_path: false }).collect()
    }

    #[test]
    fn a_host_that_was_away_has_to_get_the_filter_again_as_it_is_by_now() {
        let (owned, one) = (Owned::default(), filter("one"));
        let id = one.id.clone();
        owned.installed((7, 1), (one, 9), FilterScope::All, &done(&["a", "b"]));
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
        owned.installed((7, 1), (filter("one"), 9), FilterScope::All, &done(&["a"]));
        owned.installed((7, 1), (filter("one"), 9), FilterScope::All, &done(&["b"]));
        owned.installed((8, 1), (filter("two"), 9), FilterScope::Here, &done(&["a"]));
        owned.removed(&filter("two").id, names(&["a"]).collect::<Vec<_>>().iter());
        assert_eq!(owned.take(8), []);
        assert_eq!(owned.take(7), [(filter("one").id, names(&["a", "b"]).collect())]);
        assert_eq!(owned.take(7), []);
    }

    #[test]
    fn a_host_that_has_refused_the_filter_may_have_it_but_no_change_of_it_goes_there() {
        let (owned, one) = (Owned::default(), filter("one"));
        let id = one.id.clone();
        let refused = HostAnswer { refused: Some("it is ours".into()), ..done(&["b"])[0].clone() };
        owned.installed((7, 1), (one, 9), FilterScope::All, &[done(&["a"]), vec![refused]].concat());
        let c: Name = "c".parse().unwrap();
        owned.asked(&id, &c, RequestId(5), vec![]);
        assert_eq!(owned.hosts(&id, 1), set(&["a"]));
        assert_eq!(owned.answered(RequestId(4), &c, true), []);
        assert_eq!(owned.hosts(&id, 1), set(&["a"]), "the answer is to another request");
        assert_eq!(owned.asked_hosts(&id, 1), set(&["a", "b", "c"]), "it is removed from all");
        let most: Key = "most".parse().unwrap();
        owned.parametrized(&id, &most, 3);
        let missed = FilterCommand::Parameter(id.clone(), most, 3);
        assert_eq!(owned.answered(RequestId(5), &c, true), [missed], "it was not sent to a host that had not answered");
        assert_eq!(owned.hosts(&id, 1), set(&["a", "c"]));
        assert!(lock(&owned.0).expected.is_empty());
        assert_eq!(owned.take(7), [(id, set(&["a", "b", "c"]))], "all may have it");
    }

    #[test]
    fn what_root_installs_belongs_to_no_connection_any_more_until_it_is_removed() {
        let (owned, one) = (Owned::default(), filter("one"));
        let (id, b) = (one.id.clone(), "b".parse().unwrap());
        owned.installed((7, 1), (one, 9), FilterScope::All, &done(&["a", "b"]));
        owned.installed_by_root(&id, &done(&["b"]));
        assert_eq!((owned.hosts(&id, 1), owned.of_root(&id)), (set(&["a"]), set(&["b"])));
        assert!(owned.missing(&id.channel, Direction::Out, &b).is_empty(), "it would replace root's");
        owned.removed(&id, [&b].into_iter());
        assert_eq!((owned.of_root(&id).len(), owned.missing(&id.channel, Direction::Out, &b).len()), (0, 1));
        owned.installed_by_root(&id, &done(&["a", "b"]));
        assert_eq!(owned.take(7), [], "its end removes nothing of root's");
        owned.closed(&id.channel, &b);
        assert_eq!(owned.of_root(&id), set(&["a"]));
        owned.installed((8, 0), (filter("one"), 0), FilterScope::All, &done(&["a"]));
        assert!(owned.of_root(&id).is_empty(), "it ends with root's connection");
        owned.installed_by_root(&id, &done(&["a"]));
        owned.forget(&"a".parse().unwrap());
        assert!(lock(&owned.0).of_root.is_empty());
    }
}
