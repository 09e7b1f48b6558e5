//! Filters: installed on this host, or sent as source text to other hosts, whose access lists decide about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use qfabric_channel::{
    Binding, Direction, FilterCommand, FilterError, FilterId, FilterSpec, MemberId, RequestId, SinkId,
};
use qfabric_linux::clock;
use qfabric_sync::{Condvar, Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{
    BindingRequest, FilterRequest, FilterScope, HostAnswer, Installed, Joined, ParameterRequest,
};
use qfabric_types::channel::{ChannelId, Name};

use super::members::{key, parameters};
use super::registry::Credit;
use super::rules::Right;
use super::{Fabric, Network, lock, problems};
use crate::auth::Peer;

/// How long this host waits for the answers of other hosts.
const PATIENCE: Duration = Duration::from_secs(2);

/// Events on which a filter acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// On the events of all sources, or on all events of one sink. `Some`: the user is charged for the calls.
    All(Option<u32>),
    /// On the events of this user's sources only.
    SourcesOf(u32),
}

/// Requests to other hosts, with the answers received so far.
#[derive(Debug, Default)]
pub(super) struct Asked {
    answers: Lock<BTreeMap<RequestId, Vec<HostAnswer>>, { rank::ASKED }>,
    changed: Condvar,
}

impl Asked {
    /// Records an answer. No thread waits for it if the host was late, or if the filter was sent because a member
    /// joined.
    pub(super) fn answered(&self, request: RequestId, host: Name, refused: Option<String>) {
        if let Some(answers) = lock(&self.answers).get_mut(&request) {
            answers.push(HostAnswer { host, refused, kernel_path: false });
            self.changed.notify_all();
        } else if let Some(why) = refused {
            tracing::info!(%host, why, "another host refused a change of a filter");
        }
    }

    /// Sends a request, and waits for the answers of all hosts.
    fn ask(&self, hosts: &[Name], ask: impl FnOnce() -> RequestId) -> Vec<HostAnswer> {
        let until = Instant::now() + PATIENCE;
        let mut waiting = lock(&self.answers);
        let request = ask();
        waiting.insert(request, Vec::new());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || waiting[&request].len() >= hosts.len() {
                break;
            }
            waiting = waiting.wait_timeout(&self.changed, left).0;
        }
        let mut answers = waiting.remove(&request).unwrap_or_default();
        drop(waiting);
        let silent = hosts.iter().filter(|host| answers.iter().all(|answer| answer.host != **host));
        let why = format!("no answer within {} s; the host may be gone, see qfabric group hosts", PATIENCE.as_secs());
        let silent =
            silent.map(|host| HostAnswer { host: host.clone(), refused: Some(why.clone()), kernel_path: false });
        let silent: Vec<_> = silent.collect();
        answers.extend(silent);
        answers
    }
}

impl Fabric {
    /// Installs or replaces a filter on all hosts that the request names.
    pub(crate) fn install(&self, peer: Peer, id: FilterId, request: &FilterRequest) -> Result<Installed, Problem> {
        self.check_holder(peer, &id.channel)?;
        self.check_owner(peer, &id)?;
        self.check_roots(peer, &id, &request.to)?;
        let filter = FilterSpec {
            sink: request.sink.as_deref().map(|sink| self.network.member(sink)).transpose()?,
            types: request.types.clone(),
            text: request.code.clone(),
            parameters: parameters(&request.parameters)?,
            id,
        };
        self.check_sink(peer, filter.sink.as_ref())?;
        let reach = self.reach(peer, &filter, &request.to)?;
        let instructions = self.check_room(peer, &filter)?;
        let order = FilterCommand::Install(filter.clone());
        let Some(id) = request.lease else {
            if peer.owner.uid != 0 {
                return Err(problems::unowned_filter(peer.owner.uid));
            }
            let installed = self.carry(&request.to, &order, reach)?;
            self.owned.installed_by_root(&filter.id, &installed.hosts);
            return Ok(installed);
        };
        self.registry().lease(peer, id)?;
        let installed = self.carry(&request.to, &order, reach)?;
        self.owned.installed((id, peer.owner.uid), (filter, instructions), request.to.clone(), &installed.hosts);
        if self.registry().lease(peer, id).is_err() {
            // The connection ended while the filter was installed.
            self.end_filters(id);
        }
        Ok(installed)
    }

    pub(crate) fn parametrize(
        &self,
        peer: Peer,
        id: &FilterId,
        request: &ParameterRequest,
    ) -> Result<Installed, Problem> {
        self.check_holder(peer, &id.channel)?;
        self.check_owner(peer, id)?;
        let own = self.owned.hosts(id, peer.owner.uid);
        let to = self.own_scope(peer, id, &request.to, &own)?;
        let mut installed = Installed::default();
        for (key, value) in parameters(&request.parameters)? {
            let order = FilterCommand::Parameter(id.clone(), key.clone(), value);
            installed = self.carry(&to, &order, Reach::All(None))?;
            self.owned.parametrized(id, &key, value);
        }
        Ok(installed)
    }

    pub(crate) fn remove_filter(&self, peer: Peer, id: &FilterId, to: &FilterScope) -> Result<Installed, Problem> {
        self.check_holder(peer, &id.channel)?;
        self.check_owner(peer, id)?;
        // A host that has not answered may have the filter.
        let own = self.owned.asked_hosts(id, peer.owner.uid);
        let to = self.own_scope(peer, id, to, &own)?;
        let removed = self.carry(&to, &FilterCommand::Remove(id.clone()), Reach::All(None))?;
        self.owned.removed(id, removed.hosts.iter().map(|answer| &answer.host));
        Ok(removed)
    }

    /// Binds a parameter to events of another channel.
    pub(crate) fn bind(&self, peer: Peer, id: FilterId, request: &BindingRequest) -> Result<Joined, Problem> {
        self.check_holder(peer, &id.channel)?;
        self.check_owner(peer, &id)?;
        let channel = request.channel.parse();
        let binding = Binding {
            filter: id,
            parameter: key(&request.parameter)?,
            channel: channel.map_err(|error| problems::invalid(format!("channel: {error}")))?,
            event_type: request.event_type.clone(),
            field: request.field.clone(),
        };
        self.settings.permit(peer, Right::Join, &binding.channel)?;
        self.check_holder(peer, &binding.channel)?;
        let mut registry = self.registry();
        registry.lease(peer, request.lease)?;
        self.check_room_for_member(&registry, peer, &binding.channel)?;
        let payer = self.network.payer_of_first_sink(&registry, peer, &binding.channel)?;
        let bound = self.network.with(|node, now| node.bind(&binding, now));
        let sink: SinkId = bound.map_err(|error| error.problem())?;
        registry.openings.charge(payer, clock::now());
        registry.sinks.insert(sink, request.lease);
        registry.lease(peer, request.lease)?.sinks.insert(sink, Credit::default());
        drop(registry);
        self.ask_for_renewal();
        Ok(Joined { number: sink.0 })
    }

    /// Only a user with a connection that holds the channel here may change its filters.
    fn check_holder(&self, peer: Peer, channel: &ChannelId) -> Result<(), Problem> {
        let holds = self.registry().holds(peer, channel);
        if holds { Ok(()) } else { Err(problems::not_your_channel(channel)) }
    }

    /// The hosts on which the user may change the filter. Other hosts know only which host asks, so a user changes
    /// there only what a connection of the user installed (`own`): other filters of this name are root's, or of users
    /// there.
    fn own_scope(
        &self,
        peer: Peer,
        id: &FilterId,
        to: &FilterScope,
        own: &BTreeSet<Name>,
    ) -> Result<FilterScope, Problem> {
        let (here, others) = self.network.wanted(&id.channel, to)?;
        if here {
            self.check_roots(peer, id, &FilterScope::Here)?;
        }
        if peer.owner.uid == 0 || others.is_empty() {
            return Ok(to.clone());
        }
        let (mine, strange): (Vec<Name>, Vec<Name>) = others.into_iter().partition(|host| own.contains(host));
        let is_named = matches!(to, FilterScope::Hosts(_));
        match strange.first() {
            Some(host) if is_named || (mine.is_empty() && !here) => {
                Err(problems::not_your_filter(&id.name, &format!("others on host {host}, if it exists there")))
            }
            _ => Ok(FilterScope::Hosts(mine.into_iter().chain(here.then(|| self.network.host.clone())).collect())),
        }
    }

    /// A filter for a sink of this host needs the right to the sink.
    fn check_sink(&self, peer: Peer, sink: Option<&MemberId>) -> Result<(), Problem> {
        match sink.filter(|sink| sink.host == self.network.host) {
            Some(sink) => self.registry().sink(peer, SinkId(sink.number)).map(drop),
            None => Ok(()),
        }
    }

    /// The events on which a user's filter acts. A filter for the user's own sink acts on all events of that sink.
    /// Any other filter decides for other users: it is for the channel's creator and for administrators. An
    /// OUT-filter of any other user acts only on the events of that user's sources, and only on this host.
    fn reach(&self, peer: Peer, filter: &FilterSpec, to: &FilterScope) -> Result<Reach, Problem> {
        let FilterSpec { id: FilterId { channel, direction, .. }, sink, .. } = filter;
        let all = Reach::All((!peer.administers()).then_some(peer.owner.uid));
        if sink.as_ref().is_some_and(|sink| sink.host == self.network.host) {
            // `check_sink` has found that the sink belongs to this user.
            return Ok(all);
        }
        self.settings.permit(peer, Right::Install, channel)?;
        if self.governs(peer, channel) {
            return Ok(all);
        }
        let (_, others) = self.network.wanted(channel, to)?;
        match *direction == Direction::Out && others.is_empty() {
            true => Ok(Reach::SourcesOf(peer.owner.uid)),
            false => Err(problems::not_your_events(channel, peer.owner.uid)),
        }
    }

    /// Carries out a command on this host, on other hosts, or on both.
    fn carry(&self, to: &FilterScope, order: &FilterCommand, reach: Reach) -> Result<Installed, Problem> {
        let (here, mut others) = self.network.wanted(&order.id().channel, to)?;
        let mut installed = Installed::default();
        if here {
            self.network.here(order, reach).map_err(|error| error.problem())?;
            installed.hosts.push(HostAnswer { host: self.network.host.clone(), refused: None, kernel_path: false });
        }
        if let FilterCommand::Parameter(id, key, value) = order {
            let sent = others.extract_if(.., |host| self.send_parameter(host, id, key, *value));
            installed.hosts.extend(sent.map(|host| HostAnswer { host, refused: None, kernel_path: true }));
        }
        if !others.is_empty() {
            let ship = || self.network.with(|node, now| node.ship(&others, order, now));
            let answers = self.asked.ask(&others, ship);
            if let FilterCommand::Parameter(id, key, _) = order {
                let done = answers.iter().filter(|answer| answer.refused.is_none());
                done.for_each(|answer| self.bind_parameter(&answer.host, id, key));
            }
            installed.hosts.extend(answers);
        }
        Ok(installed)
    }
}

impl Network {
    fn member(&self, text: &str) -> Result<MemberId, Problem> {
        let (host, number) = text.split_once('/').unwrap_or((self.host.as_str(), text));
        let member = host.parse().ok().zip(number.parse().ok());
        let wrong = || problems::invalid(format!("{text:?} is not a sink; write NUMBER or HOST/NUMBER"));
        member.map(|(host, number)| MemberId { host, number }).ok_or_else(wrong)
    }

    fn here(&self, order: &FilterCommand, reach: Reach) -> Result<(), FilterError> {
        self.look(|node| match (order, reach) {
            (FilterCommand::Install(filter), Reach::All(payer)) => node.install_paid_by(payer, filter),
            (FilterCommand::Install(filter), Reach::SourcesOf(user)) => node.install_for(user, filter),
            (FilterCommand::Remove(id), _) => node.remove_filter(id),
            (FilterCommand::Parameter(id, key, value), _) => node.set_parameter(id, key.as_str(), *value),
        })
    }

    /// Whether this host is a recipient, and which other hosts are.
    pub(super) fn wanted(&self, channel: &ChannelId, to: &FilterScope) -> Result<(bool, Vec<Name>), Problem> {
        let mut hosts: BTreeSet<Name> = match to {
            FilterScope::Here => [self.host.clone()].into(),
            FilterScope::Hosts(hosts) => hosts.iter().cloned().collect(),
            FilterScope::All => {
                self.look(|node| node.directory().holders(channel).map(|(name, _)| name.clone()).collect())
            }
            FilterScope::Group(group) => self.look(|node| {
                let groups = node.directory().groups();
                groups.get(group).into_iter().flatten().map(|(host, _)| (*host).clone()).collect()
            }),
        };
        match hosts.is_empty() {
            true => Err(problems::invalid("the filter has no recipient; see qfabric group ls".to_owned())),
            false => Ok((hosts.remove(&self.host), hosts.into_iter().collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_says_nothing_is_named_and_the_others_are_not_lost() {
        let asked = std::sync::Arc::new(Asked::default());
        let hosts: Vec<Name> = ["a", "b"].map(|name| name.parse().unwrap()).into();
        let (other, answering) = (asked.clone(), hosts[1].clone());
        let answers = asked.ask(&hosts, || {
            std::thread::spawn(move || other.answered(RequestId(7), answering, Some("no".into())));
            RequestId(7)
        });
        let no = HostAnswer { host: hosts[1].clone(), refused: Some("no".into()), kernel_path: false };
        assert_eq!(answers[0], no);
        assert!(answers[1].refused.as_deref().unwrap().contains("no answer") && answers[1].host == hosts[0]);
        assert!(lock(&asked.answers).is_empty(), "the request is removed");
    }
}
