//! A realm with certificates, a service and its clients, on loopback.
#![allow(dead_code)] // each test program uses a part

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use qfabric_carrier::{
    ClientConnection, Connection, End, Error, Event, FrameKind, Options, ServerConnection, Target, Tls,
};
use qfabric_realm::{init_ca, issue};
use qfabric_types::channel::Name;
use tempfile::TempDir;

/// Bound of every wait, so that a test fails instead of hanging; longer than any step, even with eight hogs per core.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// May connect: the camera only.
pub(crate) const ACCESS: &str = r#"
    hosts = ["cam", "wall", "other"]
    [[rule]]
    channels = ["film"]
    hosts = ["cam"]
    rights = ["connect"]
"#;

pub(crate) struct Realm {
    pub(crate) folder: TempDir,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

impl Realm {
    pub(crate) fn new() -> Realm {
        let folder = tempfile::tempdir().unwrap();
        init_ca(folder.path(), &name("studio")).unwrap();
        for host in ["cam", "wall", "other"] {
            issue(folder.path(), &name(host), &[], folder.path(), 30).unwrap();
        }
        fs::write(folder.path().join("access.toml"), ACCESS).unwrap();
        Realm { folder }
    }

    pub(crate) fn tls(&self, host: &str) -> Tls {
        Tls::from_folder(self.folder.path(), &name(host), &self.folder.path().join("access.toml")).unwrap()
    }

    pub(crate) fn serve(&self, options: Options) -> ServerConnection {
        let local = "127.0.0.1:0".parse().unwrap();
        ServerConnection::register(name("film"), local, self.tls("wall"), options).unwrap()
    }

    pub(crate) fn open(&self, host: &str, peer: SocketAddr, options: Options) -> Result<ClientConnection, Error> {
        ClientConnection::open(target(peer), self.tls(host), options)
    }

    /// A client and the service's end of its connection.
    pub(crate) fn pair(&self, options: &Options) -> (ServerConnection, ClientConnection, Connection) {
        let server = self.serve(options.clone());
        let client = self.open("cam", server.address(), options.clone()).unwrap();
        let accepted = server.accept(PATIENCE).unwrap();
        assert_eq!(accepted.statistics().carriers.len(), 1, "a session that is offered has its carrier");
        (server, client, accepted)
    }
}

/// A handshake may take as long as a test waits for it, and so may silence.
pub(crate) fn patient() -> Options {
    Options { handshake_time: PATIENCE, idle_limit: PATIENCE, ..Options::default() }
}

pub(crate) fn target(peer: SocketAddr) -> Target {
    Target { peer, local: None, service: name("film"), host: None }
}

/// Frames of different sizes with a content that depends on the number.
pub(crate) fn frame(number: u64) -> Vec<u8> {
    let size = match number % 12 {
        0 => 120_000,
        3 | 6 | 9 => 20_000,
        _ => 3_000 + number as usize % 1_000,
    };
    (0..size).map(|at| (at as u64).wrapping_mul(31).wrapping_add(number) as u8).collect()
}

pub(crate) fn kind(number: u64) -> FrameKind {
    match number % 12 {
        0 => FrameKind::I,
        3 | 6 | 9 => FrameKind::P,
        _ => FrameKind::B,
    }
}

pub(crate) fn send_all(connection: &Connection, numbers: std::ops::Range<u64>, deadline: Option<Duration>) {
    for number in numbers {
        connection.send(kind(number), frame(number), deadline, PATIENCE).unwrap();
    }
}

/// Receives `count` messages and checks their content.
pub(crate) fn receive_all(connection: &Connection, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let message = connection.receive(PATIENCE).unwrap();
        assert_eq!((message.number, message.kind), (number, kind(number)));
        assert!(message.is_complete() && message.data == frame(number), "message {number} is another one");
    }
}

/// Both sides finish.
pub(crate) fn finish(one: &Connection, other: &Connection) {
    one.finish().unwrap();
    other.finish().unwrap();
    assert_eq!(one.wait_for_end(PATIENCE).unwrap(), End::Finished);
    assert_eq!(other.wait_for_end(PATIENCE).unwrap(), End::Finished);
}

/// Waits for an event that `is_meant` accepts.
pub(crate) fn until(connection: &Connection, is_meant: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = connection.event(PATIENCE).unwrap();
        if is_meant(&event) {
            return event;
        }
    }
}
