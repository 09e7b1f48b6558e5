//! Pictures over METP, in the place of events of the channel: each receiver has a connection, whose sender drops pictures
//! that would be late. What receivers report, and levels, stay events of the channel NAME.talk.
//!
//! The service has the channel's name, so hosts need the right `connect` on it. Source: 004 §6.4, for the application
//! of 000 §5.2.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_carrier::{
    ClientConnection, Connection, Error, FrameKind, Message, Mode, Options, ServerConnection, Target, Tls,
};
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Nanos};
use serde::Serialize;

use super::retry::client;
use crate::wire::{FrameHeader, HEADER, MAX_FRAME};

/// Receivers of one host. Each costs the rate of the pictures once more, so one host does not take all of the link.
const MOST_OF_HOST: usize = 4;
/// Pictures of a receiver that have no outcome yet: more than come within the usual deadline.
const IN_FLIGHT: u16 = 32;
/// Longest time of a handshake. A receiver tries again until it works.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// An end that is silent for this time has gone.
const SILENCE: Duration = Duration::from_secs(5);

/// The certificate of this host.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Folder with `ca.pem`, `HOST.pem`, `HOST.key` and `access.toml`.
    pub folder: PathBuf,
    /// Name of this host in its certificate. None: the name that its daemon has.
    pub host: Option<Name>,
}

impl Identity {
    fn tls(&self, socket: Option<&PathBuf>) -> Result<Tls> {
        let host = match &self.host {
            Some(host) => host.clone(),
            None => client(socket)?.host_name()?,
        };
        let tls = Tls::from_folder(&self.folder, &host, &self.folder.join("access.toml"));
        Ok(tls.map_err(|error| NoPictures(error.into()))?)
    }
}

/// Where a server offers its pictures over METP.
#[derive(Clone, Debug)]
pub struct MetpServe {
    /// The certificate of the server's host.
    pub identity: Identity,
    /// Address on which receivers connect.
    pub listen: SocketAddr,
    /// Most bits per second to each receiver, headers included. Congestion control may lower it.
    pub rate: BitRate,
}

/// Where a receiver gets its pictures over METP.
#[derive(Clone, Debug)]
pub struct MetpJoin {
    /// The certificate of the receiver's host.
    pub identity: Identity,
    /// The server, `HOST:PORT`.
    pub server: String,
}

/// Connections of a server over METP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetpReport {
    /// Receivers that are connected.
    pub receivers: usize,
    /// Pictures that never reached the connection of a receiver, because too many waited there. Counted for each
    /// receiver, since the server's start.
    pub refused: u64,
}

/// The receivers of a server.
pub(super) struct Audience {
    server: ServerConnection,
    receivers: Vec<Connection>,
    /// Connections that are being closed: dropping one before its end would wait.
    leaving: Vec<Connection>,
    refused: u64,
}

impl Audience {
    /// Offers the pictures of a channel.
    ///
    /// # Errors
    /// The certificate cannot be used, the daemon does not tell this host's name, or nothing can listen on the address.
    pub(super) fn open(metp: &MetpServe, channel: &str, socket: Option<&PathBuf>) -> Result<Audience> {
        let (mode, sessions_per_host) = (Mode::PartiallyReliable, MOST_OF_HOST);
        let options = Options { mode, rate: metp.rate, sessions_per_host, ..options() };
        let (service, tls) = (name(channel)?, metp.identity.tls(socket)?);
        let server = ServerConnection::register(service, metp.listen, tls, options).map_err(NoPictures)?;
        eprintln!("qfabric-conference: pictures are sent over METP from {}", server.address());
        Ok(Audience { server, receivers: Vec::new(), leaving: Vec::new(), refused: 0 })
    }

    /// Sends a picture to all receivers; one for which too many wait misses it. Never waits.
    pub(super) fn send(&mut self, header: &FrameHeader, picture: &[u8], deadline: Nanos) {
        self.admit();
        let (kind, deadline) = (kind(header), Duration::from_nanos(deadline.get()));
        for receiver in &self.receivers {
            if receiver.send(kind, picture.to_vec(), Some(deadline), Duration::ZERO).is_err() {
                self.refused += 1;
            }
        }
    }

    pub(super) fn report(&self) -> MetpReport {
        MetpReport { receivers: self.receivers.len(), refused: self.refused }
    }

    /// Takes receivers that have connected, and forgets those that have left.
    fn admit(&mut self) {
        self.leaving.retain(|one| one.ended().is_none());
        for receiver in std::mem::take(&mut self.receivers) {
            // A receiver has nothing to send over its connection.
            let is_wrong = receiver.receive(Duration::ZERO).is_ok();
            match receiver.ended() {
                Some(_) => drop(receiver),
                None if is_wrong => self.dismiss(receiver),
                None => self.receivers.push(receiver),
            }
        }
        while let Ok(receiver) = self.server.accept(Duration::ZERO) {
            self.receivers.push(receiver);
        }
    }

    fn dismiss(&mut self, receiver: Connection) {
        receiver.close();
        self.leaving.push(receiver);
    }
}

impl Drop for Audience {
    /// All connections close at the same time: dropping one waits until its close has left this host.
    fn drop(&mut self) {
        self.receivers.iter().for_each(Connection::close);
    }
}

/// METP drops late pictures of the kind B first, and never those of the kind I. Nothing refers to a picture of JPEG.
fn kind(header: &FrameHeader) -> FrameKind {
    match (header.setting.codec().refers_back(), header.key) {
        (false, _) => FrameKind::B,
        (true, true) => FrameKind::I,
        (true, false) => FrameKind::P,
    }
}

/// The pictures of a server.
pub(super) struct Pictures(ClientConnection);

impl Pictures {
    /// Connects to the server of a channel, which must be `host`.
    ///
    /// # Errors
    /// The certificate cannot be used, the daemon does not tell this host's name, or the server does not answer, is
    /// another host, or refuses.
    pub(super) fn open(metp: &MetpJoin, host: &str, channel: &str, socket: Option<&PathBuf>) -> Result<Pictures> {
        let (host, service, tls) = (name(host)?, name(channel)?, metp.identity.tls(socket)?);
        let target = Target::new(&metp.server, service).map_err(NoPictures)?;
        let opened = ClientConnection::open(Target { host: Some(host), ..target }, tls, options());
        Ok(Pictures(opened.map_err(NoPictures)?))
    }

    /// The next picture. None: none came within the time, or a part of it is missing.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn next(&self, within: Duration) -> Result<Option<Message>> {
        match self.0.receive(within) {
            Ok(message) => Ok(Some(message).filter(Message::is_complete)),
            Err(Error::TimeOut { .. }) => Ok(None),
            Err(error) => Err(NoPictures(error).into()),
        }
    }
}

fn options() -> Options {
    Options {
        largest_message: Bytes::new((HEADER + MAX_FRAME) as u64),
        messages_in_flight: IN_FLIGHT,
        handshake_time: HANDSHAKE,
        idle_limit: SILENCE,
        ..Options::default()
    }
}

fn name(text: &str) -> Result<Name> {
    text.parse::<Name>().with_context(|| format!("{text:?} is no name of a host or a service"))
}

/// A connection that cannot be made or used. Shown with its next step.
#[derive(Debug, thiserror::Error)]
#[error("no pictures over METP: {}", self.0.problem())]
pub(super) struct NoPictures(Error);

impl NoPictures {
    /// Whether a later attempt may succeed: the resolver or the other end is away, or it has no room.
    pub(super) fn is_passing(&self) -> bool {
        match &self.0 {
            Error::NoAddress { .. }
            | Error::NoAnswer { .. }
            | Error::Handshake { .. }
            | Error::TimeOut { .. }
            | Error::Ended(_)
            | Error::Io { .. } => true,
            Error::Refused(problem) => problem.code == "too_many_sessions",
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Instant;

    use qfabric_realm::{init_ca, issue};
    use qfabric_types::Instant as Time;
    use tempfile::TempDir;

    use super::*;

    /// Ends a test that hangs.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn realm() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        init_ca(folder.path(), &name("studio").unwrap()).unwrap();
        for host in ["server", "client"] {
            issue(folder.path(), &name(host).unwrap(), &[], folder.path(), 30).unwrap();
        }
        let rule = "[[rule]]\nchannels = ['video']\nhosts = ['client']\nrights = ['connect']\n";
        std::fs::write(folder.path().join("access.toml"), format!("hosts = ['server', 'client']\n{rule}")).unwrap();
        folder
    }

    fn identity(realm: &TempDir, host: &str) -> Identity {
        Identity { folder: realm.path().to_owned(), host: Some(name(host).unwrap()) }
    }

    /// A server, and where its receivers connect.
    fn served(realm: &TempDir) -> (Audience, MetpJoin) {
        let listen = "127.0.0.1:0".parse().unwrap();
        let serve = MetpServe { identity: identity(realm, "server"), listen, rate: BitRate::new(100_000_000) };
        let audience = Audience::open(&serve, "video", None).unwrap();
        let server = audience.server.address().to_string();
        (audience, MetpJoin { identity: identity(realm, "client"), server })
    }

    fn header(bytes: usize, level: &str, key: bool) -> FrameHeader {
        let (stream, number, sent, part, parts, generated) = (7, 1, 0, 0, 1, Time::ZERO);
        let setting = level.parse().unwrap();
        FrameHeader { stream, number, sent, bytes: bytes as u32, part, parts, setting, key, level: 0, generated }
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_picture_arrives_whole_at_each_receiver() {
        let realm = realm();
        let (mut audience, join) = served(&realm);
        let receivers = [(); 2].map(|()| Pictures::open(&join, "server", "video", None).unwrap());
        until("both are admitted", || {
            audience.admit();
            audience.report().receivers == 2
        });
        let picture: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        let (header, mut event) = (header(picture.len(), "jpeg:60:small", true), Vec::new());
        header.encode(&picture, &mut event);
        audience.send(&header, &event, Nanos::from_millis(60_000));
        for receiver in &receivers {
            let message = receiver.next(PATIENCE).unwrap().unwrap();
            assert_eq!((message.kind, FrameHeader::parse(&message.data)), (FrameKind::B, Ok((header, &picture[..]))));
        }
        assert_eq!(audience.report(), MetpReport { receivers: 2, refused: 0 });
        drop(audience);
        let ended = receivers[0].next(PATIENCE).unwrap_err();
        assert!(ended.downcast_ref::<NoPictures>().is_some_and(NoPictures::is_passing), "{ended:#}: it tries again");
    }

    #[test]
    fn a_receiver_above_the_limit_is_told_so_and_one_that_sends_is_dismissed() {
        let realm = realm();
        let (mut audience, join) = served(&realm);
        let open = || Pictures::open(&join, "server", "video", None);
        let all = [(); MOST_OF_HOST].map(|()| open().unwrap());
        let refused = open().map(drop).unwrap_err();
        let said = refused.to_string();
        let limit = "the host client has 4 sessions with the service video, of at most 4 per host; end one";
        assert!(said.contains(limit), "{said}");
        assert!(refused.downcast_ref::<NoPictures>().is_some_and(NoPictures::is_passing), "{said}: it tries again");
        until("the others are admitted", || {
            audience.admit();
            audience.report().receivers == MOST_OF_HOST
        });
        all[0].0.send(FrameKind::Other, vec![1], None, PATIENCE).unwrap();
        until("the one that sends is dismissed", || {
            audience.admit();
            all[0].0.ended().is_some()
        });
        assert_eq!(audience.report().receivers, MOST_OF_HOST - 1);
        until("another one takes its place", || open().is_ok());
    }

    #[test]
    fn a_name_without_an_address_is_tried_again() {
        let realm = realm();
        // A label has at most 63 characters, so the resolver asks nobody.
        let server = format!("{}:7800", "x".repeat(64));
        let join = MetpJoin { identity: identity(&realm, "client"), server };
        let unknown = Pictures::open(&join, "server", "video", None).map(drop).unwrap_err();
        assert!(unknown.downcast_ref::<NoPictures>().is_some_and(NoPictures::is_passing), "{unknown:#}");
    }

    /// Both ends together keep less than the pictures have, so some are refused, however fast the connection is.
    #[test]
    fn a_receiver_that_does_not_read_loses_pictures_and_the_server_does_not_wait() {
        let realm = realm();
        let (mut audience, join) = served(&realm);
        let _receiver = Pictures::open(&join, "server", "video", None).unwrap();
        until("it is admitted", || {
            audience.admit();
            audience.report().receivers == 1
        });
        let picture = vec![7; 1 << 20];
        for _ in 0..200 {
            audience.send(&header(picture.len(), "jpeg:60:small", true), &picture, Nanos::from_millis(60_000));
        }
        assert!(audience.report().refused > 0);
    }

    #[test]
    fn another_host_or_service_is_refused_for_good() {
        let realm = realm();
        let (_audience, join) = served(&realm);
        for (host, channel) in [("client", "video"), ("server", "news")] {
            let refused = Pictures::open(&join, host, channel, None).map(drop).unwrap_err();
            assert!(refused.downcast_ref::<NoPictures>().is_some_and(|one| !one.is_passing()), "{refused:#}");
        }
    }

    #[test]
    fn pictures_to_which_nothing_refers_are_dropped_first() {
        let kind_of = |level: &str, key| kind(&header(10, level, key));
        assert_eq!(kind_of("jpeg:60:small", true), FrameKind::B);
        assert_eq!([true, false].map(|key| kind_of("h264:15:352x288", key)), [FrameKind::I, FrameKind::P]);
    }
}
