//! The program: it parses the options, opens a listening socket and runs the server.
#![forbid(unsafe_code)]

use std::cell::OnceCell;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use qfabric_client::ecalls::Ecalls;
use qfabric_client::{Client, ClientError};
use qfabric_types::Nanos;
use qfabric_webserver::backend::Kind;
use qfabric_webserver::control;
use qfabric_webserver::server::{Server, Settings, listen};
use qfabric_webserver::site::Site;
use qfabric_webserver::work::Work;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Number of descriptors for other uses than connections: standard streams, the listener, the back end.
const RESERVED: usize = 16;

/// A small web server: `/` is a static page, `/work` the same page at a cost of CPU time
#[derive(Parser, Debug)]
#[command(
    version,
    args_override_self = true,
    after_help = "Example:\n  qfabric-webserver --backend epoll --work 5ms --cpu 0"
)]
struct Options {
    /// Address to listen at; with port 0 the server takes a free port and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How the server finds ready sockets
    #[arg(long, value_enum, default_value_t = Kind::Epoll)]
    backend: Kind,
    /// File to serve instead of the built-in page of 1 KB
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// CPU time that a request for /work costs
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    work: Nanos,
    /// Cost of /work as a number of rounds instead of a time, so that several servers do exactly the same work
    #[arg(long, value_name = "N", conflicts_with = "work")]
    work_rounds: Option<u64>,
    /// Largest number of open connections; at the limit, the server accepts no more [default: 1000]
    #[arg(long, value_name = "N", default_value_t = 1000)]
    connections: usize,
    /// Number of connections that the kernel queues until they are accepted
    #[arg(long, value_name = "N", default_value_t = 511)]
    backlog: i32,
    /// Close a connection if no byte of an answer was sent on it for this time
    #[arg(long, value_name = "TIME", default_value = "5s")]
    patience: Nanos,
    /// Let the kernel drop requests for connections that arrive through this interface, such as lo, while the
    /// server is overloaded; needs the daemon
    #[arg(long, value_name = "INTERFACE")]
    overload: Option<String>,
    /// With --overload: the longest time that a connection may wait for the server
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    wait: Nanos,
    /// The daemon's socket [default: searched in the usual places]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// CPU that the server runs on
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qfabric-webserver: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    prepare(options)?;
    let listener = listen(options.listen, options.backlog)
        .with_context(|| format!("cannot listen at {}; choose another port with --listen", options.listen))?;
    let address = rustix::net::getsockname(&listener)?;
    let address = SocketAddr::try_from(address).context("the socket has no internet address")?;
    let ecalls = Daemon { options, connection: OnceCell::new() };
    let backend = options
        .backend
        .open(|| ecalls.connect())
        .with_context(|| format!("cannot open the back end {:?}", options.backend))?;
    let settings = Settings {
        connections: options.connections.clamp(1, backend.limit().saturating_sub(RESERVED)),
        patience: Duration::from_nanos(options.patience.get()),
    };
    let on_connections = match &options.overload {
        Some(interface) => control::start(&ecalls.connect()?, address, interface, options.wait)?,
        None => Box::new(|_, _| {}),
    };
    let server = Server::new(listener, backend, site(options)?, settings, on_connections)?;
    println!("listening on {address}");
    std::io::stdout().flush()?;
    let counters = server.run(&stop)?;
    println!(
        "{} connections (at most {} at once), {} replies, {} timeouts",
        counters.accepted, counters.most, counters.replies, counters.timeouts
    );
    Ok(())
}

/// The connection to the daemon. It is opened when it is needed for the first time.
struct Daemon<'a> {
    options: &'a Options,
    connection: OnceCell<Ecalls>,
}

impl Daemon<'_> {
    fn connect(&self) -> Result<Ecalls, ClientError> {
        if let Some(connection) = self.connection.get() {
            return Ok(connection.clone());
        }
        let client = match &self.options.socket {
            Some(path) => Client::connect_to(path),
            None => Client::connect(),
        }?;
        let made = Ecalls::connect(&client)?;
        Ok(self.connection.get_or_init(|| made).clone())
    }
}

/// Pins the process to a CPU, and raises the limit of open descriptors to its maximum.
fn prepare(options: &Options) -> Result<()> {
    if let Some(cpu) = options.cpu {
        let mut cpus = CpuSet::new();
        ensure!(cpu < CpuSet::MAX_CPU, "--cpu {cpu} is too large; it must be below {}", CpuSet::MAX_CPU);
        cpus.set(cpu);
        sched_setaffinity(None, &cpus)
            .with_context(|| format!("--cpu {cpu}: the host has no such CPU, or the process may not use it"))?;
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

fn site(options: &Options) -> Result<Site> {
    let work = match options.work_rounds {
        Some(rounds) => Work { rounds },
        None => Work::of(Duration::from_nanos(options.work.get())),
    };
    let mut site = Site::new(work);
    if let Some(path) = &options.page {
        site.page = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(site)
}
