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

fn change(ifindex: u32, attributes: &[(u16, u32)]) -> io::Result<()> {
    let message = Message::interface(RTM_NEWLINK, 0, ifindex, true);
    let add = |message: Message, (kind, value): &(u16, u32)| message.attribute(*kind, &value.to_ne_bytes());
    netlink::act(attributes.iter().fold(message, add))
}

/// Lets packets pass.
pub(crate) fn up(ifindex: u32) -> io::Result<()> {
    change(ifindex, &[])
}

/// Sets the largest packet and the length of the device's queue in packets, and lets packets pass.
pub(crate) fn configure(ifindex: u32, mtu: u16, queue: u32) -> io::Result<()> {
    change(ifindex, &[(IFLA_MTU, u32::from(mtu)), (IFLA_TXQLEN, queue)])
}

/// Adds an IPv4 address with a network prefix of 24 bits.
pub(crate) fn add_address(ifindex: u32, address: Ipv4Addr) -> io::Result<()> {
    let message = Message::address(ifindex, PREFIX_BITS).attribute(IFA_LOCAL, &address.octets());
    netlink::act(message.attribute(IFA_ADDRESS, &address.octets()))
}
