//! A link to a simulated other host: a veth pair with one end in a network namespace, paced to a rate, under each
//! packet scheduler in turn.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context, Result, bail};
use qfabric_linux::net::{self, Attachment, Book};
use qfabric_types::api::net::{AttachRequest, NetMechanism, StreamId, StreamSpec};
use qfabric_types::{Nanos, ServerCounts, Share};

use crate::regime::Competitor;

/// Network namespace of the other host.
const NAMESPACE: &str = "qfcontest";
/// The local end of the link.
pub const INTERFACE: &str = "qfc0";
const PEER: &str = "qfc1";
const PEER_ADDRESS: &str = "02:00:00:00:00:02";
/// Addresses of the local and of the remote end.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
/// The part of the link that is not promised, the default of an interface.
const BEST_EFFORT: Share = Share::from_ppm(50_000);
/// Limit of the queue without flows: 100 ms of the link, in packets.
const FIFO_PACKETS: u64 = 70;

/// The link. Dropping the value removes both ends and the namespace.
#[derive(Debug)]
pub struct Link {
    rate_bps: u64,
}

impl Link {
    /// Creates the link. `rate_bps` is the rate to which [`Link::set_scheduler`] paces it.
    pub fn new(rate_bps: u64) -> Result<Link> {
        let link = Link { rate_bps };
        run(&format!("ip netns add {NAMESPACE}"))?;
        run(&format!("ip link add {INTERFACE} type veth peer name {PEER} netns {NAMESPACE}"))?;
        run(&format!("ip addr add {LOCAL}/24 dev {INTERFACE}"))?;
        run(&format!("ip link set {INTERFACE} up"))?;
        run(&format!("ip -n {NAMESPACE} addr add {REMOTE}/24 dev {PEER}"))?;
        run(&format!("ip -n {NAMESPACE} link set {PEER} up"))?;
        // The address is set before the first packet, because a flood would delay its resolution.
        run(&format!("ip -n {NAMESPACE} neigh replace {LOCAL} lladdr {} dev {PEER}", address(INTERFACE)?))?;
        run(&format!("ip -n {NAMESPACE} link set {PEER} address {PEER_ADDRESS}"))?;
        run(&format!("ip neigh replace {REMOTE} lladdr {PEER_ADDRESS} dev {INTERFACE}"))?;
        Ok(link)
    }

    /// The command through which a program starts on the other host.
    pub fn netns_command(&self) -> [&'static str; 4] {
        ["ip", "netns", "exec", NAMESPACE]
    }

    /// The local and the remote address of the n-th stream.
    pub fn stream(&self, n: u16) -> (SocketAddr, SocketAddr) {
        (SocketAddr::new(LOCAL, 6_000 + n), SocketAddr::new(REMOTE, 7_000 + n))
    }

    /// A remote address at which no program listens.
    pub fn discard(&self) -> SocketAddr {
        SocketAddr::new(REMOTE, 9)
    }

    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// Whether the daemon admits these streams together: the test of DWCS with the time on the link as the service.
    ///
    /// # Errors
    /// It does not; the text gives the reason and the largest amount.
    pub fn admit(&self, streams: &[StreamSpec]) -> Result<(), String> {
        net::admit(&streams.iter().collect::<Vec<_>>(), self.rate_bps, BEST_EFFORT).map_err(|refusal| refusal.message)
    }

    /// The largest C of a single stream with this period.
    pub fn largest(&self, period: Nanos) -> u32 {
        (net::capacity(period, self.rate_bps, BEST_EFFORT).as_f64() * self.rate_bps as f64 * period.as_f64() / 8e9)
            as u32
    }

    /// Puts the link under a packet scheduler.
    pub fn set_scheduler(&self, competitor: Competitor) -> Result<Queue> {
        let attachment = match competitor {
            Competitor::Htb => Some(self.attach(NetMechanism::Htb)?),
            Competitor::Dwcs => Some(self.attach(NetMechanism::Dwcs)?),
            Competitor::Fq => self.shaped("fq").map(|()| None)?,
            _ => self.shaped(&format!("pfifo limit {FIFO_PACKETS}")).map(|()| None)?,
        };
        Ok(Queue { attachment, streams: Vec::new() })
    }

    fn attach(&self, mechanism: NetMechanism) -> Result<Attachment> {
        let (mechanism, rate_bps) = (Some(mechanism), Some(self.rate_bps));
        let request = AttachRequest { mechanism, rate_bps, ..AttachRequest::default() };
        Ok(Attachment::attach(INTERFACE, &request, &mut Book::open(&std::env::temp_dir()))?)
    }

    /// One token bucket for all packets, with a queueing discipline inside.
    fn shaped(&self, inside: &str) -> Result<()> {
        run(&format!("tc qdisc replace dev {INTERFACE} root handle 1: htb default 1"))?;
        let rate = self.rate_bps;
        run(&format!("tc class replace dev {INTERFACE} parent 1: classid 1:1 htb rate {rate} burst 1600 cburst 1600"))?;
        run(&format!("tc qdisc replace dev {INTERFACE} parent 1:1 {inside}"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = run(&format!("ip link del {INTERFACE}"));
        let _ = run(&format!("ip netns del {NAMESPACE}"));
    }
}

/// A packet scheduler in use.
#[derive(Debug)]
pub struct Queue {
    attachment: Option<Attachment>,
    streams: Vec<StreamId>,
}

impl Queue {
    /// Registers the streams if the scheduler distinguishes streams.
    pub fn begin(&mut self, streams: &[StreamSpec]) -> Result<()> {
        if let Some(attachment) = &mut self.attachment {
            self.streams = streams.iter().map(|stream| Ok(attachment.begin(stream)?)).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// The scheduler's counters for each stream; empty if it counts no periods.
    pub fn counts(&self) -> Vec<ServerCounts> {
        let Some(attachment) = &self.attachment else { return Vec::new() };
        let count = |&stream: &StreamId| {
            let seen = attachment.counters(stream);
            let (served, missed, violations) = (seen.served, seen.missed, seen.violations);
            ServerCounts { served, missed, violations, ..ServerCounts::default() }
        };
        self.streams.iter().map(count).collect()
    }
}

fn address(interface: &str) -> Result<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    Ok(text.trim().to_owned())
}

fn run(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("the command line is not empty");
    let failure = || format!("cannot run {line:?}; install {program} of iproute2 and run as root");
    let output = Command::new(program).args(words).output().with_context(failure)?;
    if !output.status.success() {
        bail!("{line:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
