//! Reads facts about a listening socket from this host: whether it exists, its connections, and the interfaces in front
//! of it.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use qfabric_linux::interfaces;

use crate::exit::Failure;

/// States in the kernel's table of TCP sockets.
const ESTABLISHED: &str = "01";
const CLOSE_WAIT: &str = "08";
const LISTEN: &str = "0A";

/// Address and port of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listen {
    /// None: all addresses.
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let wrong = || format!("{text:?} is not [ADDRESS]:PORT, such as :8080, 10.0.0.1:80 or [::1]:80");
        let (address, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let address = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
        let address: Option<IpAddr> = match address {
            "" | "*" => None,
            address => Some(address.parse().map_err(|_| wrong())?),
        };
        Ok(Listen { address: address.filter(|address| !address.is_unspecified()), port })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, ":{}", self.port),
            Some(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// The names of the interfaces to guard, separated by commas: the given ones, or lo for a server at a loopback address.
/// `None`: all interfaces, also those that come up later.
///
/// # Errors
/// A given interface does not exist.
pub(super) fn interfaces(listen: &Listen, named: Option<&str>) -> Result<Option<String>, Failure> {
    let present = interfaces::present().map_err(|error| Failure::fault(format!("cannot list interfaces: {error}")))?;
    let Some(named) = named else { return Ok(chosen(listen)) };
    for name in named.split(',') {
        if !present.iter().any(|interface| interface.name == name) {
            let there: Vec<_> = present.iter().map(|interface| interface.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "there is no interface {name:?}; the interfaces are {}",
                there.join(", ")
            )));
        }
    }
    Ok(Some(named.to_owned()))
}

fn chosen(listen: &Listen) -> Option<String> {
    listen.address.is_some_and(|address| address.is_loopback()).then(|| "lo".to_owned())
}

/// Whether a socket listens at this address and port.
pub(super) fn is_listening(listen: &Listen) -> bool {
    sockets().iter().any(|socket| socket.state == LISTEN && socket.is_at(listen))
}

/// Number of connections at the server's port and address that are open now.
pub(super) fn open_connections(listen: &Listen) -> i64 {
    let open = |socket: &&Socket| (socket.state == ESTABLISHED || socket.state == CLOSE_WAIT) && socket.is_at(listen);
    sockets().iter().filter(open).count() as i64
}

/// A line of the kernel's table of TCP sockets.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    state: String,
}

impl Socket {
    fn is_at(&self, listen: &Listen) -> bool {
        let address_fits = match listen.address {
            None => true,
            Some(address) => self.address.is_unspecified() || self.address == address,
        };
        self.port == listen.port && address_fits
    }
}

fn sockets() -> Vec<Socket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(socket).collect()
}

/// Parses `0: 0100007F:1F90 00000000:0000 0A …`. Addresses are 32-bit words in the byte order of the machine.
fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    let state = words.nth(1)?.to_owned();
    Some(Socket { address: address_of(address)?, port: u16::from_str_radix(port, 16).ok()?, state })
}

fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    if text.len() == 8 {
        return Some(IpAddr::from(word(0)?));
    }
    let mut bytes = [0; 16];
    for (part, bytes) in bytes.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&word(8 * part)?);
    }
    let address = Ipv6Addr::from(bytes);
    Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_listener_may_be_left_out() {
        for (text, shown) in [
            (":8080", ":8080"),
            ("8080", ":8080"),
            ("*:80", ":80"),
            ("0.0.0.0:80", ":80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn an_invalid_listener_is_refused_with_examples() {
        for text in ["", ":", ":0", ":70000", "host:80", "1.2.3:80", "80:"] {
            let refusal = text.parse::<Listen>().unwrap_err();
            assert!(refusal.contains(":8080"), "{refusal}");
        }
    }

    #[test]
    fn a_loopback_server_is_guarded_at_lo_and_others_at_all_interfaces() {
        let at = |text: &str| chosen(&text.parse().unwrap());
        assert_eq!((at("127.0.0.1:80"), at("[::1]:80"), at(":80")), (Some("lo".into()), Some("lo".into()), None));
    }

    #[test]
    fn lines_of_the_kernels_socket_table_are_parsed() {
        let v4 = socket("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000").unwrap();
        assert_eq!(v4, Socket { address: "127.0.0.1".parse().unwrap(), port: 8080, state: "0A".into() });
        let v6 = "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A";
        assert_eq!(socket(v6).unwrap().address, "::1".parse::<IpAddr>().unwrap());
        let mapped = "   1: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 01";
        assert_eq!(socket(mapped).unwrap().address, "127.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(socket("nonsense"), None);
    }

    #[test]
    fn a_real_listener_and_its_connection_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen: Listen = listener.local_addr().unwrap().to_string().parse().unwrap();
        assert!(is_listening(&listen));
        assert_eq!(open_connections(&listen), 0);
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        assert_eq!(open_connections(&listen), 1);
        drop(client);
    }
}
