//! Two hosts: network namespaces joined by a veth pair, certificates made with the users' command, and a daemon in
//! each.
//!
//! The namespaces have no names: a process holds each one, and with the last process it ends. So runs side by side do
//! not collide, and nothing is left behind even if the bench itself is killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::Process;

/// First three numbers of both hosts' addresses.
pub(crate) const NET: &str = "10.79.0";
/// Timeout for hosts to start, to find each other, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Scheduling policy of the applications, and of all processes of a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The kernel's default.
    Fair,
    /// SCHED_FIFO 1, the default of the daemon's event threads.
    Fifo,
}

/// Two hosts and their shared folder.
pub(crate) struct Site {
    pub left: Host,
    pub right: Host,
    pub folder: TempDir,
    pub program: PathBuf,
}

/// A network namespace and its daemon.
pub(crate) struct Host {
    pub name: &'static str,
    pub address: String,
    pub folder: PathBuf,
    daemon: Option<Child>,
    /// Ends when its input closes, and the namespace with it.
    holder: Process,
}

impl Site {
    /// Starts both hosts, with additional lines for the section `[channels]` of the daemons, and waits until they see
    /// each other.
    pub(crate) fn start(program: &Path, more: &str) -> Result<Site> {
        ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: run it with sudo");
        let folder = tempfile::Builder::new().prefix("qfabric-product-").tempdir()?;
        let (left, right) = (Host::new("left", 1, folder.path())?, Host::new("right", 2, folder.path())?);
        let mut site = Site { left, right, folder, program: program.to_owned() };
        site.join()?;
        site.certify()?;
        let peers = [site.left.listens_at(), site.right.listens_at()];
        site.left.start_daemon(program, &peers, more)?;
        site.right.start_daemon(program, &peers, more)?;
        eventually("the daemons see each other", || {
            [&site.left, &site.right].iter().all(|host| host.client().is_ok_and(|client| sees_both(&client)))
        })
        .with_context(|| format!("{}\n{}", site.left.log(), site.right.log()))?;
        Ok(site)
    }

    /// Joins the namespaces with one cable.
    fn join(&self) -> Result<()> {
        let far = self.right.holder.id().to_string();
        run(self
            .left
            .enter("ip")
            .args(["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &far]))?;
        for host in [&self.left, &self.right] {
            run(host.enter("ip").args(["link", "set", "lo", "up"]))?;
            run(host.enter("ip").args(["addr", "add", &format!("{}/24", host.address), "dev", "eth0"]))?;
            run(host.enter("ip").args(["link", "set", "eth0", "up"]))?;
        }
        Ok(())
    }

    fn certify(&self) -> Result<()> {
        let words = [
            &["channel", "init-ca", "authority", "--realm", "bench"][..],
            &["channel", "issue", "left", "right", "--ca", "authority", "--out", "."],
        ];
        words.iter().try_for_each(|words| run(Command::new(&self.program).args(*words).current_dir(&self.folder)))
    }
}

fn sees_both(client: &Client) -> bool {
    client.hosts().is_ok_and(|hosts| hosts.len() == 2)
}

impl Host {
    fn new(name: &'static str, number: u8, folder: &Path) -> Result<Host> {
        let mut holder = Command::new("unshare");
        let mut holder = Process::start(holder.args(["--net", "sh", "-c", "echo ready; exec cat"]))?;
        holder.line("ready")?;
        Ok(Host { name, address: format!("{NET}.{number}"), folder: folder.join(name), daemon: None, holder })
    }

    /// Address beside the rivals' port, 7700.
    fn listens_at(&self) -> String {
        format!("{}:7710", self.address)
    }

    fn enter(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        command.args(["setpriv", "--pdeathsig", "KILL"]).arg(program);
        command
    }

    /// Command that runs a program on this host.
    pub(crate) fn command(&self, policy: Policy, program: &Path) -> Command {
        match policy {
            Policy::Fair => self.enter(program),
            Policy::Fifo => {
                let mut command = self.enter("chrt");
                command.args(["-f", "1"]).arg(program);
                command
            }
        }
    }

    /// The folder has the certificates; the daemon puts its files there too.
    fn start_daemon(&mut self, program: &Path, peers: &[String], more: &str) -> Result<()> {
        // No reservation for the control thread: this bench does not use it, and other daemons may run on the
        // machine.
        let config = format!(
            "[channels]\nenabled = true\nrealm = 'bench'\nhost = '{}'\ntls = '{}'\nlisten = ['{}']\nconnect = {peers:?}\n{more}\n\
             [control]\nbudget = '0ms'\n[log]\nfilter = 'warn'\n",
            self.name,
            self.folder.display(),
            self.listens_at(),
        );
        let (file, log) = (self.folder.join("daemon.toml"), File::create(self.folder.join("log"))?);
        fs::write(&file, config)?;
        let mut command = self.enter(program);
        command.arg("daemon").arg("--config").arg(file).arg("--directory").arg(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemon = Some(command.spawn()?);
        Ok(())
    }

    /// Process id of the host's daemon, while it runs.
    pub(crate) fn daemon_id(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Socket of the host's daemon.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("qfabric.sock")
    }

    /// Socket of the host's relay.
    pub(crate) fn relay(&self) -> PathBuf {
        self.folder.join("relay")
    }

    fn client(&self) -> Result<Client> {
        Ok(Client::connect_to(self.socket())?)
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        format!("{}: {log}", self.name)
    }

    fn stop_daemon(&mut self) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        kill_process(Pid::from_child(&daemon), Signal::TERM)?;
        let ended = eventually("the daemon ends", || daemon.try_wait().is_ok_and(|status| status.is_some()));
        if ended.is_err() {
            daemon.kill()?;
            daemon.wait()?;
        }
        ended
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = self.stop_daemon() {
            eprintln!("{}: {error:#}", self.name);
        }
    }
}

/// Checks the condition every 10 ms.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let since = Instant::now();
    while !condition() {
        if since.elapsed() > PATIENCE {
            bail!("timeout after {PATIENCE:?} while waiting until {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
