//! Links that the administrator opens to all users, by request or in the section `[net.links]` of the configuration.

use std::collections::BTreeMap;

use qfabric_broker::{LinkBroker, LinkHolder, LinkLimits, LinkUse};
use qfabric_linux::net::BEST_EFFORT;
use qfabric_types::api::net::{AttachRequest, InterfaceInfo, LinkBook, LinkInfo, LinkRequest, RateHolder};
use qfabric_types::api::{Problem, Shortage};
use qfabric_types::{Amount, BitRate, InterfaceName, LinkEnd, Resource};

use super::interface::Interface;
use super::{State, problems};
use crate::problem;

/// A link of the configuration that is not open yet.
#[derive(Debug)]
pub(super) struct Pending {
    request: LinkRequest,
    /// The failure is logged once, not at every attempt.
    is_logged: bool,
}

pub(super) fn pending(links: BTreeMap<InterfaceName, LinkRequest>) -> BTreeMap<InterfaceName, Pending> {
    links.into_iter().map(|(name, request)| (name, Pending { request, is_logged: false })).collect()
}

/// Limits of a link that only the administrator uses: the test of DWCS alone decides.
pub(super) fn closed() -> LinkLimits {
    LinkLimits::of_capacity(BitRate::new(u64::MAX))
}

/// Limits of one direction of an open link. The maxima of users and groups hold in each direction.
fn limits(request: &LinkRequest, rate: BitRate) -> LinkLimits {
    let best_effort = request.best_effort.unwrap_or(BEST_EFFORT);
    LinkLimits {
        default_user: request.user_cap_bps,
        users: request.users.clone(),
        groups: request.groups.clone(),
        streams_per_user: request.streams_per_user,
        exempt: [0, rustix::process::geteuid().as_raw()].into(),
        ..LinkLimits::of_link(rate, best_effort)
    }
}

pub(super) fn info(out: &LinkBroker, incoming: &LinkBroker, limits: &LinkRequest) -> LinkInfo {
    let LinkBook { capacity_bps, promised_bps, free_bps, users_bps, holders } = book(out);
    let (limits, incoming) = (limits.clone(), Some(book(incoming)));
    LinkInfo { limits, capacity_bps, promised_bps, free_bps, users_bps, holders, incoming }
}

fn book(broker: &LinkBroker) -> LinkBook {
    LinkBook {
        capacity_bps: broker.limits().capacity,
        promised_bps: broker.promised(),
        free_bps: broker.free(),
        users_bps: broker.users(),
        holders: broker.holders().into_iter().map(holder).collect(),
    }
}

fn holder(held: LinkHolder) -> RateHolder {
    let (stream, held_rate) = match held.by {
        LinkUse::Stream(id) => (Some(id), None),
        LinkUse::Held(id) => (None, Some(id)),
    };
    RateHolder { stream, held_rate, uid: held.uid, name: held.name, rate_bps: held.rate }
}

/// A shortage of a link of which `largest` is free.
pub(super) fn shortage(end: &LinkEnd, asked: BitRate, largest: BitRate) -> Shortage {
    let largest = Amount::Network(largest);
    Shortage::new(Resource::Network(end.clone()), Amount::Network(asked), largest, largest)
}

impl State {
    /// Opens a link, or gives an open one other limits. Attaches the interface if it is not under packet scheduling.
    pub(super) fn open_link(&mut self, interface: &str, request: &LinkRequest) -> Result<InterfaceInfo, Problem> {
        request.check().map_err(|why| Problem { code: "net_invalid".to_owned(), ..why.problem() })?;
        if self.is_over {
            return Err(problem::stopping());
        }
        let is_new = !self.attached.contains_key(interface);
        if is_new {
            let LinkRequest { mechanism, rate_bps, best_effort, .. } = request;
            let attach = AttachRequest {
                mechanism: *mechanism,
                rate_bps: Some(rate_bps.get()),
                best_effort: *best_effort,
                ..AttachRequest::default()
            };
            self.attach(interface, &attach)?;
        }
        let entry = self.get(interface)?;
        entry.is_attached_for_link |= is_new;
        entry.open(interface, request)?;
        let info = entry.info();
        tracing::info!(interface, rate = %request.rate_bps, "the link is open to all users");
        Ok(info)
    }

    /// Closes a link: the streams of ordinary users and all held rates end. Detaches the interface if it was attached for the link.
    pub(super) fn close_link(&mut self, interface: &str) -> Result<(), Problem> {
        let entry = self.get(interface)?;
        if entry.opened.is_none() {
            return Err(problems::not_open_yet(interface));
        }
        if entry.is_attached_for_link {
            return self.detach(interface);
        }
        let ordinary = entry.holders.iter().filter(|(_, holder)| holder.is_ordinary).map(|(id, _)| *id);
        for id in ordinary.collect::<Vec<_>>() {
            entry.end(id)?;
        }
        entry.give_back_all()?;
        entry.opened = None;
        entry.set_limits(closed(), closed())
    }

    /// Ends the packet scheduling of interfaces that have vanished, or whose queueing discipline another program has
    /// replaced: a transport that sends without congestion control must not believe in a rate that nothing enforces. A
    /// link of the configuration opens again when its interface appears; what another program has chosen stays.
    pub(super) fn forget_lost(&mut self) {
        let lost = self.attached.iter().filter(|(_, entry)| !entry.attachment.is_in_force());
        let lost = lost.map(|(name, entry)| (name.clone(), entry.attachment.is_there()));
        for (name, is_there) in lost.collect::<Vec<_>>() {
            let request = self.attached.get(&name).and_then(|entry| entry.opened.clone());
            if let Err(problem) = self.detach(&name) {
                tracing::debug!(interface = name, "the lost interface is not forgotten yet: {problem}");
                continue;
            }
            if is_there {
                tracing::warn!(
                    interface = name,
                    "another program has replaced the queueing discipline of the interface; its streams have ended. \
                     To schedule its packets again: `qfabric net link add` or `qfabric net attach`"
                );
                continue;
            }
            tracing::warn!(interface = name, "the interface has vanished; its streams have ended");
            let own = self.in_file.iter().find(|own| own.as_str() == name).cloned();
            if let Some((own, request)) = own.zip(request) {
                self.configured.extend(pending([(own, request)].into()));
            }
        }
    }

    /// Tries to open the configured links that are not open yet. An interface may appear later.
    pub(super) fn open_configured(&mut self) {
        for (name, mut pending) in std::mem::take(&mut self.configured) {
            let Err(problem) = self.open_link(name.as_str(), &pending.request) else { continue };
            if !pending.is_logged {
                tracing::warn!(interface = %name, "the configured link is not open yet: {problem}");
                pending.is_logged = true;
            }
            self.configured.insert(name, pending);
        }
    }
}

impl Interface {
    fn open(&mut self, name: &str, request: &LinkRequest) -> Result<(), Problem> {
        let attached = BitRate::new(self.attachment.rate_bps());
        if request.rate_bps > attached {
            return Err(problems::above_attachment(name, request.rate_bps, attached));
        }
        let request = self.complete(request);
        self.set_limits(limits(&request, request.rate_bps), limits(&request, request.rate_in()))?;
        self.opened = Some(request);
        Ok(())
    }

    /// The request with the part of best effort that it leaves to the interface.
    pub(super) fn complete(&self, request: &LinkRequest) -> LinkRequest {
        let best_effort = request.best_effort.unwrap_or(self.attachment.best_effort());
        LinkRequest { best_effort: Some(best_effort), ..request.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Share;

    #[test]
    fn the_part_of_best_effort_is_not_promised_and_administrators_have_no_maximum() {
        let mut request = LinkRequest::of_rate(BitRate::new(100_000_000));
        (request.best_effort, request.user_cap_bps) = (Some(Share::from_ppm(100_000)), Some(BitRate::new(1)));
        let limits = limits(&request, request.rate_bps);
        assert_eq!((limits.capacity, limits.default_user), (BitRate::new(90_000_000), Some(BitRate::new(1))));
        assert!(limits.exempt.contains(&0) && limits.streams_per_user == LinkRequest::STREAMS_PER_USER);
    }
}
