//! Two hosts: network namespaces with a link, certificates, and a daemon in each.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Client;
use qfabric_netlab::{Lab, LabEnd, LabSettings};

use crate::children::{self, ChildGuard, Stop};
use crate::stage::Folder;

/// The host of the manager and of the clients.
pub(super) const MANAGER: usize = 0;
/// The host of the servers.
pub(super) const SERVERS: usize = 1;
const NAMES: [&str; 2] = ["manager", "servers"];
const ENDS: [LabEnd; 2] = [LabEnd::Local, LabEnd::Peer];
/// Port of the control frames of channels.
const PORT: u16 = 7_700;
/// Longest wait for the daemons to see each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// The hosts. Dropping it ends them.
pub(super) struct Hosts {
    /// Dropped first.
    daemons: Vec<ChildGuard>,
    lab: Lab,
    folder: Folder,
    qfabric: PathBuf,
}

impl Hosts {
    /// Makes certificates, starts the daemons and waits until they see each other.
    pub(super) fn start(stop: &Stop) -> Result<Hosts> {
        let qfabric = children::find_qfabric()?;
        let lab = Lab::new(&LabSettings::default()).context("cannot make the hosts' network")?;
        let mut hosts = Hosts { daemons: Vec::new(), lab, folder: Folder::make()?, qfabric };
        hosts.certify()?;
        for host in [MANAGER, SERVERS] {
            let daemon = hosts.daemon(host)?;
            hosts.daemons.push(daemon);
        }
        let end = Instant::now() + PATIENCE;
        while !(hosts.sees(MANAGER) && hosts.sees(SERVERS)) {
            stop.check()?;
            let ended = hosts.daemons.iter_mut().any(|daemon| !matches!(daemon.child().try_wait(), Ok(None)));
            if ended || Instant::now() > end {
                bail!("the hosts do not see each other: {}", hosts.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(hosts)
    }

    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        self.lab.address(ENDS[host])
    }

    /// A connection to a host's daemon.
    pub(super) fn client(&self, host: usize) -> Result<Client> {
        Ok(Client::connect_to(self.folder(host).join("qfabric.sock"))?)
    }

    /// Runs `body` in a thread in a host's network.
    pub(super) fn inside<T: Send>(&self, host: usize, body: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.lab.inside(ENDS[host], body)?)
    }

    fn folder(&self, host: usize) -> PathBuf {
        self.folder.0.join(NAMES[host])
    }

    /// As a user does it at the terminal.
    fn certify(&self) -> Result<()> {
        self.terminal(&["channel", "init-ca", "authority", "--realm", "demo"])?;
        self.terminal(&["channel", "issue", NAMES[0], NAMES[1], "--ca", "authority", "--out", "issued"])?;
        for host in [MANAGER, SERVERS] {
            fs::create_dir_all(self.folder(host))?;
            fs::rename(self.folder.0.join("issued").join(NAMES[host]), self.folder(host).join("tls"))?;
        }
        Ok(())
    }

    fn terminal(&self, words: &[&str]) -> Result<()> {
        let output = Command::new(&self.qfabric).args(words).current_dir(&self.folder.0).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`qfabric {}` failed: {}", words.join(" "), said.trim());
        Ok(())
    }

    fn daemon(&self, host: usize) -> Result<ChildGuard> {
        let folder = self.folder(host);
        let [manager, servers] = ENDS.map(|end| format!("{}:{PORT}", self.lab.address(end)));
        let listen = if host == MANAGER { &manager } else { &servers };
        let config = format!(
            "[channels]\nenabled = true\nhost = '{}'\nrealm = 'demo'\nlisten = ['{listen}']\n\
             connect = ['{manager}', '{servers}']\ntls = '{}'\n[control]\nbudget = '0ms'\nlock_memory = false\n",
            NAMES[host],
            folder.join("tls").display()
        );
        fs::write(folder.join("daemon.toml"), config)?;
        let log = File::create(folder.join("daemon.log"))?;
        let mut command = Command::new(&self.qfabric);
        command.arg("daemon").arg("--config").arg(folder.join("daemon.toml")).arg("--directory").arg(&folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let placed = if host == MANAGER { self.lab.command_local(command) } else { self.lab.command_peer(command) };
        children::spawn(placed.context("cannot enter a host's network")?)
    }

    fn sees(&self, host: usize) -> bool {
        let hosts = self.client(host).and_then(|client| Ok(client.hosts()?)).unwrap_or_default();
        hosts.len() == NAMES.len()
    }

    /// The last messages of the daemons.
    fn said(&self) -> String {
        let last = |host: usize| {
            let text = fs::read_to_string(self.folder(host).join("daemon.log")).unwrap_or_default();
            format!("{}: {}", NAMES[host], text.lines().last().unwrap_or("nothing"))
        };
        [MANAGER, SERVERS].map(last).join("; ")
    }
}
