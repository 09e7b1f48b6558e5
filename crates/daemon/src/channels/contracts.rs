//! The way of joint contracts and of ECalls to other hosts: the groups of the hosts that take part, and their Q-channels.

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_channel::Registration;
use qfabric_host::manager::contracts::{self, ContractMessage};
use qfabric_host::manager::far;
use qfabric_types::api::Problem;
use qfabric_types::channel::Name;

use super::{Channels, Fabric, Network, problems};
use crate::contracts::Contracts;
use crate::ecalls::Inbox;
use crate::startup::DaemonError;

impl Channels {
    /// From now on messages about contracts reach `contracts`.
    pub(crate) fn hear_contracts(&self, contracts: &Arc<Contracts>) {
        self.fabric.iter().for_each(|fabric| fabric.mailbox.hear_contracts(contracts));
    }

    /// Whether this host makes contracts with other hosts.
    pub(crate) fn makes_contracts(&self) -> bool {
        self.fabric.as_ref().is_some_and(|fabric| fabric.config().contracts)
    }

    /// Whether another host takes part in contracts.
    pub(crate) fn takes_contracts(&self, host: &Name) -> bool {
        let is_member = |node: &mut qfabric_channel::Node| {
            node.directory().hosts_of_group(&contracts::group()).any(|member| member == host)
        };
        self.fabric.as_ref().is_some_and(|fabric| fabric.network.look(is_member))
    }

    pub(crate) fn tell_contract(&self, to: &Name, message: &ContractMessage) {
        self.fabric.iter().for_each(|fabric| fabric.network.tell_contract(to, message));
    }
}

impl Fabric {
    /// Whether another host takes part in ECalls between hosts.
    pub(crate) fn takes_ecalls(&self, host: &Name) -> bool {
        self.network.look(|node| node.directory().hosts_of_group(&far::group()).any(|member| member == host))
    }

    /// Refuses handlers on other hosts if this host takes no part in them.
    pub(crate) fn check_ecalls(&self) -> Result<(), Problem> {
        if self.config().ecalls { Ok(()) } else { Err(problems::no_ecalls()) }
    }

    pub(crate) fn tell_ecall(&self, to: &Name, tail: &[u8]) {
        self.network.tell_ecall(to, tail);
    }

    /// Messages of other hosts about ECalls go to this inbox from now on.
    pub(crate) fn hear_ecalls(&self, inbox: &Arc<Inbox>) {
        self.mailbox.hear_ecalls(inbox);
    }

    pub(crate) fn host_name(&self) -> &Name {
        &self.network.host
    }

    /// Whether this host is among these hosts and those of the group, and the others.
    pub(crate) fn targets(&self, hosts: &[Name], group: Option<&Name>) -> Result<(bool, Vec<Name>), Problem> {
        let mut all: BTreeSet<Name> = hosts.iter().cloned().collect();
        if let Some(group) = group {
            self.network.look(|node| all.extend(node.directory().hosts_of_group(group).cloned()));
        }
        let here = all.remove(&self.network.host);
        match here || !all.is_empty() {
            true => Ok((here, all.into_iter().collect())),
            false => Err(problems::no_target(group)),
        }
    }

    /// Joins the group of the hosts that take part in contracts, if that is configured.
    pub(super) fn begin_contracts(&self) -> Result<(), DaemonError> {
        if !self.config().contracts {
            return Ok(());
        }
        self.network.join_group(contracts::group(), "channels.contracts")
    }

    /// Joins the group of the hosts that take part in ECalls of other hosts, if that is configured.
    pub(super) fn begin_ecalls(&self) -> Result<(), DaemonError> {
        if !self.config().ecalls {
            return Ok(());
        }
        self.network.join_group(far::group(), "channels.ecalls")
    }
}

impl Network {
    fn join_group(&self, group: Name, key: &str) -> Result<(), DaemonError> {
        let application = "qfabric".parse().expect("is a name");
        let member = Registration { application, group, parent: None, level: 4, qos: Vec::new() };
        let joined = self.with(|node, now| node.register(member, now));
        joined.map(drop).map_err(|error| DaemonError::refused(key, error.problem()))
    }
}
