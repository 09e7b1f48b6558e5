//! The links of a daemon on a veth of a separate network namespace, with HTB classes, which every kernel has; for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_linux::net::testing;
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::net::{LinkRequest, NetMechanism, Selector, StreamSpec};
use qfabric_types::{BitRate, Nanos, Owner, Share};

use super::{Links, Net};
use crate::auth::Peer;
use crate::ecalls::{Ecalls, EcallsConfig};
use crate::ending::Ending;

pub(super) const ROOT: Peer = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };

fn mbit(rate: u64) -> BitRate {
    BitRate::new(rate * 1_000_000)
}

/// A daemon's links, with one of 10 Mbit/s out and 4 Mbit/s in, all of which is promised.
pub(super) struct Site {
    pub net: Arc<Net>,
    pub links: Links,
    _ecalls: Arc<Ecalls>,
    _veth: testing::Interface,
    _folder: tempfile::TempDir,
    _alone: Box<dyn std::any::Any>,
}

pub(super) fn request() -> LinkRequest {
    LinkRequest {
        rate_in_bps: Some(mbit(4)),
        best_effort: Some(Share::ZERO),
        user_cap_bps: Some(mbit(8)),
        mechanism: Some(NetMechanism::Htb),
        ..LinkRequest::of_rate(mbit(10))
    }
}

pub(super) fn site() -> Option<Site> {
    if !may_reserve() || testing::own_network().is_err() {
        return None;
    }
    let (alone, folder, ending) = (Box::new(live_lock()), tempfile::tempdir().unwrap(), Ending::new().unwrap());
    let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &ending).unwrap();
    let veth = testing::Interface::veth("qf5", "qf5-far").unwrap();
    let net = Net::new(folder.path(), BTreeMap::new(), &ecalls, &ending).unwrap();
    net.open_link(ROOT, "qf5", &request()).unwrap();
    let links = Links::of(&net);
    Some(Site { net, links, _ecalls: ecalls, _veth: veth, _folder: folder, _alone: alone })
}

/// A stream of root with 5,000 bytes in each 40 ms for each Mbit/s.
pub(super) fn stream(mark: u32, rate: BitRate) -> StreamSpec {
    let mut spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(40));
    spec.size = spec.size_at(rate);
    spec
}
