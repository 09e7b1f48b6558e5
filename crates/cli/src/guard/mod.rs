//! `qfabric guard`: protects a server from overload (003 §5.3, Figure 7).
//!
//! Approach: two handlers in the kernel. `connections.ec` counts the connections of the server when their states
//! change. `overload.ec` receives each request for a new connection, and drops it while both of its criteria hold. No
//! code runs in the server. The handlers live as long as the connection of this program to the daemon, so they are
//! removed whenever the program ends, even if it is killed. The program itself only prints their counts.

mod host;
mod rates;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::ClientError;
use qfabric_client::ecalls::{Attribute, Ecalls, Notice, Subscription, SubscriptionBuilder};
use qfabric_types::Nanos;

use crate::connect::{Service, failure};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted_or_hung_up;
use crate::output;
use host::Listen;
use rates::{Rates, Reading};

const OVERLOAD: &str = include_str!("../../handlers/overload.ec");
const CONNECTIONS: &str = include_str!("../../handlers/connections.ec");

/// Longest time without a check whether a signal came.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// Drops requests for new connections while a server is overloaded.
///
/// The server then completes the connections that it has accepted. Works with any TCP server, without changes to it. A
/// request is dropped only while more connections are open than one threshold and more connections wait to be accepted
/// than another. Both thresholds follow from the rate at which the server completes connections. Ctrl-C ends the guard;
/// then no request is dropped any more. Needs a running daemon, or root.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  sudo qfabric guard --listen :8080\n  \
                        sudo qfabric guard --listen 10.0.0.5:443 --interface eth0 --wait 250ms")]
pub(crate) struct Args {
    /// Address and port of the server, such as :8080, 10.0.0.1:80 or [::1]:80
    #[arg(long, value_name = "ADDRESS")]
    listen: Listen,
    /// Interfaces through which the clients connect, separated by commas [default: all interfaces, also those that come
    /// up later; for a server at 127.0.0.1 or ::1 only lo]
    #[arg(long, value_name = "NAMES")]
    interface: Option<String>,
    /// Longest time that a connection may wait for the server, such as 250ms; the thresholds follow from it
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    wait: Nanos,
    /// Threshold of open connections: drop only while more are open [default: the number that the server completes
    /// within --wait]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// Threshold of waiting connections: drop only while more wait to be accepted [default: half the number that the
    /// server completes within --wait]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    queue: Option<u32>,
    /// Time between two reports, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Nanos,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock; without a daemon, the guard does the daemon's work itself]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let stop = interrupted_or_hung_up()?;
    let interfaces = host::interfaces(&args.listen, args.interface.as_deref())?;
    if !host::is_listening(&args.listen) {
        output::note(format_args!("note: no server listens at {} yet", args.listen));
    }
    let needs = |failure: Failure| failure.context("a guard needs root (sudo qfabric guard …) or a running daemon");
    let service = Service::find(args.socket.as_deref(), Default::default()).map_err(needs)?;
    let guard = Guard::start(&service, &args, interfaces.as_deref())?;
    if !args.json {
        let interfaces = interfaces.as_deref().unwrap_or("all interfaces");
        let (listen, place) = (args.listen, service.place());
        output::note(format_args!("guarding {listen} on {interfaces} through {place}; Ctrl-C ends it"));
    }
    guard.watch(&args, &stop)
}

/// Both handlers are in the kernel until this value is dropped.
struct Guard {
    ecalls: Ecalls,
    attributes: HandlerAttributes,
    _handlers: [Subscription; 2],
}

impl Guard {
    fn start(service: &Service, args: &Args, interfaces: Option<&str>) -> Result<Guard, Failure> {
        let ecalls = Ecalls::connect(&service.client).map_err(failure)?;
        let counting = ecalls.subscribe(&counting(args)).map_err(failure)?;
        let attributes = HandlerAttributes::of(&ecalls).map_err(failure)?;
        // Adds the connections that were open before. A connection that opens or closes between the subscription and
        // this line makes the count wrong by one.
        attributes.numconnects.add(host::open_connections(&args.listen));
        let dropping = ecalls.subscribe(&dropping(args, interfaces)).map_err(failure)?;
        let attributes = attributes.complete(&ecalls).map_err(failure)?;
        Ok(Guard { attributes, ecalls, _handlers: [counting, dropping] })
    }

    /// Prints a report every `--every` until a signal sets `stop`, or the handlers end.
    fn watch(&self, args: &Args, stop: &AtomicBool) -> Outcome {
        let every = Duration::from_nanos(args.every.get()).clamp(SIGNAL_CHECK, Duration::from_secs(3600));
        let mut rates = Rates::new(self.attributes.read(), Instant::now());
        self.print(args, &rates)?;
        let mut next = Instant::now() + every;
        while !stop.load(Ordering::Relaxed) {
            let left = next.saturating_duration_since(Instant::now());
            if let Some(notice) =
                self.ecalls.next_notice(left.min(SIGNAL_CHECK)).or_else(interrupted).map_err(failure)?
            {
                ended(&notice)?;
            }
            if Instant::now() >= next {
                next += every;
                rates.step(self.attributes.read(), Instant::now());
                self.print(args, &rates)?;
            }
        }
        Ok(Done(0))
    }

    fn print(&self, args: &Args, rates: &Rates) -> Result<(), Failure> {
        if args.json {
            let line = serde_json::to_string(&rates.json()).map_err(Failure::fault)?;
            return output::print(&(line + "\n"));
        }
        output::print(&(rates.line() + "\n"))
    }
}

/// A signal that interrupts the wait is no error; the loop checks the flag.
fn interrupted(error: ClientError) -> Result<Option<Notice>, ClientError> {
    match error {
        ClientError::Broken { source, .. } if source.kind() == std::io::ErrorKind::Interrupted => Ok(None),
        other => Err(other),
    }
}

fn ended(notice: &Notice) -> Result<(), Failure> {
    match notice {
        Notice::TakenOut { why, .. } | Notice::Ended { why, .. } => Err(Failure::fault(format!(
            "the handlers of the guard were removed from the kernel, so no request is dropped any more: {why}"
        ))),
        Notice::Call { .. } => Ok(()),
    }
}

fn counting(args: &Args) -> SubscriptionBuilder {
    SubscriptionBuilder::to("tcp.state").option("listen", args.listen).code(CONNECTIONS)
}

fn dropping(args: &Args, interfaces: Option<&str>) -> SubscriptionBuilder {
    let wanted = SubscriptionBuilder::to("tcp.accept").option("listen", args.listen);
    let wanted = match interfaces {
        Some(names) => wanted.option("interface", names),
        None => wanted,
    };
    wanted
        .option("drop", "yes")
        .attribute("patience_ns", i64::try_from(args.wait.get()).unwrap_or(i64::MAX))
        .attribute("with_waiting", 1)
        .attribute("fixed_connections", args.connections.unwrap_or(0).into())
        .attribute("fixed_queue", args.queue.unwrap_or(0).into())
        .code(OVERLOAD)
}

/// The attributes of the two handlers.
struct HandlerAttributes {
    numconnects: Attribute,
    completed: Attribute,
    others: Vec<Attribute>,
}

/// The attributes that `overload.ec` writes, in the order of [`HandlerAttributes::read`].
const WRITTEN: [&str; 6] = ["accept_queue", "connections_limit", "queue_limit", "capacity", "syns", "dropped"];

impl HandlerAttributes {
    /// The attributes of `connections.ec`, which exist after its subscription.
    fn of(ecalls: &Ecalls) -> Result<HandlerAttributes, ClientError> {
        let (numconnects, completed) = (ecalls.attribute("numconnects")?, ecalls.attribute("completed")?);
        Ok(HandlerAttributes { numconnects, completed, others: Vec::new() })
    }

    /// Adds the attributes of `overload.ec`, which exist after its subscription.
    fn complete(mut self, ecalls: &Ecalls) -> Result<HandlerAttributes, ClientError> {
        self.others = WRITTEN.iter().map(|name| ecalls.attribute(name)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    fn read(&self) -> Reading {
        let other = |at: usize| self.others.get(at).map_or(0, Attribute::get);
        Reading {
            connections: self.numconnects.get(),
            completed: self.completed.get(),
            queue: other(0),
            connections_limit: other(1),
            queue_limit: other(2),
            capacity: other(3),
            requests: other(4),
            dropped: other(5),
        }
    }
}
