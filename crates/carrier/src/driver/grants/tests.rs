//! Grants on paths whose addresses and verdicts the test sets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll};
use std::time::Duration;

use qfabric_types::BitRate;
use qfabric_types::api::net::{Flow, Protocol};

use crate::carrier::{Carrier, CarrierCounts, CarrierKind, Path, Sent};
use crate::driver::Driver;
use crate::grant::RateGrant;
use crate::handover::{Command, Event, Handover};
use crate::options::Options;
use crate::quic::{Governor, Revocation};

const RATE: BitRate = BitRate::new(8_000_000);
const AT_ONCE: Duration = Duration::ZERO;

/// A path that sends nothing.
struct Still {
    own: SocketAddr,
    governor: Arc<Governor>,
}

impl Carrier for Still {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Memory
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.own, peer()))
    }

    fn path(&mut self) -> Path {
        Path { max_datagram: 1_200, ..Path::default() }
    }

    fn send(&mut self, _datagram: &[u8]) -> Sent {
        Sent::Yes
    }

    fn has_room(&self) -> bool {
        true
    }

    fn poll_room(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_receive(&mut self, _context: &mut Context<'_>, _buffer: &mut Vec<u8>) -> Poll<bool> {
        Poll::Pending
    }

    fn counts(&self) -> CarrierCounts {
        CarrierCounts::default()
    }

    fn governor(&self) -> Option<&Governor> {
        Some(&self.governor)
    }

    fn rebind(&mut self, local: SocketAddr) -> Result<(), crate::Error> {
        self.own = local;
        Ok(())
    }

    fn close(&mut self, _reason: &str) {}
}

fn own(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 1], port))
}

fn peer() -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 2], 7_800))
}

/// A driver with a path from each of the ports, and the paths' governors. The grant holds for the first path.
fn driver(ports: [u16; 2]) -> (Driver, Arc<Handover>, [Arc<Governor>; 2]) {
    let (options, handover) = (Options::default(), Arc::new(Handover::new(1 << 20).unwrap()));
    let mut driver = Driver::new(&options, 7, handover.clone(), None).unwrap();
    let governors = ports.map(|port| {
        let governor = Arc::new(Governor::default());
        driver.attach(Box::new(Still { own: own(port), governor: governor.clone() })).unwrap();
        governor
    });
    let flow = Flow { protocol: Protocol::Udp, source: own(ports[0]), destination: peer() };
    driver.obey(Command::Grant(Some(RateGrant::of_flow(RATE, flow))));
    assert_eq!(governors.each_ref().map(|governor| governor.granted()), [Some(RATE), None]);
    (driver, handover, governors)
}

fn revoked(handover: &Handover) -> Vec<Revocation> {
    let events = std::iter::from_fn(|| handover.event(AT_ONCE).ok());
    events.filter_map(|event| if let Event::Revoked(why) = event { Some(why) } else { None }).collect()
}

/// The end of a grant is carried out in a thread of the runtime.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn a_grant_ends_when_a_path_with_other_addresses_sends() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (mut driver, handover, governors) = driver([7_001, 7_002]);
    driver.select(1, 1).unwrap();
    assert_eq!(governors.each_ref().map(|governor| governor.granted()), [None, None]);
    assert_eq!(revoked(&handover), [Revocation::OtherAddresses]);
    driver.select(0, 0).unwrap();
    assert_eq!(governors[0].granted(), None, "a grant that has ended does not come back");
}

#[test]
fn a_grant_moves_to_a_path_with_the_same_addresses() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (mut driver, handover, governors) = driver([7_001, 7_001]);
    driver.select(1, 1).unwrap();
    assert_eq!(governors.each_ref().map(|governor| governor.granted()), [None, Some(RATE)]);
    assert_eq!(revoked(&handover), []);
}

#[test]
fn a_grant_ends_when_its_path_gets_another_own_address() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (mut driver, handover, governors) = driver([7_001, 7_002]);
    driver.obey(Command::Rebind { carrier: 0, local: own(7_003), reply: sync_channel(1).0 });
    assert_eq!((governors[0].granted(), revoked(&handover)), (None, vec![Revocation::OtherAddresses]));
}

#[test]
fn a_verdict_that_was_not_read_ends_the_grant_before_another_path_sends() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (mut driver, handover, governors) = driver([7_001, 7_001]);
    let verdict = Revocation::LossPersists { percent: 30 };
    governors[0].revoke(verdict);
    driver.select(1, 1).unwrap();
    assert_eq!(governors.each_ref().map(|governor| governor.granted()), [None, None]);
    assert_eq!(revoked(&handover), [verdict]);
}

#[test]
fn a_grant_ends_when_the_next_path_after_a_lost_one_has_other_addresses() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (mut driver, handover, _governors) = driver([7_001, 7_001]);
    for lost in [0, 1] {
        driver.detach(lost, "lost").unwrap();
    }
    let governor = Arc::new(Governor::default());
    driver.attach(Box::new(Still { own: own(7_002), governor: governor.clone() })).unwrap();
    assert_eq!((governor.granted(), revoked(&handover)), (None, vec![Revocation::OtherAddresses]));
}
