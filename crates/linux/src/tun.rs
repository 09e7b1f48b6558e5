//! TUN devices: the kernel sends the IP packets of an interface to this process, and takes packets from it as received.
#![allow(unsafe_code)] // an ioctl that no safe library offers

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::net;

/// The device file.
pub const DEVICE: &str = "/dev/net/tun";
/// Packets that wait for the reader. More than the kernel's 500, so that a burst waits in the reader's own queue.
const QUEUE_PACKETS: u32 = 16_384;

/// A TUN device in the network namespace in which it was made. The device vanishes when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// A device that is up. Needs CAP_NET_ADMIN, and the right to open [`DEVICE`]. `name` has up to 15 bytes. The first
    /// address is that of packets without another one; all have a network prefix of 24 bits.
    pub fn new(name: &str, addresses: &[Ipv4Addr], mtu: u16) -> io::Result<Tun> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        attach(&file, name)?;
        let ifindex = net::index(name).map_err(io::Error::other)?;
        net::configure(ifindex, mtu, QUEUE_PACKETS)?;
        addresses.iter().try_for_each(|address| net::add_address(ifindex, *address))?;
        Ok(Tun { file })
    }

    /// Reads one packet that waits; `WouldBlock` if there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands one packet to the kernel.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes the open file a device of IP packets without a header.
fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is live, has a terminated name, and the kernel writes only into it.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Packets that the kernel dropped because the reader of a device was too slow. To be called in the device's namespace.
pub fn drops(name: &str) -> io::Result<u64> {
    drops_in(&fs::read_to_string("/proc/thread-self/net/dev")?, name).ok_or(io::ErrorKind::NotFound.into())
}

/// Field «drop» of the transmit half in a line of `/proc/net/dev`.
fn drops_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::namespace::{Namespace, may_make};
    use crate::testing::skip;

    const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

    /// Sends a datagram through a device, answers it by hand, and receives the answer.
    fn exchange() -> u64 {
        let tun = Tun::new("lab0", &[HERE], 1_400).unwrap();
        let socket = UdpSocket::bind((HERE, 7)).unwrap();
        socket.send_to(b"hello", (THERE, 7)).unwrap();
        let mut packet = [0; 2_048];
        let length = loop {
            match tun.receive(&mut packet) {
                Ok(length) if packet[0] >> 4 == 4 => break length,
                Ok(_) => {} // IPv6 looks for routers
                Err(error) => panic!("the datagram waits in the device: {error}"),
            }
        };
        assert_eq!((length, &packet[28..length]), (33, &b"hello"[..]));
        // Swapped addresses leave both checksums as they are.
        let (source, destination) = (packet[12..16].to_vec(), packet[16..20].to_vec());
        packet[12..16].copy_from_slice(&destination);
        packet[16..20].copy_from_slice(&source);
        tun.send(&packet[..length]).unwrap();
        let (mut answer, limit) = ([0; 64], Some(std::time::Duration::from_secs(30)));
        socket.set_read_timeout(limit).unwrap();
        assert_eq!(socket.recv_from(&mut answer).unwrap(), (5, (THERE, 7).into()));
        drops("lab0").unwrap()
    }

    #[test]
    fn packets_pass_a_device_in_both_directions() {
        if !may_make() {
            return skip("this test needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
        }
        if !fs::exists(DEVICE).unwrap_or(false) {
            return skip(format!("no {DEVICE}"));
        }
        assert_eq!(Namespace::new().unwrap().inside(exchange).unwrap(), 0);
    }

    #[test]
    fn dropped_packets_are_read_from_the_right_field() {
        let text = "Inter-|   Receive\n lab0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  lo: 0 0";
        assert_eq!((drops_in(text, "lab0"), drops_in(text, "lab1")), (Some(12), None));
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let file = File::open("/dev/null").unwrap();
        assert_eq!(attach(&file, "sixteen-letters0").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
