//! `qfabric sim fabric`: hosts on a made-up network, with the channels and managers that the daemon has.

mod show;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use qfabric_sim::fabric::experiments::{Curve, balance, cut, sync};
use qfabric_sim::fabric::{Chart, svg};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

const CALLS: &str = "\
Example: qfabric sim fabric calls --svg calls.svg

Figure 36 of the thesis: polled once per second the stream needs more than 12 s, ten times per
second about 3 s; called on events the controller takes half of the CPU of the latter.";

const OVERHEAD: &str = "\
Example: qfabric sim fabric overhead --svg overhead.svg

Figure 32 of the thesis, which counts milliseconds: loads said 1 to 5 times per second, and
requests forwarded to 1 to 5 servers. The time is this machine's: the seed does not repeat it. What
the network takes is not in it.";

/// Many hosts on a made-up network: channels, managers and policies, without a kernel.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// Everything drawn is drawn from it: the same seed, the same run
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the curves; - for stdout, instead of the table
    #[arg(long, global = true, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// All numbers as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Three roles share a link with a disturber: low gives way first, and comes back last
    #[command(after_help = "Example: qfabric sim fabric roles --svg roles.svg     (Figure 35 of the thesis)")]
    Roles {
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u64).range(50..=3_600))]
        seconds: u64,
        /// Below its minimum a stream fades instead of stopping, as in the paper's figure
        #[arg(long)]
        fade: bool,
    },
    /// Reports of many clients in slots of 100 ms, with and without delay requests
    #[command(after_help = "Example: qfabric sim fabric spread --rule printed --json     (Table 3)")]
    Spread {
        /// Clients
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1_000))]
        clients: u64,
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(11..=3_600))]
        seconds: u64,
        /// Which delay requests there are
        #[arg(long, value_enum, default_value_t = RuleName::Placed)]
        rule: RuleName,
        /// All clients begin within a tenth of a second
        #[arg(long)]
        crowd: bool,
    },
    /// A cluster whose first server gets 20 to 50 requests per second of 38 ms each
    #[command(after_help = "Example: qfabric sim fabric balance --copies 3 --cancel     (Figure 31)")]
    Balance {
        /// How many others a request goes to that waited 2.5 s; 0: it waits on
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=7))]
        copies: u32,
        /// How often servers say their load, per second
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
        updates: u32,
        /// Whoever begins a copy cancels the others
        #[arg(long)]
        cancel: bool,
        /// Virtual seconds for each rate
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// What the first server of that cluster takes for saying and hearing loads, and for forwarding
    #[command(after_help = OVERHEAD)]
    Overhead {
        /// Virtual seconds for each row
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// One stream that is to come to 10 frames per second; its controller is polled or called
    #[command(after_help = CALLS)]
    Calls {
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        seconds: u64,
    },
    /// Hosts with wrong clocks show one film at the same time; on one of them the picture keeps to its sound
    #[command(after_help = "Example: qfabric sim fabric sync --off --svg apart.svg     (what it is like without)")]
    Sync {
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
        /// Without controllers
        #[arg(long)]
        off: bool,
        /// Hosts' clocks are off by up to so many ms
        #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
        offset: u64,
        /// Hosts' clocks drift by up to so many millionths
        #[arg(long, value_name = "PPM", default_value_t = 200, value_parser = clap::value_parser!(i64).range(0..=10_000))]
        drift: i64,
    },
    /// A film and its sound to three pupils, linked, over what another application leaves
    #[command(after_help = "Example: qfabric sim fabric tree --svg tree.svg     (001, Figure 2)")]
    Tree {
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(20..=3_600))]
        seconds: u64,
        /// Picture and sound of a pupil are not linked
        #[arg(long)]
        unlinked: bool,
    },
    /// What the broker of one host refuses is asked of three others; one gives it, the rest is cancelled
    #[command(after_help = "Example: qfabric sim fabric admission --rule none --svg alone.svg     (000, Figure 28)")]
    Admission {
        /// Which offer wins
        #[arg(long, value_enum, default_value_t = OfferRule::First)]
        rule: OfferRule,
        /// Applications per minute at the first host; each wants a quarter of a processor for 10 s
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        rate: u32,
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// Five hosts share a resource; two of them are behind a cut cable for a while
    #[command(
        after_help = "Example: qfabric sim fabric cut --heal 13 --svg cut.svg     (too short a cut to cost anything)"
    )]
    Cut {
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        seconds: u64,
        /// The second in which the cable is cut
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        cut: u64,
        /// The second in which it is joined again
        #[arg(long, value_name = "N", default_value_t = 35, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        heal: u64,
    },
    /// One source and many sinks that report, get lost and come back
    #[command(after_help = "Example: qfabric sim fabric crowd --hosts 200 --seconds 600     (takes about 40 s)")]
    Crowd {
        /// Hosts
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000))]
        hosts: u64,
        /// Virtual seconds
        #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=36_000))]
        seconds: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RuleName {
    /// None
    None,
    /// The paper's: every excess sender by one slot
    Printed,
    /// To the next slot with room
    Placed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OfferRule {
    /// None is asked for
    None,
    /// The first
    First,
    /// Of the first two, that of the host with more room
    Best,
    /// That of the nearest host
    Nearest,
}

/// What a run has to show: for people, for tools, as curves.
struct Shown {
    text: String,
    json: serde_json::Value,
    title: &'static str,
    axes: (&'static str, &'static str),
    curves: Vec<Curve>,
}

/// Carries it out.
pub fn run(args: &Args) -> Outcome {
    if let Some(path) = &args.svg {
        output::check_writable(path)?;
    }
    let shown = args.what.run(args.seed)?;
    let chart = Chart { title: shown.title, across: shown.axes.0, up: shown.axes.1, curves: &shown.curves };
    let on_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if let Some(path) = args.svg.as_ref().filter(|_| !on_stdout) {
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", path.display()));
        fs::write(path, svg(&chart)).map_err(failed)?;
    }
    if args.json {
        output::print(&(serde_json::to_string(&shown.json).map_err(Failure::fault)? + "\n"))?;
    } else if on_stdout {
        output::print(&svg(&chart))?;
    } else {
        output::print(&shown.text)?;
    }
    Ok(Done(0))
}

impl What {
    fn run(&self, seed: u64) -> Result<Shown, Failure> {
        match *self {
            What::Roles { seconds, fade } => show::roles(seconds, fade, seed),
            What::Spread { clients, seconds, rule, crowd } => show::spread(clients, seconds, rule, crowd, seed),
            What::Balance { copies, updates, cancel, seconds } => {
                let updates = f64::from(updates);
                show::balance(&balance::Options { copies, updates, cancel, seconds, seed, rate: 0.0 })
            }
            What::Overhead { seconds } => show::overhead(seconds, seed),
            What::Calls { seconds } => show::calls(seconds, seed),
            What::Sync { seconds, off, offset, drift } => {
                let (offset_ms, drift_ppm) = (offset, drift);
                show::sync(&sync::Options { seconds, controlled: !off, offset_ms, drift_ppm, seed })
            }
            What::Tree { seconds, unlinked } => show::tree(seconds, !unlinked, seed),
            What::Admission { rule, rate, seconds } => show::admission(rule, rate, seconds, seed),
            What::Cut { seconds, cut, heal } => show::cut(&cut::Options { seconds, cut, heal, seed }),
            What::Crowd { hosts, seconds } => show::crowd(hosts, seconds, seed),
        }
    }
}
