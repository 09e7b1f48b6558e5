//! The emulated link against its settings, beside the kernel's TBF on veth where both can be compared.
//!
//! `cargo bench -p qfabric-netlab` prints medians of interleaved rounds, with the least and the largest. It needs root,
//! `/dev/net/tun`, and `ip` and `tc` for the rival. `ROUNDS` in the environment sets the number of rounds (5).
//!
//! | row | number |
//! |---|---|
//! | rtt | round trip minus twice the delay, in µs: p50 and p99 of 500 datagrams; both ends under SCHED_FIFO |
//! | tcp, udp | bytes at the receiver over bytes that the rate allows, headers included |

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use qfabric_linux::namespace::Namespace;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{live_lock, stolen};
use qfabric_netlab::{Lab, LabEnd, LabSettings, LinkRate, LinkSettings};
use qfabric_types::{BitRate, Nanos, ThreadId};

const RATES_MBPS: [u64; 3] = [10, 30, 100];
const LENGTH: Duration = Duration::from_secs(2);
const PINGS: usize = 500;
const DATAGRAM: usize = 1_472;

/// Two ends of some link.
trait Link: Sync {
    fn inside<T: Send>(&self, end: LabEnd, body: impl FnOnce() -> T + Send) -> T;
    fn peer(&self) -> Ipv4Addr;
    /// Bytes that the link counts for a packet beside its IP packet.
    fn link_header(&self) -> usize;
}

impl Link for Lab {
    fn inside<T: Send>(&self, end: LabEnd, body: impl FnOnce() -> T + Send) -> T {
        Lab::inside(self, end, body).unwrap()
    }
    fn peer(&self) -> Ipv4Addr {
        self.address(LabEnd::Peer)
    }
    fn link_header(&self) -> usize {
        0
    }
}

/// The kernel's link: veth, with a token bucket at the local end if there is a rate.
struct Veth([Namespace; 2]);

impl Veth {
    fn new(rate_mbps: Option<u64>) -> Veth {
        let veth = Veth([Namespace::new().unwrap(), Namespace::new().unwrap()]);
        let peer = format!("/proc/{}/fd/{}", std::process::id(), veth.0[1].as_fd().as_raw_fd());
        veth.run(LabEnd::Local, &format!("ip link add v0 type veth peer name v0 netns {peer}"));
        for (end, address) in [(LabEnd::Local, 1), (LabEnd::Peer, 2)] {
            veth.run(end, &format!("ip addr add 198.18.0.{address}/24 dev v0"));
            veth.run(end, "ip link set v0 up");
        }
        if let Some(rate) = rate_mbps {
            veth.run(LabEnd::Local, &format!("tc qdisc add dev v0 root tbf rate {rate}mbit burst 6kb latency 300ms"));
        }
        veth
    }

    fn run(&self, end: LabEnd, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.0[index(end)].enter_at_exec(&mut command).unwrap();
        assert!(command.status().unwrap().success(), "{line}");
    }
}

fn index(end: LabEnd) -> usize {
    usize::from(end == LabEnd::Peer)
}

impl Link for Veth {
    fn inside<T: Send>(&self, end: LabEnd, body: impl FnOnce() -> T + Send) -> T {
        self.0[index(end)].inside(body).unwrap()
    }
    fn peer(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, 2)
    }
    fn link_header(&self) -> usize {
        14
    }
}

fn lab(rate_mbps: Option<u64>, delay: Nanos) -> Lab {
    let rate = rate_mbps.map_or(LinkRate::Unlimited, |rate| LinkRate::Constant(BitRate::new(rate * 1_000_000)));
    Lab::new(&LabSettings::symmetric(LinkSettings { rate, delay, ..LinkSettings::default() }, 1)).unwrap()
}

/// Round trips of single datagrams, beyond `expected`, in µs; sorted.
fn round_trips(link: &impl Link, expected: Duration) -> Vec<f64> {
    let peer = SocketAddr::from((link.peer(), 7));
    let server = link.inside(LabEnd::Peer, || UdpSocket::bind(peer).unwrap());
    let client = link.inside(LabEnd::Local, || UdpSocket::bind("0.0.0.0:0").unwrap());
    client.connect(peer).unwrap();
    let mut trips = thread::scope(|scope| {
        scope.spawn(|| {
            run_before_others();
            let mut buffer = [0; 64];
            for _ in 0..PINGS {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                server.send_to(&buffer[..length], from).unwrap();
            }
        });
        let client = &client;
        let trip = move |_| {
            let begin = Instant::now();
            client.send(b"ping").unwrap();
            client.recv(&mut [0; 64]).unwrap();
            1e6 * (begin.elapsed().as_secs_f64() - expected.as_secs_f64())
        };
        let pings = scope.spawn(move || {
            run_before_others();
            (0..PINGS).map(trip).collect::<Vec<_>>()
        });
        pings.join().unwrap()
    });
    trips.sort_by(f64::total_cmp);
    trips
}

/// Puts the calling thread under SCHED_FIFO, below the emulator, so that other programs do not appear as round trip time.
fn run_before_others() {
    SchedAttr::fifo(40).give(ThreadId(0)).expect("root may use SCHED_FIFO");
}

/// Bytes per second on the link of a TCP flow, headers included.
fn tcp(link: &impl Link) -> f64 {
    let peer = SocketAddr::from((link.peer(), 8));
    let listener = link.inside(LabEnd::Peer, || TcpListener::bind(peer).unwrap());
    let mut sender = link.inside(LabEnd::Local, || TcpStream::connect(peer).unwrap());
    let (mut receiver, _) = listener.accept().unwrap();
    let end = Instant::now() + LENGTH;
    thread::scope(|scope| {
        scope.spawn(move || {
            let data = vec![0; 64 << 10];
            while Instant::now() < end && sender.write_all(&data).is_ok() {}
        });
        let (mut buffer, mut bytes) = (vec![0; 64 << 10], 0);
        let _ = receiver.read(&mut buffer).unwrap(); // arrives before the clock starts
        let begin = Instant::now();
        while let Ok(length @ 1..) = receiver.read(&mut buffer) {
            bytes += length;
        }
        // 1,448 bytes of data in packets of 1,500.
        bytes as f64 / 1_448.0 * (1_500 + link.link_header()) as f64 / begin.elapsed().as_secs_f64()
    })
}

/// Bytes per second on the link of datagrams that are sent a fifth faster than the rate, headers included.
fn udp(link: &impl Link, rate_mbps: u64) -> f64 {
    let peer = SocketAddr::from((link.peer(), 9));
    let receiver = link.inside(LabEnd::Peer, || UdpSocket::bind(peer).unwrap());
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let sender = link.inside(LabEnd::Local, || UdpSocket::bind("0.0.0.0:0").unwrap());
    let gap = Duration::from_secs_f64(1_500.0 * 8.0 / (1.2 * rate_mbps as f64 * 1e6));
    thread::scope(|scope| {
        scope.spawn(move || {
            let begin = Instant::now();
            for number in 0.. {
                thread::sleep((begin + gap * number).saturating_duration_since(Instant::now()));
                if begin.elapsed() > LENGTH {
                    return;
                }
                sender.send_to(&[0; DATAGRAM], peer).unwrap(); // a full queue is no error for UDP
            }
        });
        receive(&receiver, 1_500 + link.link_header())
    })
}

fn receive(receiver: &UdpSocket, packet: usize) -> f64 {
    let (mut buffer, mut packets) = ([0; 2_048], 0);
    receiver.recv(&mut buffer).unwrap();
    let (begin, mut last) = (Instant::now(), Instant::now());
    while receiver.recv(&mut buffer).is_ok() {
        packets += 1;
        last = Instant::now();
    }
    (packets * packet) as f64 / (last - begin).as_secs_f64()
}

/// Values of one row over all rounds.
#[derive(Default)]
struct Row {
    name: String,
    values: Vec<f64>,
}

#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    fn add(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|row| row.name == name) {
            Some(row) => row.values.push(value),
            None => self.0.push(Row { name: name.to_owned(), values: vec![value] }),
        }
    }

    fn print(mut self) {
        println!("{:<34} {:>9} {:>9} {:>9}", "row", "median", "least", "most");
        for Row { name, values } in &mut self.0 {
            values.sort_by(f64::total_cmp);
            let (least, most, median) = (values[0], values[values.len() - 1], values[values.len() / 2]);
            println!("{name:<34} {median:>9.3} {least:>9.3} {most:>9.3}");
        }
    }
}

fn rtt_round(table: &mut Table) {
    let add = |table: &mut Table, name: &str, trips: Vec<f64>| {
        table.add(&format!("rtt {name}, p50 error in us"), trips[trips.len() / 2]);
        table.add(&format!("rtt {name}, p99 error in us"), trips[trips.len() * 99 / 100]);
    };
    add(table, "veth, no delay", round_trips(&Veth::new(None), Duration::ZERO));
    for ms in [0, 2] {
        let lab = lab(None, Nanos::from_millis(ms));
        add(table, &format!("lab, {ms} ms each way"), round_trips(&lab, Duration::from_millis(2 * ms)));
        let late = lab.report().unwrap().lateness;
        table.add(&format!("lab, {ms} ms: late p99 in us"), late.p99_ms * 1e3);
    }
}

fn rate_round(table: &mut Table, mbps: u64) {
    let share = |bytes: f64| bytes * 8.0 / (mbps as f64 * 1e6);
    let links = (lab(Some(mbps), Nanos::ZERO), Veth::new(Some(mbps)));
    table.add(&format!("tcp {mbps} Mbit/s, lab"), share(tcp(&links.0)));
    table.add(&format!("tcp {mbps} Mbit/s, tbf"), share(tcp(&links.1)));
    table.add(&format!("udp {mbps} Mbit/s, lab"), share(udp(&links.0, mbps)));
    table.add(&format!("udp {mbps} Mbit/s, tbf"), share(udp(&links.1, mbps)));
    let report = links.0.report().unwrap();
    table.add(&format!("lab {mbps} Mbit/s: late p99 in us"), report.lateness.p99_ms * 1e3);
    table.add(&format!("lab {mbps} Mbit/s: valid runs"), f64::from(u8::from(report.valid)));
}

fn main() {
    // `cargo test --benches` only checks that this compiles and starts.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let _lock = live_lock();
    let rounds = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (mut table, begin, before) = (Table::default(), Instant::now(), stolen());
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        rtt_round(&mut table);
        RATES_MBPS.into_iter().for_each(|mbps| rate_round(&mut table, mbps));
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from) as f64;
    let steal = (stolen() - before).as_secs_f64() / (begin.elapsed().as_secs_f64() * cpus);
    table.add("steal, part of all CPUs", steal);
    table.print();
}
