//! Two hosts: network namespaces, certificates, daemons, and the programs that talk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Client;
use qfabric_netlab::{Lab, LabEnd, LabSettings, LinkChange, LinkDirection, LinkRate};
use qfabric_types::BitRate;
use rustix::process::{Pid, Signal, kill_process};

use super::measure::{Series, ServerSecond, ShownPicture};
use super::priority::Managers;
use super::scenes::{Adaptation, Scene};
use super::shaped::Shaped;
use crate::children::{self, ChildGuard, Stop};

pub(super) const SERVER: usize = 0;
pub(super) const CLIENT: usize = 1;
const NAMES: [&str; 2] = ["server", "client"];
/// Port of the control frames of channels; their data has the next one.
const PORT: u16 = 7_700;
/// Longest wait for daemons, for hosts to see each other, and for the first picture.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which programs end by themselves.
const END: Duration = Duration::from_secs(10);

/// The hosts. Dropping it ends them.
pub(super) struct Site {
    /// Dropped first.
    daemons: Vec<ChildGuard>,
    lab: Lab,
    folder: crate::stage::Folder,
    qfabric: PathBuf,
    conference: PathBuf,
    cpus: usize,
}

impl Site {
    /// Makes certificates, starts the daemons and waits until they see each other.
    pub(super) fn start(scene: &Scene, stop: &Stop) -> Result<Site> {
        let (qfabric, conference) = (children::find_qfabric()?, children::find_conference()?);
        let lab = Lab::new(&LabSettings::default()).context("cannot make the hosts' network")?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let folder = crate::stage::Folder::make()?;
        let mut site = Site { daemons: Vec::new(), lab, folder, qfabric, conference, cpus };
        site.certify()?;
        for host in [SERVER, CLIENT] {
            let daemon = site.daemon(host, scene)?;
            site.daemons.push(daemon);
        }
        site.wait(stop, "the hosts do not see each other", |site| site.sees(SERVER) && site.sees(CLIENT))?;
        Ok(site)
    }

    /// The CPU of a host's conference and of its spinning programs. A daemon runs on all CPUs.
    pub(super) fn cpu(&self, host: usize) -> usize {
        host % self.cpus
    }

    fn folder(&self, host: usize) -> PathBuf {
        self.folder.0.join(NAMES[host])
    }

    fn socket(&self, host: usize) -> PathBuf {
        self.folder(host).join("qfabric.sock")
    }

    fn terminal(&self, words: &[&str]) -> Result<()> {
        let output = Command::new(&self.qfabric).args(words).current_dir(&self.folder.0).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`qfabric {}` failed: {}", words.join(" "), said.trim());
        Ok(())
    }

    /// Starts the scenario's policy on both hosts. It looks at the pressure on their processors.
    /// `shaped`: the stream of packets at the server, which its policy reads.
    fn start_policies(&self, scene: &Scene, shaped: Option<&Shaped>) -> Result<()> {
        for host in [SERVER, CLIENT] {
            let stream = shaped.filter(|_| host == SERVER).map(Shaped::name);
            let Some(policy) = scene.policy(stream) else { return Ok(()) };
            let policy: Vec<&str> = policy.iter().map(String::as_str).collect();
            let socket = self.socket(host);
            let socket = ["--socket", &*socket.to_string_lossy()];
            self.terminal(&[&["monitor", "set", "cpu.pressure"][..], &socket].concat())?;
            self.terminal(&[&["policy", "start"][..], &policy, &socket].concat())?;
        }
        Ok(())
    }

    /// As a user does it at the terminal.
    fn certify(&self) -> Result<()> {
        self.terminal(&["channel", "init-ca", "authority", "--realm", "demo"])?;
        self.terminal(&["channel", "issue", NAMES[0], NAMES[1], "--ca", "authority", "--out", "issued"])?;
        for host in [SERVER, CLIENT] {
            fs::create_dir_all(self.folder(host))?;
            fs::rename(self.folder.0.join("issued").join(NAMES[host]), self.folder(host).join("tls"))?;
        }
        Ok(())
    }

    /// A program in the host's network, with its messages in a file.
    fn command(&self, host: usize, program: &Path, messages: &str) -> Result<Command> {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stderr(self.file(host, messages)?);
        let placed = if host == SERVER { self.lab.command_local(command) } else { self.lab.command_peer(command) };
        placed.context("cannot enter a host's network")
    }

    fn file(&self, host: usize, name: &str) -> Result<File> {
        let path = self.folder(host).join(name);
        File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn daemon(&self, host: usize, scene: &Scene) -> Result<ChildGuard> {
        let folder = self.folder(host);
        let [server, client] = [LabEnd::Local, LabEnd::Peer].map(|end| format!("{}:{PORT}", self.lab.address(end)));
        let listen = if host == SERVER { &server } else { &client };
        // One connection carries the data if only the client connects.
        let connect = match (scene.has_stream(), host) {
            (true, SERVER) => String::new(),
            (true, _) => format!("'{server}'"),
            (false, _) => format!("'{server}', '{client}'"),
        };
        // It serves programs that are bound to a CPU, as this host's are.
        let mechanism = if scene.reserves() { "[mechanism]\nname = 'dispatcher'\nslot = '5ms'\n" } else { "" };
        let config = format!(
            "[channels]\nenabled = true\nhost = '{}'\nrealm = 'demo'\nlisten = ['{listen}']\nconnect = [{connect}]\n\
             tls = '{}'\n[control]\nbudget = '0ms'\nlock_memory = false\n{mechanism}",
            NAMES[host],
            folder.join("tls").display()
        );
        fs::write(folder.join("daemon.toml"), config)?;
        let mut command = self.command(host, &self.qfabric, "daemon.log")?;
        command.arg("daemon").arg("--config").arg(folder.join("daemon.toml")).arg("--directory").arg(&folder);
        command.stdout(self.file(host, "daemon.log")?);
        children::spawn(command)
    }

    fn sees(&self, host: usize) -> bool {
        let hosts = Client::connect_to(self.socket(host)).and_then(|client| client.hosts()).unwrap_or_default();
        hosts.len() == NAMES.len()
    }

    /// Fails with what the hosts said if `condition` does not hold in time.
    fn wait(&mut self, stop: &Stop, what: &str, condition: impl Fn(&Site) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !condition(self) {
            stop.check()?;
            let ended = self.daemons.iter_mut().any(|daemon| !matches!(daemon.child().try_wait(), Ok(None)));
            if ended || Instant::now() > end {
                bail!("{what}: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The last messages of all programs.
    fn said(&self) -> String {
        let files = [SERVER, CLIENT].into_iter().flat_map(|host| {
            ["daemon.log", "conference.log"].map(|name| (NAMES[host], name, self.folder(host).join(name)))
        });
        let last = files.filter_map(|(host, name, path)| {
            let text = fs::read_to_string(path).ok().filter(|text| !text.is_empty())?;
            let lines: Vec<&str> = text.lines().rev().take(4).collect();
            Some(format!("{host}, {name}: {}", lines.into_iter().rev().collect::<Vec<_>>().join(" | ")))
        });
        last.collect::<Vec<_>>().join("; ")
    }

    /// Starts the conference, waits until the client shows pictures, and starts the policies.
    pub(super) fn talk(mut self, scene: &Scene, rate: u32, stop: &Stop) -> Result<Talk> {
        let rate = rate.to_string();
        let program = |host: usize, words: &[&str]| -> Result<ChildGuard> {
            let mut command = self.command(host, Path::new("taskset"), "conference.log")?;
            command
                .arg("-c")
                .arg(self.cpu(host).to_string())
                .arg(&self.conference)
                .args(words)
                .args(["--fps", &rate, "--json", "--socket"])
                .arg(self.socket(host));
            command.stdout(self.file(host, "seconds.jsonl")?);
            children::spawn(command)
        };
        let log = self.folder(CLIENT).join("shown.jsonl");
        let serve = [vec!["serve", "test", "--level", scene.level()], scene.server_options()].concat();
        let server = program(SERVER, &serve)?;
        let log = log.to_string_lossy();
        let join = [vec!["join", NAMES[SERVER], "--log", &log], scene.client_options()].concat();
        let client = program(CLIENT, &join)?;
        let seconds = self.folder(CLIENT).join("seconds.jsonl");
        let shows = move |_: &Site| {
            let text = fs::read_to_string(&seconds).unwrap_or_default();
            text.lines().last().is_some_and(|line| line.contains("\"shown\":") && !line.contains("\"shown\":0,"))
        };
        self.wait(stop, "the client shows no picture", shows)?;
        let shaped = scene.has_stream().then(|| self.shape()).transpose()?;
        self.start_policies(scene, shaped.as_ref())?;
        let reports = self.folder(CLIENT).join("seconds.jsonl");
        let managers =
            (scene.adaptation == Adaptation::Priority).then(|| Managers::new(reports, [server.id(), client.id()]));
        Ok(Talk { programs: [client, server], managers, shaped, site: self })
    }

    /// Puts the data of channels that leaves the server's host into a stream of packets.
    fn shape(&self) -> Result<Shaped> {
        Shaped::begin(&self.lab, Client::connect_to(self.socket(SERVER))?, PORT + 1)
    }
}

/// A conference that runs.
pub(super) struct Talk {
    /// Dropped first.
    programs: [ChildGuard; 2],
    /// Only for [`Adaptation::Priority`].
    managers: Option<Managers>,
    /// Only with [`Scene::has_stream`].
    shaped: Option<Shaped>,
    site: Site,
}

impl Talk {
    /// Sets the rate of the link from the server to the client; none: it is not limited. With a stream of packets, the
    /// server's host limits itself.
    pub(super) fn limit_link(&self, rate: Option<BitRate>) -> Result<()> {
        if let Some(shaped) = &self.shaped {
            return shaped.limit(rate);
        }
        let rate = Some(rate.map_or(LinkRate::Unlimited, LinkRate::Constant));
        let change = LinkChange { rate, ..LinkChange::default() };
        self.site.lab.change(LinkDirection::Up, change).context("cannot limit the link")
    }

    /// Lets the managers of priorities look at the newest report.
    pub(super) fn look(&self) {
        self.managers.iter().for_each(Managers::look);
    }

    /// Ends the programs and reads what they have logged.
    pub(super) fn end(mut self, begin: u64, seconds: f64) -> Result<Series> {
        self.managers.take().map_or(Ok(()), Managers::end)?;
        for program in &mut self.programs {
            if let Some(pid) = Pid::from_raw(program.id() as i32) {
                kill_process(pid, Signal::TERM).context("a program of the conference has ended")?;
            }
        }
        let end = Instant::now() + END;
        for program in &mut self.programs {
            while !program.ended("qfabric-conference").with_context(|| self.site.said())? {
                ensure!(Instant::now() < end, "a program of the conference does not end: {}", self.site.said());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let shown: Vec<ShownPicture> = lines(&self.site.folder(CLIENT).join("shown.jsonl"))?;
        let server: Vec<ServerSecond> = lines(&self.site.folder(SERVER).join("seconds.jsonl"))?;
        Ok(Series::new(begin, seconds, &shown, &server))
    }
}

fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))).collect()
}
