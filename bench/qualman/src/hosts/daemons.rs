//! Two namespaces with an emulated link, certificates, and a daemon at each end, all started as a user starts them.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Client;
use qfabric_demo::children::{self, ChildGuard, Stop};
use qfabric_netlab::{Lab, LabEnd, LabSettings, LinkRate, LinkSettings, QueueLimit};
use qfabric_types::{BitRate, Nanos};

use crate::background::Player;

/// The lab's device at both ends.
pub(super) const INTERFACE: &str = "lab0";
/// The emulator is this much faster than the link that the daemons know, so that packets wait in the daemons' queues.
const EMULATOR: f64 = 1.02;
const CHANNEL_PORT: u16 = 7_700;
const PATIENCE: Duration = Duration::from_secs(60);
/// Attempts to open a link.
const ATTEMPTS: u32 = 4;
/// Each daemon may promise this part of the machine, which both share.
const CAPACITY: &str = "0.9";

/// A side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

impl End {
    const BOTH: [End; 2] = [End::Sender, End::Receiver];

    /// The name of the host.
    pub(super) fn name(self) -> &'static str {
        match self {
            End::Sender => "h0",
            End::Receiver => "h1",
        }
    }

    fn of_lab(self) -> LabEnd {
        match self {
            End::Sender => LabEnd::Local,
            End::Receiver => LabEnd::Peer,
        }
    }
}

/// The two hosts. Dropping it ends every process in them; so does the death of this process.
pub(super) struct Site {
    /// Asked to end first, so that they put everything back.
    daemons: Mutex<Vec<ChildGuard>>,
    lab: Lab,
    link: BitRate,
    program: PathBuf,
    part: Vec<String>,
    folder: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let daemons = std::mem::take(self.daemons.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
        for daemon in &daemons {
            if let Some(pid) = rustix::process::Pid::from_raw(daemon.id() as i32) {
                // Fails if it has ended.
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            }
        }
        let until = Instant::now() + Duration::from_secs(5);
        for mut daemon in daemons {
            while Instant::now() < until && daemon.ended("the daemon").is_ok_and(|ended| !ended) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Site {
    /// Makes the link and the certificates; no daemon runs yet.
    pub(super) fn new(player: &Player, folder: &Path, rate: BitRate, seed: u64) -> Result<Site> {
        let link = LinkSettings {
            rate: LinkRate::Constant(BitRate::new((EMULATOR * rate.as_f64()) as u64)),
            delay: Nanos::from_millis(1),
            queue: QueueLimit::Time(Nanos::from_millis(100)),
            ..LinkSettings::default()
        };
        let lab = Lab::new(&LabSettings::symmetric(link, seed)).context("the experiments on two hosts need a link")?;
        let site = Site {
            daemons: Mutex::default(),
            lab,
            link: rate,
            program: player.0.clone(),
            part: player.1.clone(),
            folder: folder.to_owned(),
        };
        site.run(Command::new(&site.program).args(["channel", "init-ca", "ca", "--realm", "qualman"]))?;
        let names = End::BOTH.map(End::name);
        let mut issue = Command::new(&site.program);
        issue.args(["channel", "issue"]).args(names).args(["--ca", "ca", "--out", "issued"]);
        site.run(&mut issue)?;
        Ok(site)
    }

    /// The receivers' address.
    pub(super) fn address(&self) -> Ipv4Addr {
        self.lab.address(LabEnd::Peer)
    }

    /// Why the run does not count; empty if it does.
    pub(super) fn invalid(&self) -> Result<Vec<String>> {
        Ok(self.lab.report()?.reasons)
    }

    /// A process of this room at an end.
    pub(super) fn command(&self, part: &str, words: &[String], end: End) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(&self.part).arg(part).arg(self.tls(end)).arg(end.name()).arg(self.socket(end)).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        self.enter(command, end)
    }

    /// Starts both daemons, opens the link at both, and waits until they make contracts with each other.
    pub(super) fn start_daemons(&self, stop: &Stop) -> Result<[Client; 2]> {
        for end in End::BOTH {
            self.start_daemon(end)?;
        }
        let clients = [self.client(End::Sender, stop)?, self.client(End::Receiver, stop)?];
        for end in End::BOTH {
            let mut open = Command::new(&self.program);
            open.args(["net", "link", "add", INTERFACE, "--htb", "--rate"]).arg(self.link.get().to_string());
            open.env("QFABRIC_SOCKET", self.socket(end));
            let mut open = self.enter(open, end)?;
            // A daemon that has just started may need longer than a request may take.
            let opened = (1..ATTEMPTS).any(|_| self.run(&mut open).is_ok());
            if !opened {
                self.run(&mut open)?;
            }
        }
        self.wait_until("the hosts meet", stop, || self.have_met())?;
        Ok(clients)
    }

    fn start_daemon(&self, end: End) -> Result<()> {
        let folder = self.folder.join(end.name());
        fs::create_dir_all(&folder)?;
        let peers = [LabEnd::Local, LabEnd::Peer].map(|end| format!("{}:{CHANNEL_PORT}", self.lab.address(end)));
        let listen = format!("{}:{CHANNEL_PORT}", self.lab.address(end.of_lab()));
        let config = format!(
            "[channels]\nenabled = true\nhost = '{}'\ntls = '{}'\nrealm = 'qualman'\nlisten = ['{listen}']\n\
             connect = {peers:?}\ncontracts = true\n[control]\nbudget = '0ms'\nlock_memory = false\n[limits]\n\
             capacity = {CAPACITY}\n[limits.users]\n65534 = {CAPACITY}\n[log]\nfilter = 'warn'\n",
            end.name(),
            self.tls(end).display()
        );
        fs::write(folder.join("daemon.toml"), config)?;
        let log = File::create(folder.join("log"))?;
        let mut command = Command::new(&self.program);
        command.arg("daemon").arg("--config").arg(folder.join("daemon.toml")).arg("--directory").arg(&folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let daemon = children::spawn(self.enter(command, end)?)?;
        self.daemons.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(daemon);
        Ok(())
    }

    fn client(&self, end: End, stop: &Stop) -> Result<Client> {
        let mut client = None;
        let answers = || {
            client = Client::connect_to(self.socket(end)).ok().filter(|client| client.status().is_ok());
            Ok(client.is_some())
        };
        self.wait_until("a daemon answers", stop, answers)?;
        client.context("the daemon has gone")
    }

    /// Whether each host sees both in the group of contracts.
    fn have_met(&self) -> Result<bool> {
        let sees = |end: End| -> Result<bool> {
            let mut list = Command::new(&self.program);
            list.args(["group", "ls", "--json"]).env("QFABRIC_SOCKET", self.socket(end)).stderr(Stdio::null());
            let output = list.output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(End::BOTH.iter().all(|other| text.contains(&format!("\"{}\"", other.name()))))
        };
        Ok(sees(End::Sender)? && sees(End::Receiver)?)
    }

    fn wait_until(&self, what: &str, stop: &Stop, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !holds()? {
            stop.check()?;
            if Instant::now() > until {
                bail!("waited {PATIENCE:?} until {what}; the daemons say: {}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn logs(&self) -> String {
        let log = |end: End| fs::read_to_string(self.folder.join(end.name()).join("log")).unwrap_or_default();
        End::BOTH.map(log).join("\n")
    }

    fn tls(&self, end: End) -> PathBuf {
        self.folder.join("issued").join(end.name())
    }

    fn socket(&self, end: End) -> PathBuf {
        self.folder.join(end.name()).join("qfabric.sock")
    }

    fn enter(&self, command: Command, end: End) -> Result<Command> {
        Ok(match end {
            End::Sender => self.lab.command_local(command)?,
            End::Receiver => self.lab.command_peer(command)?,
        })
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        let output = command.current_dir(&self.folder).output().context("cannot start this program again")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        ensure!(output.status.success(), "qfabric {}: {}", words.join(" "), said.trim());
        Ok(())
    }
}
