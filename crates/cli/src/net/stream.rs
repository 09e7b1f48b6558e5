//! `qfabric net stream`: adds, changes, removes and lists streams of packets.

use std::str::FromStr;

use clap::Subcommand;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::{Flow, MeasuredDelays, NetMechanism, Selector, StreamChange, StreamId, StreamSpec};
use qfabric_types::{BitRate, Bytes, Instant, Nanos, TrafficSpec, Window};

use super::{profile, show};
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Adds, changes, removes and lists streams of packets with deadlines.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Add(Box<AddArgs>),
    Change(ChangeArgs),
    Rm(RmArgs),
    Ls(show::Args),
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct SelectorArgs {
    /// Take the packets with this mark (SO_MARK), not 0
    #[arg(long, value_name = "N")]
    mark: Option<u32>,
    /// Take the packets of sockets that were created in this cgroup, such as /user.slice/player.scope
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Take the packets of one flow: protocol (tcp or udp), source, destination, such as
    /// udp,10.0.0.1:5000,10.0.0.2:6000
    #[arg(long, value_name = "FLOW")]
    flow: Option<Flow>,
}

#[derive(clap::Args, Debug)]
struct Attributes {
    /// Θ: earliest time after the begin of its period at which a packet is sent, at most 60s; it is sent at most one
    /// period later
    #[arg(long, value_name = "TIME")]
    phase: Option<Nanos>,
    /// At most X of every Y periods may be lost, Y at most 255 [default: none may be lost]
    #[arg(long, value_name = "X/Y")]
    window: Option<Window>,
    /// C: bytes in one period, with their headers [default: 1514, one packet]
    #[arg(long, value_name = "BYTES")]
    size: Option<u32>,
    /// Send packets beyond C before their period, and before best effort, when no other stream has a ready packet
    #[arg(long, value_name = "YES", num_args = 0..=1, default_missing_value = "true")]
    work_conserving: Option<bool>,
    /// Number of packets that can wait, 1 to 128; further packets are dropped [default: 128]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Begin of the first period, in nanoseconds of CLOCK_MONOTONIC; each later period begins T after the one before
    /// [default: a period begins with a packet]
    #[arg(long, value_name = "NS")]
    start: Option<u64>,
    /// Give all packets of the stream this code point (DSCP), for routers and access points, such as 46 for expedited
    /// forwarding [default: the program's own]
    #[arg(long, value_name = "0-63", value_parser = clap::value_parser!(u8).range(0..=i64::from(StreamSpec::MOST_DSCP)))]
    dscp: Option<u8>,
    /// Follow the attributes period_ns, phase_ns, window_x, window_y and size_bytes of this subscription, which
    /// handlers in E-code set; 0 ends it
    #[arg(long, value_name = "ID")]
    follow: Option<u64>,
    /// Smallest C that is useful: if the link has no room for all of C, the stream gets a part, at least this
    /// [default: C]
    #[arg(long, value_name = "BYTES")]
    least: Option<u32>,
    /// Raise a partly granted stream to C as soon as the link has room
    #[arg(long, value_name = "YES", num_args = 0..=1, default_missing_value = "true")]
    upgrade: Option<bool>,
    /// End the stream after this time, unless a change renews the lease; at most 86400s without root [default: no end
    /// for root; 3600s for other users without --holder]
    #[arg(long, value_name = "TIME")]
    lease: Option<Nanos>,
}

#[derive(clap::Args, Debug)]
struct TermArgs {
    /// End the stream with this process, to whose user it belongs
    #[arg(long, value_name = "PID")]
    holder: Option<i32>,
    /// Traffic of the stream, from which the longest delay is calculated: token rate, bucket in bytes, peak rate,
    /// largest packet in bytes, such as 5M,20000,8M,1514
    #[arg(long, value_name = "RATE,BUCKET,PEAK,LARGEST", group = "evidence")]
    traffic: Option<Traffic>,
    /// Refuse the stream if it is too slow: with --traffic, if packets may wait longer than this in the queue (needs DWCS);
    /// with --measured, if 1 % of the messages may take longer from end to end
    #[arg(long, value_name = "TIME", requires = "evidence")]
    delay: Option<Nanos>,
    /// The host whose profile of delays applies; measure it before with `qfabric net profile HOST`
    #[arg(long, value_name = "HOST", requires = "message", group = "evidence")]
    measured: Option<String>,
    /// Size of the stream's largest message, for --measured, such as 80kB
    #[arg(long, value_name = "BYTES", requires = "measured")]
    message: Option<Bytes>,
    /// Draw the rate from this joint contract, on any of its hosts, or from the loan of this claim; the stream ends
    /// with it
    #[arg(long, value_name = "HOST:NUMBER")]
    contract: Option<JointId>,
}

#[derive(Clone, Copy, Debug)]
struct Traffic(TrafficSpec);

impl FromStr for Traffic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        let [rate, bucket, peak, largest] = parts[..] else {
            return Err(format!(
                "{text:?} has not four parts; write RATE,BUCKET,PEAK,LARGEST, such as 5M,20000,8M,1514"
            ));
        };
        let bits = |text: &str| text.parse::<BitRate>().map_err(|error| error.to_string());
        let bytes = |text: &str| text.parse::<Bytes>().map_err(|error| error.to_string());
        let spec = TrafficSpec::new(bits(rate)?, bytes(bucket)?, bits(peak)?, bytes(largest)?);
        spec.map(Traffic).map_err(|error| error.to_string())
    }
}

/// Adds a stream of packets with deadlines.
///
/// Ends with 3 if the link cannot carry the stream together with the admitted ones. The stream ends with `qfabric net
/// stream rm`, with `qfabric net detach`, with its holder or lease, or with the daemon. Users without CAP_NET_ADMIN may
/// add streams to a link that root opened (`qfabric net link add`), for the packets of their own sockets (--flow) or
/// cgroups (--cgroup), with a period of at most 1s.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples: qfabric net stream add eth0 --mark 7 --period 40ms --phase 15ms --window 1/10
          qfabric net stream add eth0 --flow udp,10.0.0.1:5000,10.0.0.2:6000 --period 20ms --size 4000
          qfabric net stream add --cgroup /user.slice/player.scope --period 10ms --dscp 46
          qfabric net stream add eth0 --mark 7 --period 20ms --size 8000 --least 4000 --upgrade --holder 4711")]
struct AddArgs {
    /// Interface [default: the only attached interface]
    interface: Option<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// T: period in which the stream sends C bytes, from 100us to 60s
    #[arg(long, value_name = "TIME")]
    period: Nanos,
    #[command(flatten)]
    attributes: Attributes,
    #[command(flatten)]
    terms: TermArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Changes a stream while packets pass; values that are not given stay.
///
/// Ends with 3 if the stream does not exist, belongs to another user, or the link cannot carry the change. With --lease
/// alone, only the lease is renewed. With --size, a partly granted stream accepts an offer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net stream change eth0 0 --period 20ms --window 1/5")]
struct ChangeArgs {
    /// Interface, such as eth0
    interface: String,
    /// Number of the stream; `qfabric net show` shows it
    id: StreamId,
    /// T: period in which the stream sends C bytes, from 100us to 60s
    #[arg(long, value_name = "TIME")]
    period: Option<Nanos>,
    #[command(flatten)]
    attributes: Attributes,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Removes a stream; its packets are best effort from now on.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net stream rm eth0 0")]
struct RmArgs {
    /// Interface, such as eth0
    interface: String,
    /// Number of the stream; `qfabric net show` shows it
    id: StreamId,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Add(args) => add(*args),
        Command::Change(args) => change(args),
        Command::Rm(args) => rm(args),
        Command::Ls(args) => show::run(args),
    }
}

impl SelectorArgs {
    fn selector(self) -> Selector {
        match (self.mark, self.cgroup, self.flow) {
            (Some(mark), ..) => Selector::Mark(mark),
            (_, Some(path), _) => Selector::Cgroup(path),
            (_, _, Some(flow)) => Selector::Flow(flow),
            _ => unreachable!("clap requires one of the group"),
        }
    }
}

impl Attributes {
    fn change(self, period: Option<Nanos>) -> StreamChange {
        let Attributes { phase, window, size, work_conserving, limit, start, dscp, follow, least, upgrade, lease } =
            self;
        let start = start.map(Instant::new);
        StreamChange { period, phase, window, size, work_conserving, limit, start, dscp, follow, least, upgrade, lease }
    }
}

fn add(args: AddArgs) -> Outcome {
    let client = args.daemon.client()?;
    let interface = match args.interface {
        Some(interface) => interface,
        None => only_attached(&client)?,
    };
    let change = args.attributes.change(None);
    let mut spec = StreamSpec::new(args.selector.selector(), args.period).changed(&change);
    let TermArgs { holder, traffic, delay, measured, message, contract } = args.terms;
    (spec.terms.holder, spec.terms.traffic, spec.terms.delay) = (holder, traffic.map(|traffic| traffic.0), delay);
    if let (Some(host), Some(message_bytes)) = (measured, message) {
        let profile = profile::stored(&host, &interface)?;
        spec.terms.measured = Some(MeasuredDelays { message_bytes, profile });
    }
    let begun = match contract {
        Some(contract) => client.begin_stream_of_contract(&contract, &interface, &spec),
        None => client.begin_stream(&interface, &spec),
    };
    let mut info = begun.map_err(connect::failure)?;
    if change.follow.is_some() {
        let follow = StreamChange { follow: change.follow, ..StreamChange::default() };
        info = client.change_stream(&interface, info.id, &follow).map_err(|refused| {
            // A refused command changes nothing. If the stream cannot be ended, it has ended or the daemon has.
            let _ = client.end_stream(&interface, info.id);
            connect::failure(refused)
        })?;
    }
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&show::admitted(&interface, mechanism(&client, &interface)?, &change, &info))?
    }
    Ok(Done(0))
}

/// The only attached interface. A failure if there is none, or more than one.
pub(super) fn only_attached(client: &qfabric_client::Client) -> Result<String, Failure> {
    let attached = client.interfaces().map_err(connect::failure)?;
    match &attached[..] {
        [one] => Ok(one.interface.clone()),
        [] => Err(Failure::usage("no interface is under packet scheduling; attach one first: qfabric net attach eth0")),
        several => {
            let names: Vec<_> = several.iter().map(|info| info.interface.as_str()).collect();
            Err(Failure::usage(format!("several interfaces are attached; name one of {}", names.join(", "))))
        }
    }
}

fn mechanism(client: &qfabric_client::Client, interface: &str) -> Result<NetMechanism, Failure> {
    Ok(client.interface(interface).map_err(connect::failure)?.mechanism)
}

fn change(args: ChangeArgs) -> Outcome {
    let change = args.attributes.change(args.period);
    let client = args.daemon.client()?;
    let info = client.change_stream(&args.interface, args.id, &change).map_err(connect::failure)?;
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&show::admitted(&args.interface, mechanism(&client, &args.interface)?, &change, &info))?
    }
    Ok(Done(0))
}

fn rm(args: RmArgs) -> Outcome {
    args.daemon.client()?.end_stream(&args.interface, args.id).map_err(connect::failure)?;
    output::print(&format!("stream {} of {} has ended; its packets are best effort\n", args.id, args.interface))?;
    Ok(Done(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_parsed_in_its_four_parts_and_contradictions_are_refused() {
        let traffic = "5M,20000,8M,1514".parse::<Traffic>().unwrap().0;
        assert_eq!((traffic.peak(), traffic.largest()), (BitRate::new(8_000_000), Bytes::new(1_514)));
        for (text, said) in [
            ("5M,20000", "RATE,BUCKET,PEAK,LARGEST"),
            ("5M,20000,4M,1514", "below the token rate"),
            ("5M,1000,8M,1514", "at least 1514 bytes"),
            ("fast,1,2M,1", "100M"),
        ] {
            let error = text.parse::<Traffic>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
