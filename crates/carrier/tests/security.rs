//! Clients and services that certificates and access lists refuse.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use common::{ACCESS, PATIENCE, Realm, name, receive_all, send_all, target};
use qfabric_carrier::{ClientConnection, Error, Options, Target, Tls};

fn refused(result: Result<ClientConnection, Error>) -> String {
    match result {
        Ok(_) => panic!("a connection was made"),
        Err(error) => error.problem().to_string(),
    }
}

#[test]
fn a_certificate_of_another_authority_opens_no_connection() {
    let (ours, theirs) = (Realm::new(), Realm::new());
    let server = ours.serve(Options::default());
    let said = refused(theirs.open("cam", server.address(), Options::default()));
    assert!(said.contains("another authority"), "{said}");
    // A client that believes the service, and shows a certificate that the service does not believe.
    let mixed = Tls { ca: ours.folder.path().join("ca.pem"), ..theirs.tls("cam") };
    let said = refused(ClientConnection::open(target(server.address()), mixed, Options::default()));
    assert!(said.contains("another authority"), "{said}");
    assert!(server.accept(Duration::from_millis(100)).is_err());
}

#[test]
fn an_expired_certificate_is_refused_with_the_next_step() {
    let realm = Realm::new();
    let server = realm.serve(Options::default());
    let expired = expired(&realm, "cam");
    let said = refused(ClientConnection::open(target(server.address()), expired, Options::default()));
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
    let server = realm.serve(Options::default());
    let said = refused(realm.open("other", server.address(), Options::default()));
    assert!(said.contains("other may not connect to the service film") && said.contains("`connect`"), "{said}");
    let elsewhere = Target { service: name("news"), ..target(server.address()) };
    let said = refused(ClientConnection::open(elsewhere, realm.tls("cam"), Options::default()));
    assert!(said.contains("no service news here"), "{said}");
}

#[test]
fn a_client_refuses_a_host_that_it_did_not_mean() {
    let realm = Realm::new();
    let server = realm.serve(Options::default());
    let meant = Target { host: Some(name("other")), ..target(server.address()) };
    let said = refused(ClientConnection::open(meant, realm.tls("cam"), Options::default()));
    assert!(said.contains("the wanted host is other") && said.contains("host wall"), "{said}");
    let mut tls = realm.tls("cam");
    tls.access.hosts.remove(&name("wall"));
    let said = refused(ClientConnection::open(target(server.address()), tls, Options::default()));
    assert!(said.contains("not among `hosts`"), "{said}");
}

#[test]
fn another_host_cannot_attach_to_a_session() {
    let realm = Realm::new();
    fs::write(realm.folder.path().join("access.toml"), ACCESS.replace("[\"cam\"]", "[\"*\"]")).unwrap();
    let (server, client, accepted) = realm.pair(&Options::default());
    let other = realm.open("other", server.address(), Options::default()).unwrap();
    let _ = server.accept(PATIENCE).unwrap();
    // Each attaches to its own session only.
    assert_eq!(client.attach(None, server.address(), PATIENCE).unwrap(), 1);
    assert_eq!(other.attach(None, server.address(), PATIENCE).unwrap(), 1);
    send_all(&client, 0..12, None);
    receive_all(&accepted, 0..12);
}

#[test]
fn a_flood_of_nonsense_keeps_nobody_out() {
    let realm = Realm::new();
    let server = realm.serve(Options::default());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..5_000u32 {
        let mut packet = vec![0xc0; 1_200];
        packet[5..9].copy_from_slice(&number.to_le_bytes());
        let _ = socket.send_to(&packet, server.address());
    }
    let client = realm.open("cam", server.address(), Options::default()).unwrap();
    let accepted = server.accept(PATIENCE).unwrap();
    send_all(&client, 0..12, None);
    receive_all(&accepted, 0..12);
}
