//! `qfabric sim fabric`: simulates many hosts on a network, with the channels and resource managers of the daemon.

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

Figure 36 of the thesis. If the controller is polled once per second, the stream needs more than 12 s; if it is polled ten \
times per second, about 3 s. If it is called on events, it takes half of the CPU time of the latter.";

const OVERHEAD: &str = "\
Example: qfabric sim fabric overhead --svg overhead.svg

Figure 32 of the thesis, in milliseconds: servers report their load 1 to 5 times per second, and a request is forwarded to \
1 to 5 servers. The CPU time is measured on this machine, so the same seed does not give the same times. It does not include \
the network.";

/// Simulates many hosts on a network: channels, resource managers and policies, without a kernel.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    experiment: Experiment,
    /// Seed of all random numbers; the same seed gives the same run
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the curves into this SVG file; - is stdout, instead of the table
    #[arg(long, global = true, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print all numbers as JSON instead of a table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Experiment {
    /// Simulates three roles that share a link with a growing load: the least important role is degraded first and
    /// recovers last
    #[command(after_help = "Example: qfabric sim fabric roles --svg roles.svg     (Figure 35 of the thesis)")]
    Roles {
        /// Simulated time in seconds, 50 to 3600
        #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u64).range(50..=3_600))]
        seconds: u64,
        /// Let a stream fade below its minimum instead of stopping it, as in the paper's figure
        #[arg(long)]
        fade: bool,
    },
    /// Counts the reports of many clients in slots of 100 ms, with and without delay requests
    #[command(after_help = "Example: qfabric sim fabric spread --rule printed --json     (Table 3)")]
    Spread {
        /// Number of clients, 10 to 1000
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1_000))]
        clients: u64,
        /// Simulated time in seconds, 11 to 3600
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(11..=3_600))]
        seconds: u64,
        /// Rule for delay requests
        #[arg(long, value_enum, default_value_t = RuleName::Placed)]
        rule: RuleName,
        /// Start all clients within a tenth of a second
        #[arg(long)]
        crowd: bool,
    },
    /// Simulates a cluster of 8 servers whose first server receives 20 to 50 requests per second of 38 ms each
    #[command(after_help = "Example: qfabric sim fabric balance --copies 3 --cancel     (Figure 31)")]
    Balance {
        /// Number of other servers to which a request is forwarded after it has waited 2.5 s, 0 to 7; 0: it is not
        /// forwarded
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=7))]
        copies: u32,
        /// Reports of its load by each server per second, 1 to 100
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
        updates: u32,
        /// Cancel the other copies of a request when a server begins one
        #[arg(long)]
        cancel: bool,
        /// Simulated time for each rate in seconds, 10 to 3600
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// Measures the CPU time that load reports and forwarding cost the first server of the cluster of `balance`
    #[command(after_help = OVERHEAD)]
    Overhead {
        /// Simulated time for each row in seconds, 10 to 3600
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// Compares a controller that is polled with one that is called on events: a stream must reach 10 frames per second
    #[command(after_help = CALLS)]
    Calls {
        /// Simulated time in seconds, 5 to 3600
        #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        seconds: u64,
    },
    /// Simulates hosts with wrong clocks that show one film at the same time, and a picture that keeps in step with its
    /// sound
    #[command(after_help = "Example: qfabric sim fabric sync --off --svg apart.svg     (without controllers)")]
    Sync {
        /// Simulated time in seconds, 10 to 3600
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
        /// Run without controllers
        #[arg(long)]
        off: bool,
        /// Largest error of a host's clock in milliseconds, 0 to 86400000
        #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
        offset: u64,
        /// Largest drift of a host's clock in millionths, 0 to 10000
        #[arg(long, value_name = "PPM", default_value_t = 200, value_parser = clap::value_parser!(i64).range(0..=10_000))]
        drift: i64,
    },
    /// Simulates a film and its sound, linked, for three pupils, over the bandwidth that another application leaves
    #[command(after_help = "Example: qfabric sim fabric tree --svg tree.svg     (001, Figure 2)")]
    Tree {
        /// Simulated time in seconds, 20 to 3600
        #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(20..=3_600))]
        seconds: u64,
        /// Do not link picture and sound of a pupil
        #[arg(long)]
        unlinked: bool,
    },
    /// Simulates admission over four hosts: an application that its own host refuses is offered to the other three
    #[command(after_help = "Example: qfabric sim fabric admission --rule none --svg alone.svg     (000, Figure 28)")]
    Admission {
        /// Rule that selects the offer
        #[arg(long, value_enum, default_value_t = OfferRule::First)]
        rule: OfferRule,
        /// Applications per minute at the first host, 1 to 1000; each needs a quarter of a processor for 10 s
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        rate: u32,
        /// Simulated time in seconds, 10 to 3600
        #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// Simulates five hosts that share a resource while a cut cable separates two of them
    #[command(
        after_help = "Example: qfabric sim fabric cut --heal 13 --svg cut.svg     (too short a cut to cost anything)"
    )]
    Cut {
        /// Simulated time in seconds, 5 to 3600
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        seconds: u64,
        /// Second in which the cable is cut, 5 to 3600
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        cut: u64,
        /// Second in which the cable is joined again, 5 to 3600
        #[arg(long, value_name = "N", default_value_t = 35, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        heal: u64,
    },
    /// Simulates one source and many sinks that report, crash and return
    #[command(after_help = "Example: qfabric sim fabric crowd --hosts 200 --seconds 600     (takes about 40 s)")]
    Crowd {
        /// Number of hosts, with that of the source, 2 to 1000
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000))]
        hosts: u64,
        /// Simulated time in seconds, 1 to 36000
        #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=36_000))]
        seconds: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RuleName {
    /// No delay requests
    None,
    /// The paper's rule: delay every excess sender by one slot
    Printed,
    /// Delay excess senders to the next slot with room
    Placed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OfferRule {
    /// Request no offers
    None,
    /// The first offer
    First,
    /// Of the first two offers, that of the host with more free capacity
    Best,
    /// The offer of the nearest host
    Nearest,
}

/// The result of a run: a table, JSON, and curves.
struct Results {
    text: String,
    json: serde_json::Value,
    title: &'static str,
    axes: (&'static str, &'static str),
    curves: Vec<Curve>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let on_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if on_stdout && args.json {
        return Err(Failure::usage("--json and --svg - both print to the standard output; give --svg a file"));
    }
    if let Some(path) = &args.svg {
        output::check_writable(path)?;
    }
    let results = args.experiment.run(args.seed)?;
    let chart = Chart { title: results.title, across: results.axes.0, up: results.axes.1, curves: &results.curves };
    if let Some(path) = args.svg.as_ref().filter(|_| !on_stdout) {
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", path.display()));
        fs::write(path, svg(&chart)).map_err(failed)?;
    }
    if args.json {
        output::print(&(serde_json::to_string(&results.json).map_err(Failure::fault)? + "\n"))?;
    } else if on_stdout {
        output::print(&svg(&chart))?;
    } else {
        output::print(&results.text)?;
    }
    Ok(Done(0))
}

impl Experiment {
    fn run(&self, seed: u64) -> Result<Results, Failure> {
        match *self {
            Experiment::Roles { seconds, fade } => show::roles(seconds, fade, seed),
            Experiment::Spread { clients, seconds, rule, crowd } => show::spread(clients, seconds, rule, crowd, seed),
            Experiment::Balance { copies, updates, cancel, seconds } => {
                let updates = f64::from(updates);
                show::balance(&balance::Options { copies, updates, cancel, seconds, seed, rate: 0.0 })
            }
            Experiment::Overhead { seconds } => show::overhead(seconds, seed),
            Experiment::Calls { seconds } => show::calls(seconds, seed),
            Experiment::Sync { seconds, off, offset, drift } => {
                let (offset_ms, drift_ppm) = (offset, drift);
                show::sync(&sync::Options { seconds, controlled: !off, offset_ms, drift_ppm, seed })
            }
            Experiment::Tree { seconds, unlinked } => show::tree(seconds, !unlinked, seed),
            Experiment::Admission { rule, rate, seconds } => show::admission(rule, rate, seconds, seed),
            Experiment::Cut { seconds, cut, heal } => show::cut(&cut::Options { seconds, cut, heal, seed }),
            Experiment::Crowd { hosts, seconds } => show::crowd(hosts, seconds, seed),
        }
    }
}
