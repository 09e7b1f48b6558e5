//! `qfabric net attach` and `qfabric net detach`: put an interface under packet scheduling, and end it.

use qfabric_types::api::net::{AttachRequest, NetMechanism};
use qfabric_types::{Nanos, Share};

use super::show;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;
use qfabric_types::BitRate;

const EXAMPLES: &str = "\
Examples: qfabric net attach eth0
          qfabric net attach wlan0 --dwcs --rate 20M
          qfabric net attach eth0 --htb --rate 1G --best-effort 0.2";

/// Puts an interface under packet scheduling, until `qfabric net detach` or the end of the daemon.
///
/// Without --dwcs and --htb, the daemon uses DWCS if the kernel has queueing disciplines in BPF (Linux 6.16 and newer);
/// otherwise it uses HTB classes and prints why. At the end the daemon restores the former queueing discipline. Needs
/// root or CAP_NET_ADMIN; ends with 3 without them. Next step: `qfabric net stream add`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Interface, such as eth0
    interface: String,
    /// Use Dynamic Window-Constrained Scheduling: deadlines, windows and phases; needs Linux 6.16 or newer
    #[arg(long, conflicts_with = "htb")]
    dwcs: bool,
    /// Use the classes of a hierarchical token bucket: rates only; works on every Linux
    #[arg(long)]
    htb: bool,
    /// Rate in bits per second to which sending is paced and for which streams are admitted, such as 800k, 100M or
    /// 2.5G; from 1k to 400G [default: the speed of the interface, without pacing]
    #[arg(long, value_name = "BITS")]
    rate: Option<BitRate>,
    /// Part of the link that is guaranteed to packets without a stream, 0 to 0.9 [default: 0.05]
    #[arg(long, value_name = "SHARE")]
    best_effort: Option<Share>,
    /// Hold packets back and send them in bursts, this time before the first of their deadlines, at most 60s
    #[arg(long, value_name = "TIME", conflicts_with = "htb")]
    hold: Option<Nanos>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Ends packet scheduling on an interface and restores its former queueing discipline.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net detach eth0")]
pub(super) struct DetachArgs {
    /// Interface, such as eth0
    interface: String,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    let mechanism = match (args.dwcs, args.htb) {
        (true, _) => Some(NetMechanism::Dwcs),
        (_, true) => Some(NetMechanism::Htb),
        _ => None,
    };
    let (rate_bps, best_effort, hold) = (args.rate.map(BitRate::get), args.best_effort, args.hold);
    let request = AttachRequest { mechanism, rate_bps, best_effort, hold };
    let info = args.daemon.client()?.attach(&args.interface, &request).map_err(connect::failure)?;
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&show::interface(&info))?
    }
    Ok(Done(0))
}

pub(super) fn detach(args: DetachArgs) -> Outcome {
    args.daemon.client()?.detach(&args.interface).map_err(connect::failure)?;
    output::print(&format!("{} has its former queueing discipline again\n", args.interface))?;
    Ok(Done(0))
}
