//! `qfabric policy`: what this host's resource manager does for a channel.

mod together;

use std::path::PathBuf;

use clap::Subcommand;
use qfabric_client::channel::{
    CodePolicy, GroupPolicy, HoldPolicy, Name, Policy, PolicyInfo, RolesPolicy, SpreadPolicy,
};
use qfabric_types::Nanos;
use qfabric_types::monitor::Unit;

use crate::connect::{self, Daemon};
use crate::ecode::source::Source;
use crate::exit::{Done, Failure, Outcome};
use crate::output;
use together::{BalanceArgs, MediaArgs, SyncArgs, TreeArgs};

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

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
enum Kind {
    Roles(RolesArgs),
    Hold(HoldArgs),
    Spread(SpreadArgs),
    Group(GroupArgs),
    Code(CodeArgs),
    Sync(SyncArgs),
    Media(MediaArgs),
    Balance(BalanceArgs),
    Tree(TreeArgs),
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

/// What most kinds are told.
#[derive(clap::Args, Debug)]
struct Common {
    /// The channel whose events go out here
    #[arg(long, value_name = "NAME")]
    channel: Name,
    /// Its name [default: KIND.CHANNEL]
    #[arg(long)]
    name: Option<Name>,
    #[command(flatten)]
    asked: Asked,
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

/// Divides a resource among the applications of a group; to be started on each host that has some.
///
/// What an application wants is a range in its registration: of cpu_most for the attribute app.cpu_most. One of the hosts leads, and divides.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric policy start group --group crew --attribute app.cpu_most --capacity 800000
          qfabric policy start group --group low --parent viewers --attribute bandwidth")]
struct GroupArgs {
    /// The group
    #[arg(long, value_name = "NAME")]
    group: Name,
    /// The group that it is a part of, which grants what there is
    #[arg(long, value_name = "NAME")]
    parent: Option<Name>,
    /// Level in the tree: 1 connection, 2 role (equal parts), 3 stream (by importance), 4 system (by weight)
    #[arg(long, default_value_t = 2)]
    level: u8,
    /// Of what; app.cpu_most (millionths of a CPU) and app.cpu_weight change reservations, too
    #[arg(long)]
    attribute: String,
    /// How much there is, where there is no parent
    #[arg(long, value_name = "AMOUNT", default_value_t = 0, hide_default_value = true)]
    capacity: i64,
    /// How important the group is to its parent
    #[arg(long, default_value_t = 0)]
    importance: u32,
    /// Its name [default: group.GROUP]
    #[arg(long)]
    name: Option<Name>,
    #[command(flatten)]
    asked: Asked,
}

/// Runs a text in E-code for what is said on the channel's Q-channel: ten lines make a policy.
///
/// The text names what it wants to know in `struct input` (value, attribute, application, host, here, over_ns, cause,
/// is_control, kind, other, request, silent_ns) and what it decides in `struct output` (rate_milli, level, delay_ns,
/// cpu_most, cpu_weight, and parameters of the filter).
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start code --channel video --attribute cpu.run_queue \
           --filter out/pick --file calm.ec")]
struct CodeArgs {
    /// The text; - is the standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// It is called for readings of this; may be said more than once [default: app.rate_milli]
    #[arg(long = "attribute", value_name = "ATTRIBUTE")]
    attributes: Vec<String>,
    /// It is called for control events, too
    #[arg(long)]
    control: bool,
    /// The filter of the channel on this host whose parameters it decides: out/NAME or in/NAME
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// It is called, too, for a host that says nothing for so long, and again each TIME until it speaks (silent_ns)
    #[arg(long, value_name = "TIME")]
    silence: Option<Nanos>,
    #[command(flatten)]
    common: Common,
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
    let (Asked { json, daemon }, policy) = kind.asked()?;
    let info = daemon.client()?.start_policy(&policy).map_err(connect::failure)?;
    if json {
        output::print_json(&info)?
    } else {
        output::print(&format!("{} runs: {}\n", info.name, info.policy))?
    }
    Ok(Done(0))
}

impl Kind {
    fn asked(self) -> Result<(Asked, Policy), Failure> {
        Ok(match self {
            Kind::Roles(args) => args.asked(),
            Kind::Hold(args) => args.asked(),
            Kind::Spread(args) => args.asked(),
            Kind::Group(args) => args.asked(),
            Kind::Code(args) => args.asked()?,
            Kind::Sync(args) => args.asked(),
            Kind::Media(args) => args.asked(),
            Kind::Balance(args) => args.asked(),
            Kind::Tree(args) => args.asked(),
        })
    }
}

impl RolesArgs {
    fn asked(self) -> (Asked, Policy) {
        let RolesArgs { event_bits, fade, common: Common { channel, name, asked } } = self;
        (asked, Policy::Roles(RolesPolicy { name, channel, event_bits, fade }))
    }
}

impl HoldArgs {
    fn asked(self) -> (Asked, Policy) {
        let HoldArgs { rate, common: Common { channel, name, asked } } = self;
        (asked, Policy::Hold(HoldPolicy { name, channel, rate }))
    }
}

impl SpreadArgs {
    fn asked(self) -> (Asked, Policy) {
        let SpreadArgs { attribute, period: period_ns, common: Common { channel, name, asked } } = self;
        (asked, Policy::Spread(SpreadPolicy { name, channel, attribute, period_ns }))
    }
}

impl GroupArgs {
    fn asked(self) -> (Asked, Policy) {
        let GroupArgs { group, parent, level, attribute, capacity, importance, name, asked } = self;
        (asked, Policy::Group(GroupPolicy { name, group, parent, level, attribute, capacity, importance }))
    }
}

impl CodeArgs {
    fn asked(self) -> Result<(Asked, Policy), Failure> {
        let CodeArgs { file, attributes, control, filter, silence: silence_ns, common } = self;
        let (Common { channel, name, asked }, code) = (common, Source::read(&file)?.text);
        let policy = CodePolicy { name, channel, code, file: None, attributes, control, filter, silence_ns };
        Ok((asked, Policy::Code(policy)))
    }
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
    let mut table =
        output::new_table(["policy", "kind", "channel", "user", "calls", "decisions", "faults", "asked for"]);
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
        "app.show_delay" | "app.skip" => Unit::Nanoseconds.show(amount),
        "app.speed_ppm" => format!("{:+.2} %", amount as f64 / 1e4),
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_decided_is_shown_with_its_unit() {
        assert_eq!(amount("app.rate_milli", 12_540), "12.5/s");
        assert_eq!(amount("app.show_delay", 55_000_000), "55 ms");
        assert_eq!(
            (amount("app.skip", -900_000_000), amount("app.speed_ppm", 20_000)),
            ("-900 ms".into(), "+2.00 %".into())
        );
        assert_eq!((amount("app.rate_milli", 0), amount("cpu.share", 7)), ("stopped".to_owned(), "7".to_owned()));
        assert!(table(&[]).contains("policy start roles"));
    }
}
