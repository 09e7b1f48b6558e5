//! The table of all sockets of the server, by descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use crate::connection::Connection;

/// The kind of readiness that the server waits for on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Nothing,
    /// Data to read, or a connection to accept.
    Read,
    /// Space to write.
    Write,
}

#[derive(Debug)]
pub struct Entry {
    pub socket: Socket,
    pub interest: Interest,
    /// When the connection is closed unless it makes progress; `None` for a listener.
    pub deadline: Option<Instant>,
}

#[derive(Debug)]
pub enum Socket {
    /// New connections arrive at this socket.
    Listener(OwnedFd),
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

/// The table. Descriptors are small numbers, so it is an array.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<Option<Entry>>,
    connections: usize,
}

impl Table {
    /// Inserts an entry at the index of its descriptor, which is returned.
    pub fn insert(&mut self, entry: Entry) -> RawFd {
        let fd = entry.as_fd().as_raw_fd();
        let index = usize::try_from(fd).expect("descriptors are not negative");
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        self.connections += usize::from(matches!(entry.socket, Socket::Connection(_)));
        let old = self.entries[index].replace(entry);
        assert!(old.is_none(), "descriptor {fd} was in the table already");
        fd
    }

    pub fn get(&self, fd: RawFd) -> Option<&Entry> {
        self.entries.get(usize::try_from(fd).ok()?)?.as_ref()
    }

    pub fn get_mut(&mut self, fd: RawFd) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(fd).ok()?)?.as_mut()
    }

    pub fn remove(&mut self, fd: RawFd) -> Option<Entry> {
        let entry = self.entries.get_mut(usize::try_from(fd).ok()?)?.take()?;
        self.connections -= usize::from(matches!(entry.socket, Socket::Connection(_)));
        Some(entry)
    }

    /// All entries by ascending descriptor.
    pub fn iter(&self) -> impl Iterator<Item = (RawFd, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(fd, entry)| Some((fd as RawFd, entry.as_ref()?)))
    }

    /// Number of connections: the paper's `numconnects`.
    pub fn connections(&self) -> usize {
        self.connections
    }
}
