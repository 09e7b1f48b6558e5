//! TCP and Unix sockets as descriptors.

use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use std::{fs, io};

use crate::{Address, Error};

/// Longest time for connecting: a stopped process does not accept once its queue is full.
const PATIENCE: Duration = Duration::from_millis(500);

/// A socket that accepts connections.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }

    /// The next waiting connection; `None` if it cannot be used, for example because it is of another user. Fails if
    /// the kernel gives none, for example because this process has no free descriptor.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let accepted = match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| ready_tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| ready_unix(stream)),
        };
        accepted.map(Result::ok)
    }
}

pub(super) fn listen(address: &Address) -> Result<Listener, Error> {
    bind(address).map_err(|source| Error::Listen { address: address.clone(), source })
}

fn bind(address: &Address) -> io::Result<Listener> {
    match address {
        Address::Tcp { host, port } => {
            let listener = TcpListener::bind((host.as_str(), *port))?;
            listener.set_nonblocking(true)?;
            Ok(Listener::Tcp(listener))
        }
        Address::Unix(path) => {
            let listener = bind_unix(path)?;
            listener.set_nonblocking(true)?;
            Ok(Listener::Unix(listener))
        }
    }
}

/// Removes a socket file that a dead process left behind, but not one on which a process listens.
fn bind_unix(path: &std::path::Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

/// Connects. Blocks for at most half a second for each address of the name.
pub(super) fn call(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => ready_unix(UnixStream::connect(path)?),
        Address::Tcp { host, port } => {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for socket in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&socket, PATIENCE) {
                    Ok(stream) => return ready_tcp(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

fn ready_tcp(stream: TcpStream) -> io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

/// Only the same user and root may connect to this host.
fn ready_unix(stream: UnixStream) -> io::Result<OwnedFd> {
    stream.set_nonblocking(true)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(stream.into())
}
