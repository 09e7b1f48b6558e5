//! The kernel path: changes of parameters from other hosts take effect in the receiving kernel, without any thread.
//!
//! ```text
//! ParameterSender::set ─ UDP ─> qf_apply at tcx ingress: key, tag, newer?, rate ─> word ── KernelPath::word
//!                                          └ all others: counted, dropped                  (shared memory)
//! ```
//! The datagrams are in [`qfabric_types::kernel_path`]; design page 0060 explains the choices. Times are nanoseconds of
//! CLOCK_MONOTONIC. Agreement on keys is not part of this module.

mod error;
mod memory;
mod sender;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

pub use error::KernelPathError;
use error::{failed, value};
use memory::Counts;
pub use memory::{AppliedParameter, PathCounts, PathWords};
use qfabric_types::Nanos;
use qfabric_types::kernel_path::{BATCH, CHANGE_BYTES, CHANNELS, MAGIC, PARAMETERS, PEERS, PathKey};
pub use sender::ParameterSender;

use crate::abi::{self, qf_path_key, qf_path_options, qf_path_peer};
use crate::bpf::{Entry, Link, OpenObject, SkbSide, Table, objects};
use crate::{cpus, net};

const _: () = assert!(abi::QF_PATH_MAGIC == u32::from_le_bytes(MAGIC) && abi::QF_PATH_BATCH as usize == BATCH);
const _: () = assert!(abi::QF_PATH_PEERS == PEERS && size_of::<abi::qf_path_change>() == CHANGE_BYTES);
const _: () = assert!(abi::QF_PATH_CHANNELS == CHANNELS as u32 && abi::QF_PATH_PARAMETERS == PARAMETERS as u32);

const PROGRAM: &str = "qf_apply";
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Largest rate and largest burst of a peer.
const RATE_MAX: u32 = 1_000_000;

/// What a peer may change, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRights {
    /// Channels whose parameters the peer may change. A channel belongs to one peer only.
    pub channels: Vec<u16>,
    /// Changes per second that are accepted in the long run.
    pub per_second: u32,
    /// Changes that are accepted at once after a pause.
    pub burst: u32,
}

/// The receiving end on one interface. Dropping it leaves the interface as it was before.
#[derive(Debug)]
pub struct KernelPath {
    interface: String,
    keys: Table,
    peers: Table,
    words: PathWords,
    counts: Counts,
    /// Present peers, and the last epoch of the former ones.
    book: BTreeMap<u32, Peer>,
    program: Entry,
    _link: Link,
}

#[derive(Debug, Default)]
struct Peer {
    /// Its newest epoch; larger than the epochs of former peers with this number.
    epoch: u32,
    /// Empty if the peer was removed.
    channels: Vec<u16>,
}

impl KernelPath {
    /// Attaches the program to an interface of this network namespace. Datagrams to `address`, an address of this host
    /// with a UDP port that no socket uses, then end in the kernel; all other packets pass. Needs CAP_BPF,
    /// CAP_NET_ADMIN and Linux 6.6.
    pub fn attach(interface: &str, address: SocketAddr) -> Result<KernelPath, KernelPathError> {
        let options = options(address)?;
        let ifindex = net::index(interface)?;
        let open = OpenObject::open("the kernel path", objects::PACKET_APPLY)?;
        let open = open.constant(".rodata.options", &options)?.entries("counts", cpus::possible())?;
        let object = open.load().map_err(KernelPathError::of_object)?;
        let words = PathWords::of(object.table("words")?).map_err(failed("mapping the parameters"))?;
        let counts = Counts::of(&object.table("counts")?).map_err(failed("mapping the counts"))?;
        let (keys, peers) = (object.table("keys")?, object.table("peers")?);
        let program = object.entry(PROGRAM)?;
        let link = program.attach_packets(ifindex, SkbSide::Ingress);
        let link = link.map_err(|error| KernelPathError::of_link(interface, error))?;
        let (interface, book) = (interface.to_owned(), BTreeMap::new());
        Ok(KernelPath { interface, keys, peers, words, counts, book, program, _link: link })
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Accepts a peer with its first key. `epoch` must be larger than all epochs under which the number was used; a key
    /// must not have been used before, with this value or another one, because old datagrams would be accepted again.
    pub fn admit(&mut self, peer: u32, epoch: u32, key: &PathKey, rights: &PeerRights) -> Result<(), KernelPathError> {
        check_rights(rights)?;
        let former = self.book.get(&peer);
        if peer >= PEERS || former.is_some_and(|former| !former.channels.is_empty()) {
            return Err(value("peer", peer, format!("choose a number below {PEERS} that no peer has")));
        }
        let former = former.map_or(0, |former| former.epoch);
        if epoch <= former {
            return Err(value("epoch", epoch, format!("choose one above {former}")));
        }
        let taken = self.book.values().flat_map(|peer| &peer.channels);
        if let Some(taken) = taken.into_iter().find(|channel| rights.channels.contains(channel)) {
            return Err(value("channel", taken, "remove the peer that has the channel first".into()));
        }
        let cost_ns = NANOS_PER_SECOND.div_ceil(u64::from(rights.per_second));
        let depth_ns = cost_ns * u64::from(rights.burst);
        let row = qf_path_peer { cost_ns, depth_ns, ..qf_path_peer::default() };
        // No key of the peer is valid, so the program does not use its row.
        self.peers.set(&peer, &row).map_err(failed("admitting a peer"))?;
        self.write_key(peer, epoch, key, &rights.channels)?;
        self.book.insert(peer, Peer { epoch, channels: rights.channels.clone() });
        Ok(())
    }

    /// Adds the key of the peer's next epoch. The key before stays valid until a change with the new one is accepted, or
    /// until [`KernelPath::retire`]. Returns the new epoch, which the sender needs.
    pub fn renew(&mut self, peer: u32, key: &PathKey) -> Result<u32, KernelPathError> {
        let Peer { epoch, channels } = self.known(peer)?;
        let epoch = epoch
            .checked_add(1)
            .ok_or_else(|| value("epoch", epoch, "admit the sender under another number".into()))?;
        self.write_key(peer, epoch, key, channels)?;
        self.book.entry(peer).or_default().epoch = epoch;
        Ok(epoch)
    }

    /// Removes the key before the peer's newest one.
    pub fn retire(&mut self, peer: u32) -> Result<(), KernelPathError> {
        let epoch = self.known(peer)?.epoch;
        self.remove_key(peer, epoch.wrapping_sub(1))
    }

    /// Ends a peer. Its channels are free; the values that it set stay.
    pub fn remove(&mut self, peer: u32) -> Result<(), KernelPathError> {
        let epoch = self.known(peer)?.epoch;
        self.remove_key(peer, epoch)?;
        self.remove_key(peer, epoch.wrapping_sub(1))?;
        self.book.insert(peer, Peer { epoch, channels: Vec::new() });
        Ok(())
    }

    /// The last epoch under which the number was used; 0: it was not.
    pub fn last_epoch(&self, peer: u32) -> u32 {
        self.book.get(&peer).map_or(0, |peer| peer.epoch)
    }

    /// The present value of a parameter, read from the memory that the kernel writes. `None` if none was set, or if
    /// there is no such parameter.
    pub fn word(&self, channel: u16, parameter: u16) -> Option<AppliedParameter> {
        self.words.read(channel, parameter)
    }

    /// For readers of the parameters; their memory outlives this value.
    pub fn words(&self) -> PathWords {
        self.words.clone()
    }

    /// What became of the changes that arrived since the beginning.
    pub fn counts(&self) -> PathCounts {
        self.counts.sum()
    }

    /// Packets that the program looked at, and the time that it took. The kernel counts both only while
    /// `kernel.bpf_stats_enabled` is 1.
    pub fn run_time(&self) -> io::Result<(u64, Nanos)> {
        self.program.run_time()
    }

    fn known(&self, peer: u32) -> Result<&Peer, KernelPathError> {
        let known = self.book.get(&peer).filter(|known| !known.channels.is_empty());
        known.ok_or_else(|| value("peer", peer, "admit the peer first".into()))
    }

    fn write_key(&self, peer: u32, epoch: u32, key: &PathKey, channels: &[u16]) -> Result<(), KernelPathError> {
        let channels = channels.iter().fold(0, |all, channel| all | 1u64 << channel);
        self.put(peer, epoch, qf_path_key { epoch, key: key.words(), channels, ..qf_path_key::default() })
    }

    fn remove_key(&self, peer: u32, epoch: u32) -> Result<(), KernelPathError> {
        self.put(peer, epoch, qf_path_key::default())
    }

    fn put(&self, peer: u32, epoch: u32, key: qf_path_key) -> Result<(), KernelPathError> {
        self.keys.set_locked(&(2 * peer + (epoch & 1)), &key).map_err(failed("writing a key"))
    }
}

fn check_rights(rights: &PeerRights) -> Result<(), KernelPathError> {
    if rights.channels.is_empty() {
        return Err(value("channels", "empty", "grant at least one channel".into()));
    }
    if let Some(beyond) = rights.channels.iter().find(|channel| **channel >= CHANNELS) {
        return Err(value("channel", beyond, format!("from 0 to {}", CHANNELS - 1)));
    }
    for (what, given) in [("per_second", rights.per_second), ("burst", rights.burst)] {
        if !(1..=RATE_MAX).contains(&given) {
            return Err(value(what, given, format!("from 1 to {RATE_MAX}")));
        }
    }
    Ok(())
}

/// The address and port in the form that the program compares with packets.
fn options(address: SocketAddr) -> Result<qf_path_options, KernelPathError> {
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(value("address", address, "state one address of this host, and a port".into()));
    }
    let version = if address.is_ipv4() { 4 } else { 6 };
    let mut bytes = [0; 16];
    match address.ip() {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Ok(qf_path_options { address: [word(0), word(4), word(8), word(12)], port: address.port().to_be(), version })
}
