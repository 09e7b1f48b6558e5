//! Connections and frames that certificates and the access list refuse.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{Host, PATIENCE, Seen, Site, name, open};
use qfabric_channel::{DestinationRef, Lane};
use qfabric_link::{Address, Config, EngineKind, Security, Tls};
use qfabric_realm::{init_ca, issue};
use qfabric_types::channel::{ChannelId, Name, Plane};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

const ACCESS: &str = r#"
    hosts = ["host-1", "host-2", "host-3"]
    [[rule]]
    channels = ["video"]
    hosts = ["host-1"]
    rights = ["create", "send"]
    [[rule]]
    channels = ["video"]
    hosts = ["host-2"]
    rights = ["join"]
"#;

fn folder(hosts: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    init_ca(folder.path(), &"test".parse().unwrap()).unwrap();
    for host in hosts {
        issue(folder.path(), &name(*host).parse().unwrap(), &[], folder.path(), 1).unwrap();
    }
    fs::write(folder.path().join("access.toml"), ACCESS).unwrap();
    folder
}

fn secured(site: &Site, folder: &TempDir, host: u8, peers: &[u8]) -> Config {
    let mut config = site.config(host, peers);
    let own: Name = name(host).parse().unwrap();
    let tls = Tls::from_folder(folder.path(), &own, &folder.path().join("access.toml")).unwrap();
    config.security = Security::Tls(Box::new(tls));
    config
}

fn meet(one: &Host, other: u8) {
    one.log.until_seen(&Seen::Appeared(name(other), 1));
}

fn of_one(frame: &[u8]) -> Seen {
    Seen::Arrived { from: name(1), lane: Lane::Data, frame: frame.to_vec() }
}

#[test]
fn who_may_send_is_heard_by_who_may_join_and_nobody_else() {
    let (site, folder) = (Site::new(EngineKind::Zenoh), folder(&[1, 2, 3]));
    let [one, two, three] = [1, 2, 3].map(|host| open(&secured(&site, &folder, host, &[1, 2, 3]), 1));
    meet(&one, 2);
    meet(&one, 3);
    meet(&two, 1);
    meet(&three, 1);
    let video = ChannelId { plane: Plane::Data, name: "video".parse().unwrap() };
    two.engine.listen(&video);
    three.engine.listen(&video);
    // Subscriptions reach other hosts with a delay.
    let begin = Instant::now();
    while !two.log.all().contains(&of_one(b"allowed")) {
        assert!(begin.elapsed() < PATIENCE, "who may join hears nothing");
        one.engine.send(DestinationRef::Channel(&video), Lane::Data, b"allowed");
        thread::sleep(Duration::from_millis(500));
    }
    two.engine.send(DestinationRef::Channel(&video), Lane::Data, b"may not send");
    one.engine.send(DestinationRef::Everyone, Lane::Data, b"to all");
    for host in [&two, &three] {
        host.log.until_seen(&of_one(b"to all"));
    }
    assert_eq!(three.log.frames(), 1, "{:?}", three.log.all());
    let mut frames = two.log.all().into_iter().filter(|seen| matches!(seen, Seen::Arrived { .. }));
    assert!(frames.all(|frame| [of_one(b"allowed"), of_one(b"to all")].contains(&frame)), "{:?}", two.log.all());
    assert_eq!(one.log.frames(), 0);
}

#[test]
fn a_certificate_of_another_authority_opens_no_connection() {
    let site = Site::new(EngineKind::Zenoh);
    let (ours, theirs) = (folder(&[1, 2]), folder(&[3]));
    let one = open(&secured(&site, &ours, 1, &[2, 3]), 1);
    let stranger = open(&secured(&site, &theirs, 3, &[1]), 1);
    let _two = open(&secured(&site, &ours, 2, &[1]), 1);
    meet(&one, 2);
    stranger.engine.send(DestinationRef::Everyone, Lane::Control, b"hello");
    thread::sleep(Duration::from_millis(500));
    assert_eq!((one.log.all().len(), stranger.log.all().len()), (1, 0));
}

#[test]
fn without_a_certificate_there_is_no_connection() {
    let (site, folder) = (Site::new(EngineKind::Zenoh), folder(&[1, 2]));
    let one = open(&secured(&site, &folder, 1, &[2, 3]), 1);
    let plain = open(&site.config(3, &[1]), 1);
    let _two = open(&secured(&site, &folder, 2, &[1]), 1);
    meet(&one, 2);
    thread::sleep(Duration::from_millis(500));
    assert_eq!((one.log.all().len(), plain.log.all().len()), (1, 0));
}

/// Whether the other side ends the connection. It may send an alert before.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(1..) => {}
            Ok(0) => return true,
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// No certificate is needed for this: a silent connection, half a record, and a byte from time to time.
#[test]
fn connections_that_do_not_finish_their_handshake_are_closed() {
    /// The beginning of a handshake record of 512 bytes (RFC 8446, §5.1).
    const BEGIN: [u8; 5] = [22, 3, 1, 2, 0];
    let (site, folder) = (Site::new(EngineKind::Zenoh), folder(&[1, 2]));
    let one = open(&secured(&site, &folder, 1, &[1]), 1);
    let Address::Tcp { host, port } = site.address(1) else { panic!("an address and a port") };
    for port in [port, port + 1] {
        let mut all: Vec<_> = (0..200).map(|_| TcpStream::connect((host.as_str(), port)).unwrap()).collect();
        all[..100].iter_mut().for_each(|half| half.write_all(&BEGIN).unwrap());
        let mut slow = all.swap_remove(0);
        let bytes = (0..512).take_while(|_| {
            thread::sleep(Duration::from_millis(100));
            slow.write_all(&[0]).is_ok()
        });
        assert!(bytes.count() < 512, "the record was read to its end");
        assert_eq!(all.into_iter().filter(|stream| !is_closed(stream)).count(), 0);
    }
    let _two = open(&secured(&site, &folder, 2, &[1]), 1);
    meet(&one, 2);
}

/// Opens connections from an address of this machine, which send nothing.
fn silent(from: [u8; 4], to: (&str, u16), count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddrV4::new(from.into(), 0)).unwrap();
        net::connect(&socket, &SocketAddrV4::new(to.0.parse().unwrap(), to.1)).unwrap();
        TcpStream::from(socket)
    };
    (0..count).map(connect).collect()
}

/// A handshake that is closed while an older one waits, or before its time of 1.8 s, gave up its place. Before, all waited
/// for their time.
#[test]
fn beyond_their_number_the_oldest_unfinished_handshakes_are_closed() {
    let (site, folder) = (Site::new(EngineKind::Zenoh), folder(&[1, 2]));
    let one = open(&secured(&site, &folder, 1, &[1]), 1);
    let Address::Tcp { host, port } = site.address(1) else { panic!("an address and a port") };
    let to = (host.as_str(), port);
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let mut seen = [false; 2];
    // On a starving machine, the time of the first ones may be over before the last ones are there.
    for _ in 0..50 {
        let begin = Instant::now();
        let other = silent([127, 0, 0, 2], to, 1);
        let flood = silent([127, 0, 0, 3], to, 100);
        seen[0] |= is_closed(&flood[0]) && is_silent(&flood[99]) && is_silent(&other[0]);
        let many: Vec<_> = (4..=12).flat_map(|last| silent([127, 0, 0, last], to, 64)).collect();
        let is_early = is_closed(&other[0]) && begin.elapsed() < Duration::from_millis(1_800);
        seen[1] |= is_early && is_silent(many.last().unwrap());
        if seen == [true; 2] {
            break;
        }
    }
    assert_eq!(seen, [true; 2], "of one address, of all");
    let _flood = silent([127, 0, 0, 3], to, 2_000);
    let _two = open(&secured(&site, &folder, 2, &[1]), 1);
    meet(&one, 2);
}

/// Each failed handshake used to block all connections for 100 ms; 2000 of them would exceed this test's time limit.
#[test]
fn a_flood_of_connections_that_say_nothing_keeps_no_host_out() {
    let (site, folder) = (Site::new(EngineKind::Zenoh), folder(&[1, 2]));
    let one = open(&secured(&site, &folder, 1, &[1]), 1);
    let Address::Tcp { host, port } = site.address(1) else { panic!("an address and a port") };
    for port in [port, port + 1] {
        (0..2_000).for_each(|_| drop(TcpStream::connect((host.as_str(), port)).unwrap()));
    }
    let _two = open(&secured(&site, &folder, 2, &[1]), 1);
    meet(&one, 2);
}

/// Whether the connection is open and the other side has said nothing.
fn is_silent(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false).unwrap();
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Without certificates no handshake of TLS comes first: every connection takes a place until it has opened a session.
/// A connection that is closed while an older one waits was refused for want of a place, not for its time.
#[test]
fn connections_beyond_the_places_for_opening_are_closed_at_once_and_members_go_on() {
    let site = Site::new(EngineKind::Zenoh);
    let [one, two] = [1, 2].map(|host| open(&site.config(host, &[1, 2]), 1));
    meet(&one, 2);
    meet(&two, 1);
    let Address::Tcp { host, port } = site.address(1) else { panic!("an address and a port") };
    let mut refused = false;
    // On a starving machine, the time of the first ones may be over before the last one is closed.
    for round in 0..50u8 {
        let flood: Vec<_> = (0..400).map(|_| TcpStream::connect((host.as_str(), port)).unwrap()).collect();
        one.engine.send(DestinationRef::Everyone, Lane::Control, &[round]);
        two.log.until_seen(&Seen::Arrived { from: name(1), lane: Lane::Control, frame: vec![round] });
        refused |= is_closed(&flood[399]) && flood.iter().any(is_silent);
        assert_eq!(flood.iter().filter(|stream| !is_closed(stream)).count(), 0);
        if refused && round >= 4 {
            break;
        }
    }
    assert!(refused, "all connections waited for their time");
    let gone = |host: &Host, other| host.log.all().contains(&Seen::Vanished(name(other), 1));
    assert!(!gone(&one, 2) && !gone(&two, 1), "a member lost its connection");
    let three = open(&site.config(3, &[1]), 1);
    meet(&three, 1);
}
