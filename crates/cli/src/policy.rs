//! `qfabric policy`: what this host's resource manager does for a channel.

use clap::Subcommand;
use qfabric_client::channel::{HoldPolicy, Name, Policy, PolicyInfo, RolesPolicy, SpreadPolicy};
use qfabric_types::Nanos;

use crate::channel::{Daemon, new_table};
use crate::connect;
use crate::exit::{Done, Outcome};
use crate::output;

/// Policies: what this host's resource manager decides for a channel, while all runs.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(LsArgs),
    /// Starts a policy: it runs until it is stopped, or the daemon ends
    #[command(subcommand)]
    Start(Kind),
    Stop(StopArgs),
}

#[derive(Subcommand, Debug)]
enum Kind {
    Roles(RolesArgs),
    Hold(HoldArgs),
    Spread(SpreadArgs),
}

/// What every kind is told.
#[derive(clap::Args, Debug)]
struct Common {
    /// The channel whose events go out here
    #[arg(long, value_name = "NAME")]
    channel: Name,
    /// Its name [default: KIND.CHANNEL]
    #[arg(long)]
    name: Option<Name>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Divides what the way to the sinks carries by their roles: the least important is degraded first, and comes back last.
///
/// A sink's role is what it registers in the group of the channel's name: a range of frame_rate, and its importance, as
/// `qfabric channel sub --wants frame_rate=10:15 --wants importance=0` does.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start roles --channel video --event-bits 40000")]
struct RolesArgs {
    /// Bits of one event on the way
    #[arg(long, value_name = "BITS", default_value_t = 8_000)]
    event_bits: u64,
    /// Streams fade below their minimum instead of stopping there
    #[arg(long)]
    fade: bool,
    #[command(flatten)]
    common: Common,
}

/// Sends to each host at the rate by which as many events arrive there as are wanted.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start hold --channel video --rate 25")]
struct HoldArgs {
    /// Events per second that are to arrive
    #[arg(long)]
    rate: f64,
    #[command(flatten)]
    common: Common,
}

/// Asks hosts that report at the same time as many others to do it later.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start spread --channel video --period 1s")]
struct SpreadArgs {
    /// Which reports
    #[arg(long, default_value = "app.rate_milli")]
    attribute: String,
    /// Time between two reports of one host [default: channels.report of this host's configuration]
    #[arg(long, value_name = "TIME")]
    period: Option<Nanos>,
    #[command(flatten)]
    common: Common,
}

/// Lists the policies of this host, and what they have decided.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy ls")]
struct LsArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
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
    let (common, policy) = kind.asked()?;
    let info = common.daemon.client()?.start_policy(&policy).map_err(connect::failure)?;
    if common.json {
        output::print_json(&info)?
    } else {
        output::print(&format!("{} runs: {}\n", info.name, info.policy))?
    }
    Ok(Done(0))
}

impl Kind {
    fn asked(self) -> Result<(Common, Policy), crate::exit::Failure> {
        let named = |common: &Common| (common.name.clone(), common.channel.clone());
        Ok(match self {
            Kind::Roles(RolesArgs { event_bits, fade, common }) => {
                let (name, channel) = named(&common);
                (common, Policy::Roles(RolesPolicy { name, channel, event_bits, fade }))
            }
            Kind::Hold(HoldArgs { rate, common }) => {
                let (name, channel) = named(&common);
                (common, Policy::Hold(HoldPolicy { name, channel, rate }))
            }
            Kind::Spread(SpreadArgs { attribute, period, common }) => {
                let (name, channel) = named(&common);
                (common, Policy::Spread(SpreadPolicy { name, channel, attribute, period }))
            }
        })
    }
}

fn ls(args: LsArgs) -> Outcome {
    let list = args.daemon.client()?.policies().map_err(connect::failure)?;
    if args.json {
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
    let mut table = new_table(["policy", "kind", "channel", "user", "calls", "decisions", "faults", "asked for"]);
    for info in list {
        table.add_row([
            info.name.to_string(),
            info.policy.kind().to_owned(),
            info.policy.channel().to_string(),
            info.uid.map_or("–".to_owned(), |uid| uid.to_string()),
            info.calls.to_string(),
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
        faults.chain(decided).for_each(|line| text += &line);
    }
    text.trim_end().to_owned() + "\n"
}

/// As people read it.
pub fn amount(attribute: &str, amount: i64) -> String {
    match attribute {
        "app.rate_milli" if amount == 0 => "stopped".to_owned(),
        "app.rate_milli" => format!("{:.1}/s", amount as f64 / 1e3),
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_decided_is_shown_with_its_unit() {
        assert_eq!(amount("app.rate_milli", 12_540), "12.5/s");
        assert_eq!((amount("app.rate_milli", 0), amount("cpu.share", 7)), ("stopped".to_owned(), "7".to_owned()));
        assert!(table(&[]).contains("policy start roles"));
    }
}
