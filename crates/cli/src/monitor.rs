//! `qfabric monitor`: what this host looks at, and tells its resource managers and those of other hosts.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Subcommand;
use qfabric_client::channel::{MonitorInfo, MonitorRequest};
use qfabric_types::Nanos;
use qfabric_types::monitor::{AdaptivePeriod, Summary, Threshold, Unit};

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Resource monitoring: attributes, how often they are polled, and when they report at once.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(LsArgs),
    Set(SetArgs),
    Watch(WatchArgs),
}

/// Lists what is monitored, what could be, and what cannot be here.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric monitor ls")]
struct LsArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Changes how an attribute is monitored.
///
/// Readings go to the resource managers of all hosts that share a channel or a group with this one.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric monitor set cpu.run_queue --poll 20ms --threshold '> 4'
          qfabric monitor set cpu.run_queue --poll 1s --check 20ms --threshold '> 4' --quiet
          qfabric monitor set cpu.run_queue --summary max --check 20ms
          qfabric monitor set memory.available --adaptive 100ms:10s --tolerance 1000000
          qfabric monitor set cpu.run_queue --off")]
struct SetArgs {
    /// The attribute
    attribute: String,
    /// Time between two polls [default: 1s, or as it is]
    #[arg(long, value_name = "TIME")]
    poll: Option<Nanos>,
    /// Feedback sets the time between two polls: it is halved when the value moves, else it grows; --poll ends that
    #[arg(long, value_name = "SHORTEST:LONGEST", value_parser = periods)]
    adaptive: Option<(Nanos, Nanos)>,
    /// With --adaptive: differences up to this, in the attribute's unit, are no movement
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true, requires = "adaptive")]
    tolerance: u64,
    /// What is told of the looks between two polls (see --check) [default: last, or as it is]
    #[arg(long)]
    summary: Option<Summary>,
    /// Reports at once beyond it, such as '> 4' or '> 4 until 3'; '' for none
    #[arg(long, value_name = "THRESHOLD", value_parser = threshold)]
    threshold: Option<String>,
    /// Look so often, for threshold and summary, where that is more often than polls; 0s: at polls
    #[arg(long, value_name = "TIME")]
    check: Option<Nanos>,
    /// Tell only when the threshold is crossed; needs one
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    quiet: Option<bool>,
    /// Of this application; see qfabric status [default: of the host]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    application: u64,
    /// Not any more
    #[arg(long, conflicts_with_all = ["poll", "adaptive", "summary", "threshold", "check", "quiet"])]
    off: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Shows the values of what is monitored, until Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric monitor watch --interval 500ms")]
struct WatchArgs {
    /// Time between two looks
    #[arg(long, default_value = "1s")]
    interval: Nanos,
    /// End after so many looks
    #[arg(long)]
    count: Option<u64>,
    /// Print JSON, a list for each look in a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => ls(args),
        Command::Set(args) => set(args),
        Command::Watch(args) => watch(args),
    }
}

fn threshold(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Ok(String::new()),
        false => text.parse::<Threshold>().map(|known| known.to_string()).map_err(|error| error.to_string()),
    }
}

fn periods(text: &str) -> Result<(Nanos, Nanos), String> {
    let (least, most) = text.split_once(':').ok_or("two times are needed, such as 20ms:2s")?;
    let time = |text: &str| text.parse::<Nanos>().map_err(|error| error.to_string());
    Ok((time(least)?, time(most)?))
}

fn ls(args: LsArgs) -> Outcome {
    let list = args.daemon.client()?.monitors().map_err(connect::failure)?;
    if args.json {
        output::print_json(&list)?
    } else {
        output::print(&table(&list))?
    }
    Ok(Done(0))
}

fn set(args: SetArgs) -> Outcome {
    let poll_ns = if args.off { Some(Nanos::ZERO) } else { args.poll };
    let tolerance = args.tolerance;
    let request = MonitorRequest {
        application: args.application,
        poll_ns,
        threshold: args.threshold,
        check_ns: args.check,
        quiet: args.quiet,
        summary: args.summary,
        adaptive: args.adaptive.map(|(least_ns, most_ns)| AdaptivePeriod { least_ns, most_ns, tolerance }),
    };
    let info = args.daemon.client()?.set_monitor(&args.attribute, &request).map_err(connect::failure)?;
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&table(&[info]))?
    }
    Ok(Done(0))
}

fn watch(args: WatchArgs) -> Outcome {
    let (client, stop) = (args.daemon.client()?, interrupted()?);
    let interval = Duration::from_nanos(args.interval.get()).max(Duration::from_millis(50));
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let mut list = client.monitors().map_err(connect::failure)?;
        list.retain(|info| info.poll_ns.is_some());
        if list.is_empty() {
            output::print("nothing is monitored; begin with qfabric monitor set ATTRIBUTE\n")?;
            return Ok(Done(0));
        }
        output::print(&if args.json { line_of_json(&list) } else { line(&list) })?;
        let until = Instant::now() + interval;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(Done(0))
}

fn line(list: &[MonitorInfo]) -> String {
    let shown: Vec<_> = list.iter().map(|info| format!("{}={}", name(info), value(info))).collect();
    format!("{}\n", shown.join("  "))
}

fn line_of_json(list: &[MonitorInfo]) -> String {
    format!("{}\n", serde_json::to_string(list).expect("monitors are plain values"))
}

fn table(list: &[MonitorInfo]) -> String {
    let mut table = output::new_table(["attribute", "application", "poll", "threshold", "told", "value", "unit"]);
    for info in list {
        table.add_row([
            info.attribute.clone(),
            if info.application == 0 { "–".to_owned() } else { info.application.to_string() },
            poll(info),
            judged(info),
            told(info),
            value(info),
            info.unavailable.as_ref().map_or(info.unit.clone(), |why| format!("not here: {why}")),
        ]);
    }
    format!("{table}\n")
}

fn poll(info: &MonitorInfo) -> String {
    let period = info.poll_ns.map_or("–".to_owned(), |poll| poll.to_string());
    match info.adaptive {
        Some(AdaptivePeriod { least_ns, most_ns, .. }) => format!("{period} ({least_ns} to {most_ns})"),
        None => period,
    }
}

fn judged(info: &MonitorInfo) -> String {
    let Some(threshold) = &info.threshold else { return "–".to_owned() };
    match &info.trigger_refused {
        _ if info.by_kernel => format!("{threshold}, by the kernel"),
        Some(why) => format!("{threshold}, at looks only: {why}"),
        None => threshold.clone(),
    }
}

/// What is told, and when beside polls.
fn told(info: &MonitorInfo) -> String {
    let what = match info.summary {
        None => return "–".to_owned(),
        Some(_) if info.quiet => "crossings",
        Some(Summary::Last) => "last",
        Some(Summary::Mean) => "mean",
        Some(Summary::Min) => "min",
        Some(Summary::Max) => "max",
    };
    info.check_ns.map_or_else(|| what.to_owned(), |check| format!("{what}, looked at every {check}"))
}

fn name(info: &MonitorInfo) -> String {
    match info.application {
        0 => info.attribute.clone(),
        application => format!("{}[{application}]", info.attribute),
    }
}

fn value(info: &MonitorInfo) -> String {
    let unit = serde_json::from_value::<Unit>(info.unit.clone().into()).unwrap_or(Unit::Count);
    info.value.map_or("–".to_owned(), |value| unit.show(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_checked_before_anybody_is_asked() {
        // With the way back, as `ls` shows it.
        assert_eq!(threshold("> 4").as_deref(), Ok("> 4 until 3"));
        assert_eq!(threshold("").as_deref(), Ok(""));
        assert!(threshold("above four").is_err());
    }
}
