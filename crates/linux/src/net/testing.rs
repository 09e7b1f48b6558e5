//! Links, raw packets and queueing disciplines for tests and measurements. Needs root.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use qfabric_types::api::net::Flow;

use super::device::{self, up};
use super::former;
use super::netlink::{
    self, Message, NLM_F_CREATE, NLM_F_EXCL, Object, RTM_DELLINK, RTM_GETQDISC, RTM_NEWLINK, link_header, push,
};
use crate::abi::qf_net_burst;
use crate::bpf::{Link, Object as BpfObject, ObjectError, OpenObject, Plain, SkbSide, objects};
use crate::namespace::Namespace;

const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const ETH_P_ALL: u16 = 3;
/// Bytes of the headers of Ethernet, IPv4 and UDP.
pub const HEADERS: usize = 14 + 20 + 8;

/// Moves the calling thread into a new network namespace. Interfaces in it disturb no other program and vanish with it.
#[allow(unsafe_code, reason = "a call that no safe library offers")]
pub fn own_network() -> io::Result<()> {
    // SAFETY: takes only a number, and affects only sockets that this thread creates later.
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An interface for a test. Dropping it removes the interface, and its other end if it has one.
#[derive(Debug)]
pub struct Interface {
    pub name: String,
    pub ifindex: u32,
}

impl Interface {
    /// An interface that discards its packets.
    pub fn dummy(name: &str) -> io::Result<Interface> {
        Interface::make(name, "dummy", &[])
    }

    /// An interface whose packets arrive at `far`.
    pub fn veth(name: &str, far: &str) -> io::Result<Interface> {
        let made = Interface::make(name, "veth", &veth_peer(far, None))?;
        up(super::index(far).map_err(io::Error::other)?)?;
        Ok(made)
    }

    /// A link to another network namespace, whose interface there is `far`. The ends get the two addresses.
    pub fn veth_to(name: &str, far: &str, namespace: &Namespace, addresses: [Ipv4Addr; 2]) -> io::Result<Interface> {
        let made = Interface::make(name, "veth", &veth_peer(far, Some(namespace)))?;
        made.address(addresses[0])?;
        namespace.inside(|| {
            let ifindex = super::index(far).map_err(io::Error::other)?;
            up(ifindex)?;
            device::add_address(ifindex, addresses[1])
        })??;
        Ok(made)
    }

    /// An interface that sends through another one.
    pub fn above(name: &str, lower: &Interface) -> io::Result<Interface> {
        let message = Message::interface(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0, false);
        Interface::make_with(message.attribute(IFLA_LINK, &lower.ifindex.to_ne_bytes()), name, "macvlan", &[])
    }

    fn make(name: &str, kind: &str, data: &[u8]) -> io::Result<Interface> {
        let message = Message::interface(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0, false);
        Interface::make_with(message, name, kind, data)
    }

    fn make_with(message: Message, name: &str, kind: &str, data: &[u8]) -> io::Result<Interface> {
        let mut info = Vec::new();
        push(&mut info, IFLA_INFO_KIND, kind.as_bytes());
        push(&mut info, IFLA_INFO_DATA, data);
        netlink::act(message.name(IFLA_IFNAME, name).attribute(IFLA_LINKINFO, &info))?;
        let ifindex = super::index(name).map_err(io::Error::other)?;
        let made = Interface { name: name.to_owned(), ifindex };
        up(ifindex)?;
        Ok(made)
    }

    /// Adds an IPv4 address with a prefix of 24 bits.
    pub fn address(&self, address: Ipv4Addr) -> io::Result<()> {
        device::add_address(self.ifindex, address)
    }

    /// Kind, handle and options of the root discipline.
    pub fn root(&self) -> io::Result<(String, u32, Vec<u8>)> {
        let all = netlink::list(Message::new(RTM_GETQDISC, 0, Object { ifindex: self.ifindex, ..Object::default() }))?;
        let is_root =
            |found: &&netlink::Answer| found.object.ifindex == self.ifindex && found.object.parent == former::ROOT;
        let found = all.iter().find(is_root).ok_or(io::ErrorKind::NotFound)?;
        let options = found.attribute(former::TCA_OPTIONS).unwrap_or_default().to_vec();
        Ok((found.name(former::TCA_KIND).unwrap_or_default(), found.object.handle, options))
    }

    /// Installs a root discipline that is not ours.
    pub fn set_root(&self, handle: u32, kind: &str, options: Option<&[u8]>) -> io::Result<()> {
        former::replace(self.ifindex, handle, kind, options)
    }
}

/// The attributes that name the other end of a link, and its network namespace if that is another one.
fn veth_peer(far: &str, namespace: Option<&Namespace>) -> Vec<u8> {
    let mut peer = link_header(0, false).to_vec();
    push(&mut peer, IFLA_IFNAME, &[far.as_bytes(), &[0]].concat());
    if let Some(namespace) = namespace {
        push(&mut peer, IFLA_NET_NS_FD, &namespace.as_fd().as_raw_fd().to_ne_bytes());
    }
    let mut data = Vec::new();
    push(&mut data, VETH_INFO_PEER, &peer);
    data
}

impl Drop for Interface {
    fn drop(&mut self) {
        let _ = netlink::act(Message::interface(RTM_DELLINK, 0, self.ifindex, false));
    }
}

/// A busy link: while the queue of `above` sends a packet with the mark [`BusyLink::TRIGGER`], other packets arrive and
/// wait in the queue. Ends when dropped.
#[derive(Debug)]
pub struct BusyLink {
    _link: Link,
    _object: BpfObject,
}

// SAFETY: only integers and no holes.
#[allow(unsafe_code, reason = "a record of the kernel's side")]
unsafe impl Plain for qf_net_burst {}

impl BusyLink {
    /// Mark of the packet that makes the link busy.
    pub const TRIGGER: u32 = 0x7777;

    /// `packets` packets of `streams` streams (marks from 1) arrive at `above`, which sends through `lower`, while one
    /// packet is being sent.
    pub fn new(lower: &Interface, above: &Interface, packets: u32, streams: u32) -> Result<BusyLink, ObjectError> {
        let burst = qf_net_burst { above: above.ifindex, trigger: BusyLink::TRIGGER, packets, streams };
        let object =
            OpenObject::open("a busy link", objects::PACKET_BURST)?.constant(".rodata.burst", &burst)?.load()?;
        let failed = |error| ObjectError::Kernel { object: "a busy link".into(), name: "qf_burst".into(), error };
        let link = object.entry("qf_burst")?.attach_packets(lower.ifindex, SkbSide::Egress).map_err(failed)?;
        Ok(BusyLink { _link: link, _object: object })
    }
}

/// Sets the mark of all packets that a socket sends.
#[allow(unsafe_code, reason = "an option that no safe library offers")]
pub fn mark(socket: &impl AsRawFd, mark: u32) -> io::Result<()> {
    // SAFETY: the value is live and has the given size.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, (&raw const mark).cast(), 4) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel split what a UDP socket sends into datagrams of `bytes`, as late as it can.
#[allow(unsafe_code, reason = "an option that no safe library offers")]
pub fn segment(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    const UDP_SEGMENT: i32 = 103;
    // SAFETY: the value is live and has the given size.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_SEGMENT, (&raw const bytes).cast(), 4) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket for complete frames on an interface.
#[derive(Debug)]
pub struct Frames {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
}

#[allow(unsafe_code, reason = "packet sockets, which no safe library offers")]
impl Frames {
    /// Opens a socket on an interface. `mark` is the mark of sent packets (0: none).
    pub fn at(ifindex: u32, mark: u32) -> io::Result<Frames> {
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes only numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, flags, i32::from(ETH_P_ALL.to_be())) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor for this process; it has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, ifindex as i32);
        address.sll_protocol = ETH_P_ALL.to_be();
        let frames = Frames { socket, address };
        frames.bind()?;
        frames.set(libc::SO_MARK, &mark)?;
        frames.set(libc::SO_SNDBUF, &(8u32 << 20))?;
        frames.set(libc::SO_RCVBUF, &(8u32 << 20))?;
        Ok(frames)
    }

    fn bind(&self) -> io::Result<()> {
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address is live and has the given length.
        let rc = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const self.address).cast(), length) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn set(&self, option: i32, value: &u32) -> io::Result<()> {
        // SAFETY: the value is live and has the given size.
        let rc = unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const *value).cast(), 4)
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends a frame. Fails with ENOBUFS if a full queue drops it.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is live and has the given length.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives a frame that has already arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is live and has the given length.
        let received = unsafe {
            libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received as usize) }
    }
}

/// A broadcast frame of a flow with `payload`.
pub fn frame(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    use std::net::IpAddr::{V4, V6};
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1]);
    match (flow.source.ip(), flow.destination.ip()) {
        (V4(source), V4(destination)) => header4(&mut frame, flow, source, destination, payload.len()),
        (V6(source), V6(destination)) => header6(&mut frame, flow, source, destination, payload.len()),
        _ => panic!("the addresses of a flow have the same family"),
    }
    frame.extend(flow.source.port().to_be_bytes());
    frame.extend(flow.destination.port().to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn header6(frame: &mut Vec<u8>, flow: &Flow, source: Ipv6Addr, destination: Ipv6Addr, payload: usize) {
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([flow.protocol.number(), 64]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
}

fn header4(frame: &mut Vec<u8>, flow: &Flow, source: Ipv4Addr, destination: Ipv4Addr, payload: usize) {
    let length = (20 + 8 + payload) as u16;
    frame.extend([8, 0]);
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, flow.protocol.number(), 0, 0]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_headers_and_payload() {
        let frame = frame(&"udp,10.0.0.1:5000,10.0.0.2:6000".parse().unwrap(), &[7; 10]);
        assert_eq!(frame.len(), HEADERS + 10);
        assert_eq!(frame[26..30], [10, 0, 0, 1]);
        assert_eq!(frame[36..38], 6000u16.to_be_bytes());
        let frame = super::frame(&"udp,[fd00::1]:5000,[fd00::2]:6000".parse().unwrap(), &[7; 10]);
        assert_eq!((frame.len(), frame[20], frame[53]), (HEADERS + 20 + 10, 17, 2));
        assert_eq!(frame[56..58], 6000u16.to_be_bytes());
    }
}
