//! Links of the configuration that changed while the service runs (SIGHUP).
//!
//! | in the file | effect |
//! |---|---|
//! | a new link | opens, at once or when its interface appears |
//! | other limits | in force at once, in place of those that the API set; rates never fall below the promises |
//! | another rate | if nothing is promised and the link attached the interface: attached again, and paced to the new rate |
//! | no longer there | closes, unless something is promised |
//!
//! A refused change leaves the link as it is, and the log names the holders. The next SIGHUP tries again.

use std::collections::BTreeMap;

use qfabric_types::api::Problem;
use qfabric_types::api::net::LinkRequest;
use qfabric_types::{BitRate, InterfaceName};

use super::interface::Interface;
use super::{Net, State, links, problems};

impl Net {
    /// Applies the links of a new configuration. Returns the refusals; everything else is in force.
    pub(crate) fn reload(&self, links: BTreeMap<InterfaceName, LinkRequest>) -> Vec<(InterfaceName, Problem)> {
        self.state().reload(links)
    }
}

impl State {
    fn reload(&mut self, links: BTreeMap<InterfaceName, LinkRequest>) -> Vec<(InterfaceName, Problem)> {
        let mut refused = Vec::new();
        let removed: Vec<_> = self.in_file.iter().filter(|name| !links.contains_key(name)).cloned().collect();
        for name in removed {
            self.configured.remove(&name);
            match self.close_unused(&name) {
                Ok(()) => drop(self.in_file.remove(&name)),
                Err(problem) => refused.push((name, problem)),
            }
        }
        for (name, request) in links {
            self.in_file.insert(name.clone());
            match self.attached.contains_key(name.as_str()) {
                false => self.configured.extend(links::pending([(name, request)].into())),
                true => refused.extend(self.change_link(&name, &request).err().map(|problem| (name, problem))),
            }
        }
        self.open_configured();
        refused
    }

    fn close_unused(&mut self, name: &InterfaceName) -> Result<(), Problem> {
        match self.attached.get(name.as_str()).filter(|entry| entry.opened.is_some()) {
            Some(entry) if entry.is_used() => Err(problems::still_used(entry)),
            Some(_) => self.close_link(name.as_str()),
            None => Ok(()),
        }
    }

    fn change_link(&mut self, name: &InterfaceName, request: &LinkRequest) -> Result<(), Problem> {
        let entry = self.get(name.as_str())?;
        let rate = BitRate::new(entry.attachment.rate_bps());
        if entry.is_attached_for_link && request.rate_bps != rate && !entry.is_used() {
            // Opened again at once by the caller; later, if the interface is gone.
            self.configured.extend(links::pending([(name.clone(), request.clone())].into()));
            return self.detach(name.as_str());
        }
        if entry.opened.as_ref() == Some(&entry.complete(request)) {
            return Ok(());
        }
        self.open_link(name.as_str(), request).map(drop)
    }
}

impl Interface {
    /// Whether something is promised: a stream, or a held rate.
    fn is_used(&self) -> bool {
        !self.holders.is_empty() || self.incoming.promised() > BitRate::ZERO || self.broker.promised() > BitRate::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::{ROOT, Site, request, site, stream};
    use super::*;

    fn mbit(rate: u64) -> BitRate {
        BitRate::new(rate * 1_000_000)
    }

    fn file(rate: u64) -> BTreeMap<InterfaceName, LinkRequest> {
        [("qf5".parse().unwrap(), LinkRequest { rate_bps: mbit(rate), ..request() })].into()
    }

    #[test]
    fn rates_of_the_file_are_in_force_at_once_but_never_below_the_promises() {
        let Some(Site { net, .. }) = &site() else { return };
        let rates = || {
            let info = net.show("qf5").unwrap();
            (info.rate_bps / 1_000_000, info.link.unwrap().capacity_bps)
        };
        assert_eq!((net.reload(file(20)), rates()), (vec![], (20, mbit(20))), "paced to the new rate");
        let id = net.begin(ROOT, "qf5", &stream(1, mbit(5))).unwrap().id;
        assert_eq!((net.reload(file(8)), rates()), (vec![], (20, mbit(8))));
        let low = net.reload(file(4)).pop().unwrap().1;
        assert!(low.message.contains("5 Mbit/s are promised") && low.message.contains("mark 1 (stream 0"), "{low:?}");
        assert!(net.reload(file(30)).pop().unwrap().1.message.contains("attached at 20 Mbit/s"));
        let closed = net.reload(BTreeMap::new()).pop().unwrap().1;
        assert!(closed.message.contains("stays open") && closed.message.contains("mark 1"), "{closed:?}");
        assert_eq!(rates(), (20, mbit(8)));
        net.end(ROOT, "qf5", id).unwrap();
        assert_eq!((net.reload(file(4)), rates()), (vec![], (4, mbit(4))));
        assert!(net.reload(BTreeMap::new()).is_empty() && net.list().is_empty(), "the link is closed");
        assert!(net.reload(file(6)).is_empty());
        assert_eq!(rates(), (6, mbit(6)), "a link of the file opens");
    }

    #[test]
    fn a_link_that_only_the_api_opened_is_not_closed_by_a_reload() {
        let Some(Site { net, .. }) = &site() else { return };
        assert!(net.reload(BTreeMap::new()).is_empty());
        assert!(net.show("qf5").unwrap().link.is_some());
    }
}
