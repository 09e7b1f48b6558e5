//! `qfabric channel watch`: prints the rates of a channel.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qfabric_client::channel::{ChannelId, ChannelInfo, SinkOptions};
use qfabric_types::Nanos;
use serde_json::json;

use super::{channel, connected, events};
use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// Prints the rates of a channel's events until Ctrl-C.
///
/// Prints one line for each interval, also with the numbers of members. The numbers of hosts, sources and sinks are
/// those of all hosts; the rates are those of the members on this host. If this host has no sinks, the rates of
/// delivered, dropped, late and lost events are those that the sinks' hosts report. Ends with 3 if the channel does not
/// exist.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel watch video\n          qfabric channel watch video --events")]
pub(super) struct Args {
    /// Channel: NAME, or quality:NAME for a hidden Q-channel
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// Time between two lines, at least 100ms
    #[arg(long, default_value = "1s")]
    interval: Nanos,
    /// Also print the events; joins the channel as a sink
    #[arg(long)]
    events: bool,
    /// End after this number of lines [default: run until Ctrl-C]
    #[arg(long)]
    count: Option<u64>,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Counts of a channel's members on this host. Delivered, dropped, late and lost events are counted at the sinks of
/// this host; if it has none, at its sources, from the reports of the sinks' hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    hosts: usize,
    sources: usize,
    sinks: usize,
    submitted: u64,
    delivered: u64,
    dropped: u64,
    late: u64,
    lost: u64,
}

impl Totals {
    fn add(&mut self, [delivered, dropped, late, lost]: [u64; 4]) {
        self.delivered += delivered;
        self.dropped += dropped;
        self.late += late;
        self.lost += lost;
    }
}

pub(super) fn run(args: Args) -> Outcome {
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let client = args.daemon.client()?;
    let opened =
        if args.events { Some(channels.open(&args.channel.to_string()).map_err(connect::failure)?) } else { None };
    let sink = opened.as_ref().map(|opened| opened.sink(&SinkOptions::default())).transpose();
    let mut sink = sink.map_err(connect::failure)?;
    let interval = Duration::from_nanos(args.interval.get()).max(SIGNAL_CHECK);
    let mut before = totals(&client.channel(&args.channel).map_err(connect::failure)?);
    let mut read = Instant::now();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let until = Instant::now() + interval;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            let left = SIGNAL_CHECK.min(until.saturating_duration_since(Instant::now()));
            match (&mut sink, &opened) {
                (Some(sink), Some(opened)) => {
                    let Some(event) = sink.next(left).map_err(connect::failure)? else { continue };
                    if !output::print_next(&events::line(opened, &event.event(), args.json))? {
                        return Ok(Done(0));
                    }
                }
                _ => std::thread::sleep(left),
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = totals(&client.channel(&args.channel).map_err(connect::failure)?);
        // The time that has really passed: on a loaded host it is longer than the interval.
        let passed = std::mem::replace(&mut read, Instant::now()).elapsed();
        if !output::print_next(&line(before, now, passed.as_secs_f64(), args.json))? {
            break;
        }
        before = now;
    }
    Ok(Done(0))
}

fn totals(info: &ChannelInfo) -> Totals {
    let mut totals = Totals { hosts: info.hosts.len(), ..Totals::default() };
    for host in &info.hosts {
        totals.sources += host.sources.len();
        totals.sinks += host.sinks.len();
        let sources: Vec<_> = host.sources.iter().filter_map(|source| source.counts).collect();
        let sinks: Vec<_> = host.sinks.iter().filter_map(|sink| sink.counts).collect();
        totals.submitted += sources.iter().map(|counts| counts.submitted).sum::<u64>();
        sinks.iter().for_each(|c| totals.add([c.delivered, c.dropped, c.late, c.lost]));
        if sinks.is_empty() {
            sources.iter().for_each(|c| totals.add([c.delivered, c.dropped, c.late, c.lost]));
        }
    }
    totals
}

fn line(before: Totals, now: Totals, seconds: f64, as_json: bool) -> String {
    // The counts of a member that has left are gone, so a sum may become smaller.
    let rate = |of: fn(&Totals) -> u64| of(&now).saturating_sub(of(&before)) as f64 / seconds;
    let (submitted, delivered) = (rate(|t| t.submitted), rate(|t| t.delivered));
    let (dropped, late, lost) = (rate(|t| t.dropped), rate(|t| t.late), rate(|t| t.lost));
    let Totals { hosts, sources, sinks, .. } = now;
    if as_json {
        let rates = json!({
            "hosts": hosts, "sources": sources, "sinks": sinks, "submitted_per_s": submitted,
            "delivered_per_s": delivered, "dropped_per_s": dropped, "late_per_s": late, "lost_per_s": lost,
        });
        return rates.to_string() + "\n";
    }
    format!(
        "hosts {hosts}, sources {sources}, sinks {sinks}: {submitted:.1} in/s, {delivered:.1} out/s, \
         {dropped:.1} dropped/s, {late:.1} late/s, {lost:.1} lost/s\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_and_never_negative() {
        let before = Totals { submitted: 10, delivered: 100, ..Totals::default() };
        let now = Totals { hosts: 2, submitted: 30, delivered: 40, ..Totals::default() };
        let text = line(before, now, 2.0, false);
        assert!(text.contains("hosts 2") && text.contains("10.0 in/s") && text.contains("0.0 out/s"), "{text}");
    }
}
