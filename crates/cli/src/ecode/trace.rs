//! `qfabric ecode trace`: prints the events of a service as they arrive. E-code can filter and change them in the
//! kernel.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::ecalls::{Ecalls, Event, MemoryUp, Step, Subscription, SubscriptionBuilder, event_json};
use qfabric_types::format::Format;
use serde_json::{Value, json};

use super::install::Place;
use super::source::Source;
use crate::connect::{self, Service};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Prints the events of a service as they arrive; a filter in E-code can run where the events happen.
///
/// Uses the daemon of this host. Without a daemon, does the daemon's work itself, which needs root. Ends at Ctrl-C or
/// after
/// --count events, and removes the filter. Ends with 3 if the service does not exist or the daemon refuses the subscription.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric ecode trace --service net.rx --option interface=lo \\
              --code 'if (input.len > 1400) return 1; return 0;'
          qfabric ecode trace --service proc.exec --count 3 --json")]
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
    /// Number of events that can wait to be printed, a power of two from 2 to 65536; further events are dropped and
    /// counted
    #[arg(long, default_value_t = 1024)]
    slots: u32,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Outcome {
    let service = Service::find(args.place.socket.as_deref(), Default::default())?;
    let mut request = args.place.request();
    if args.file.is_some() || args.code.is_some() {
        let source = Source::of(args.file.as_deref(), args.code.as_deref())?;
        args.place.check(&service.client, &source)?;
        request.k_code = Some(source.text);
        request.order.push(Step::KCode);
    }
    request.memory_up = Some(MemoryUp { slots: args.slots, ..MemoryUp::default() });
    request.order.push(Step::MemoryUp);
    let stop = interrupted()?;
    let ecalls = Ecalls::connect(&service.client).map_err(connect::failure)?;
    let mut events = ecalls.subscribe(&SubscriptionBuilder::from(request)).map_err(connect::failure)?;
    let shown = show(&mut events, &args, &stop)?;
    let dropped = events.dropped();
    events.unsubscribe().map_err(connect::failure)?;
    if dropped > 0 {
        eprintln!(
            "qfabric: {shown} events printed, {dropped} dropped because they arrived faster than they were printed; a larger --slots or a filter helps"
        );
    }
    Ok(Done(0))
}

fn show(events: &mut Subscription, args: &Args, stop: &AtomicBool) -> Result<u64, Failure> {
    let format = events.info().format.clone();
    let most = args.count.unwrap_or(u64::MAX);
    let mut shown = 0;
    while shown < most && !stop.load(Ordering::Relaxed) {
        let Some(event) = events.next(SIGNAL_CHECK).map_err(connect::failure)? else { continue };
        let line = line(&format, event, args.json);
        output::print(&line)?;
        shown += 1;
    }
    Ok(shown)
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
