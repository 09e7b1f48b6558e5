//! `qfabric sim fabric`: hosts on a made-up network, with the channels and managers that the daemon has.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use qfabric_control::adapt::implosion::Rule;
use qfabric_sim::fabric::experiments::{Curve, balance, calls, crowd, roles, spread};
use qfabric_sim::fabric::{Chart, svg};
use serde::Serialize;

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Many hosts on a made-up network: channels, managers and policies, without a kernel.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// Everything drawn is drawn from it: the same seed, the same run
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the curves
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
        #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
        /// Below its minimum a stream fades instead of stopping, as in the paper's figure
        #[arg(long)]
        fade: bool,
    },
    /// Reports of many clients in slots of 100 ms, with and without delay requests
    #[command(after_help = "Example: qfabric sim fabric spread --rule printed --json     (Table 3)")]
    Spread {
        /// Clients
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
        clients: u64,
        /// Virtual seconds
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(11..=3_600))]
        seconds: u64,
        /// Which delay requests there are
        #[arg(long, value_enum, default_value_t = RuleName::Placed)]
        rule: RuleName,
        /// All clients begin within a tenth of a second
        #[arg(long)]
        crowd: bool,
    },
    /// A cluster whose first server gets 20 to 50 requests per second of 38 ms each
    #[command(after_help = "Example: qfabric sim fabric balance --copies 3 --cancel     (Figures 31 and 32)")]
    Balance {
        /// How many others a request goes to that waited 2.5 s; 0: it waits on
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=7))]
        copies: u32,
        /// How often servers say their load, per second
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
        updates: u32,
        /// Whoever begins a copy cancels the others
        #[arg(long)]
        cancel: bool,
        /// Virtual seconds for each rate
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3_600))]
        seconds: u64,
    },
    /// One stream that is to come to 10 frames per second; its controller is polled or called
    #[command(after_help = "Example: qfabric sim fabric calls --svg calls.svg     (Figure 36)")]
    Calls {
        /// Virtual seconds
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3_600))]
        seconds: u64,
    },
    /// One source and many sinks that report, get lost and come back
    #[command(after_help = "Example: qfabric sim fabric crowd --hosts 200 --seconds 600")]
    Crowd {
        /// Hosts
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000))]
        hosts: u64,
        /// Virtual seconds
        #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=36_000))]
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
    let shown = match &args.what {
        What::Roles { seconds, fade } => show_roles(*seconds, *fade, args.seed)?,
        What::Spread { clients, seconds, rule, crowd } => show_spread(*clients, *seconds, *rule, *crowd, args.seed)?,
        What::Balance { copies, updates, cancel, seconds } => {
            let updates = f64::from(*updates);
            let options = balance::Options {
                copies: *copies,
                updates,
                cancel: *cancel,
                seconds: *seconds,
                seed: args.seed,
                rate: 0.0,
            };
            show_balance(&options)?
        }
        What::Calls { seconds } => show_calls(*seconds, args.seed)?,
        What::Crowd { hosts, seconds } => show_crowd(*hosts, *seconds, args.seed)?,
    };
    if let Some(path) = &args.svg {
        let chart = Chart { title: shown.title, across: shown.axes.0, up: shown.axes.1, curves: &shown.curves };
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", path.display()));
        fs::write(path, svg(&chart)).map_err(failed)?;
    }
    let json = serde_json::to_string(&shown.json).map_err(Failure::fault)? + "\n";
    output::print(if args.json { &json } else { &shown.text })?;
    Ok(Done(0))
}

fn value(of: &impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(of).map_err(Failure::fault)
}

fn show_roles(seconds: u64, fade: bool, seed: u64) -> Result<Shown, Failure> {
    let outcome = roles::run(&roles::Options { seconds, fade, seed });
    let at = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.0} s"));
    let mut text = String::from("role      before    degraded at   stopped at   back at   at the end\n");
    for role in &outcome.roles {
        let (degraded, stopped, resumed) = (at(role.degraded_at), at(role.stopped_at), at(role.resumed_at));
        let (before, after) = (role.before, role.after);
        let _ = writeln!(
            text,
            "{:<8} {before:>4.1} fps {degraded:>12} {stopped:>12} {resumed:>9} {after:>6.1} fps",
            role.role
        );
    }
    let json = value(&outcome)?;
    let title = "Three roles under a growing disturber";
    Ok(Shown { text, json, title, axes: ("seconds", "frames per second"), curves: outcome.curves })
}

fn show_spread(clients: u64, seconds: u64, rule: RuleName, crowd: bool, seed: u64) -> Result<Shown, Failure> {
    let rule = match rule {
        RuleName::None => None,
        RuleName::Printed => Some(Rule::AsPrinted),
        RuleName::Placed => Some(Rule::Placed),
    };
    let outcome = spread::run(&spread::Options { clients: clients as usize, seconds, rule, crowd, seed });
    let mut text = format!("slot           10th second   {seconds}th second\n");
    for (slot, (early, late)) in outcome.at_10.iter().zip(&outcome.at_end).enumerate() {
        let _ = writeln!(text, "{:>3}-{:<4} ms {early:>12} {late:>12}", slot * 100, slot * 100 + 100);
    }
    let settled = outcome.settled_at.map_or("never".to_owned(), |second| format!("from second {second} on"));
    let _ = writeln!(text, "no slot above 1.3 times the mean: {settled}; {} delay requests", outcome.delayed);
    let points = outcome.largest.iter().enumerate().map(|(second, largest)| (second as f64, *largest)).collect();
    let curves = vec![Curve { name: "largest slot / mean".into(), points }];
    let json = value(&outcome)?;
    Ok(Shown { text, json, title: "Reports in slots of 100 ms", axes: ("seconds", "largest slot / mean"), curves })
}

fn show_balance(options: &balance::Options) -> Result<Shown, Failure> {
    let rates = [20.0, 25.0, 28.0, 30.0, 33.0, 36.0, 40.0, 45.0, 50.0];
    let outcomes = rates.map(|rate| balance::run(&balance::Options { rate, ..*options }));
    let mut text = String::from("requests/s   here      elsewhere   timed out   duplicates   cancelled   events\n");
    for outcome in &outcomes {
        let balance::Outcome { rate, local_ms, remote_ms, timed_out, duplicates, cancelled, events, .. } = outcome;
        let _ = writeln!(
            text,
            "{rate:>10} {local_ms:>6.0} ms {remote_ms:>8.0} ms {timed_out:>11} {duplicates:>12} {cancelled:>11} {events:>8}"
        );
    }
    let curve = |name: &str, of: fn(&balance::Outcome) -> f64| Curve {
        name: name.into(),
        points: outcomes.iter().map(|outcome| (outcome.rate, of(outcome))).collect(),
    };
    let curves = vec![curve("served here", |o| o.local_ms), curve("served elsewhere", |o| o.remote_ms)];
    let json = value(&outcomes.as_slice())?;
    Ok(Shown { text, json, title: "Response of a web cluster", axes: ("requests per second", "response, ms"), curves })
}

fn show_calls(seconds: u64, seed: u64) -> Result<Shown, Failure> {
    let courses = calls::run(seconds, seed);
    let mut text = String::from("called      at 10 ± 1 fps after   calls/s   of them for nothing\n");
    for course in &courses {
        let reached = course.reached_after.map_or("never".to_owned(), |time| format!("{time:.1} s"));
        let (calls, empty) = (course.calls_per_second, 100.0 * course.empty);
        let _ = writeln!(text, "{:<10} {reached:>20} {calls:>9.1} {empty:>19.0} %", course.mode);
    }
    let json = value(&courses)?;
    let curves = courses.into_iter().map(|course| course.curve).collect();
    let title = "A controller that is polled, and one that is called";
    Ok(Shown { text, json, title, axes: ("seconds", "frames per second"), curves })
}

fn show_crowd(hosts: u64, seconds: u64, seed: u64) -> Result<Shown, Failure> {
    let outcome = crowd::run(&crowd::Options { hosts: hosts as usize, seconds, seed, ..crowd::Options::default() });
    let text = format!(
        "{hosts} hosts, {seconds} virtual seconds\nframes on the network  {}\nframes at sinks        {}\nreports                {}\n\
         calls of controllers   {}\nhosts killed           {}\nsinks known at the end {}\n",
        outcome.network.frames,
        outcome.frames,
        outcome.reports,
        outcome.controller_calls,
        outcome.killed,
        outcome.known_sinks
    );
    let json = value(&outcome)?;
    Ok(Shown { text, json, title: "A crowd", axes: ("seconds", "hosts"), curves: Vec::new() })
}
