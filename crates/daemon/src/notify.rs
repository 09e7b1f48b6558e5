//! Reports the state of the service to systemd: one datagram to the socket named in `$NOTIFY_SOCKET`. Without
//! systemd the variable is not set, and nothing is sent.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// The service answers requests.
pub(crate) const READY: &str = "READY=1";
/// The service restores all threads and ends.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// The service reads its configuration again. systemd requires the time at which this began (CLOCK_MONOTONIC, µs).
pub(crate) fn reloading() -> String {
    format!("RELOADING=1\nMONOTONIC_USEC={}", qfabric_linux::clock::now().get() / 1_000)
}

/// Sends `state` if `$NOTIFY_SOCKET` is set. A failure is only logged: systemd itself reports a service that does
/// not notify it.
pub(crate) fn notify(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(Path::new(&path), state)
    {
        tracing::warn!(%error, state, "cannot report the state to systemd at $NOTIFY_SOCKET");
    }
}

/// A path that begins with `@` names a socket in the abstract namespace, outside any file system.
fn send(path: &Path, state: &str) -> io::Result<()> {
    let address = match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_arrives_as_one_datagram() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(&path, READY).unwrap();
        let mut buffer = [0; 32];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }

    #[test]
    fn a_missing_socket_is_an_error_and_does_not_block() {
        assert!(send(Path::new("/nonexistent/notify"), READY).is_err());
        assert!(send(Path::new("@qfabric-nobody"), READY).is_err());
    }
}
