//! Clients and services that certificates and access lists refuse.

mod common;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{ACCESS, PATIENCE, Realm, finish, name, patient, receive_all, send_all, target};
use qfabric_carrier::{ClientConnection, Engine, Error, Options, ServerConnection, Target, Tls};
use qfabric_types::RandomNumbers;

fn refused(result: Result<ClientConnection, Error>) -> String {
    match result {
        Ok(_) => panic!("a connection was made"),
        Err(error) => error.problem().to_string(),
    }
}

#[test]
fn a_certificate_of_another_authority_opens_no_connection() {
    let (ours, theirs) = (Realm::new(), Realm::new());
    let server = ours.serve(patient());
    let said = refused(theirs.open("cam", server.address(), patient()));
    assert!(said.contains("another authority"), "{said}");
    // A client that believes the service, and shows a certificate that the service does not believe.
    let mixed = Tls { ca: ours.folder.path().join("ca.pem"), ..theirs.tls("cam") };
    let said = refused(ClientConnection::open(target(server.address()), mixed, patient()));
    assert!(said.contains("another authority"), "{said}");
    assert!(server.accept(Duration::from_millis(100)).is_err());
}

#[test]
fn an_expired_certificate_is_refused_with_the_next_step() {
    let realm = Realm::new();
    let server = realm.serve(patient());
    let expired = expired(&realm, "cam");
    let said = refused(ClientConnection::open(target(server.address()), expired, patient()));
    assert!(said.contains("expired") && said.contains("qfabric channel issue"), "{said}");
}

/// A certificate of the realm's authority that expired an hour ago.
fn expired(realm: &Realm, host: &str) -> Tls {
    let folder = realm.folder.path();
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let key = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.pem"), key).unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, host);
    let now = time::OffsetDateTime::now_utc();
    (parameters.not_before, parameters.not_after) = (now - time::Duration::hours(3), now - time::Duration::hours(1));
    let own = rcgen::KeyPair::generate().unwrap();
    let (certificate, key) = (folder.join("expired.pem"), folder.join("expired.key"));
    fs::write(&certificate, parameters.signed_by(&own, &issuer).unwrap().pem()).unwrap();
    fs::write(&key, own.serialize_pem()).unwrap();
    Tls { certificate, key, ..realm.tls(host) }
}

#[test]
fn a_host_without_the_right_is_refused_with_the_rule() {
    let realm = Realm::new();
    let server = realm.serve(patient());
    let said = refused(realm.open("other", server.address(), patient()));
    assert!(said.contains("other may not connect to the service film") && said.contains("`connect`"), "{said}");
    let elsewhere = Target { service: name("news"), ..target(server.address()) };
    let said = refused(ClientConnection::open(elsewhere, realm.tls("cam"), patient()));
    assert!(said.contains("no service news here"), "{said}");
}

#[test]
fn a_client_refuses_a_host_that_it_did_not_mean() {
    let realm = Realm::new();
    let server = realm.serve(patient());
    let meant = Target { host: Some(name("other")), ..target(server.address()) };
    let said = refused(ClientConnection::open(meant, realm.tls("cam"), patient()));
    assert!(said.contains("the wanted host is other") && said.contains("host wall"), "{said}");
    let mut tls = realm.tls("cam");
    tls.access.hosts.remove(&name("wall"));
    let said = refused(ClientConnection::open(target(server.address()), tls, patient()));
    assert!(said.contains("not among `hosts`"), "{said}");
}

#[test]
fn another_host_cannot_attach_to_a_session() {
    let realm = Realm::new();
    fs::write(realm.folder.path().join("access.toml"), ACCESS.replace("[\"cam\"]", "[\"*\"]")).unwrap();
    let (server, client, accepted) = realm.pair(&patient());
    let other = realm.open("other", server.address(), patient()).unwrap();
    let _ = server.accept(PATIENCE).unwrap();
    // Each attaches to its own session only.
    assert_eq!(client.attach(None, server.address(), PATIENCE).unwrap(), 1);
    assert_eq!(other.attach(None, server.address(), PATIENCE).unwrap(), 1);
    send_all(&client, 0..12, None);
    receive_all(&accepted, 0..12);
}

#[test]
fn a_further_session_of_a_host_is_refused_with_the_limit_until_one_of_them_has_ended() {
    let realm = Realm::new();
    fs::write(realm.folder.path().join("access.toml"), ACCESS.replace("[\"cam\"]", "[\"*\"]")).unwrap();
    let server = realm.serve(Options { sessions_per_host: 2, ..Options::default() });
    let open = |host: &str| realm.open(host, server.address(), Options::default());
    let [first, _second] = [(); 2].map(|()| open("cam").unwrap());
    let said = refused(open("cam"));
    assert!(said.contains("cam has 2 sessions with the service film, of at most 2 per host; end one"), "{said}");
    drop(open("other").unwrap());
    drop(first);
    let begin = Instant::now();
    while let Err(error) = open("cam") {
        assert!(begin.elapsed() < PATIENCE, "{error}");
    }
}

#[test]
fn a_flood_of_nonsense_keeps_nobody_out() {
    let realm = Realm::new();
    let server = realm.serve(patient());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..5_000u32 {
        let mut packet = vec![0xc0; 1_200];
        packet[5..9].copy_from_slice(&number.to_le_bytes());
        let _ = socket.send_to(&packet, server.address());
    }
    let client = realm.open("cam", server.address(), patient()).unwrap();
    let accepted = server.accept(PATIENCE).unwrap();
    send_all(&client, 0..12, None);
    receive_all(&accepted, 0..12);
}

#[test]
fn a_service_with_an_expired_certificate_is_refused_with_the_next_step() {
    let realm = Realm::new();
    let expired = expired(&realm, "wall");
    let server = ServerConnection::register(name("film"), "127.0.0.1:0".parse().unwrap(), expired, patient());
    let said = match server {
        Ok(server) => refused(realm.open("cam", server.address(), patient())),
        Err(error) => error.problem().to_string(),
    };
    assert!(said.contains("expired") && said.contains("qfabric channel issue"), "{said}");
}

/// What a relay does.
const HAND_OVER: u8 = 0;
const DISTURB: u8 = 1;
const STOP: u8 = 2;

/// Hands packets between one client and a service.
struct Relay {
    address: SocketAddr,
    does: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn new(server: SocketAddr) -> Relay {
        let [outside, inside] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        inside.connect(server).unwrap();
        for socket in [&outside, &inside] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        let (address, does) = (outside.local_addr().unwrap(), Arc::new(AtomicU8::new(HAND_OVER)));
        let told = does.clone();
        let thread = Some(std::thread::spawn(move || relay(&outside, &inside, &told)));
        Relay { address, does, thread }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.does.store(STOP, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Disturbed: each packet passes once, every eighth one behind the next. Before it come a copy with one bit changed, which may
/// also be cut, and one of the eight packets before it.
fn relay(outside: &UdpSocket, inside: &UdpSocket, does: &AtomicU8) {
    let (mut client, mut numbers, mut packet) = (None, RandomNumbers::new(7), vec![0; 65_536]);
    let mut passed: [Vec<Vec<u8>>; 2] = Default::default();
    let mut held: [Option<Vec<u8>>; 2] = Default::default();
    while does.load(Ordering::Relaxed) != STOP {
        for side in 0..2 {
            let from = [outside, inside][side];
            while let Ok((length, source)) = from.recv_from(&mut packet) {
                let original = packet[..length].to_vec();
                if side == 0 {
                    client = Some(source);
                }
                let send = |bytes: &[u8]| match (side, client) {
                    (0, _) => _ = inside.send(bytes),
                    (_, Some(client)) => _ = outside.send_to(bytes, client),
                    (_, None) => {}
                };
                if does.load(Ordering::Relaxed) == HAND_OVER {
                    send(&original);
                    continue;
                }
                let mut forged = original.clone();
                forged[numbers.draw() as usize % length] ^= 1 << (numbers.draw() % 8);
                send(&forged[..if numbers.draw() % 4 == 0 { length / 2 } else { length }]);
                if let Some(old) = passed[side].get(numbers.draw() as usize % 8) {
                    send(old);
                }
                passed[side].insert(0, original.clone());
                passed[side].truncate(8);
                if numbers.draw() % 8 == 0 && held[side].is_none() {
                    held[side] = Some(original);
                } else {
                    send(&original);
                    held[side].take().iter().for_each(|late| send(late));
                }
            }
        }
    }
}

#[test]
fn forged_replayed_and_reordered_packets_change_nothing_in_a_running_stream() {
    for engine in [Engine::Metp, Engine::Streams] {
        let options = Options { engine, ..patient() };
        let realm = Realm::new();
        let server = realm.serve(options.clone());
        let relay = Relay::new(server.address());
        let client = realm.open("cam", relay.address, options).unwrap();
        let accepted = server.accept(PATIENCE).unwrap();
        // QUIC promises nothing for a handshake that somebody on the path alters (RFC 9000 §21.1).
        relay.does.store(DISTURB, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| receive_all(&accepted, 0..60));
            send_all(&client, 0..60, None);
        });
        finish(&client, &accepted);
    }
}
