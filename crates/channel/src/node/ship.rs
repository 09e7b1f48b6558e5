//! Commands about filters: those that this host sends to other hosts, and those that it receives.

use std::collections::BTreeSet;

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Node;
use super::filters::Installer;
use crate::output::Destination;
use crate::wire::{Answer, Kind, Shipped};
use crate::{Action, FilterCommand, FilterError, Lane, Notice, Payer, RequestId};

impl Node {
    /// Sends a command about a filter to these hosts; an empty list: to all hosts that hold the channel. Each host's
    /// answer is a [`Notice::Answered`]; without an answer within 2 s the notice carries an error.
    pub fn ship(&mut self, to: &[Name], order: &FilterCommand, now: Instant) -> RequestId {
        let request = RequestId(self.next_number());
        let mut hosts: BTreeSet<Name> = to.iter().cloned().collect();
        if to.is_empty() {
            let holders = self.members.directory.holders(&order.id().channel);
            hosts.extend(holders.map(|(host, _)| host.clone()));
        }
        if hosts.remove(&self.config.host) {
            let result = self.obey_own(order).map_err(|error| error.to_string());
            self.exit.notice(Notice::Answered { request, host: self.config.host.clone(), result });
        }
        hosts.retain(|host| {
            let there = self.members.incarnation(host);
            if let Some(to) = there {
                let shipped = Shipped { to, request, order: order.clone() };
                let to = Destination::Host(host.clone().into());
                self.exit.send(to, Lane::Control, Kind::Shipped, |writer| shipped.write(writer));
            } else {
                let result = Err(format!("{host} is not present; `qfabric channel ls` lists the hosts that are"));
                self.exit.notice(Notice::Answered { request, host: host.clone(), result });
            }
            there.is_some()
        });
        self.requests.begin(request, hosts, now, &mut self.exit);
        request
    }

    fn obey_own(&mut self, order: &FilterCommand) -> Result<(), FilterError> {
        self.config.permit(Action::Install, &order.id().channel)?;
        self.obey(order, None)
    }

    /// Any host that may install filters may change parameters; only a filter's author may replace or remove the
    /// filter.
    fn obey(&mut self, order: &FilterCommand, from: Option<&Name>) -> Result<(), FilterError> {
        if let (Some(from), FilterCommand::Install(_) | FilterCommand::Remove(_)) = (from, order) {
            self.check_author(order.id(), from)?;
        }
        match order {
            FilterCommand::Install(filter) => {
                let (author, payer) = (from.cloned(), from.cloned().map(Payer::Host));
                self.install_text(filter, Installer { author, payer, ..Installer::default() })
            }
            FilterCommand::Remove(id) => self.remove_filter(id),
            FilterCommand::Parameter(id, key, value) => self.set_parameter(id, key.as_str(), *value),
        }
    }

    /// A command of another host about a filter on this host.
    pub(crate) fn shipped(&mut self, from: &Name, shipped: Shipped) {
        if shipped.to != self.exit.incarnation() {
            return;
        }
        let id = shipped.order.id();
        let result = match self.config.refusal(from, Action::Install, &id.channel) {
            None => self.obey(&shipped.order, Some(from)).map_err(|error| error.to_string()),
            Some(why) => {
                let refusal = format!("{from} may not install filters on `{}` there: {why}", id.channel.name);
                self.exit.forbidden(from, Action::Install, &id.channel, why);
                Err(format!("{refusal}; give it the right `install` in that host's access list"))
            }
        };
        if result.is_ok() {
            self.exit.notice(Notice::FilterChanged { id: id.clone(), author: from.clone() });
        }
        let Some(to) = self.members.incarnation(from) else { return };
        let answer = Answer { to, request: shipped.request, result };
        let to = Destination::Host(from.clone().into());
        self.exit.send(to, Lane::Control, Kind::Answer, |writer| answer.write(writer));
    }
}
