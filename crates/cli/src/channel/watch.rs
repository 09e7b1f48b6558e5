//! `qfabric channel watch`: a channel's rates as they are now.

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

/// How long a Ctrl-C may take.
const LOOK: Duration = Duration::from_millis(100);

/// Shows a channel's members, rates and drops as they are now, until Ctrl-C.
///
/// Counted are the members of this host.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel watch video\n          qfabric channel watch video --events")]
pub struct Args {
    /// Its name, or quality:NAME
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// Time between two lines
    #[arg(long, default_value = "1s")]
    interval: Nanos,
    /// Its events, too: joins it as a sink
    #[arg(long)]
    events: bool,
    /// End after so many lines
    #[arg(long)]
    count: Option<u64>,
    /// As JSON, one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// What is counted of a channel's members on this host. What became of events: at its sinks; where it has none, of what its
/// sources sent, as the sinks' hosts report.
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

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let client = args.daemon.client()?;
    let opened =
        if args.events { Some(channels.open(&args.channel.to_string()).map_err(connect::failure)?) } else { None };
    let sink = opened.as_ref().map(|opened| opened.sink(&SinkOptions::default())).transpose();
    let mut sink = sink.map_err(connect::failure)?;
    let interval = Duration::from_nanos(args.interval.get()).max(LOOK);
    let mut before = totals(&client.channel(&args.channel).map_err(connect::failure)?);
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let until = Instant::now() + interval;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            match (&mut sink, &opened) {
                (Some(sink), Some(opened)) => {
                    if let Some(event) = sink.next(LOOK).map_err(connect::failure)? {
                        output::print(&events::line(opened, &event.event(), args.json))?;
                    }
                }
                _ => std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now()))),
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = totals(&client.channel(&args.channel).map_err(connect::failure)?);
        output::print(&line(before, now, interval.as_secs_f64(), args.json))?;
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
    // A member that has left takes its counts with it.
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
