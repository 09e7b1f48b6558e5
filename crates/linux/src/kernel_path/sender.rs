//! The sending end: an ordinary UDP socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use qfabric_types::kernel_path::{ParameterChange, PathKey};

/// Sends changes to one host. A lost datagram is not repeated: the next change of the parameter replaces it.
#[derive(Debug)]
pub struct ParameterSender {
    socket: UdpSocket,
    peer: u32,
    epoch: u32,
    key: PathKey,
    sequence: u64,
}

impl ParameterSender {
    /// `peer` and `epoch` are the numbers under which the receiver admitted this host with `key`. Only one sender may
    /// use them, because the receiver refuses a sequence number that is not larger than the last one.
    pub fn new(to: SocketAddr, peer: u32, epoch: u32, key: PathKey) -> io::Result<ParameterSender> {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(ParameterSender { socket, peer, epoch, key, sequence: 0 })
    }

    /// The epoch of the present key.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Sends a new value; returns the sequence number of the change. After an error it was not sent. An error of kind
    /// `ConnectionRefused` means that an earlier datagram reached a host without a kernel path at this address; other
    /// refusals and losses are not reported.
    pub fn set(&mut self, channel: u16, parameter: u16, value: i64) -> io::Result<u64> {
        self.sequence += 1;
        let (peer, epoch, sequence) = (self.peer, self.epoch, self.sequence);
        let change = ParameterChange { peer, epoch, channel, parameter, value, sequence };
        self.socket.send(&change.encode(&self.key)).map(|_| sequence)
    }

    /// Uses the key of the next epoch, once the receiver has it. Sequence numbers begin anew.
    pub fn renew(&mut self, epoch: u32, key: PathKey) {
        (self.epoch, self.key, self.sequence) = (epoch, key, 0);
    }
}
