//! A host: a namespace, certificates made as a user makes them, a daemon, and what can be done with it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Index;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qfabric_client::Client;
use qfabric_client::channel::{ChannelInfo, Channels};
use qfabric_linux::testing::{live_lock, may_reserve};
use tempfile::TempDir;

pub(crate) use crate::answer::Answer;
use crate::lan::Lan;

/// Ends a test that hangs; nothing takes this long, not even beside eight hogs per core.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Everybody may do everything.
pub(crate) const OPEN: &str =
    "[[rule]]\nchannels = ['*']\nhosts = ['*']\nrights = ['create', 'join', 'send', 'install']\n";

/// A network of hosts with a daemon each; the rest of the machine's live tests wait.
pub(crate) struct Site {
    hosts: Vec<Host>,
    pub lan: Lan,
    pub folder: TempDir,
    _alone: File,
}

/// One host.
pub(crate) struct Host {
    pub name: String,
    pub folder: PathBuf,
    namespace: String,
    /// Options of `nsenter` and an environment by which its clocks differ from the machine's.
    clock: (Vec<String>, Vec<(&'static str, OsString)>),
    daemon: Option<Child>,
}

impl Site {
    /// Hosts on these switches, not started yet; with an authority and a certificate for each. None: not here.
    pub(crate) fn new(sides: &[usize]) -> Option<Site> {
        if !may_reserve() {
            return None;
        }
        let alone = live_lock();
        let (lan, folder) = (Lan::new(sides)?, tempfile::tempdir().unwrap());
        let mut site = Site { hosts: Vec::new(), lan, folder, _alone: alone };
        let names: Vec<_> = (0..sides.len()).map(|host| format!("h{host}")).collect();
        site.cli(&["channel", "init-ca", "authority", "--realm", "studio"]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        site.cli(&[&["channel", "issue"][..], &names, &["--ca", "authority", "--out", "issued"]].concat());
        names.iter().enumerate().for_each(|(host, name)| site.add(host, name));
        Some(site)
    }

    /// The same, all of one another's peers and there.
    pub(crate) fn started(sides: &[usize]) -> Option<Site> {
        let mut site = Site::new(sides)?;
        (0..sides.len()).for_each(|host| site.start(host, ""));
        site.all_meet();
        Some(site)
    }

    /// The same, and they let each other install filters.
    pub(crate) fn trusting(sides: &[usize]) -> Option<Site> {
        let mut site = Site::new(sides)?;
        let names: Vec<_> = site.hosts.iter().map(|host| host.name.clone()).collect();
        site.access(&format!("hosts = {names:?}\n{OPEN}"));
        (0..sides.len()).for_each(|host| site.start(host, ""));
        site.all_meet();
        Some(site)
    }

    /// Its folder is copied to the host.
    fn add(&mut self, host: usize, name: &str) {
        let (folder, namespace) = (self.folder.path().join(name), self.lan.namespace(host));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::rename(self.folder.path().join("issued").join(name), folder.join("tls")).unwrap();
        let clock = Default::default();
        self.hosts.push(Host { name: name.to_owned(), folder, namespace, clock, daemon: None });
    }

    /// From now on the processes that are started on a host have other clocks.
    pub(crate) fn set_clock(&mut self, host: usize, options: Vec<String>, environment: Vec<(&'static str, OsString)>) {
        self.hosts[host].clock = (options, environment);
    }

    /// A command that needs no daemon.
    pub(crate) fn cli(&self, words: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
        Answer::of(command.args(words).current_dir(self.folder.path())).expect(0, &[]);
    }

    /// The access list of all hosts.
    pub(crate) fn access(&self, text: &str) {
        for host in &self.hosts {
            std::fs::write(host.folder.join("tls/access.toml"), text).unwrap();
        }
    }

    /// Starts a host that has all others for peers, with more lines for the section `[channels]`.
    pub(crate) fn start(&mut self, host: usize, more: &str) {
        let addresses: Vec<_> = (0..self.hosts.len()).map(|host| format!("{}:7700", self.lan.address(host))).collect();
        self.start_with(host, &format!("connect = {addresses:?}\n{more}"));
    }

    /// Starts a host with these lines, which say whom it connects to.
    pub(crate) fn start_with(&mut self, host: usize, more: &str) {
        self.start_in(host, "studio", more);
    }

    /// The same, in another realm.
    pub(crate) fn start_in(&mut self, host: usize, realm: &str, more: &str) {
        let listen = format!("{}:7700", self.lan.address(host));
        self.hosts[host].start(&format!("realm = '{realm}'\nlisten = ['{listen}']\n{more}"));
    }

    /// A host whose daemon ends at once, and says all that.
    #[track_caller]
    pub(crate) fn refused(&mut self, host: usize, said: &[&str]) {
        self.refused_with(host, "", said);
    }

    /// The same, with more lines for the section `[channels]`.
    #[track_caller]
    pub(crate) fn refused_with(&mut self, host: usize, more: &str, said: &[&str]) {
        let listen = format!("{}:7700", self.lan.address(host));
        let host = &mut self.hosts[host];
        host.spawn(&format!("realm = 'studio'\nlisten = ['{listen}']\n{more}"));
        let mut ended = None;
        eventually("it ends", || {
            ended = host.daemon.as_mut().unwrap().try_wait().unwrap();
            ended.is_some()
        });
        let log = host.log();
        assert!(!ended.unwrap().success() && said.iter().all(|part| log.contains(part)), "{said:?}: {log}");
        let _ = std::fs::remove_file(host.folder.join("log"));
    }

    /// Until every host that runs sees every other one that does.
    pub(crate) fn all_meet(&self) {
        let running = || self.hosts.iter().filter(|host| host.daemon.is_some());
        let all: Vec<&str> = running().map(|host| host.name.as_str()).collect();
        eventually("all see all", || running().all(|host| host.sees() == all));
    }

    pub(crate) fn kill(&mut self, host: usize) {
        self.hosts[host].kill();
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

impl Index<usize> for Site {
    type Output = Host;

    fn index(&self, host: usize) -> &Host {
        &self.hosts[host]
    }
}

impl Host {
    /// Starts the daemon and waits until it answers.
    fn start(&mut self, channels: &str) {
        self.spawn(channels);
        eventually("the daemon answers", || {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{}: {ended:?}\n{}", self.name, self.log());
            self.run(&["status"]).code == 0
        });
    }

    fn spawn(&mut self, channels: &str) {
        let tls = self.folder.join("tls");
        let config = format!(
            "[channels]\nenabled = true\nhost = '{}'\ntls = '{}'\n{channels}\n[control]\nbudget = '0ms'\n\
             lock_memory = false\n[api]\ntimeout = '120s'\n\
             [log]\nfilter = 'warn,zenoh_link_tls=error,qfabric_daemon::channels=info,qfabric_link=warn'\n",
            self.name,
            tls.display()
        );
        std::fs::write(self.folder.join("daemon.toml"), config).unwrap();
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = self.inside(&["daemon"]);
        command.arg("--config").arg(self.folder.join("daemon.toml")).arg("--directory").arg(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
    }

    /// What the daemon has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// When it last logged that, in seconds since midnight.
    pub(crate) fn logged(&self, said: &str) -> Option<f64> {
        let log = self.log();
        let line = log.lines().rev().find(|line| line.contains(said))?;
        let parts = line.split(['T', 'Z']).nth(1)?.split(':').map(str::parse::<f64>);
        Some(parts.map_while(Result::ok).fold(0.0, |sum, part| sum * 60.0 + part))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("qfabric.sock")
    }

    /// A command in the network of the host; it does not find the daemon by itself.
    pub(crate) fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let (options, environment) = &self.clock;
        command.arg(format!("--net=/run/netns/{}", self.namespace)).args(options).arg(env!("CARGO_BIN_EXE_qfabric"));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.args(words).current_dir(&self.folder);
        command
    }

    /// A command of the terminal.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
        command.args(words).arg("--socket").arg(self.socket()).current_dir(&self.folder);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        Answer::of(&mut self.command(words))
    }

    pub(crate) fn client(&self) -> Client {
        let client = Client::connect_to(self.socket()).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        client.with_patience(PATIENCE)
    }

    /// A connection for events.
    pub(crate) fn channels(&self) -> Channels {
        Channels::connect(&self.client()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The hosts it knows, itself included.
    pub(crate) fn sees(&self) -> Vec<String> {
        let hosts = Client::connect_to(self.socket()).and_then(|client| client.hosts()).unwrap_or_default();
        hosts.into_iter().map(|host| host.host.to_string()).collect()
    }

    pub(crate) fn show(&self, channel: &str) -> Option<ChannelInfo> {
        self.client().channel(&channel.parse().unwrap()).ok()
    }

    /// A number of `/metrics`, by its name without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.http("GET /metrics", "");
        let values = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.split(' ').next_back());
        values.filter_map(|value| value.parse::<f64>().ok()).sum()
    }

    /// What the API answers to a request, such as `GET /v1/status`: its first line, its headers, its body.
    pub(crate) fn http(&self, request: &str, body: &str) -> String {
        let mut socket = UnixStream::connect(self.socket()).unwrap();
        let length = body.len();
        let headers = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {length}");
        socket.write_all(format!("{request} HTTP/1.1\r\n{headers}\r\n\r\n{body}").as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args(["-s", signal, &self.pid().to_string()]).status().unwrap().success());
    }

    /// Open files, and resident memory in KiB.
    pub(crate) fn holds(&self) -> (usize, u64) {
        let of = |file: &str| Path::new("/proc").join(self.pid().to_string()).join(file);
        let status = std::fs::read_to_string(of("status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        (std::fs::read_dir(of("fd")).unwrap().count(), memory.split_whitespace().next().unwrap().parse().unwrap())
    }

    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Seconds since midnight, as [`Host::logged`] counts them.
pub(crate) fn time_of_day() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() % 86_400.0
}

/// Looks every 10 ms; how long it took.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    since.elapsed()
}
