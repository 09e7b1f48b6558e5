//! The loop of the server: wait for ready sockets, accept, serve, and close connections that waited too long.
//!
//! Bounds: at most [`Settings::connections`] connections are open. At this limit the server accepts no more, and
//! the kernel's queue fills. A connection is closed if the server sent nothing on it for [`Settings::patience`]:
//! either the client sends nothing, or its request does not become complete. After a request to stop, the server
//! accepts no more connections and has [`Settings::patience`] to finish its answers.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::backend::Backend;
use crate::connection::{Connection, Next};
use crate::site::Site;
use crate::table::{Entry, Interest, Socket, Table};

/// Pause after a lack of descriptors or memory without a connection whose end could change it.
const PAUSE: Duration = Duration::from_millis(10);

/// Longest sleep. It bounds the delay of a signal that arrives just before the sleep.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Largest number of open connections.
    pub connections: usize,
    /// Longest time that a connection may stay open without progress of an answer.
    pub patience: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of accepted connections.
    pub accepted: u64,
    /// Number of answers sent.
    pub replies: u64,
    /// Number of connections closed because they made no progress.
    pub timeouts: u64,
    /// Largest number of connections open at once.
    pub most: usize,
}

/// Called with the number of open connections and the number accepted so far, whenever one of them has changed.
pub type OnConnections = Box<dyn FnMut(usize, u64)>;

/// A server in one thread.
pub struct Server {
    backend: Box<dyn Backend>,
    table: Table,
    listener: RawFd,
    deadlines: BTreeSet<(Instant, RawFd)>,
    again: Vec<RawFd>,
    site: Site,
    settings: Settings,
    counters: Counters,
    on_connections: OnConnections,
}

/// Binds a socket and listens; at most `backlog` connections may wait to be accepted.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

impl Server {
    /// Creates a server on a listening non-blocking socket.
    pub fn new(
        listener: OwnedFd,
        mut backend: Box<dyn Backend>,
        site: Site,
        settings: Settings,
        on_connections: OnConnections,
    ) -> io::Result<Server> {
        backend.add(listener.as_fd())?;
        let mut table = Table::default();
        let entry = Entry { socket: Socket::Listener(listener), interest: Interest::Read, deadline: None };
        let listener = table.insert(entry);
        Ok(Server {
            backend,
            table,
            listener,
            deadlines: BTreeSet::new(),
            again: Vec::new(),
            site,
            settings,
            counters: Counters::default(),
            on_connections,
        })
    }

    /// Serves until `stop` is true. Returns the counters.
    pub fn run(mut self, stop: &AtomicBool) -> io::Result<Counters> {
        while !stop.load(Ordering::Relaxed) {
            self.run_once()?;
        }
        self.finish()
    }

    /// Answers the requests that have already arrived.
    fn finish(mut self) -> io::Result<Counters> {
        self.backend.remove(self.table.get(self.listener).expect("the listener is in the table").as_fd());
        self.table.remove(self.listener);
        for fd in self.connections() {
            match self.table.get_mut(fd) {
                Some(Entry { socket: Socket::Connection(connection), .. }) if !connection.is_idle() => {
                    connection.finish();
                }
                _ => self.close(fd),
            }
        }
        let until = Instant::now() + self.settings.patience;
        while self.table.connections() > 0 && Instant::now() < until {
            self.run_once()?;
        }
        Ok(self.counters)
    }

    fn connections(&self) -> Vec<RawFd> {
        self.table.iter().map(|(fd, _)| fd).filter(|fd| *fd != self.listener).collect()
    }

    fn run_once(&mut self) -> io::Result<()> {
        let mut ready = std::mem::take(&mut self.again);
        let longest = if ready.is_empty() { self.longest_wait() } else { Duration::ZERO };
        let again = ready.len();
        self.backend.wait(&self.table, longest, &mut ready)?;
        if again > 0 {
            // The back end may name the same sockets: each has one turn, or its turns would become more and more.
            ready.sort_unstable();
            ready.dedup();
        }
        for fd in ready {
            if fd == self.listener { self.accept()? } else { self.serve(fd)? }
        }
        self.close_expired()
    }

    fn longest_wait(&self) -> Duration {
        let first = self.deadlines.first().map(|(deadline, _)| deadline.saturating_duration_since(Instant::now()));
        first.map_or(LONGEST_WAIT, |first| first.min(LONGEST_WAIT))
    }

    /// Accepts waiting connections up to the limit.
    fn accept(&mut self) -> io::Result<()> {
        while self.table.connections() < self.settings.connections {
            let Some(listener) = self.table.get(self.listener) else { return Ok(()) };
            match net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.open(socket)?,
                Err(Errno::AGAIN) => return Ok(()),
                // The client closed the waiting connection. The next one may succeed.
                Err(Errno::CONNABORTED | Errno::PROTO | Errno::INTR) => {}
                // The end of a connection gives some back, and continues here.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if self.table.connections() > 0 => {
                    break;
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    std::thread::sleep(PAUSE);
                    return self.backend.change(listener.as_fd(), Interest::Read);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.set_interest(self.listener, Interest::Nothing)
    }

    fn open(&mut self, socket: OwnedFd) -> io::Result<()> {
        // TCP sends small answers immediately. For other kinds of sockets the call fails, and is not needed.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        if socket.as_raw_fd() as usize >= self.backend.limit() {
            return Ok(());
        }
        self.backend.add(socket.as_fd())?;
        let entry =
            Entry { socket: Socket::Connection(Connection::new(socket)), interest: Interest::Read, deadline: None };
        let fd = self.table.insert(entry);
        self.counters.accepted += 1;
        self.counters.most = self.counters.most.max(self.table.connections());
        (self.on_connections)(self.table.connections(), self.counters.accepted);
        self.postpone(fd);
        Ok(())
    }

    fn serve(&mut self, fd: RawFd) -> io::Result<()> {
        let Some(Entry { socket: Socket::Connection(connection), .. }) = self.table.get_mut(fd) else {
            return Ok(());
        };
        let (replies, bytes) = (connection.replies, connection.bytes);
        let next = connection.advance(&self.site);
        self.counters.replies += connection.replies - replies;
        if connection.bytes != bytes {
            self.postpone(fd);
        }
        match next {
            Next::Read => self.set_interest(fd, Interest::Read),
            Next::Write => self.set_interest(fd, Interest::Write),
            Next::Again => {
                self.again.push(fd);
                Ok(())
            }
            Next::Closed => {
                self.close(fd);
                self.set_interest(self.listener, Interest::Read)
            }
        }
    }

    /// The connection made progress: sets its deadline again.
    fn postpone(&mut self, fd: RawFd) {
        let Some(entry) = self.table.get_mut(fd) else { return };
        let deadline = Instant::now() + self.settings.patience;
        if let Some(old) = entry.deadline.replace(deadline) {
            self.deadlines.remove(&(old, fd));
        }
        self.deadlines.insert((deadline, fd));
    }

    fn set_interest(&mut self, fd: RawFd, interest: Interest) -> io::Result<()> {
        match self.table.get_mut(fd) {
            Some(entry) if entry.interest != interest => {
                entry.interest = interest;
                self.backend.change(entry.as_fd(), interest)
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self, fd: RawFd) {
        let Some(entry) = self.table.remove(fd) else { return };
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, fd));
        }
        self.backend.remove(entry.as_fd());
        drop(entry);
        (self.on_connections)(self.table.connections(), self.counters.accepted);
    }

    fn close_expired(&mut self) -> io::Result<()> {
        let now = Instant::now();
        while let Some(&(_, fd)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            self.counters.timeouts += 1;
            self.close(fd);
            self.set_interest(self.listener, Interest::Read)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;
    use crate::backend::Kind;
    use crate::work::Work;

    #[test]
    fn a_client_with_many_requests_has_one_turn_at_a_time() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let address = SocketAddr::try_from(net::getsockname(&listener).unwrap()).unwrap();
        let backend = Kind::Epoll.open(|| unreachable!("epoll needs no daemon")).unwrap();
        let settings = Settings { connections: 8, patience: Duration::from_secs(60) };
        let site = Site::new(Work { rounds: 1 });
        let mut server = Server::new(listener, backend, site, settings, Box::new(|_, _| {})).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all("HEAD / HTTP/1.1\r\n\r\n".repeat(3_000).as_bytes()).unwrap();
        while server.counters.replies == 0 {
            server.run_once().unwrap();
        }
        for _ in 0..10 {
            let before = server.counters.replies;
            server.run_once().unwrap();
            assert_eq!((server.counters.replies - before, server.again.len()), (4, 1));
        }
    }
}
