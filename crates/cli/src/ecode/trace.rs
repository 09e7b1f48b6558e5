//! `qfabric ecode trace`: prints the events of a service as they arrive, or a histogram of one of their fields. E-code
//! can filter and change them in the kernel.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::ecalls::{Ecalls, Event, MemoryUp, Step, Subscription, SubscriptionBuilder, event_json};
use qfabric_types::format::Format;
use serde_json::{Value, json};

use super::histogram::{Histograms, whole};
use super::install::Place;
use super::source::Source;
use crate::connect::{self, Service};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted_or_hung_up;
use crate::output;

/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Prints the events of a service as they arrive; a filter in E-code can run where the events happen.
///
/// Uses the daemon of this host. Without a daemon, does the daemon's work itself, which needs root. Ends at Ctrl-C, after
/// --count events or after --seconds, and removes the filter. Ends with 3 if the service does not exist or the daemon
/// refuses the subscription.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric ecode trace --service net.rx --option interface=lo \\
              --code 'if (input.len > 1400) return 1; return 0;'
          qfabric ecode trace --service proc.exec --count 3 --json
          qfabric ecode trace --service net.rx --option interface=lo --histogram len --seconds 10")]
pub(super) struct Args {
    /// File with E-code; - is the standard input
    file: Option<PathBuf>,
    /// E-code as text, instead of a file; an event for which it returns 0 is not printed
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    code: Option<String>,
    #[command(flatten)]
    place: Place,
    /// End after this number of events [default: run until Ctrl-C]
    #[arg(long)]
    count: Option<u64>,
    /// End after this number of seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,
    /// At the end, print how often the values of this field occurred, in steps of powers of two, instead of the events
    #[arg(long, value_name = "FIELD")]
    histogram: Option<String>,
    /// Print a histogram for each value of this field, for the first 64 values
    #[arg(long, value_name = "FIELD", requires = "histogram")]
    by: Option<String>,
    /// Number of events that can wait to be printed, a power of two from 2 to 65536; further events are dropped and
    /// counted
    #[arg(long, default_value_t = 1024)]
    slots: u32,
    /// Print one JSON object per line instead of text; with --histogram one object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Outcome {
    let has_code = args.file.is_some() || args.code.is_some();
    let source = has_code.then(|| Source::of(args.file.as_deref(), args.code.as_deref())).transpose()?;
    // After the standard input was read, and before a daemon starts here: a signal from now on ends the command in
    // order.
    let stop = interrupted_or_hung_up()?;
    let service = Service::find(args.place.socket.as_deref(), Default::default())?;
    let mut request = args.place.request();
    if let Some(source) = source {
        args.place.check(&service.client, &source)?;
        request.k_code = Some(source.text);
        request.order.push(Step::KCode);
    }
    request.memory_up = Some(MemoryUp { slots: args.slots, ..MemoryUp::default() });
    request.order.push(Step::MemoryUp);
    let ecalls = Ecalls::connect(&service.client).map_err(connect::failure)?;
    let mut events = ecalls.subscribe(&SubscriptionBuilder::from(request)).map_err(connect::failure)?;
    let shown = match &args.histogram {
        None => show(&mut events, &args, &stop)?,
        Some(field) => count(&mut events, field, &args, &stop)?,
    };
    let dropped = events.dropped();
    events.unsubscribe().map_err(connect::failure)?;
    if dropped > 0 {
        output::note(format_args!(
            "qfabric: {shown} events taken, {dropped} dropped because they arrived faster than they were taken; a larger --slots or a filter helps"
        ));
    }
    Ok(Done(0))
}

/// Calls `act` for each event until the end that the options name, or until `act` returns false. Returns the number of
/// events.
fn each(
    events: &mut Subscription,
    args: &Args,
    stop: &AtomicBool,
    mut act: impl FnMut(&Format, Event<'_>) -> Result<bool, Failure>,
) -> Result<u64, Failure> {
    let format = events.info().format.clone();
    let (began, longest) = (Instant::now(), args.seconds.map(|seconds| Duration::from_secs(seconds.into())));
    let most = args.count.unwrap_or(u64::MAX);
    let mut taken = 0;
    while taken < most && !stop.load(Ordering::Relaxed) && longest.is_none_or(|longest| began.elapsed() < longest) {
        let Some(event) = events.next(SIGNAL_CHECK).map_err(connect::failure)? else { continue };
        let goes_on = act(&format, event)?;
        taken += 1;
        if !goes_on {
            break;
        }
    }
    Ok(taken)
}

fn show(events: &mut Subscription, args: &Args, stop: &AtomicBool) -> Result<u64, Failure> {
    each(events, args, stop, |format, event| output::print_next(&line(format, event, args.json)))
}

/// Counts the events, then prints the histograms.
fn count(events: &mut Subscription, field: &str, args: &Args, stop: &AtomicBool) -> Result<u64, Failure> {
    let format = &events.info().format;
    for name in [Some(field), args.by.as_deref()].into_iter().flatten() {
        check_field(format, name)?;
    }
    let mut histograms = Histograms::new(field.to_owned(), args.by.clone());
    let taken = each(events, args, stop, |format, event| {
        let fields = event_json::decode(format, event.data);
        let value = whole(&fields[field]).ok_or_else(|| Failure::usage(format!("the field {field} is no number")))?;
        histograms.add(value, args.by.as_ref().map_or(String::new(), |by| short(&fields[by])));
        Ok(true)
    })?;
    match args.json {
        true => output::print_json(&histograms.json())?,
        false => output::print(&histograms.text())?,
    }
    Ok(taken)
}

fn check_field(format: &Format, name: &str) -> Result<(), Failure> {
    if format.fields.iter().any(|field| field.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = format.fields.iter().map(|field| field.name.as_str()).collect();
    Err(Failure::usage(format!("the events have no field {name}; fields: {}", names.join(", "))))
}

fn line(format: &Format, event: Event<'_>, as_json: bool) -> String {
    let fields = event_json::decode(format, event.data);
    if as_json {
        return json!({ "time_ns": event.time_ns, "event": fields }).to_string() + "\n";
    }
    let shown: Vec<_> = format.fields.iter().map(|f| format!("{}={}", f.name, short(&fields[&f.name]))).collect();
    format!("{:.6}  {}\n", event.time_ns as f64 / 1e9, shown.join(" "))
}

/// Shows an array of bytes as text if it is printable text, without the zeros at its end.
fn short(value: &Value) -> String {
    let Value::Array(list) = value else { return value.to_string() };
    let bytes: Option<Vec<u8>> = list.iter().map(|v| v.as_i64().and_then(|n| u8::try_from(n).ok())).collect();
    let Some(bytes) = bytes else { return value.to_string() };
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(&bytes[..end]) {
        Ok(text) if !text.is_empty() && text.chars().all(|c| !c.is_control()) => format!("{text:?}"),
        _ => Value::from(bytes[..end].to_vec()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_printable_bytes_is_shown_as_text() {
        assert_eq!(short(&json!([104, 105, 0, 0])), "\"hi\"");
        assert_eq!(short(&json!([1, 2, 0])), "[1,2]");
        assert_eq!(short(&json!([300, 2])), "[300,2]");
        assert_eq!(short(&json!(-4)), "-4");
    }
}
