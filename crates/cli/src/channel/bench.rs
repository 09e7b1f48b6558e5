//! `qfabric channel bench`: measures submission and delivery of events between applications of this host, through the
//! daemon.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use qfabric_client::channel::{Channels, SinkOptions, SourceOptions, Spec, Submission};
use qfabric_client::clock;
use serde_json::json;

use super::connected;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Measures the delivery of events from one source to many sinks on this host.
///
/// Uses the running daemon and a separate channel. Prints median and 99th percentile in microseconds, and the number of
/// lost deliveries.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel bench --sinks 100 --size 100 --rate 10 --json")]
pub(super) struct Args {
    /// Number of sinks, 1 to 1000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    sinks: u32,
    /// Size of an event in bytes, 1 to 1048576 (1 MiB)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,
    /// Events per second, above 0
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Duration in seconds, above 0
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    seconds: f64,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    if !(args.rate.is_finite() && args.rate > 0.0 && args.seconds.is_finite() && args.seconds > 0.0) {
        return Err(Failure::usage("--rate and --seconds must be above 0"));
    }
    let (sending, receiving) = (connected(&args.daemon)?, connected(&args.daemon)?);
    let events = (args.rate * args.seconds).ceil() as u32;
    let (submitted, delays) = measure(&sending, &receiving, &args, events).map_err(connect::failure)?;
    let expected = u64::from(events) * u64::from(args.sinks);
    let lost = expected.saturating_sub(delays.len() as u64);
    let (submit, delay) = (quantiles(submitted), quantiles(delays));
    let text = match args.json {
        true => format!(
            "{}\n",
            json!({
                "events": events, "sinks": args.sinks, "size": args.size, "rate": args.rate, "expected": expected,
                "lost": lost, "submit_us": { "p50": submit.0, "p99": submit.1 },
                "delivery_us": { "p50": delay.0, "p99": delay.1 },
            })
        ),
        false => format!(
            "{events} events of {} B to {} sinks at {}/s: submission {:.1} µs (p99 {:.1}), until the handler {:.1} µs \
             (p99 {:.1}), {lost} of {expected} lost\n",
            args.size, args.sinks, args.rate, submit.0, submit.1, delay.0, delay.1
        ),
    };
    output::print(&text)?;
    Ok(Done(0))
}

type Times = Vec<u64>;

/// After this time without an event, those that are missing are lost.
const ON_THE_WAY: Duration = Duration::from_secs(3);

fn measure(
    sending: &Channels,
    receiving: &Channels,
    args: &Args,
    events: u32,
) -> Result<(Times, Times), qfabric_client::ClientError> {
    let name = format!("bench-{}", std::process::id());
    let format = format!("struct event {{ unsigned char data[{}]; }};", args.size);
    let channel = sending.create(&name, &Spec::of(&format))?;
    let seen: Arc<Mutex<Times>> = Arc::default();
    let opened = receiving.open(&name)?;
    let mut sinks = Vec::new();
    for _ in 0..args.sinks {
        let seen = seen.clone();
        let handler = move |event: &qfabric_client::channel::Event<'_>| {
            let delay = clock::now().get().saturating_sub(event.sent_ns);
            seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(delay);
        };
        sinks.push(opened.sink_subscribe(&SinkOptions::default(), handler)?);
    }
    let source = channel.source_subscribe(&SourceOptions::default())?;
    let (payload, begin) = (vec![0; args.size as usize], Instant::now());
    let mut submitted = Vec::with_capacity(events as usize);
    for at in 0..events {
        let next = begin + Duration::from_secs_f64(f64::from(at) / args.rate);
        while Instant::now() < next {
            receiving.poll(next.saturating_duration_since(Instant::now()))?;
        }
        let before = clock::now();
        source.submit(&Submission { payload: &payload, ..Submission::default() })?;
        submitted.push(clock::now().since(before).get());
    }
    let expected = events as usize * args.sinks as usize;
    let count = || seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len();
    let mut last = Instant::now();
    while count() < expected && last.elapsed() < ON_THE_WAY {
        if receiving.poll(Duration::from_millis(200))? > 0 {
            last = Instant::now();
        }
    }
    drop((sinks, source));
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    Ok((submitted, seen))
}

/// Median and 99th percentile in microseconds, of times in nanoseconds.
fn quantiles(mut times: Times) -> (f64, f64) {
    times.sort_unstable();
    let at = |part: f64| times.get(((times.len() as f64 - 1.0) * part).round().max(0.0) as usize).copied().unwrap_or(0);
    (at(0.5) as f64 / 1e3, at(0.99) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_taken_from_sorted_times_and_converted_to_microseconds() {
        assert_eq!(quantiles((1..=101).rev().map(|n| n * 1000).collect()), (51.0, 100.0));
        assert_eq!(quantiles(Vec::new()), (0.0, 0.0));
    }
}
