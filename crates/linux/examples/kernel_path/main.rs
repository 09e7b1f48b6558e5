//! Sends changes of a parameter from one network namespace to another, and measures the kernel path between them: the
//! time from `send` to the store in the receiving kernel, and the cost of accepted and refused datagrams. Then it sends
//! a flood of forged, altered, replayed and foreign changes (ten million, or the number in the first argument), of
//! which none may be accepted. It prints the counts of the receiving kernel, and the seed that repeats the flood (the
//! second argument). As root:
//!
//! `cargo run --release -p qfabric-linux --example kernel_path -- 100000000`
//!
//! While it runs, the kernel measures all BPF programs (`kernel.bpf_stats_enabled`).

mod flood;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

use qfabric_linux::clock;
use qfabric_linux::kernel_path::{AppliedParameter, KernelPath, ParameterSender, PathCounts, PeerRights};
use qfabric_linux::namespace::{Namespace, may_make};
use qfabric_linux::net::testing::{Interface, own_network};
use qfabric_types::kernel_path::{ParameterChange, PathKey};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 4790;
const CHANGES: u64 = 20_000;
/// Wrong changes without an argument.
const FLOOD: u64 = 10_000_000;
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

fn main() -> ExitCode {
    if !may_make() {
        eprintln!("network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN; run this example as root");
        return ExitCode::FAILURE;
    }
    let former = fs::read_to_string(STATISTICS).unwrap_or_default();
    let measured = fs::write(STATISTICS, "1").map_err(Into::into).and_then(|()| measure());
    if let Err(error) = fs::write(STATISTICS, former.trim()) {
        eprintln!("{STATISTICS}: {error}; put back {}", former.trim());
    }
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn key(byte: u8) -> PathKey {
    PathKey::new([byte; 16])
}

fn measure() -> Result<(), Box<dyn std::error::Error>> {
    own_network()?;
    let (there, to) = (Namespace::new()?, SocketAddr::from((HERE, PORT)));
    let _link = Interface::veth_to("qpath", "ppath", &there, [HERE, THERE])?;
    let mut path = KernelPath::attach("qpath", to)?;
    path.admit(1, 1, &key(1), &PeerRights { channels: vec![0], per_second: 1_000_000, burst: 1_000_000 })?;
    let mut sender = there.inside(|| ParameterSender::new(to, 1, 1, key(1)))??;
    let mut delays = Vec::new();
    cost(&path, "accepted", |number| {
        let begun = clock::now().get();
        sender.set(0, 0, number as i64)?;
        let word = path.word(0, 0).filter(|word| word.value == number as i64);
        delays.extend(word.map(|word| word.at_ns.saturating_sub(begun)));
        Ok(())
    })?;
    delays.sort_unstable();
    let at =
        |share: f64| delays.get((delays.len() as f64 * share) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1_000.0);
    println!("send to store: p50 {:.1} µs, p99 {:.1} µs ({} changes)", at(0.5), at(0.99), delays.len());
    let socket = there.inside(|| UdpSocket::bind((THERE, 0)))??;
    socket.connect(to)?;
    let old = ParameterChange { peer: 1, epoch: 1, channel: 0, parameter: 0, value: 0, sequence: 1 };
    let unknown = ParameterChange { epoch: 2, ..old };
    for (name, bytes) in [("replayed", old.encode(&key(1))), ("forged", old.encode(&key(2)))] {
        cost(&path, name, |_| socket.send(&bytes).map(drop))?;
    }
    cost(&path, "unknown", |_| socket.send(&unknown.encode(&key(1))).map(drop))?;
    println!("{:?}; the last value is {}", path.counts(), path.word(0, 0).map_or(0, |word| word.value));
    try_wrong_ones(&path, &socket)
}

/// The number in an argument of this program, or `usual` without it.
fn argument(place: usize, usual: u64) -> Result<u64, std::num::ParseIntError> {
    std::env::args().nth(place).map_or(Ok(usual), |number| number.parse())
}

/// Sends wrong changes after the last accepted one, and prints what became of them.
fn try_wrong_ones(path: &KernelPath, socket: &UdpSocket) -> Result<(), Box<dyn std::error::Error>> {
    let (changes, seed, begun) = (argument(1, FLOOD)?, argument(2, clock::now().get())?, clock::now());
    let AppliedParameter { peer, epoch, value, sequence, .. } = path.word(0, 0).ok_or("nothing was accepted before")?;
    let last = ParameterChange { peer, epoch, channel: 0, parameter: 0, value, sequence };
    let PathCounts { accepted, malformed, unknown, forged, denied, replayed, too_many } =
        flood::flood(path, socket, &key(1), last, changes, seed)?;
    let (others, seconds) = (malformed + denied + too_many, clock::now().since(begun).get() as f64 / 1e9);
    let tried = forged + replayed + unknown + others + accepted;
    println!("flood: {tried} wrong changes in {seconds:.1} s, {accepted} accepted (seed {seed})");
    println!("  forged {forged}, replayed {replayed}, unknown {unknown}, others {others}");
    Ok(())
}

/// Sends [`CHANGES`] datagrams, and prints what one cost in the receiving kernel.
fn cost(path: &KernelPath, name: &str, mut send: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let (runs, time) = path.run_time()?;
    (1..=CHANGES).try_for_each(&mut send)?;
    let (more_runs, more_time) = path.run_time()?;
    let each = (more_time.get() - time.get()) / (more_runs - runs).max(1);
    println!("{name}: {each} ns in the program, mean of {} packets", more_runs - runs);
    Ok(())
}
