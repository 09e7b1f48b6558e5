//! `qfabric policy`: what this host's resource manager does for a channel.
//!
//! The options of each kind are the fields of its structure in `qfabric_types::api::channel`: nothing here knows a kind.

use std::path::Path;

use clap::builder::{Resettable, StyledStr};
use clap::{Command as Clap, Subcommand};
use qfabric_client::channel::{Name, Policy, PolicyInfo};
use qfabric_types::Nanos;
use qfabric_types::api::channel::TextFile;
use qfabric_types::monitor::Unit;

use crate::connect::{self, Daemon};
use crate::ecode::source::Source;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Policies: what this host's resource manager decides for a channel, while all runs.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
enum Command {
    Ls(LsArgs),
    /// Starts a policy: it runs until it is stopped, or the daemon ends
    #[command(subcommand)]
    Start(Kind),
    Stop(StopArgs),
}

macro_rules! define_kind {
    ($($(#[$doc:meta])* $name:literal => $Kind:ident($Structure:ident),)*) => {
        #[derive(Subcommand, Debug)]
        #[allow(clippy::large_enum_variant)] // one value per process
        enum Kind {
            $(#[command(name = $name)] $Kind(Start<qfabric_types::api::channel::$Structure>),)*
        }

        impl Kind {
            fn asked(self) -> (Asked, Policy) {
                match self {
                    $(Kind::$Kind(Start { policy, asked }) => (asked, Policy::$Kind(policy)),)*
                }
            }
        }
    };
}

qfabric_types::policy_kinds!(define_kind);

/// A policy and whom to ask for it. Options that are flattened bring their description along, and the last one stays: it
/// has to be the policy's.
#[derive(clap::Args, Debug)]
#[command(about = described::<K>().0, long_about = described::<K>().1)]
struct Start<K: clap::Args> {
    #[command(flatten)]
    policy: K,
    #[command(flatten)]
    asked: Asked,
}

/// The short and the long description of some options.
fn described<K: clap::Args>() -> (Resettable<StyledStr>, Resettable<StyledStr>) {
    let options = K::augment_args(Clap::new(""));
    (options.get_about().cloned().into(), options.get_long_about().cloned().into())
}

/// Who is asked, and how the answer is shown.
#[derive(clap::Args, Debug)]
struct Asked {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Lists the policies of this host, and what they have decided.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy ls")]
struct LsArgs {
    #[command(flatten)]
    asked: Asked,
}

/// Stops a policy: what it decided about rates holds no longer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy stop roles.video")]
struct StopArgs {
    /// Its name
    name: Name,
    #[command(flatten)]
    daemon: Daemon,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => ls(args),
        Command::Start(kind) => start(kind),
        Command::Stop(args) => {
            args.daemon.client()?.stop_policy(&args.name).map_err(connect::failure)?;
            Ok(Done(0))
        }
    }
}

fn start(kind: Kind) -> Outcome {
    let (Asked { json, daemon }, policy) = kind.asked();
    let info = daemon.client()?.start_policy(&with_text(policy)?).map_err(connect::failure)?;
    if json {
        output::print_json(&info)?
    } else {
        output::print(&format!("{} runs: {}\n", info.name, info.policy))?
    }
    Ok(Done(0))
}

/// A text that is in a file is read here, with the rights of who asks: the daemon reads files of its configuration only.
fn with_text(mut policy: Policy) -> Result<Policy, Failure> {
    if let Some(TextFile { file, text }) = policy.as_kind_mut().text_file()
        && let Some(path) = file.take()
    {
        *text = Source::read(Path::new(&path))?.text;
    }
    Ok(policy)
}

fn ls(args: LsArgs) -> Outcome {
    let list = args.asked.daemon.client()?.policies().map_err(connect::failure)?;
    if args.asked.json {
        output::print_json(&list)?
    } else {
        output::print(&table(&list))?
    }
    Ok(Done(0))
}

fn table(list: &[PolicyInfo]) -> String {
    if list.is_empty() {
        return "no policy runs here; begin with qfabric policy start roles --channel NAME\n".to_owned();
    }
    let mut table = output::new_table([
        "policy",
        "kind",
        "channel",
        "user",
        "calls",
        "CPU",
        "dropped",
        "decisions",
        "faults",
        "asked for",
    ]);
    for info in list {
        table.add_row([
            info.name.to_string(),
            info.policy.kind().to_owned(),
            info.policy.channel().map_or("–".to_owned(), ToString::to_string),
            info.uid.map_or("–".to_owned(), |uid| uid.to_string()),
            info.calls.to_string(),
            Nanos::new(info.cpu_ns).to_string(),
            info.dropped.to_string(),
            info.decisions.to_string(),
            info.faults.to_string(),
            info.policy.to_string(),
        ]);
    }
    let mut text = format!("{table}\n");
    for info in list {
        let faults = info.fault.iter().map(|fault| format!("\n{}: the last fault: {fault}", info.name));
        let decided = info.decided.iter().map(|decided| {
            let amount = amount(&decided.attribute, decided.amount);
            format!("\n{}: {} for {}: {amount}", info.name, decided.attribute, decided.subject)
        });
        faults.chain(state(info)).chain(decided).for_each(|line| text += &line);
    }
    text.trim_end().to_owned() + "\n"
}

/// Why it is not called, or was not.
fn state(info: &PolicyInfo) -> Option<String> {
    let PolicyInfo { name, suspensions, .. } = info;
    if info.failed {
        return Some(format!("\n{name}: it does not run any more; qfabric policy stop {name} frees its name"));
    }
    let budget = Nanos::new(info.budget_ns.filter(|_| *suspensions > 0)?);
    let now = if info.suspended { "; it is suspended now" } else { "" };
    Some(format!("\n{name}: more CPU time than {budget} in {suspensions} s, suspended for the rest of each{now}"))
}

/// As people read it.
pub fn amount(attribute: &str, amount: i64) -> String {
    match attribute {
        "app.rate_milli" if amount == 0 => "stopped".to_owned(),
        "app.rate_milli" => format!("{:.1}/s", amount as f64 / 1e3),
        "app.show_delay" | "app.skip" => Unit::Nanoseconds.show(amount),
        "app.speed_ppm" => format!("{:+.2} %", amount as f64 / 1e4),
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests;
