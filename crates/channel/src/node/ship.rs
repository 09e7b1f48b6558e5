//! Filters for other hosts: what is asked of them, and what they answer.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::Node;
use super::filters::Installer;
use crate::output::To;
use crate::wire::{self, Answer, Kind, Shipped};
use crate::{Action, FilterError, FilterOrder, Lane, Notice, RequestId};

/// A host that has not answered by then is said not to.
const PATIENCE: Nanos = Nanos::from_millis(2_000);

/// Hosts that have not answered yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    hosts: BTreeSet<Name>,
    pub until: Instant,
}

impl Node {
    /// Asks hosts to do something with their filters; each answers with a [`Notice::Answered`], within 2 s or not at
    /// all. An empty list: all hosts that hold the channel.
    pub fn ship(&mut self, to: &[Name], order: &FilterOrder, now: Instant) -> RequestId {
        let request = RequestId(self.next_number());
        let mut hosts: BTreeSet<Name> = to.iter().cloned().collect();
        if to.is_empty() {
            hosts.extend(self.directory.holders(&order.spot().channel).map(|(host, _)| host.clone()));
        }
        if hosts.remove(&*self.host) {
            let (host, result) = ((*self.host).clone(), self.obey_own(order).map_err(|error| error.to_string()));
            self.out.notice(Notice::Answered { request, host, result });
        }
        let mut asked = BTreeSet::new();
        for host in hosts {
            if self.ship_to(&host, request, order) {
                asked.insert(host);
            } else {
                let result = Err(format!("{host} is not there; see `qfabric channel ls` for the hosts that are"));
                self.out.notice(Notice::Answered { request, host, result });
            }
        }
        if !asked.is_empty() {
            let until = now + PATIENCE;
            self.requests.insert(request.0, Waiting { hosts: asked, until });
            self.wake_by(until);
        }
        request
    }

    fn ship_to(&mut self, host: &Name, request: RequestId, order: &FilterOrder) -> bool {
        let Some(to) = self.peers.get(host).and_then(|peer| peer.incarnation) else { return false };
        let mut frame = Vec::new();
        let shipped = Shipped { to, request, order: order.clone() };
        shipped.write(&mut wire::begin(&mut frame, Kind::Shipped, self.config.incarnation.0));
        self.send(To::Host(host.clone().into()), Lane::Control, &frame);
        true
    }

    fn obey_own(&mut self, order: &FilterOrder) -> Result<(), FilterError> {
        self.permit(Action::Install, &order.spot().channel)?;
        self.obey(order, None)
    }

    /// Parameters are there to be changed by whoever may install filters at all, the filters themselves are not.
    fn obey(&mut self, order: &FilterOrder, from: Option<&Name>) -> Result<(), FilterError> {
        if let (Some(from), FilterOrder::Install(_) | FilterOrder::Remove(_)) = (from, order) {
            self.check_author(order.spot(), from)?;
        }
        match order {
            FilterOrder::Install(filter) => {
                self.install_text(filter, Installer { author: from.cloned(), ..Installer::default() })
            }
            FilterOrder::Remove(spot) => self.remove_filter(spot),
            FilterOrder::Parameter(spot, key, value) => self.set_parameter(spot, key.as_str(), *value),
        }
    }

    /// Another host wants something done with a filter here.
    pub(crate) fn shipped(&mut self, from: &Name, shipped: Shipped) {
        if shipped.to != self.config.incarnation.0 {
            return;
        }
        let channel = &shipped.order.spot().channel;
        let result = if self.config.policy.allows(from, Action::Install, channel) {
            self.obey(&shipped.order, Some(from)).map_err(|error| error.to_string())
        } else {
            self.counts.forbidden += 1;
            let (action, channel) = (Action::Install, channel.clone());
            let why = self.config.policy.why_not(from, action, &channel);
            let refusal = format!("{from} may not install filters on `{}` there: {why}", channel.name);
            self.out.notice(Notice::Forbidden { host: from.clone(), action, channel, why });
            Err(format!("{refusal}; have `install` given to it in that host's access list"))
        };
        if result.is_ok() {
            let (spot, author) = (shipped.order.spot().clone(), from.clone());
            self.out.notice(Notice::FilterChanged { spot, author });
        }
        let Some(to) = self.peers.get(from).and_then(|peer| peer.incarnation) else { return };
        let mut frame = Vec::new();
        let answer = Answer { to, request: shipped.request, result };
        answer.write(&mut wire::begin(&mut frame, Kind::Answer, self.config.incarnation.0));
        self.send(To::Host(from.clone().into()), Lane::Control, &frame);
    }

    pub(crate) fn answer(&mut self, from: &Name, answer: Answer) {
        let Some(waiting) = self.requests.get_mut(&answer.request.0) else { return };
        if answer.to != self.config.incarnation.0 || !waiting.hosts.remove(from) {
            return;
        }
        if waiting.hosts.is_empty() {
            self.requests.remove(&answer.request.0);
        }
        let (request, host) = (answer.request, from.clone());
        self.out.notice(Notice::Answered { request, host, result: answer.result });
    }

    /// Says of those who have not answered in time that they have not.
    pub(crate) fn give_up(&mut self, now: Instant) {
        let all = std::mem::take(&mut self.requests).into_iter();
        let (overdue, open): (BTreeMap<_, _>, _) = all.partition(|(_, waiting)| waiting.until <= now);
        self.requests = open;
        for (request, waiting) in overdue {
            for host in waiting.hosts {
                let result = Err(format!("no answer within {PATIENCE}; it may have been done all the same"));
                self.out.notice(Notice::Answered { request: RequestId(request), host, result });
            }
        }
    }
}
