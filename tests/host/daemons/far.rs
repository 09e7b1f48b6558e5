//! A longer way to a host: a relay in its namespace that keeps all bytes for a while. It sees nothing but TLS.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::host::Site;

/// Where the relay listens: for control, and for data at the next port, as the daemon does from 7700 on.
const PORTS: [(u16, u16); 2] = [(7800, 7700), (7801, 7701)];
/// Bytes are kept in pieces of at most this.
const PIECE: usize = 64 << 10;

/// The relay, until it is dropped: then its namespace can go.
pub(crate) struct Far(Arc<AtomicBool>);

impl Far {
    /// What goes to the host's port 7800 takes that long, and what comes back, too.
    pub(crate) fn start(site: &Site, host: usize, delay: Duration) -> Far {
        let (ended, address) = (Arc::<AtomicBool>::default(), site.lan.address(host));
        let namespace = File::open(format!("/run/netns/{}", site.lan.namespace(host))).unwrap();
        let (ready, told) = (mpsc::channel(), ended.clone());
        let entering = move || {
            // Threads started here are in it, too.
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            for (from, to) in PORTS {
                let listener = TcpListener::bind((&*address, from)).unwrap();
                listener.set_nonblocking(true).unwrap();
                let (to, told) = (format!("{address}:{to}"), told.clone());
                thread::spawn(move || relay(&listener, &to, delay, &told));
            }
            ready.0.send(()).unwrap();
        };
        thread::spawn(entering);
        ready.1.recv().unwrap();
        Far(ended)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn relay(listener: &TcpListener, to: &str, delay: Duration, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((here, _)) => drop(join(here, to, delay)),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Nobody there: the caller's connection ends.
fn join(here: TcpStream, to: &str, delay: Duration) -> io::Result<()> {
    let there = TcpStream::connect(to)?;
    for (from, into) in [(here.try_clone()?, there.try_clone()?), (there, here)] {
        into.set_nodelay(true)?;
        from.set_nonblocking(false)?;
        let (keep, kept) = mpsc::channel();
        thread::spawn(move || late(&kept, into));
        thread::spawn(move || {
            let (mut from, mut piece) = (from, vec![0; PIECE]);
            while let Ok(length @ 1..) = from.read(&mut piece) {
                let _ = keep.send((Instant::now() + delay, piece[..length].to_vec()));
            }
        });
    }
    Ok(())
}

fn late(kept: &Receiver<(Instant, Vec<u8>)>, mut into: TcpStream) {
    while let Ok((due, piece)) = kept.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if into.write_all(&piece).is_err() {
            break;
        }
    }
    // The other direction ends with this one.
    let _ = into.shutdown(Shutdown::Both);
}
