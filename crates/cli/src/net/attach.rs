//! `qfabric net attach` and `qfabric net detach`.

use qfabric_types::api::net::{AttachRequest, NetMechanism};
use qfabric_types::{Nanos, Share};

use super::rate::Rate;
use super::show;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Without --dwcs or --htb the kernel decides: DWCS where it has queueing disciplines in BPF (Linux 6.16), else
HTB classes, and says why. The daemon owns what is attached: it ends with the daemon, and what was there
before is put back.

Examples: qfabric net attach eth0
          qfabric net attach wlan0 --dwcs --rate 20M
          qfabric net attach eth0 --htb --rate 1G --best-effort 0.2";

/// Puts an interface under packet scheduling.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The interface
    interface: String,
    /// By Dynamic Window-Constrained Scheduling: deadlines, windows, phases (Linux 6.16 and newer)
    #[arg(long, conflicts_with = "htb")]
    dwcs: bool,
    /// By classes of a hierarchical token bucket: rates alone (every Linux)
    #[arg(long)]
    htb: bool,
    /// Pace sending to this many bits per second, such as 100M, and admit streams for it
    /// [default: the interface's own speed, unpaced]
    #[arg(long, value_name = "BITS")]
    rate: Option<Rate>,
    /// The part of the link that packets of no stream are sure of [default: 0.05]
    #[arg(long, value_name = "SHARE")]
    best_effort: Option<Share>,
    /// Hold packets back and send them in bursts, this long before the first deadline among them
    #[arg(long, value_name = "TIME", conflicts_with = "htb")]
    hold: Option<Nanos>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Puts back how an interface queued before.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net detach eth0")]
pub struct DetachArgs {
    /// The interface
    interface: String,
    #[command(flatten)]
    daemon: Daemon,
}

/// Attaches.
pub fn run(args: Args) -> Outcome {
    let mechanism = match (args.dwcs, args.htb) {
        (true, _) => Some(NetMechanism::Dwcs),
        (_, true) => Some(NetMechanism::Htb),
        _ => None,
    };
    let (rate_bps, best_effort, hold) = (args.rate.map(|rate| rate.0), args.best_effort, args.hold);
    let request = AttachRequest { mechanism, rate_bps, best_effort, hold };
    let info = args.daemon.client()?.attach(&args.interface, &request).map_err(connect::failure)?;
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&show::interface(&info))?
    }
    Ok(Done(0))
}

/// Detaches.
pub fn detach(args: DetachArgs) -> Outcome {
    args.daemon.client()?.detach(&args.interface).map_err(connect::failure)?;
    output::print(&format!("{} queues as before\n", args.interface))?;
    Ok(Done(0))
}
