//! A network that could not be joined again.

use std::net::TcpListener;

use qfabric_link as link;

use super::super::network::Way;
use super::*;

#[test]
fn a_network_that_could_not_be_joined_again_is_joined_by_a_later_attempt() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = vec![free.to_string()];
    let config = ChannelsConfig { enabled: true, engine: EngineName::Tcp, listen, ..ChannelsConfig::default() };
    let config = ChannelsConfig { host: Some("alpha".parse().unwrap()), priority: 0, ..config };
    let ending = Ending::new().unwrap();
    let (requests, _commands) = control::requests(ending.control_wake().clone());
    let fabric = Fabric::start(&config, requests, Arc::default(), Arc::default(), &ending).unwrap();
    let Way::Linked { link, config, .. } = &fabric.network.way else { panic!("there is a network") };
    assert!(fabric.renew() && link.is_open(), "nothing is due");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = vec![taken.local_addr().unwrap().to_string().parse().unwrap()];
    let elsewhere = link::Config { listen: elsewhere, ..config.lock().clone() };
    assert!(link.reopen(&elsewhere, || {}).is_err() && !link.is_open());
    // Another program takes the port meanwhile.
    let other = TcpListener::bind(free).unwrap();
    assert!(!fabric.renew() && !link.is_open());
    drop(other);
    assert!(fabric.renew() && link.is_open());
    link.close();
}
