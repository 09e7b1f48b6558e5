//! Packets that leave at a stated time: the kernel's queueing discipline `fq` holds each until then (SO_TXTIME).
//!
//! A program that forms bursts (`qfabric_energy::Departures`) need not wake up for them: it hands over each packet at
//! once, with the begin of its burst. Other disciplines than `fq` and `etf` ignore the time.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use qfabric_types::Instant;
use rustix::net::TxTimeFlags;
use rustix::net::sockopt::set_txtime;
use rustix::time::ClockId;

/// A UDP socket, connected to its receiver, whose packets have departure times.
#[derive(Debug)]
pub struct TimedSocket(UdpSocket);

/// A control message with one number of 64 bits: length, level and type, number; in the layout of `struct cmsghdr`.
type ControlMessage = [u64; 3];

impl TimedSocket {
    /// Turns departure times on for a connected socket. They are times of CLOCK_MONOTONIC, the only clock that `fq` knows.
    ///
    /// # Errors
    /// From the kernel, such as EPERM without CAP_NET_ADMIN for some clocks.
    pub fn new(socket: UdpSocket) -> io::Result<TimedSocket> {
        set_txtime(&socket, ClockId::Monotonic, TxTimeFlags::empty())?;
        Ok(TimedSocket(socket))
    }

    /// Hands over a packet that leaves at `at`, or at once if that time is past. `fq` drops packets beyond its horizon of
    /// 10 s.
    ///
    /// # Errors
    /// From the kernel.
    #[allow(unsafe_code, reason = "a control message that no safe library offers")]
    pub fn send_at(&self, bytes: &[u8], at: Instant) -> io::Result<usize> {
        let kind = (libc::SOL_SOCKET as u64) | ((libc::SCM_TXTIME as u64) << 32);
        let mut control: ControlMessage = [size_of::<ControlMessage>() as u64, native_pair(kind), at.get()];
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all zeros is a valid message without an address.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<ControlMessage>() as _;
        // SAFETY: the message points to one part and one control message, both live and of the given lengths; the kernel
        // only reads them.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}

/// Two 32-bit numbers, the first in the low half, as they lie in memory on this machine.
fn native_pair(pair: u64) -> u64 {
    if cfg!(target_endian = "big") { pair.rotate_left(32) } else { pair }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_a_departure_time_arrives() {
        let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let timed = TimedSocket::new(sender).unwrap();
        assert_eq!(timed.send_at(b"burst", crate::clock::now()).unwrap(), 5);
        let mut bytes = [0; 16];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 5);
        assert_eq!(&bytes[..5], b"burst");
    }
}
