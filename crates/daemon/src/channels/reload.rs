//! Reloads the access list and the certificates while there are members, and the configuration's keys that do not need a
//! restart.
//!
//! The checks of this host itself use the new rules at once. Zenoh receives its rules when a session is opened, so that
//! the session is closed and a new one opened. A file that cannot be used changes nothing.

use qfabric_channel::Node;
use qfabric_link::security::{ChannelRights, notary};
use qfabric_link::{self as link, Link, Security};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::ReloadOutcome;

use super::network::{self, ManagedNode, Way};
use super::{Channels, ChannelsConfig, Fabric, lock, problems, socket};
use crate::auth::Peer;

impl Channels {
    /// Reloads as the service's own user; `None` if there is nothing to reload.
    pub(crate) fn reload_access(&self) -> Option<Result<ReloadOutcome, Problem>> {
        let fabric = self.fabric.as_ref().filter(|fabric| fabric.has_access())?;
        Some(fabric.reload_now())
    }

    /// From now on `new` holds for requests, except for its keys that need a restart. Existing connections, members and
    /// filters stay. Returns the configuration in force; `None` if channels are off.
    pub(crate) fn configure(&self, new: &ChannelsConfig) -> Option<ChannelsConfig> {
        Some(self.fabric.as_ref()?.configure(new))
    }
}

impl Fabric {
    pub(super) fn configure(&self, new: &ChannelsConfig) -> ChannelsConfig {
        let config = self.config().reloaded(new);
        self.settings.replace(config.clone());
        self.network.configure(&config);
        self.limit_policies();
        config
    }

    /// Reads the files again. Reloads run one after the other; other requests do not wait for them.
    pub(super) fn reload(&self, peer: Peer) -> Result<ReloadOutcome, Problem> {
        if !peer.administers() {
            return Err(problems::not_your_access(peer.owner.uid));
        }
        self.reload_now()
    }

    fn has_access(&self) -> bool {
        let Way::Linked { config, .. } = &self.network.way else { return false };
        lock(config).security != Security::Insecure
    }

    fn reload_now(&self) -> Result<ReloadOutcome, Problem> {
        let Way::Linked { link, config, .. } = &self.network.way else { return Err(problems::no_access_list()) };
        let mut config = lock(config);
        if config.security == Security::Insecure {
            return Err(problems::no_access_list());
        }
        let read =
            network::linked(&self.config(), self.network.host.clone()).map_err(|error| problems::bad_access(&error))?;
        let new = read.expect("there was an engine at the start");
        let reloaded = self.exchange(link, &config, &new)?;
        *config = new;
        tracing::info!(?reloaded, "the access list and the certificate were read again");
        Ok(reloaded)
    }

    /// Replaces the rules first, so that hosts are checked against the new rules when the network is joined again.
    fn exchange(
        &self,
        link: &Link<ManagedNode>,
        old: &link::Config,
        new: &link::Config,
    ) -> Result<ReloadOutcome, Problem> {
        let Security::Tls(tls) = &new.security else { return Err(problems::no_access_list()) };
        let rules = tls.access.clone();
        let (hosts, count) = (rules.hosts.len() as u32, rules.rules.len() as u32);
        let notary = notary(tls).map_err(|error| problems::bad_access(&error))?;
        self.network.with(|node: &mut Node, _| node.set_notary(Some(notary)));
        let same_rules = matches!(&old.security, Security::Tls(tls) if tls.access == rules);
        if !same_rules {
            self.network.with(|node: &mut Node, now| node.set_policy(Box::new(ChannelRights(rules)), now));
        }
        let rejoined = !link.is_open() || !new.opens_like(old);
        if rejoined {
            self.rejoin(link, old, new)?;
        }
        Ok(ReloadOutcome { hosts, rules: count, changed: !same_rules || rejoined, rejoined })
    }

    /// If the network cannot be joined with the new files, joins it with the old ones, if that is still possible. If
    /// not, the thread of `renewal.rs` tries that again.
    fn rejoin(&self, link: &Link<ManagedNode>, old: &link::Config, new: &link::Config) -> Result<(), Problem> {
        self.reopen(link, new).map_err(|error| {
            let is_open = self.reopen(link, old).is_ok();
            tracing::error!(%error, is_open, "the network could not be joined with the new access list or certificate");
            problems::not_joined(&error, is_open)
        })
    }

    /// Leaves the network and joins it with a configuration.
    pub(super) fn reopen(&self, link: &Link<ManagedNode>, config: &link::Config) -> Result<(), link::Error> {
        let priority = self.config().priority;
        let opened = link.reopen(config, move || socket::enter(priority));
        network::hurry(link, priority);
        opened
    }
}
