//! Finds the users whose sockets send the packets of a selector, so that a user can ask only for own traffic.
//!
//! The tables of sockets are those of the calling thread's network namespace (`/proc/thread-self/net`), as are the
//! interfaces. A socket in TIME_WAIT sends for no user. A listening socket sends no data. The kernel shows a TCP
//! connection that its program has closed, or that no program has accepted yet, as one of root without an inode: it
//! counts for no user.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use qfabric_types::api::net::{Flow, Protocol};

use super::error::NetError;
use super::keys;

const TIME_WAIT: u8 = 6;
const LISTEN: u8 = 10;

/// One line of `/proc/net/{tcp,udp}{,6}`. IPv4 addresses in IPv6 sockets are shown as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    uid: u32,
    /// Zero: no program has the socket.
    inode: u64,
}

/// The users of the sockets that can send packets of the flow; empty if no socket can.
pub fn flow_users(flow: &Flow) -> io::Result<BTreeSet<u32>> {
    let name = match flow.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    // A socket of IPv6 may send packets of IPv4.
    let versions: &[&str] = if flow.source.is_ipv4() { &["", "6"] } else { &["6"] };
    let mut users = BTreeSet::new();
    for version in versions {
        match File::open(format!("/proc/thread-self/net/{name}{version}")) {
            Ok(table) => collect(BufReader::new(table), flow, &mut users)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(users)
}

/// Whether packets from this address begin at this host. A packet from another address may only be forwarded.
pub fn is_own_address(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && UdpSocket::bind((address, 0)).is_ok()
}

/// The user to whom a cgroup belongs: the owner of its folder, to whom the system delegated it.
pub fn cgroup_user(path: &str) -> Result<u32, NetError> {
    keys::cgroup_folder(path).and_then(|folder| user_of(&folder, path))
}

fn user_of(folder: &Path, path: &str) -> Result<u32, NetError> {
    let failed = |source| NetError::NoCgroup { path: path.to_owned(), source };
    std::fs::metadata(folder).map(|folder| folder.uid()).map_err(failed)
}

fn collect(table: impl BufRead, flow: &Flow, users: &mut BTreeSet<u32>) -> io::Result<()> {
    for line in table.lines().skip(1) {
        let socket = parse(&line?).filter(|socket| socket.can_send(flow));
        users.extend(socket.map(|socket| socket.uid));
    }
    Ok(())
}

impl Socket {
    fn can_send(&self, flow: &Flow) -> bool {
        let is_at = |own: SocketAddr, wanted: SocketAddr| {
            own.port() == wanted.port() && (own.ip().is_unspecified() || own.ip() == wanted.ip())
        };
        let connected = self.remote == flow.destination;
        let sends = match flow.protocol {
            Protocol::Tcp => connected && !matches!(self.state, TIME_WAIT | LISTEN) && (self.uid, self.inode) != (0, 0),
            Protocol::Udp => connected || self.remote.port() == 0,
        };
        is_at(self.local, flow.source) && sends
    }
}

fn parse(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, state, _, _, _, uid, _, inode, ..] = words[..] else { return None };
    let (state, uid, inode) = (u8::from_str_radix(state, 16).ok()?, uid.parse().ok()?, inode.parse().ok()?);
    Some(Socket { local: address(local)?, remote: address(remote)?, state, uid, inode })
}

/// Words of an address are hexadecimal numbers in the byte order of this machine; the port is an ordinary number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let octets = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn flow(text: &str) -> Flow {
        text.parse().unwrap()
    }

    fn own_uid() -> BTreeSet<u32> {
        [rustix::process::geteuid().as_raw()].into()
    }

    #[test]
    fn a_line_of_the_kernels_table_is_parsed() {
        let line = "  57: 0100007F:1F90 0200000A:1770 01 00000000:00000000 00:00000000 00000000  1000        0 4711 2";
        let expected = Socket {
            local: "127.0.0.1:8080".parse().unwrap(),
            remote: "10.0.0.2:6000".parse().unwrap(),
            state: 1,
            uid: 1000,
            inode: 4711,
        };
        assert_eq!(parse(line), Some(expected));
        let mapped = "0000000000000000FFFF00000100007F:0035";
        assert_eq!(address(mapped), Some("127.0.0.1:53".parse().unwrap()));
        for nonsense in ["", "x", "0100007F", "0100:1", "0100007G:0035", "0100007F:xyz"] {
            assert_eq!(address(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn all_users_with_a_socket_on_the_flow_are_found() {
        let row = |local: &str, remote: &str, state: u8, uid: u32| {
            format!("0: {local} {remote} {state:02X} 0:0 0:0 0 {uid} 0 1 2\n")
        };
        let table = [
            "header\n".to_owned(),
            row("0100000A:1388", "0200000A:1770", 1, 1),
            row("00000000:1388", "00000000:0000", 7, 2),
            row("0100000A:1388", "0300000A:1770", 1, 3),
            row("0100000A:1389", "0200000A:1770", 1, 4),
            row("0100000A:1388", "0200000A:1770", 6, 5),
        ]
        .concat();
        let users = |text: &str| {
            let mut users = BTreeSet::new();
            collect(table.as_bytes(), &flow(text), &mut users).unwrap();
            users
        };
        assert_eq!(users("udp,10.0.0.1:5000,10.0.0.2:6000"), [1, 2, 5].into());
        assert_eq!(users("tcp,10.0.0.1:5000,10.0.0.2:6000"), [1].into());
        let closed = parse("0: 0100000A:1388 0200000A:1770 05 0:0 0:0 0 0 0 0 2").unwrap();
        assert!(!closed.can_send(&flow("tcp,10.0.0.1:5000,10.0.0.2:6000")), "its program has closed it");
    }

    #[test]
    fn the_sockets_of_this_process_belong_to_its_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, to) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        assert_eq!(flow_users(&flow(&format!("tcp,{from},{to}"))).unwrap(), own_uid());
        let socket = UdpSocket::bind("[::]:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(flow_users(&flow(&format!("udp,127.0.0.1:{port},127.0.0.9:9"))).unwrap(), own_uid());
        drop(socket);
        assert!(flow_users(&flow(&format!("udp,127.0.0.1:{port},127.0.0.9:9"))).unwrap().is_empty());
    }

    #[test]
    fn addresses_of_other_hosts_and_folders_of_other_users_are_told_apart() {
        assert!(is_own_address("127.0.0.1".parse().unwrap()));
        for other in ["0.0.0.0", "192.0.2.77", "224.0.0.1", "2001:db8::77"] {
            assert!(!is_own_address(other.parse().unwrap()), "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(54_321), None).unwrap();
        assert_eq!(user_of(folder.path(), "/x").unwrap(), 54_321);
        assert!(user_of(&folder.path().join("none"), "/none").unwrap_err().to_string().contains("/none"));
    }
}
