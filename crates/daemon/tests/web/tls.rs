//! The page with a certificate, read as a browser of another machine reads it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use qfabric_daemon::{Config, Embedded, WebConfig};
use qfabric_linux::testing::live_lock;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::*;

const NAME: &str = "media.example";

/// Makes an authority in `folder`, and a page with a certificate of it.
fn secured(folder: &Path) -> Config {
    qfabric_realm::init_ca(folder, &"home".parse().unwrap()).unwrap();
    let names = [NAME.to_owned()];
    let issued = qfabric_realm::issue(folder, &"media".parse().unwrap(), &names, &folder.join("media"), 30).unwrap();
    let mut config = quiet();
    config.web = WebConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        certificate: Some(issued.certificate),
        key: Some(issued.key),
        name: Some(NAME.to_owned()),
        ..WebConfig::default()
    };
    config
}

/// Sends `request` by TLS, to the host of the authority's certificate alone, and returns the answer.
fn ask(folder: &Path, port: u16, request: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(qfabric_realm::certificates(&folder.join("ca.pem")).unwrap());
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    let connection = ClientConnection::new(config, ServerName::try_from(NAME).unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(("127.0.0.1", port)).unwrap());
    stream.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The service may close without the last message of TLS.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn with_a_certificate_the_page_is_served_by_tls_alone_under_its_name_and_with_a_token() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let (_service, client) = service(secured(folder.path()));
    let url = client.web_page().unwrap().url;
    let parts = url.strip_prefix("https://media.example:").and_then(|rest| rest.split_once("/#token="));
    let (port, token) = parts.unwrap_or_else(|| panic!("{url}"));
    let port: u16 = port.parse().unwrap();
    let get = |path: &str, host: &str, more: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n{more}\r\n");
        ask(folder.path(), port, &request)
    };
    let bearer = format!("authorization: Bearer {token}\r\n");
    assert!(get("/", NAME, "").starts_with("HTTP/1.1 200"));
    let status = get("/v1/status", NAME, &bearer);
    assert!(status.starts_with("HTTP/1.1 200") && status.contains("\"capacity\""), "{status}");
    for (host, more) in [(NAME, ""), ("evil.example", bearer.as_str())] {
        let refused = get("/v1/status", host, more);
        assert!(refused.starts_with("HTTP/1.1 40") && !refused.contains("\"capacity\""), "{refused}");
    }
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(format!("GET / HTTP/1.1\r\nhost: {NAME}:{port}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
}

#[test]
fn a_service_whose_certificate_cannot_be_used_does_not_start_and_says_why() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let mut config = secured(folder.path());
    config.web.certificate = Some(folder.path().join("missing.pem"));
    let refusal = Embedded::start(config).unwrap_err().to_string();
    assert!(refusal.contains("web.certificate ") && refusal.contains("missing.pem"), "{refusal}");
}
