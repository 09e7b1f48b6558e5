//! The way of joint contracts to other hosts: the group of the hosts that take part, and its Q-channel.

use std::sync::Arc;

use qfabric_channel::Registration;
use qfabric_host::manager::contracts::{self, ContractMessage};
use qfabric_types::channel::Name;

use super::{Channels, Fabric};
use crate::contracts::Contracts;
use crate::startup::DaemonError;

impl Channels {
    /// From now on messages about contracts reach `contracts`.
    pub(crate) fn hear_contracts(&self, contracts: &Arc<Contracts>) {
        self.fabric.iter().for_each(|fabric| fabric.mailbox.hear_contracts(contracts));
    }

    /// Whether this host makes contracts with other hosts.
    pub(crate) fn makes_contracts(&self) -> bool {
        self.fabric.as_ref().is_some_and(|fabric| fabric.config.contracts)
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
    /// Joins the group of the hosts that take part in contracts, if that is configured.
    pub(super) fn begin_contracts(&self) -> Result<(), DaemonError> {
        if !self.config.contracts {
            return Ok(());
        }
        let application = "qfabric".parse().expect("is a name");
        let member = Registration { application, group: contracts::group(), parent: None, level: 4, qos: Vec::new() };
        let joined = self.network.with(|node, now| node.register(member, now));
        joined.map(drop).map_err(|error| DaemonError::Channels(format!("channels.contracts: {error}")))
    }
}
