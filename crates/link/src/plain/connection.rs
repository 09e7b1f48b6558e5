//! The sending half of a connection: writes at once if the socket has room, otherwise keeps bytes in a bounded backlog.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use qfabric_channel::Lane;
use qfabric_sync::{Lock, rank};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};

use super::wire::{HEADER, Kind, header};

/// Bytes that may wait for a peer: above the first number control frames end the connection, above the second data
/// frames are dropped. They wait behind the bytes in the kernel's socket buffers.
const BACKLOG: [usize; 2] = [1 << 20, 512 << 10];

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Written, or in the backlog.
    Yes,
    /// Dropped; the connection goes on.
    Dropped,
    /// The connection has ended.
    Ended,
}

/// A connection to a peer, shared by the threads that send.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its number in the event thread's epoll.
    pub token: u64,
    pub lane: Lane,
    pub socket: OwnedFd,
    backlog: Lock<Backlog, { rank::SENDING }>,
}

#[derive(Debug, Default)]
struct Backlog {
    bytes: Vec<u8>,
    written: usize,
}

impl Backlog {
    /// Removes written bytes from the backlog when they are more than half of it, so that each byte is moved at most
    /// once.
    fn forget_written(&mut self) {
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}

impl Connection {
    pub(super) fn new(token: u64, lane: Lane, socket: OwnedFd) -> Connection {
        Connection { token, lane, socket, backlog: Lock::default() }
    }

    /// Sends a frame. If bytes remain, registers the connection with `epoll` for write readiness.
    pub(super) fn send(&self, epoll: impl AsFd, kind: Kind, body: &[u8]) -> Sent {
        let mut backlog = self.backlog.lock();
        let head = header(kind, body.len());
        if !backlog.bytes.is_empty() {
            return self.keep(&mut backlog, &head, body);
        }
        match self.write(&[IoSlice::new(&head), IoSlice::new(body)]) {
            Ok(all) if all == HEADER + body.len() => Sent::Yes,
            Ok(some) => self.keep_rest(&mut backlog, epoll, &head, body, some),
            Err(Errno::AGAIN) => self.keep_rest(&mut backlog, epoll, &head, body, 0),
            Err(_) => self.end(),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        sendmsg(&self.socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
    }

    fn keep(&self, backlog: &mut Backlog, head: &[u8], body: &[u8]) -> Sent {
        if backlog.bytes.len() - backlog.written + body.len() <= BACKLOG[self.lane as usize] {
            backlog.bytes.extend_from_slice(head);
            backlog.bytes.extend_from_slice(body);
            return Sent::Yes;
        }
        if self.lane == Lane::Control { self.end() } else { Sent::Dropped }
    }

    fn keep_rest(&self, backlog: &mut Backlog, epoll: impl AsFd, head: &[u8], body: &[u8], sent: usize) -> Sent {
        backlog.bytes.extend_from_slice(&head[sent.min(HEADER)..]);
        backlog.bytes.extend_from_slice(&body[sent.saturating_sub(HEADER)..]);
        match self.watch(epoll, epoll::EventFlags::IN | epoll::EventFlags::OUT) {
            Ok(()) => Sent::Yes,
            Err(_) => self.end(),
        }
    }

    fn watch(&self, epoll: impl AsFd, flags: epoll::EventFlags) -> rustix::io::Result<()> {
        epoll::modify(epoll, &self.socket, epoll::EventData::new_u64(self.token), flags)
    }

    /// The socket has room again: writes the waiting bytes.
    pub(super) fn flush(&self, epoll: impl AsFd) -> Sent {
        let mut backlog = self.backlog.lock();
        while backlog.written < backlog.bytes.len() {
            match self.write(&[IoSlice::new(&backlog.bytes[backlog.written..])]) {
                Ok(count) => backlog.written += count,
                Err(Errno::AGAIN) => {
                    backlog.forget_written();
                    return Sent::Yes;
                }
                Err(_) => return self.end(),
            }
        }
        *backlog = Backlog::default();
        match self.watch(epoll, epoll::EventFlags::IN) {
            Ok(()) => Sent::Yes,
            Err(_) => self.end(),
        }
    }

    /// Shuts the stream down; the event thread sees its end and removes the connection.
    pub(super) fn end(&self) -> Sent {
        let _ = shutdown(&self.socket, Shutdown::Both);
        Sent::Ended
    }
}
