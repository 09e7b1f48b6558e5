//! The floor: a relay between an application's Unix socket and TLS over TCP to the relay of the other host.
//!
//! One blocking thread for each direction, without discovery, filters, order or loss reports. Each message has a
//! length of four bytes in front. Both directions share one TLS session behind a lock; the thread that reads the TCP
//! connection waits for data without the lock.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Result, bail, ensure};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv, send, socket,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use crate::site::eventually;

/// Longest message in bytes.
const MOST: usize = 16 << 10;
/// Name in the certificate of the host whose relay listens.
const LISTENER: &str = "left";

/// Whether this relay listens for the other one or connects to it, and the address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role<'a> {
    Listens(&'a str),
    Calls(&'a str),
}

/// Relays between `socket`, at which it waits for its application, and the other relay.
pub(crate) fn run(path: &Path, certificates: &Path, host: &str, role: Role<'_>, ready: impl FnOnce()) -> Result<()> {
    let own = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    bind(&own, &SocketAddrUnix::new(path)?)?;
    listen(&own, 1)?;
    let (mut stream, mut session) = (connected(role)?, session(certificates, host, role)?);
    stream.set_nodelay(true)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    ready();
    let application = Arc::new(accept(&own)?);
    let session = Arc::new(Mutex::new(session));
    let (from, into, to) = (Arc::clone(&application), Arc::clone(&session), stream.try_clone()?);
    thread::spawn(move || {
        let _ = send_out(&from, &into, to);
        // The relay ends when one of its connections ends.
        std::process::exit(0);
    });
    let _ = take_in(&application, &session, stream);
    Ok(())
}

fn send_out(application: &OwnedFd, session: &Mutex<Connection>, mut stream: TcpStream) -> Result<()> {
    let mut bytes = [0; 4 + MOST];
    loop {
        let (length, _) = recv(application, &mut bytes[4..], RecvFlags::empty())?;
        ensure!(length > 0, "the application closed the connection");
        bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        let mut session = session.lock().expect("no panic");
        session.writer().write_all(&bytes[..4 + length])?;
        while session.wants_write() {
            session.write_tls(&mut stream)?;
        }
    }
}

fn take_in(application: &OwnedFd, session: &Mutex<Connection>, mut stream: TcpStream) -> Result<()> {
    let (mut wire, mut plain) = ([0; 2 * MOST], Vec::new());
    loop {
        let length = stream.read(&mut wire)?;
        ensure!(length > 0, "the other relay closed the connection");
        decrypt(&mut session.lock().expect("no panic"), &wire[..length], &mut plain)?;
        while let Some((message, rest)) = first(&plain) {
            send(application, message, SendFlags::NOSIGNAL)?;
            let taken = plain.len() - rest;
            plain.drain(..taken);
        }
    }
}

fn decrypt(session: &mut Connection, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<()> {
    while !wire.is_empty() {
        session.read_tls(&mut wire)?;
        session.process_new_packets()?;
        match session.reader().read_to_end(plain) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => bail!(error),
            _ => {}
        }
    }
    Ok(())
}

/// The first complete message, and the number of bytes after it.
fn first(plain: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = plain.split_first_chunk::<4>()?;
    let (message, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((message, rest.len()))
}

fn connected(role: Role<'_>) -> Result<TcpStream> {
    match role {
        Role::Listens(address) => Ok(TcpListener::bind(address)?.accept()?.0),
        Role::Calls(address) => {
            let mut stream = None;
            eventually("the other relay listens", || {
                stream = TcpStream::connect(address).ok();
                stream.is_some()
            })?;
            Ok(stream.expect("it is connected"))
        }
    }
}

/// Mutual TLS with the daemons' own certificates.
fn session(folder: &Path, host: &str, role: Role<'_>) -> Result<Connection> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem"))?)?;
    let own = vec![CertificateDer::from_pem_file(folder.join(format!("{host}.pem")))?];
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{host}.key")))?;
    let provider = Arc::new(default_provider());
    Ok(match role {
        Role::Listens(_) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
            let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            let config = config.with_client_cert_verifier(verifier).with_single_cert(own, key)?;
            ServerConnection::new(Arc::new(config))?.into()
        }
        Role::Calls(_) => {
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            let config = config.with_root_certificates(roots).with_client_auth_cert(own, key)?;
            ClientConnection::new(Arc::new(config), ServerName::try_from(LISTENER)?)?.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_or_wait() {
        assert_eq!(first(b"\x02\0\0\0ab\x01\0"), Some((&b"ab"[..], 2)));
        assert_eq!(first(b"\x02\0\0\0a"), None);
        assert_eq!(first(b"\x02\0"), None);
    }
}
