//! Addresses on which the service listens by choice. Every user of the host can take a port before the service does, so
//! an address in use is reported, counted and tried again; everything else is served meanwhile.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two attempts.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

static FAILED: AtomicU64 = AtomicU64::new(0);

/// The attempts to listen that failed since the start of the process.
pub(crate) fn failed() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

/// Listens at `address`, the value of the key `key`. The error is a sentence with the next step.
pub(crate) fn listen(key: &str, address: SocketAddr) -> Result<TcpListener, String> {
    let bind = || -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error| {
        FAILED.fetch_add(1, Ordering::Relaxed);
        format!("{key}: cannot listen at {address}: {error}; choose another port, or see who has it: ss -tlnp")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_named_and_counted() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let before = failed();
        let refusal = listen("web.listen", address).unwrap_err();
        assert!(refusal.starts_with("web.listen: ") && refusal.contains(&address.to_string()), "{refusal}");
        assert!(refusal.contains("another port") && failed() > before, "{refusal}");
    }
}
