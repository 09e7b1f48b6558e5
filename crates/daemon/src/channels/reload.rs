//! Another access list, other certificates, while there are members.
//!
//! What this host checks itself is another rule from one moment to the next. What Zenoh holds it was given when its session
//! was opened: for that the session is closed, and another one opened. A file that cannot be used changes nothing.

use qfabric_channel::Node;
use qfabric_link::{self as link, Link, Security};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::Reloaded;

use super::network::{self, ManagedNode, Network};
use super::{Channels, Fabric, lock, problems, socket};
use crate::auth::Peer;

impl Channels {
    /// As `qfabric channel reload` of the service's own user; `None` where there is nothing to read.
    pub(crate) fn reload_access(&self) -> Option<Result<Reloaded, Problem>> {
        let fabric = self.fabric.as_ref().filter(|fabric| fabric.has_access())?;
        Some(fabric.reload_now())
    }
}

impl Fabric {
    /// Reads them again. One after the other; nobody else is held up.
    pub(super) fn reload(&self, peer: Peer) -> Result<Reloaded, Problem> {
        if !peer.administers() {
            return Err(problems::not_your_access(peer.owner.uid));
        }
        self.reload_now()
    }

    /// Whether there is an access list to be read again.
    fn has_access(&self) -> bool {
        let Network::Linked { config, .. } = &self.network else { return false };
        lock(config).security != Security::Insecure
    }

    fn reload_now(&self) -> Result<Reloaded, Problem> {
        let Network::Linked { link, config } = &self.network else { return Err(problems::no_access_list()) };
        let mut config = lock(config);
        if config.security == Security::Insecure {
            return Err(problems::no_access_list());
        }
        let read = network::linked(&self.config, self.host.clone()).map_err(|error| problems::bad_access(&error))?;
        let new = read.expect("there was an engine at the start");
        let reloaded = self.exchange(link, &config, &new)?;
        *config = new;
        tracing::info!(?reloaded, "the access list and the certificate were read again");
        Ok(reloaded)
    }

    /// First the rules: who comes when the network is joined again is judged by them.
    fn exchange(&self, link: &Link<ManagedNode>, old: &link::Config, new: &link::Config) -> Result<Reloaded, Problem> {
        let Security::Tls(tls) = &new.security else { return Err(problems::no_access_list()) };
        let rules = tls.access.clone();
        let (hosts, count) = (rules.hosts.len() as u32, rules.rules.len() as u32);
        let notary = tls.notary().map_err(|error| problems::bad_access(&error))?;
        self.network.with(|node: &mut Node, _| node.set_notary(Some(notary)));
        let same_rules = matches!(&old.security, Security::Tls(tls) if tls.access == rules);
        if !same_rules {
            self.network.with(|node: &mut Node, now| node.set_policy(Box::new(rules), now));
        }
        let rejoined = !link.is_open() || !new.opens_like(old);
        if rejoined {
            self.rejoin(link, old, new)?;
        }
        Ok(Reloaded { hosts, rules: count, changed: !same_rules || rejoined, rejoined })
    }

    /// Where it cannot be joined by the new ones, it is by the old ones, if that is still possible.
    fn rejoin(&self, link: &Link<ManagedNode>, old: &link::Config, new: &link::Config) -> Result<(), Problem> {
        let priority = self.config.priority;
        let open = |config| link.reopen(config, move || socket::enter(priority));
        let opened = open(new).map_err(|error| {
            let is_open = open(old).is_ok();
            tracing::error!(%error, is_open, "the network could not be joined by the new access list or certificate");
            problems::not_joined(&error, is_open)
        });
        network::hurry(link, priority);
        opened
    }
}
