//! Starts the servers to compare, newly for each run, so that a queue left by one load does not affect the next.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qfabric_webserver::work::Work;
use tempfile::TempDir;

use crate::child::{self, Running};
use crate::generators::Target;
use crate::nginx;
use crate::options::{Options, Server};

/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that is needed to start a server.
#[derive(Debug)]
pub(crate) struct Launcher {
    site: nginx::Site,
    work: Work,
    webserver: PathBuf,
    qfabric: PathBuf,
    daemon: Option<Daemon>,
}

/// A daemon for this experiment in its own folder. Fields are dropped in order: first the daemon ends, then the
/// folder is removed.
#[derive(Debug)]
struct Daemon {
    _running: Running,
    folder: TempDir,
}

impl Daemon {
    fn start(qfabric: &Path) -> Result<Daemon> {
        let folder = tempfile::tempdir().context("cannot create a folder for the daemon")?;
        let mut command = child::command_anywhere(qfabric);
        command.args(["daemon", "--directory"]).arg(folder.path()).stderr(Stdio::null());
        let daemon = Daemon { _running: Running::start("qfabric daemon", &mut command)?, folder };
        let sockets = ["qfabric.sock", "ecalls.sock"].map(|name| daemon.folder.path().join(name));
        wait_until(|| sockets.iter().all(|socket| socket.exists())).context(
            "the daemon did not start; run as root, and build qfabric first (cargo build --release -p qfabric-cli)",
        )?;
        Ok(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("qfabric.sock")
    }
}

/// A server under load. Dropping the value ends first the guard, then the server.
#[derive(Debug)]
pub(crate) struct Serving {
    _guard: Option<Running>,
    _server: Running,
}

impl Launcher {
    /// Finds the programs, and calibrates the work once, so that every server does the same work per request.
    pub(crate) fn new(options: &Options) -> Result<Launcher> {
        child::require_program("httperf", "httperf")?;
        child::require_program("wrk", "wrk")?;
        if options.busy.is_none() && options.servers.iter().any(|server| server.is_nginx()) {
            child::require_program("nginx", "nginx-light")?;
        }
        let qfabric = options.qfabric.clone().or_else(|| beside("qfabric").ok()).unwrap_or("qfabric".into());
        let needs_daemon = options.servers.iter().any(|server| server.uses_daemon());
        let daemon = needs_daemon.then(|| Daemon::start(&qfabric)).transpose()?;
        Ok(Launcher {
            site: nginx::Site::new(options.port, options.work.get())?,
            work: Work::of(Duration::from_nanos(options.work.get())),
            webserver: beside("qfabric-webserver")?,
            qfabric,
            daemon,
        })
    }

    /// The requests for a server.
    pub(crate) fn target(server: Server) -> Target<'static> {
        Target { page: "/work", header: server.is_nginx().then_some(nginx::HEADER) }
    }

    /// Starts a server and waits until it accepts connections.
    pub(crate) fn start(&self, server: Server, options: &Options) -> Result<Serving> {
        let address = SocketAddr::from(([127, 0, 0, 1], options.port));
        ensure!(TcpStream::connect(address).is_err(), "a program already listens at {address}; choose another --port");
        let running = if server.is_nginx() { self.nginx(options) } else { self.example(server, options) }?;
        wait_for(address)?;
        let guard = match server {
            Server::NginxGuard => Some(self.guard(options)?),
            _ => None,
        };
        Ok(Serving { _guard: guard, _server: running })
    }

    fn example(&self, server: Server, options: &Options) -> Result<Running> {
        let mut command = child::command(&self.webserver, options.server_cpu);
        command.args(["--listen", &format!("127.0.0.1:{}", options.port), "--patience", "60s"]);
        command.args(["--work-rounds", &self.work.rounds.to_string()]);
        command.args(["--connections", "20000", "--backend", backend(server)]);
        if let (true, Some(daemon)) = (server.uses_daemon(), &self.daemon) {
            command.arg("--socket").arg(daemon.socket());
        }
        if server == Server::EcallsControlled {
            command.args(["--overload", "lo"]);
        }
        Running::start_until(server.label(), &mut command, "listening on")
    }

    fn nginx(&self, options: &Options) -> Result<Running> {
        let mut command = child::command(Path::new("nginx"), options.server_cpu);
        Running::start("nginx", command.args(self.site.arguments()))
    }

    fn guard(&self, options: &Options) -> Result<Running> {
        let mut command = child::command_anywhere(&self.qfabric);
        command.args(["guard", "--json", "--listen", &format!("127.0.0.1:{}", options.port)]);
        Running::start_until("qfabric guard", &mut command, "{")
            .context("qfabric guard did not start; run as root, and build qfabric first (cargo build --release -p qfabric-cli) or use --qfabric")
    }
}

fn backend(server: Server) -> &'static str {
    match server {
        Server::Select => "select",
        Server::Poll => "poll",
        Server::Ecalls | Server::EcallsControlled => "ecalls",
        Server::Epoll | Server::Nginx | Server::NginxGuard => "epoll",
    }
}

/// Path of a program in the folder of this program.
fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.is_file(), "{} does not exist; build it first", path.display());
    Ok(path)
}

fn wait_for(address: SocketAddr) -> Result<()> {
    wait_until(|| TcpStream::connect(address).is_ok())
        .with_context(|| format!("no server accepts connections at {address}"))
}

fn wait_until(ready: impl Fn() -> bool) -> Result<()> {
    let until = Instant::now() + START_TIMEOUT;
    while !ready() {
        ensure!(Instant::now() < until, "not ready after {START_TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
