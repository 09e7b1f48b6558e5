//! Paths of a ping, as an application sees them: it sends, and waits for an answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket};

use crate::field::{Each, Peer, Publish};

/// Size of a ping in bytes.
pub(crate) const SIZE: usize = 100;
/// Pause between an answer and the next ping; the C programs use the same.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);
/// Round trips before the measured ones.
const WARM_UP: usize = 200;

/// One end of a path, with blocking calls.
pub(crate) trait Wire {
    fn send(&mut self, bytes: &[u8]) -> Result<()>;
    /// Receives the next message into the start of `into`; returns its length.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize>;
}

/// Answers until the other end closes.
pub(crate) fn echo(wire: &mut dyn Wire) {
    let mut bytes = [0; SIZE];
    while wire.receive(&mut bytes).and_then(|length| wire.send(&bytes[..length])).is_ok() {}
}

/// Round trips with pauses: p50 and p99 in microseconds.
pub(crate) fn ping(wire: &mut dyn Wire, trips: usize) -> Result<[f64; 2]> {
    let (mut bytes, mut times) = ([0; SIZE], Histogram::<u64>::new(3)?);
    for trip in 0..WARM_UP + trips {
        thread::sleep(PAUSE);
        let begin = Instant::now();
        wire.send(&[0; SIZE])?;
        let length = wire.receive(&mut bytes)?;
        let time = begin.elapsed();
        ensure!(length == SIZE, "the answer has {length} bytes, expected {SIZE}");
        if trip >= WARM_UP {
            times.record(time.as_nanos() as u64)?;
        }
    }
    Ok([0.5, 0.99].map(|part| times.value_at_quantile(part) as f64 / 1e3))
}

/// Bare TCP.
pub(crate) struct Tcp(TcpStream);

impl Tcp {
    pub(crate) fn accept(address: &str, ready: impl FnOnce()) -> Result<Tcp> {
        let listener = TcpListener::bind(address).context("cannot listen")?;
        ready();
        Tcp::new(listener.accept()?.0)
    }

    pub(crate) fn connect(address: &str) -> Result<Tcp> {
        Tcp::new(TcpStream::connect(address)?)
    }

    fn new(stream: TcpStream) -> Result<Tcp> {
        stream.set_nodelay(true)?;
        Ok(Tcp(stream))
    }
}

impl Wire for Tcp {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all(bytes)?)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize> {
        self.0.read_exact(&mut into[..SIZE])?;
        Ok(SIZE)
    }
}

/// A Unix socket that preserves message boundaries: the connection to a relay.
pub(crate) struct Packets(Arc<OwnedFd>);

impl Packets {
    pub(crate) fn connect(path: &Path) -> Result<Packets> {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Packets(Arc::new(socket)))
    }
}

impl Wire for Packets {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        send(&self.0, bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize> {
        let (length, _) = recv(&self.0, into, RecvFlags::empty())?;
        ensure!(length > 0, "the relay closed the connection");
        Ok(length)
    }
}

/// A relay has one topic.
impl Peer for Packets {
    fn subscribe(&self, _topic: &'static str, mut each: Each) {
        let (mut own, mut bytes) = (Packets(Arc::clone(&self.0)), vec![0; 16 << 10]);
        thread::spawn(move || {
            while let Ok(length) = own.receive(&mut bytes) {
                each(&bytes[..length]);
            }
        });
    }

    fn publish(&self, _topic: &'static str) -> Publish {
        let mut own = Packets(Arc::clone(&self.0));
        Box::new(move |bytes| own.send(bytes).expect("the relay is running"))
    }

    fn echo(&self) {
        echo(&mut Packets(Arc::clone(&self.0)));
    }

    fn wait_for(&self, _topic: &'static str, _sinks: usize) {}
}

/// A rival whose library calls back from its own thread.
pub(crate) struct CalledBack {
    publish: Publish,
    answers: Receiver<usize>,
}

impl CalledBack {
    pub(crate) fn new(peer: &dyn Peer) -> CalledBack {
        let (came, answers) = sync_channel(1);
        peer.subscribe("pong", Box::new(move |bytes| _ = came.try_send(bytes.len())));
        let publish = peer.publish("ping");
        // Waits until all peers know the subscriptions.
        thread::sleep(Duration::from_millis(700));
        CalledBack { publish, answers }
    }
}

impl Wire for CalledBack {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        (self.publish)(bytes);
        Ok(())
    }

    fn receive(&mut self, _into: &mut [u8]) -> Result<usize> {
        self.answers.recv_timeout(Duration::from_secs(5)).context("no answer within 5 s")
    }
}
