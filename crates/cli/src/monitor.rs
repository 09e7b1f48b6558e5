//! `qfabric monitor`: lists, changes and shows the attributes that the resource monitor of this host reads and reports
//! to the resource managers of this host and of others.

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

/// Lists, changes and shows the monitored attributes of this host.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(LsArgs),
    Set(SetArgs),
    Watch(WatchArgs),
}

/// Lists all attributes: their periods, thresholds and values, and why an attribute is not available here.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric monitor ls")]
struct LsArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Starts monitoring an attribute, or changes how it is monitored; options that are not given keep their values.
///
/// The readings go to the resource managers of all hosts that share a channel or a group with this host. Ends with 3 if
/// the attribute does not exist or a value is out of range; `qfabric monitor ls` lists the attributes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric monitor set cpu.run_queue --poll 20ms --threshold '> 4'
          qfabric monitor set cpu.run_queue --poll 1s --check 20ms --threshold '> 4' --quiet
          qfabric monitor set cpu.run_queue --summary max --check 20ms
          qfabric monitor set memory.available --adaptive 100ms:10s --tolerance 1000000
          qfabric monitor set cpu.run_queue --off")]
struct SetArgs {
    /// Attribute, such as cpu.run_queue; `qfabric monitor ls` lists all
    attribute: String,
    /// Time between two reports, from 1ms to 1h [default: 1s, or unchanged]
    #[arg(long, value_name = "TIME")]
    poll: Option<Nanos>,
    /// Let feedback set the time between two reports, from SHORTEST to LONGEST, such as 20ms:2s
    ///
    /// The time is halved when the value changes by more than --tolerance; otherwise it grows by a quarter. --poll ends
    /// the feedback.
    #[arg(long, value_name = "SHORTEST:LONGEST", value_parser = periods)]
    adaptive: Option<(Nanos, Nanos)>,
    /// With --adaptive: largest difference, in the unit of the attribute, that does not count as a change [default: 0]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true, requires = "adaptive")]
    tolerance: u64,
    /// Value to report from the looks since the last report; see --check [default: last, or unchanged]
    #[arg(long)]
    summary: Option<Summary>,
    /// Threshold whose crossing is reported at once, such as '> 4' or '> 4 until 3'; '' removes it
    #[arg(long, value_name = "THRESHOLD", value_parser = threshold)]
    threshold: Option<String>,
    /// Time between two looks for --threshold and --summary, if shorter than --poll, from 1ms; 0s: look at reports only
    #[arg(long, value_name = "TIME")]
    check: Option<Nanos>,
    /// Report only crossings of the threshold; refused without a threshold
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    quiet: Option<bool>,
    /// Number of the application that is monitored; `qfabric status` shows it [default: the host]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    application: u64,
    /// Stop monitoring the attribute
    #[arg(long, conflicts_with_all = ["poll", "adaptive", "summary", "threshold", "check", "quiet"])]
    off: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Prints the values of the monitored attributes until Ctrl-C.
///
/// Ends if no attribute is monitored; start with `qfabric monitor set`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric monitor watch --interval 500ms")]
struct WatchArgs {
    /// Time between two lines, at least 50ms
    #[arg(long, default_value = "1s")]
    interval: Nanos,
    /// End after this number of lines [default: run until Ctrl-C]
    #[arg(long)]
    count: Option<u64>,
    /// Print one JSON list per line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(crate) fn run(args: Args) -> Outcome {
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
            output::print("no attribute is monitored; start with qfabric monitor set ATTRIBUTE\n")?;
            return Ok(Done(0));
        }
        if !output::print_next(&if args.json { line_of_json(&list) } else { line(&list) })? {
            break;
        }
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
    let mut table = output::new_table(["attribute", "application", "poll", "threshold", "reports", "value", "unit"]);
    for info in list {
        table.add_row([
            info.attribute.clone(),
            if info.application == 0 { "–".to_owned() } else { info.application.to_string() },
            poll(info),
            threshold_text(info),
            reports(info),
            value(info),
            info.unavailable.as_ref().map_or(info.unit.clone(), |why| format!("not available: {why}")),
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

fn threshold_text(info: &MonitorInfo) -> String {
    let Some(threshold) = &info.threshold else { return "–".to_owned() };
    match &info.trigger_refused {
        _ if info.by_kernel => format!("{threshold}, by the kernel"),
        Some(why) => format!("{threshold}, checked at looks only: {why}"),
        None => threshold.clone(),
    }
}

/// The value that is reported, and the time between two looks.
fn reports(info: &MonitorInfo) -> String {
    let value = match info.summary {
        None => return "–".to_owned(),
        Some(_) if info.quiet => "crossings",
        Some(Summary::Last) => "last",
        Some(Summary::Mean) => "mean",
        Some(Summary::Min) => "min",
        Some(Summary::Max) => "max",
    };
    info.check_ns.map_or_else(|| value.to_owned(), |check| format!("{value}, looked at every {check}"))
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
    fn a_threshold_is_checked_before_the_daemon_is_asked() {
        // With its hysteresis, as `ls` shows it.
        assert_eq!(threshold("> 4").as_deref(), Ok("> 4 until 3"));
        assert_eq!(threshold("").as_deref(), Ok(""));
        assert!(threshold("above four").is_err());
    }
}
