//! `qfabric policy`: lists, starts and stops the policies of this host's resource manager.
//!
//! The options of a kind of policy are the fields of its structure in `qfabric_types::api::channel`. This file contains
//! no code for single kinds.

use std::path::Path;

use clap::builder::{Resettable, StyledStr};
use clap::{Command as Clap, Subcommand};
use qfabric_client::channel::{Explanation, Name, Policy, PolicyInfo};
use qfabric_types::api::channel::TextFile;
use qfabric_types::monitor::Unit;
use qfabric_types::{Instant, Nanos};

use crate::connect::{self, Daemon};
use crate::ecode::source::Source;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Lists, starts and stops the policies of this host's resource manager.
///
/// A policy is the rule by which the resource manager controls a channel or a group.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
enum Command {
    Ls(LsArgs),
    /// Starts a policy; it runs until `qfabric policy stop` or the end of the daemon
    #[command(subcommand)]
    Start(Kind),
    Stop(StopArgs),
    Why(WhyArgs),
}

macro_rules! define_kind {
    ($($(#[$doc:meta])* $name:literal => $Kind:ident($Structure:ident),)*) => {
        #[derive(Subcommand, Debug)]
        #[allow(clippy::large_enum_variant)] // one value per process
        enum Kind {
            $(#[command(name = $name)] $Kind(Start<qfabric_types::api::channel::$Structure>),)*
        }

        impl Kind {
            fn into_call(self) -> (CallOptions, Policy) {
                match self {
                    $(Kind::$Kind(Start { policy, call }) => (call, Policy::$Kind(policy)),)*
                }
            }
        }
    };
}

qfabric_types::policy_kinds!(define_kind);

/// The options of a policy and those of the call. Flattened options overwrite the description of the command, so it is
/// set here to the description of the policy.
#[derive(clap::Args, Debug)]
#[command(about = described::<K>().0, long_about = described::<K>().1)]
struct Start<K: clap::Args> {
    #[command(flatten)]
    policy: K,
    #[command(flatten)]
    call: CallOptions,
}

/// The short and the long description of `K`.
fn described<K: clap::Args>() -> (Resettable<StyledStr>, Resettable<StyledStr>) {
    let options = K::augment_args(Clap::new(""));
    (options.get_about().cloned().into(), options.get_long_about().cloned().into())
}

#[derive(clap::Args, Debug)]
struct CallOptions {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Lists the policies of this host, with their decisions, faults and CPU time.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy ls")]
struct LsArgs {
    #[command(flatten)]
    call: CallOptions,
}

/// Stops a policy and removes the rates that it has decided.
///
/// Ends with 3 if no policy has this name.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy stop roles.video")]
struct StopArgs {
    /// Name of the policy, as `qfabric policy ls` shows it
    name: Name,
    #[command(flatten)]
    daemon: Daemon,
}

/// Shows the last decisions of a policy: the cause of each, the part that limits the stream, and the candidates with
/// their predicted utility.
///
/// The daemon keeps the last 32 decisions of each policy. Ends with 3 if no policy has this name, channel or group.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy why video")]
struct WhyArgs {
    /// The channel or group that the policies decide about, or the name of a policy
    name: Name,
    #[command(flatten)]
    call: CallOptions,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => ls(args),
        Command::Start(kind) => start(kind),
        Command::Stop(args) => {
            args.daemon.client()?.stop_policy(&args.name).map_err(connect::failure)?;
            Ok(Done(0))
        }
        Command::Why(args) => why(args),
    }
}

fn why(args: WhyArgs) -> Outcome {
    let list = args.call.daemon.client()?.policy_explanations(&args.name).map_err(connect::failure)?;
    if args.call.json {
        output::print_json(&list)?
    } else {
        output::print(&explained(&list, qfabric_linux::clock::now()))?
    }
    Ok(Done(0))
}

/// One paragraph for each decision, oldest first.
fn explained(list: &[Explanation], now: Instant) -> String {
    if list.is_empty() {
        return "no decision so far\n".to_owned();
    }
    let paragraph = |one: &Explanation| {
        let Explanation { policy, at_ns, cause, bottleneck, decision, candidates } = one;
        let ago = now.since(Instant::new(*at_ns)).as_f64() / 1e9;
        let limit = bottleneck.iter().map(|part| format!("  limited by {part}\n"));
        let candidates = candidates.iter().map(|one| {
            let mark = if one.chosen { '*' } else { ' ' };
            format!("  {mark} {:5.1} %  {:.1}/s  {}\n", one.utility * 100.0, one.rate, one.decision)
        });
        let details: String = limit.chain(candidates).collect();
        format!("{ago:.1} s ago, {policy}: {decision}\n  because of {cause}\n{details}")
    };
    list.iter().map(paragraph).collect()
}

fn start(kind: Kind) -> Outcome {
    let (CallOptions { json, daemon }, policy) = kind.into_call();
    let info = daemon.client()?.start_policy(&with_text(policy)?).map_err(connect::failure)?;
    if json {
        output::print_json(&info)?
    } else {
        output::print(&format!("{} runs: {}\n", info.name, info.policy))?
    }
    Ok(Done(0))
}

/// Reads the file of a policy's text here, with the rights of the user. The daemon reads only the files of its
/// configuration.
fn with_text(mut policy: Policy) -> Result<Policy, Failure> {
    if let Some(TextFile { file, text }) = policy.as_kind_mut().text_file()
        && let Some(path) = file.take()
    {
        *text = Source::read(Path::new(&path))?.text;
    }
    Ok(policy)
}

fn ls(args: LsArgs) -> Outcome {
    let list = args.call.daemon.client()?.policies().map_err(connect::failure)?;
    if args.call.json {
        output::print_json(&list)?
    } else {
        output::print(&table(&list))?
    }
    Ok(Done(0))
}

fn table(list: &[PolicyInfo]) -> String {
    if list.is_empty() {
        return "no policy runs here; start one with qfabric policy start roles --channel NAME\n".to_owned();
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
        "options",
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

/// Says that a policy has failed, or was suspended because it used too much CPU time.
fn state(info: &PolicyInfo) -> Option<String> {
    let PolicyInfo { name, suspensions, .. } = info;
    if info.failed {
        return Some(format!(
            "\n{name}: it has failed and does not run any more; qfabric policy stop {name} frees its name"
        ));
    }
    let budget = Nanos::new(info.budget_ns.filter(|_| *suspensions > 0)?);
    let now = if info.suspended { "; it is suspended now" } else { "" };
    Some(format!("\n{name}: more CPU time than {budget} in {suspensions} s, suspended for the rest of each{now}"))
}

/// An amount with the unit of its attribute.
pub(crate) fn amount(attribute: &str, amount: i64) -> String {
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
