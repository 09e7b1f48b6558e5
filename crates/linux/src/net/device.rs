//! Properties of an interface of this network namespace.

use std::io;
use std::net::Ipv4Addr;

use super::netlink::{self, Message, RTM_NEWLINK};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
/// Length of the network prefix of an address.
const PREFIX_BITS: u8 = 24;

fn change(name: &str, attributes: &[(u16, u32)]) -> io::Result<()> {
    let ifindex = super::index(name).map_err(io::Error::other)?;
    let message = Message::interface(RTM_NEWLINK, 0, ifindex, true);
    let add = |message: Message, (kind, value): &(u16, u32)| message.attribute(*kind, &value.to_ne_bytes());
    netlink::act(attributes.iter().fold(message, add))
}

/// Lets packets pass.
pub(crate) fn up(name: &str) -> io::Result<()> {
    change(name, &[])
}

/// Sets the largest packet and the length of the device's queue in packets, and lets packets pass.
pub(crate) fn configure(name: &str, mtu: u16, queue: u32) -> io::Result<()> {
    change(name, &[(IFLA_MTU, u32::from(mtu)), (IFLA_TXQLEN, queue)])
}

/// Adds an IPv4 address with a network prefix of 24 bits.
pub(crate) fn add_address(name: &str, address: Ipv4Addr) -> io::Result<()> {
    let ifindex = super::index(name).map_err(io::Error::other)?;
    let message = Message::address(ifindex, PREFIX_BITS).attribute(IFA_LOCAL, &address.octets());
    netlink::act(message.attribute(IFA_ADDRESS, &address.octets()))
}
