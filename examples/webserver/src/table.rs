//! Every socket of the server by its descriptor, with what it waits for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use crate::connection::Connection;

/// What is waited for at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing, for now.
    Nothing,
    /// Something to read, or to accept.
    Read,
    /// Room to write.
    Write,
}

/// A socket and its state.
#[derive(Debug)]
pub struct Entry {
    /// What it is.
    pub socket: Socket,
    /// What it waits for.
    pub interest: Interest,
    /// When a connection is given up; a listener never is.
    pub deadline: Option<Instant>,
}

/// The two kinds of sockets.
#[derive(Debug)]
pub enum Socket {
    /// New connections arrive here.
    Listener(OwnedFd),
    /// A client's.
    Connection(Connection),
}

impl AsFd for Entry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Listener(fd) => fd.as_fd(),
            Socket::Connection(connection) => connection.socket().as_fd(),
        }
    }
}

/// The sockets. Descriptors are small numbers, so the table is an array.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<Option<Entry>>,
    connections: usize,
}

impl Table {
    /// Puts an entry at its descriptor's place, which is given.
    pub fn insert(&mut self, entry: Entry) -> RawFd {
        let fd = entry.as_fd().as_raw_fd();
        let place = usize::try_from(fd).expect("descriptors are not negative");
        if place >= self.entries.len() {
            self.entries.resize_with(place + 1, || None);
        }
        self.connections += usize::from(matches!(entry.socket, Socket::Connection(_)));
        let old = self.entries[place].replace(entry);
        assert!(old.is_none(), "descriptor {fd} was in the table already");
        fd
    }

    /// The entry of that descriptor.
    pub fn get(&self, fd: RawFd) -> Option<&Entry> {
        self.entries.get(usize::try_from(fd).ok()?)?.as_ref()
    }

    /// The same, to change.
    pub fn get_mut(&mut self, fd: RawFd) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(fd).ok()?)?.as_mut()
    }

    /// Takes it out.
    pub fn remove(&mut self, fd: RawFd) -> Option<Entry> {
        let entry = self.entries.get_mut(usize::try_from(fd).ok()?)?.take()?;
        self.connections -= usize::from(matches!(entry.socket, Socket::Connection(_)));
        Some(entry)
    }

    /// All of them, by ascending descriptor.
    pub fn iter(&self) -> impl Iterator<Item = (RawFd, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(fd, entry)| Some((fd as RawFd, entry.as_ref()?)))
    }

    /// How many of them are connections: the paper's `numconnects`.
    pub fn connections(&self) -> usize {
        self.connections
    }
}
