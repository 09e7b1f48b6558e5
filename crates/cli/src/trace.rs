//! `qfabric trace`: writes what happens, or what just happened, on a host as a trace for Perfetto.
//!
//! Approach: the daemon keeps the last records in any case. This command reads them page by page, turns
//! them into packets, and appends these to the file, so its memory does not grow with the length of the trace.

mod cpus;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_linux::clock;
use qfabric_timeline::{ClockReading, TraceCounts, TraceWriter};
use qfabric_types::{Instant, Nanos};
use serde::Serialize;

use self::cpus::Cpus;
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::{connect, output};

/// Time between two reads of the timeline. The daemon keeps far more records than an interval has.
const INTERVAL: Duration = Duration::from_millis(500);
/// Longest time without a check whether Ctrl-C was pressed, and between two looks at the switches of the CPUs.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);
/// Longest trace.
const LONGEST: Nanos = Nanos::from_millis(24 * 3_600_000);

/// Writes jobs, budgets, misses and decisions of all applications as a trace for Perfetto.
///
/// Records for --seconds, or until Ctrl-C. With --last, writes the records that the daemon has kept, without waiting.
/// Open the file in https://ui.perfetto.dev, which keeps it on this machine. A user sees the user's own applications,
/// root sees all. With several --socket, the trace shows several daemons of this machine, and arrows for events of
/// channels between them. With --cpus it also shows which thread of which program ran on each CPU.
/// Ends with 4 if no daemon answers; start one with `qfabric daemon`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric trace --seconds 10 -o out.pftrace
          qfabric trace --seconds 10 --cpus -o out.pftrace
          qfabric trace --last 60s -o just-now.pftrace")]
pub(crate) struct Args {
    /// Record for this number of seconds, up to 86400 [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with = "last")]
    seconds: Option<u64>,
    /// Write what happened within this time before now, such as 60s
    ///
    /// The daemon keeps the last 32768 records of all users. The summary says how far they reach back.
    #[arg(long, value_name = "TIME")]
    last: Option<Nanos>,
    /// Also record which thread runs on each CPU, of all users; needs root or CAP_PERFMON
    #[arg(long, conflicts_with = "last")]
    cpus: bool,
    /// File to write; - is stdout
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print the summary as JSON, if the trace goes to a file; with - it is text on stderr
    #[arg(long)]
    json: bool,
    /// Path of a daemon's socket; may be repeated [default: $QFABRIC_SOCKET; else
    /// $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    if let Some(last) = args.last.filter(|last| *last > LONGEST || *last == Nanos::ZERO) {
        return Err(Failure::usage(format!("--last {last} is not between 1 ns and 24 h; choose a time such as 60s")));
    }
    let mut sources = sources(&args)?;
    let cpus = Cpus::open(args.cpus)?;
    let mut file = Target::create(&args.output)?;
    let began = clock::now();
    match args.last {
        Some(_) => {}
        None => record(&mut sources, cpus, &mut file, args.seconds.map(Duration::from_secs))?,
    }
    for source in &mut sources {
        source.read(&mut file)?;
        source.finish(&mut file)?;
    }
    let now = clock::now();
    let hosts: Vec<HostCounts> = sources.iter().map(|source| source.counts(now)).collect();
    let seconds = match args.last {
        Some(_) => hosts.iter().map(|host| host.seconds).fold(0.0, f64::max),
        None => now.since(began).as_f64() / 1e9,
    };
    let summary = Summary { seconds, hosts };
    report(&args, &summary)?;
    Ok(Done(0))
}

/// Connects to every daemon.
fn sources(args: &Args) -> Result<Vec<Source>, Failure> {
    let sockets: Vec<Option<&Path>> = match &args.socket[..] {
        [] => vec![None],
        sockets => sockets.iter().map(|path| Some(path.as_path())).collect(),
    };
    let since = |now: Instant| args.last.map_or(now, |last| Instant::new(now.get().saturating_sub(last.get())));
    let several = sockets.len() > 1;
    let open = |socket: Option<&Path>| {
        let client = connect::daemon(socket)?;
        let name = if several { format!("{} {}", host(), client.socket().display()) } else { host() };
        Source::open(client, &name, since(clock::now()), args.last.is_none())
    };
    sockets.into_iter().map(open).collect()
}

/// Reads all sources again and again, until `length` is over or the user presses Ctrl-C. All daemons share the CPUs of
/// this machine, so the first source shows them.
fn record(sources: &mut [Source], mut cpus: Cpus, file: &mut Target, length: Option<Duration>) -> Result<(), Failure> {
    let (stop, began) = (interrupted()?, std::time::Instant::now());
    if length.is_none() {
        output::note("qfabric: recording; Ctrl-C ends the trace");
    }
    let is_over =
        |stop: &AtomicBool| stop.load(Ordering::Relaxed) || length.is_some_and(|length| began.elapsed() >= length);
    while !is_over(&stop) {
        let pause = std::time::Instant::now();
        while pause.elapsed() < INTERVAL && !is_over(&stop) {
            let left = length.map_or(SIGNAL_CHECK, |length| length.saturating_sub(began.elapsed()));
            std::thread::sleep(SIGNAL_CHECK.min(left));
            if let Some(first) = sources.first_mut() {
                cpus.read(&mut first.writer);
            }
        }
        sources.iter_mut().try_for_each(|source| source.read(file))?;
    }
    if let Some(first) = sources.first_mut() {
        cpus.finish(&mut first.writer);
    }
    Ok(())
}

/// The timeline of one daemon.
struct Source {
    client: Client,
    writer: TraceWriter,
    next: u64,
    since: Instant,
    /// The daemon's record does not reach back as far as it was asked to.
    is_clipped: bool,
}

impl Source {
    /// With `live`, the trace begins with the budgets in force now.
    fn open(client: Client, name: &str, since: Instant, live: bool) -> Result<Source, Failure> {
        let mut source = Source {
            client,
            writer: TraceWriter::new(name, ClockReading::from(clock::readings())),
            next: 0,
            since,
            is_clipped: false,
        };
        if live {
            source.add_budgets()?;
        }
        Ok(source)
    }

    /// Reads the records up to now, without those of a time of which the daemon has discarded others. Records that are
    /// added meanwhile come with the next call, so that it ends however fast they are.
    fn read(&mut self, file: &mut Target) -> Result<(), Failure> {
        let now = clock::now();
        loop {
            let mut page = self.client.timeline(self.next, self.since).map_err(connect::failure)?;
            if self.next == 0 {
                self.reach_back_to(page.complete_since_ns);
                page.records.retain(|record| record.at_ns >= self.since);
            }
            self.next = page.next;
            self.writer.add(&page);
            file.write(&self.writer.take())?;
            if !page.more || page.records.last().is_some_and(|record| record.at_ns > now) {
                return Ok(());
            }
        }
    }

    /// The trace begins at `oldest` if it was asked to begin before.
    fn reach_back_to(&mut self, oldest: Instant) {
        self.is_clipped |= oldest > self.since;
        self.since = self.since.max(oldest);
    }

    /// Applications without a change of their budget had their present budget all the time.
    fn finish(&mut self, file: &mut Target) -> Result<(), Failure> {
        self.add_budgets()?;
        file.write(&self.writer.take())
    }

    /// The budgets of the applications that this user may trace.
    fn add_budgets(&mut self) -> Result<(), Failure> {
        let uid = rustix::process::geteuid().as_raw();
        let mut applications = self.client.applications().map_err(connect::failure)?;
        applications.retain(|application| uid == 0 || application.owner.uid == uid);
        self.writer.add_budgets(&applications, self.since);
        Ok(())
    }

    fn counts(&self, now: Instant) -> HostCounts {
        HostCounts {
            socket: self.client.socket().display().to_string(),
            seconds: now.since(self.since).as_f64() / 1e9,
            clipped: self.is_clipped,
            counts: self.writer.counts(),
        }
    }
}

#[derive(Serialize)]
struct Summary {
    seconds: f64,
    hosts: Vec<HostCounts>,
}

#[derive(Serialize)]
struct HostCounts {
    socket: String,
    /// Time that the trace of this host covers.
    seconds: f64,
    /// Whether that is less than was asked for, because the daemon's record does not reach back further.
    clipped: bool,
    #[serde(flatten)]
    counts: TraceCounts,
}

/// The summary goes to stderr if the trace goes to stdout.
fn report(args: &Args, summary: &Summary) -> Result<(), Failure> {
    let to_stdout = args.output.as_os_str() == "-";
    if args.json && !to_stdout {
        return output::print_json(summary);
    }
    let text: String = summary.hosts.iter().map(|host| line(args, host)).collect();
    if to_stdout {
        // Ignored: the terminal may be closed, and the trace is complete.
        let _ = io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    output::print(&(text + "open it in https://ui.perfetto.dev\n"))
}

fn line(args: &Args, host: &HostCounts) -> String {
    let TraceCounts { applications, jobs, misses, budgets, decisions, ecalls, channel_events, lost, skipped, .. } =
        host.counts;
    let file = args.output.display();
    let place = if args.socket.len() > 1 { format!(" ({})", host.socket) } else { String::new() };
    let lost = match lost {
        0 => String::new(),
        lost => format!("; {lost} records are missing, because they came faster than they were read"),
    };
    let skipped = match skipped {
        0 => String::new(),
        skipped => format!("; {skipped} events of channels and ECalls are left out, beyond 200 a second of each kind"),
    };
    let seconds = host.seconds;
    let reach = match host.clipped {
        true => format!("; the daemon's record reaches back {seconds:.1} s"),
        false => String::new(),
    };
    let shown = [
        counted(applications, "application"),
        counted(jobs, "job"),
        format!("{misses} late"),
        counted(budgets, "budget"),
        counted(decisions, "decision"),
        counted(ecalls, "ECall"),
        counted(channel_events, "channel event"),
    ];
    let cpus = on_cpus(host.counts);
    format!("{file}{place}: {seconds:.1} s, {}{cpus}{reach}{lost}{skipped}\n", shown.join(", "))
}

/// Empty without --cpus.
fn on_cpus(TraceCounts { cpu_slices, lost_switches, .. }: TraceCounts) -> String {
    match (cpu_slices, lost_switches) {
        (0, 0) => String::new(),
        (slices, 0) => format!(", {} on CPUs", counted(slices, "slice")),
        (slices, lost) => format!(
            ", {} on CPUs; {lost} records of switches are missing, because they came faster than they were read",
            counted(slices, "slice")
        ),
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The file of the trace, or stdout.
enum Target {
    File(File, PathBuf),
    Stdout(io::Stdout),
}

impl Target {
    fn create(path: &Path) -> Result<Target, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Target::Stdout(io::stdout()));
        }
        let created = File::create(path);
        let file = created.map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))?;
        Ok(Target::File(file, path.to_owned()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Target::File(file, path) => file.write_all(bytes).map_err(|error| {
                Failure::fault(format!("cannot write {}: {error}; the trace ends here", path.display()))
            }),
            Target::Stdout(out) => Ok(out.write_all(bytes).and_then(|()| out.flush())?),
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
