//! `qfabric guard`: overload protection in front of any server (003 §5.3, Figure 7).
//!
//! Two handlers in the kernel: `connections.ec` counts the server's connections where their states change,
//! `overload.ec` sees each request for a new one and drops it while both of its criteria hold. Nothing of it runs in
//! the server, and nothing stays when this program ends, however it ends: the handlers live as long as the
//! connection to the daemon. This program shows what they do.

mod host;
mod rates;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::ClientError;
use qfabric_client::ecalls::{Attribute, Ecalls, Notice, Subscribe, Subscription};
use qfabric_types::Nanos;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::connect::{Service, failure};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted_by;
use crate::output;
use host::Listen;
use rates::{Rates, Reading};

const OVERLOAD: &str = include_str!("../../handlers/overload.ec");
const CONNECTIONS: &str = include_str!("../../handlers/connections.ec");

/// How soon a signal is noticed.
const GLANCE: Duration = Duration::from_millis(100);

/// Drops requests for new connections early while a server is overloaded, so that it completes what it has begun.
///
/// The server is not changed and need not know. Thresholds follow from what it is seen to complete; Ctrl-C ends it
/// and leaves nothing behind.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  sudo qfabric guard --listen :8080\n  \
                        sudo qfabric guard --listen 10.0.0.5:443 --interface eth0 --wait 250ms")]
pub struct Args {
    /// Where the server listens: [ADDRESS]:PORT
    #[arg(long, value_name = "ADDRESS")]
    listen: Listen,
    /// The interfaces its clients come by, with commas between [default: all that are up, or lo for 127.0.0.1 and ::1]
    #[arg(long, value_name = "NAMES")]
    interface: Option<String>,
    /// How long a connection may wait for the server; the thresholds follow from it
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    wait: Nanos,
    /// Drop only while more connections than this are open [default: found]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// Drop only while more connections than this wait to be accepted [default: found]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    queue: Option<u32>,
    /// How often to say what it does
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Nanos,
    /// One JSON object per line instead of text
    #[arg(long)]
    json: bool,
    /// The daemon's socket [default: searched for; without one, the guard is its own]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Carries it out, until Ctrl-C or SIGTERM.
pub fn run(args: Args) -> Outcome {
    let stop = interrupted_by(&[SIGINT, SIGTERM, SIGHUP])?;
    let interfaces = host::interfaces(&args.listen, args.interface.as_deref())?;
    if !host::is_listening(&args.listen) {
        eprintln!("note: nothing listens at {} yet", args.listen);
    }
    let needs = |failure: Failure| failure.context("a guard needs root (sudo qfabric guard …) or a running daemon");
    let service = Service::find(args.socket.as_deref(), Default::default()).map_err(needs)?;
    let guard = Guard::start(&service, &args, &interfaces)?;
    if !args.json {
        eprintln!("guarding {} on {interfaces} through {}; Ctrl-C ends it", args.listen, service.place());
    }
    guard.watch(&args, &stop)
}

/// Both handlers in the kernel, until dropped.
struct Guard {
    ecalls: Ecalls,
    words: Words,
    _handlers: [Subscription; 2],
}

impl Guard {
    fn start(service: &Service, args: &Args, interfaces: &str) -> Result<Guard, Failure> {
        let ecalls = Ecalls::connect(&service.client).map_err(failure)?;
        let counting = ecalls.subscribe(&counting(args)).map_err(failure)?;
        let words = Words::of(&ecalls).map_err(failure)?;
        // Connections from before; one that changes in between is counted wrongly, by one.
        words.numconnects.add(host::open_connections(&args.listen));
        let cutting = ecalls.subscribe(&cutting(args, interfaces)).map_err(failure)?;
        Ok(Guard { words: words.complete(&ecalls).map_err(failure)?, ecalls, _handlers: [counting, cutting] })
    }

    /// Says what happens until told to stop, or until it cannot go on.
    fn watch(&self, args: &Args, stop: &AtomicBool) -> Outcome {
        let every = Duration::from_nanos(args.every.get()).clamp(GLANCE, Duration::from_secs(3600));
        let mut rates = Rates::new(self.words.read(), Instant::now());
        self.say(args, &rates)?;
        let mut next = Instant::now() + every;
        while !stop.load(Ordering::Relaxed) {
            let left = next.saturating_duration_since(Instant::now());
            if let Some(notice) = self.ecalls.next_notice(left.min(GLANCE)).or_else(interrupted).map_err(failure)? {
                ended(&notice)?;
            }
            if Instant::now() >= next {
                next += every;
                rates.step(self.words.read(), Instant::now());
                self.say(args, &rates)?;
            }
        }
        Ok(Done(0))
    }

    fn say(&self, args: &Args, rates: &Rates) -> Result<(), Failure> {
        if args.json {
            let line = serde_json::to_string(&rates.json()).map_err(Failure::fault)?;
            return output::print(&(line + "\n"));
        }
        output::print(&(rates.line() + "\n"))
    }
}

/// A signal came while we waited: the loop looks at what it was.
fn interrupted(error: ClientError) -> Result<Option<Notice>, ClientError> {
    match error {
        ClientError::Broken { source, .. } if source.kind() == std::io::ErrorKind::Interrupted => Ok(None),
        other => Err(other),
    }
}

fn ended(notice: &Notice) -> Result<(), Failure> {
    match notice {
        Notice::TakenOut { why, .. } | Notice::Ended { why, .. } => {
            Err(Failure::fault(format!("the guard is out of the kernel and nothing is dropped any more: {why}")))
        }
        Notice::Call { .. } => Ok(()),
    }
}

fn counting(args: &Args) -> Subscribe {
    Subscribe::to("tcp.state").option("listen", args.listen).code(CONNECTIONS)
}

fn cutting(args: &Args, interfaces: &str) -> Subscribe {
    Subscribe::to("tcp.accept")
        .option("listen", args.listen)
        .option("interface", interfaces)
        .option("drop", "yes")
        .attribute("patience_ns", i64::try_from(args.wait.get()).unwrap_or(i64::MAX))
        .attribute("with_waiting", 1)
        .attribute("fixed_connections", args.connections.unwrap_or(0).into())
        .attribute("fixed_queue", args.queue.unwrap_or(0).into())
        .code(OVERLOAD)
}

/// The words that the handlers write.
struct Words {
    numconnects: Attribute,
    completed: Attribute,
    others: Vec<Attribute>,
}

/// What `overload.ec` writes, in the order of [`Words::read`].
const WRITTEN: [&str; 6] = ["accept_queue", "connections_limit", "queue_limit", "capacity", "syns", "dropped"];

impl Words {
    /// Those that exist once connections are counted.
    fn of(ecalls: &Ecalls) -> Result<Words, ClientError> {
        let (numconnects, completed) = (ecalls.attribute("numconnects")?, ecalls.attribute("completed")?);
        Ok(Words { numconnects, completed, others: Vec::new() })
    }

    /// Those that the controller brings.
    fn complete(mut self, ecalls: &Ecalls) -> Result<Words, ClientError> {
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
