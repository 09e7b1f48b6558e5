//! Passes file descriptors between processes: one message with one set of descriptors, over a `SOCK_SEQPACKET` Unix
//! socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to,
    listen as listen_on, recvmsg, sendmsg, socket_with,
};

/// Largest number of descriptors in one message that this project sends: a ring, an eventfd, and two in reserve.
pub const MAX_FDS: usize = 4;
const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));
/// Largest number of descriptors that the kernel allows in one message (`SCM_MAX_FD`).
const MOST_FDS: usize = 253;
const MOST_SPACE: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

/// A message and the descriptors that came with it.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message in the caller's buffer; 0 means that the peer has closed the socket.
    pub length: usize,
    /// In the order in which they were sent, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// The message was longer than the buffer, and the rest of it is lost. Only [`recv_all_now`] returns such a
    /// message.
    pub is_cut: bool,
}

/// Connects to the socket at `path`. Connecting, and later each send and receive, fails with `WouldBlock` after
/// `patience`.
pub fn connect(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let socket = socket()?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    retry_on_intr(|| connect_to(&socket, &SocketAddrUnix::new(path)?))?;
    Ok(socket)
}

/// Creates a listening socket at `path`, which must not exist yet. At most `backlog` connections wait to be
/// accepted.
pub fn listen(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen_on(&socket, backlog)?;
    Ok(socket)
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends `message` with at most [`MAX_FDS`] descriptors. A closed peer is an error, never `SIGPIPE`.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, fds, SendFlags::NOSIGNAL)
}

/// Like [`send`], without waiting: fails with `WouldBlock` if the peer's queue is full.
pub fn send_fds_now(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_with(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
    if fds.len() > MAX_FDS {
        let why = format!("{} descriptors in one message, the limit is {MAX_FDS}", fds.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "SPACE holds MAX_FDS descriptors");
    }
    let sent = retry_on_intr(|| sendmsg(&socket, &[io::IoSlice::new(message)], &mut control, flags))?;
    debug_assert_eq!(sent, message.len(), "a SOCK_SEQPACKET message goes out whole");
    Ok(())
}

/// Sends one message made of `parts` without waiting: fails with `WouldBlock` if the peer's queue is full.
pub fn send_now(socket: impl AsFd, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut control = SendAncillaryBuffer::default();
    retry_on_intr(|| sendmsg(&socket, parts, &mut control, flags))?;
    Ok(())
}

/// Like [`recv`], without waiting: fails with `WouldBlock` if there is no message.
pub fn recv_now(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    recv_with(socket, buffer, RecvFlags::DONTWAIT)
}

/// Receives one message into `buffer`. If the kernel cut the message or its set of descriptors short, this is an
/// error, and the descriptors that arrived are closed.
pub fn recv(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    recv_with(socket, buffer, RecvFlags::empty())
}

/// Like [`recv_now`], for a reader that must not wait for a hostile sender. It returns every descriptor that
/// arrived, also with a message that was cut, and closes none: closing a descriptor of a sender's own file system
/// may block for ever, so the caller closes them in a thread that may block.
pub fn recv_all_now(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive(socket, buffer, RecvFlags::DONTWAIT, &mut [MaybeUninit::uninit(); MOST_SPACE])
}

fn recv_with(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Received> {
    let received = receive(socket, buffer, flags, &mut [MaybeUninit::uninit(); SPACE])?;
    match received.is_cut {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "the message is longer than the protocol allows")),
        false => Ok(received),
    }
}

fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
    space: &mut [MaybeUninit<u8>],
) -> io::Result<Received> {
    let mut control = RecvAncillaryBuffer::new(space);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let answer = retry_on_intr(|| recvmsg(&socket, &mut parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC))?;
    let fds = control.drain().filter_map(descriptors).flatten().collect();
    let is_cut = answer.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
    Ok(Received { length: answer.bytes, fds, is_cut })
}

fn descriptors(message: RecvAncillaryMessage<'_>) -> Option<impl Iterator<Item = OwnedFd>> {
    match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedRing;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{SocketFlags, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_ring_and_its_eventfd_arrive_in_one_message() {
        let (daemon, application) = pair();
        let (ring, memory) = SharedRing::create().unwrap();
        let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        send(&daemon, b"ok", &[memory.as_fd(), wake.as_fd()]).unwrap();

        let mut buffer = [0; 8];
        let mut received = recv(&application, &mut buffer).unwrap();
        assert_eq!((&buffer[..received.length], received.fds.len()), (&b"ok"[..], 2));
        let (their_wake, their_memory) = (received.fds.pop().unwrap(), received.fds.pop().unwrap());
        rustix::io::write(&their_wake, &1u64.to_ne_bytes()).unwrap();
        rustix::io::read(&wake, &mut [0; 8]).unwrap();
        ring.promise_look(qfabric_types::Instant::NEVER);
        assert!(SharedRing::map(their_memory).unwrap().is_valid());
    }

    #[test]
    fn more_descriptors_than_the_limit_are_refused() {
        let (daemon, application) = pair();
        let refusal = send(&daemon, b"ok", &[daemon.as_fd(); MAX_FDS + 1]).unwrap_err();
        assert!(refusal.to_string().contains("5 descriptors"), "{refusal}");
        send(&daemon, b"ok", &[daemon.as_fd(); MAX_FDS]).unwrap();
        assert_eq!(recv(&application, &mut [0; 8]).unwrap().fds.len(), MAX_FDS);
    }

    #[test]
    fn recv_all_now_returns_all_descriptors_of_a_cut_message() {
        let (daemon, application) = pair();
        send(&daemon, b"longer", &[daemon.as_fd(); 3]).unwrap();
        let received = recv_all_now(&application, &mut [0; 2]).unwrap();
        assert!(received.is_cut && received.fds.len() == 3, "{received:?}");
        assert_eq!(recv_all_now(&application, &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_message_longer_than_the_buffer_is_an_error() {
        let (daemon, application) = pair();
        send(&daemon, b"okay then", &[]).unwrap();
        assert!(recv(&application, &mut [0; 2]).is_err());
    }

    #[test]
    fn receiving_from_a_closed_peer_is_empty_and_sending_fails() {
        let (daemon, application) = pair();
        drop(daemon);
        assert_eq!(recv(&application, &mut [0; 2]).unwrap().length, 0);
        assert!(send(&application, b"1", &[]).is_err());
    }

    #[test]
    fn receiving_from_a_silent_peer_ends_after_the_patience() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring.sock");
        let _listener = listen(&path, 4).unwrap();
        let socket = connect(&path, Duration::from_millis(20)).unwrap();
        assert_eq!(recv(&socket, &mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_second_listener_at_one_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring.sock");
        let _first = listen(&path, 4).unwrap();
        assert_eq!(listen(&path, 4).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
