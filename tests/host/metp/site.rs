//! Two hosts with certificates, a contract and videos.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use qfabric_types::{DelayProfile, Nanos};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket};
use rustix::process::{Pid, Signal, kill_process};
use rustix::system::uname;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use tempfile::TempDir;

use crate::lan::Lan;

/// The service may be opened by `cam` only.
const ACCESS: &str =
    "hosts = ['cam', 'wall', 'guest']\n[[rule]]\nchannels = ['metp']\nhosts = ['cam']\nrights = ['connect']\n";
/// A rule by which the daemons make contracts with each other.
const OPEN: &str = "[[rule]]\nchannels = ['*']\nhosts = ['*']\nrights = ['create', 'join', 'send']\n";
const CONTRACT: &str = "
    name = 'film'
    delay = '250ms'
    reliability = 'partial'
    [video]
    frame_rate = 25
    frame_size = { I = '60kB', P = '30kB', B = '20kB' }
    pattern = 'IBBPBBPBBPBB'
    [local]
    interface = 'eth0'
    [peer]
    host = 'wall'
    interface = 'eth0'
";

/// The host of the sender is 0, of the receiver 1.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

pub(crate) struct Site {
    lan: Lan,
    folder: TempDir,
}

/// Counts the packets of the sender that reach the receiver's host, by code point.
pub(crate) struct Watch {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<u8, usize>>,
}

impl Watch {
    pub(crate) fn end(self) -> BTreeMap<u8, usize> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A `recv` that listens.
pub(crate) struct Receiver {
    pub(crate) address: String,
    running: Running,
}

/// A daemon on the sender's host, which has opened the link.
pub(crate) struct Daemon {
    running: Child,
    socket: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It puts the interface back as it was.
        let _ = kill_process(Pid::from_child(&self.running), Signal::TERM);
        let _ = self.running.wait();
    }
}

impl Daemon {
    fn command(&self, site: &Site, words: &[&str]) -> Output {
        let mut command = site.command(SENDER, words);
        command.env("QFABRIC_SOCKET", &self.socket).output().unwrap()
    }

    pub(crate) fn send(&self, site: &Site, to: &Receiver, file: &str, more: &[&str]) -> Output {
        self.send_with(site, to, "stream.toml", &[&[file], more].concat())
    }

    pub(crate) fn send_with(&self, site: &Site, to: &Receiver, contract: &str, more: &[&str]) -> Output {
        let words = ["metp", "send", "--to", &to.address, "--contract", contract, "--tls", "cam", "--host", "cam"];
        self.command(site, &[&words, more].concat())
    }

    /// The same as user 65534.
    pub(crate) fn send_as_nobody(&self, site: &Site, to: &Receiver, file: &str, more: &[&str]) -> Output {
        let words = ["metp", "send", "--to", &to.address, "--contract", "stream.toml", "--tls", "cam", "--host", "cam"];
        let mut command = site.command_of_nobody(&[&words, &[file][..], more].concat());
        command.env("QFABRIC_SOCKET", &self.socket).output().unwrap()
    }

    /// Asks for a stream of 20 Mbit/s whose messages of this size reach the receiver within 10 s.
    pub(crate) fn admit_by_delay(&self, site: &Site, bytes: usize) -> Output {
        let (host, message) = (site.lan.address(RECEIVER), format!("{bytes}B"));
        let stream = ["net", "stream", "add", "eth0", "--mark", "7", "--period", "40ms", "--size", "100000"];
        self.command(site, &[&stream[..], &["--measured", &host, "--message", &message, "--delay", "10s"]].concat())
    }

    /// The interface, as the daemon sees it.
    pub(crate) fn link(&self, site: &Site) -> Value {
        let shown = json(&self.command(site, &["net", "show", "eth0", "--json"]).stdout);
        if shown["streams"].is_array() { shown } else { shown["interfaces"][0].clone() }
    }

    /// What the daemon has promised: CPU time, memory and the number of streams; and its parts of joint contracts in force.
    pub(crate) fn promises(&self, site: &Site) -> (f64, f64, usize, usize) {
        let status = json(&self.command(site, &["status", "--json"]).stdout);
        let in_force =
            status["joint"].as_array().map_or(0, |all| all.iter().filter(|part| part["in_force"] == true).count());
        let memory = status["memory"]["promised_bytes"].as_f64().unwrap();
        let streams = self.link(site)["streams"].as_array().map_or(0, Vec::len);
        (status["guaranteed"].as_f64().unwrap(), memory, streams, in_force)
    }

    /// Whether the sender runs under a contract of its own.
    pub(crate) fn covers_sender(&self, site: &Site) -> bool {
        let status = json(&self.command(site, &["status", "--json"]).stdout);
        let all = status["applications"].as_array().cloned().unwrap_or_default();
        all.iter().any(|found| found["contract"]["name"] == "metp-send" && found["guaranteed"].as_f64() > Some(0.0))
    }

    /// From now on the link carries less than the contract asks for.
    pub(crate) fn narrow(&self, site: &Site) {
        let output = self.command(site, &["net", "link", "add", "eth0", "--rate", "2M"]);
        assert!(output.status.success(), "{}", said(&output));
    }
}

/// A command that runs, and what it writes.
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Site {
    /// None: not here, which is said.
    pub(crate) fn new() -> Option<Site> {
        let videos = videos()?;
        let lan = Lan::new(&[0, 0])?;
        let folder = tempfile::tempdir().unwrap();
        let site = Site { lan, folder };
        site.certificates();
        for (name, bytes) in videos {
            fs::write(site.file(name), bytes).unwrap();
        }
        fs::write(site.file("stream.toml"), CONTRACT).unwrap();
        fs::write(
            site.file("small.toml"),
            CONTRACT.replace("60kB", "600B").replace("30kB", "300B").replace("20kB", "200B"),
        )
        .unwrap();
        Some(site)
    }

    fn certificates(&self) {
        let done = |words: &str| {
            let output =
                Command::new(program()).args(words.split(' ')).current_dir(self.folder.path()).output().unwrap();
            assert!(output.status.success(), "{words}: {}", said(&output));
        };
        done("channel init-ca ca");
        done("channel issue cam wall guest --ca ca --out .");
        done("channel init-ca other-ca");
        done("channel issue stranger --ca other-ca --out stranger");
        for host in ["cam", "wall", "guest"] {
            fs::write(self.file(host).join("access.toml"), ACCESS).unwrap();
        }
        fs::write(self.file("stranger/access.toml"), "hosts = ['stranger', 'wall']").unwrap();
    }

    /// A stored profile of the receiver without measurements.
    pub(crate) fn empty_profile(&self) -> PathBuf {
        let (host, kernel) = (self.lan.address(RECEIVER), uname().release().to_string_lossy().into_owned());
        let file = self.file("qfabric/profiles").join(format!("net-{host}-eth0-{kernel}.json"));
        let interface = "eth0".parse().unwrap();
        let profile = DelayProfile { host, interface, kernel, min_rtt: Nanos::ZERO, points: Vec::new() };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, serde_json::to_vec(&profile).unwrap()).unwrap();
        file
    }

    /// Writes `pictures.m2v`, 200 I frames of one size, and `pictures.toml`, its contract. Returns the largest size.
    pub(crate) fn write_pictures(&self) -> usize {
        let codec = ["mpeg2video", "-g", "1", "-r", "50", "-q:v", "4"];
        let video = encode("mpeg2video", &codec).expect("the other videos could be made");
        let starts: Vec<usize> = (0..video.len() - 4).filter(|at| video[*at..].starts_with(&[0, 0, 1, 0])).collect();
        assert_eq!(starts.len(), 200);
        let largest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap() * 21 / 20;
        let contract = CONTRACT.replace("frame_rate = 25", "frame_rate = 100").replace("60kB", &format!("{largest}B"));
        let contract = contract.replace("IBBPBBPBBPBB", "I").replace(", P = '30kB', B = '20kB'", "");
        fs::write(self.file("pictures.m2v"), video).unwrap();
        fs::write(self.file("pictures.toml"), contract).unwrap();
        largest
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn daemon(&self) -> Daemon {
        self.start_daemon(SENDER, "daemon", "")
    }

    /// Daemons of the sender and of the receiver that make contracts with each other, and `joint.toml`, a contract over CPU,
    /// memory and bandwidth of both.
    pub(crate) fn partners(&self) -> [Daemon; 2] {
        let joint = CONTRACT.replace("[local]", "[network]\ntransport = 'metp'\n[local]\nmemory = '1MiB'");
        fs::write(self.file("joint.toml"), joint).unwrap();
        let addresses = [SENDER, RECEIVER].map(|host| format!("{}:7700", self.lan.address(host)));
        let daemons = [(SENDER, "cam"), (RECEIVER, "wall")].map(|(host, name)| {
            fs::write(self.file(name).join("access.toml"), ACCESS.to_owned() + OPEN).unwrap();
            let (tls, listen) = (self.file(name), &addresses[host]);
            let channels = format!(
                "[channels]\nenabled = true\ncontracts = true\nhost = '{name}'\nrealm = 'studio'\ntls = '{}'\n\
                 listen = ['{listen}']\nconnect = {addresses:?}\n[memory]\nglobal_reserve = '64M'\n\
                 [limits]\ncapacity = 0.8\n[limits.users]\n65534 = 0.8\n",
                tls.display()
            );
            self.start_daemon(host, &format!("daemon-{name}"), &channels)
        });
        let members = |daemon: &Daemon| {
            let groups = daemon.command(self, &["group", "ls", "--json"]).stdout;
            let groups = serde_json::from_slice::<Value>(&groups).unwrap_or_default();
            let found =
                groups.as_array().and_then(|all| all.iter().find(|group| group["name"] == "contracts").cloned());
            found.and_then(|group| group["members"].as_array().map(Vec::len)).unwrap_or(0)
        };
        while !daemons.iter().all(|daemon| members(daemon) == 2) {
            thread::sleep(Duration::from_millis(50));
        }
        daemons
    }

    fn start_daemon(&self, host: usize, name: &str, more: &str) -> Daemon {
        let (folder, config) = (self.file(name), self.file(&format!("{name}.toml")));
        fs::create_dir(&folder).unwrap();
        fs::write(&config, format!("[control]\nbudget = '0s'\n{more}")).unwrap();
        let words = ["daemon", "--config", config.to_str().unwrap(), "--directory", folder.to_str().unwrap()];
        let mut command = self.command(host, &words);
        let running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Daemon { running, socket: folder.join("qfabric.sock") };
        while !daemon.command(self, &["net", "link", "add", "eth0", "--rate", "100M"]).status.success() {
            thread::sleep(Duration::from_millis(100));
        }
        daemon
    }

    fn command(&self, host: usize, words: &[&str]) -> Command {
        self.command_through(host, &[], program(), words)
    }

    /// A command of user 65534 on the sender's host. The files, and a copy of the program, belong to this user from now on.
    fn command_of_nobody(&self, words: &[&str]) -> Command {
        let (folder, own) = (self.folder.path(), self.file("qfabric-of-nobody"));
        fs::copy(program(), &own).unwrap();
        for path in [folder, &self.file("daemon")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for path in ["qfabric-of-nobody", "cam"] {
            let done = Command::new("chown").args(["-R", "65534:65534"]).arg(self.file(path)).status();
            assert!(done.unwrap().success());
        }
        let through = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
        self.command_through(SENDER, &through, &own, words)
    }

    fn command_through(&self, host: usize, through: &[&str], program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.lan.namespace(host)]).args(through).arg(program).args(words);
        command.current_dir(self.folder.path()).env("QFABRIC_SOCKET", "/nonexistent").env_remove("QFABRIC_TLS");
        command.env("XDG_DATA_HOME", self.folder.path());
        command
    }

    fn command_of(&self, host: usize, name: &str, words: &[&str]) -> Command {
        let mut command = self.command(host, words);
        command.args(["--tls", name, "--host", name]);
        command
    }

    pub(crate) fn watch_receiver(&self) -> Watch {
        let (namespace, ended) = (self.lan.namespace(RECEIVER), Arc::new(AtomicBool::new(false)));
        let (over, (ready, is_ready)) = (ended.clone(), std::sync::mpsc::channel());
        let watch = move || {
            let network = fs::File::open(format!("/run/netns/{namespace}")).unwrap();
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            // Gets a copy of each UDP packet for this host, with its IP header.
            let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).unwrap();
            set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100))).unwrap();
            ready.send(()).unwrap();
            let (mut counts, mut packet) = (BTreeMap::new(), [0; 2_048]);
            while !over.load(Ordering::Relaxed) {
                if recv(&socket, &mut packet, RecvFlags::empty()).is_ok() {
                    *counts.entry(packet[1] >> 2).or_insert(0) += 1;
                }
            }
            counts
        };
        let thread = thread::spawn(watch);
        is_ready.recv().unwrap();
        Watch { ended, thread }
    }

    pub(crate) fn receive(&self, name: &str, more: &[&str]) -> Receiver {
        let mut command = self.command_of(RECEIVER, name, &["metp", "recv", "--listen", "7800"]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("listens on"), "{line}");
        let address = format!("{}:7800", self.lan.address(RECEIVER));
        Receiver { address, running: Running::new(child, stderr) }
    }

    pub(crate) fn start_send(&self, name: &str, to: &Receiver, file: &str, more: &[&str]) -> Running {
        self.start(name, &to.address, file, "stream.toml", more)
    }

    fn start(&self, name: &str, to: &str, file: &str, contract: &str, more: &[&str]) -> Running {
        let mut command = self.command_of(SENDER, name, &["metp", "send", "--to", to, "--contract", contract, file]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running::new(child, stderr)
    }

    pub(crate) fn send(&self, name: &str, to: &Receiver, file: &str, more: &[&str]) -> Output {
        self.start_send(name, to, file, more).end()
    }

    pub(crate) fn send_with(&self, name: &str, to: &Receiver, file: &str, contract: &str, more: &[&str]) -> Output {
        self.start(name, &to.address, file, contract, more).end()
    }

    pub(crate) fn send_to(&self, name: &str, to: &str, file: &str, more: &[&str]) -> Output {
        self.start(name, to, file, "stream.toml", more).end()
    }

    /// Cuts the cable of the receiver, or joins it again.
    /// Packets that have reached the receiver's host so far.
    pub(crate) fn received_packets(&self) -> u64 {
        let namespace = self.lan.namespace(RECEIVER);
        let words = ["netns", "exec", &namespace, "cat", "/proc/net/dev"];
        let output = Command::new("ip").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
        // Bytes, then packets.
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Waits until the sender's frames reach the receiver's host: a handshake has fewer packets, the video has more.
    pub(crate) fn until_frames_flow(&self, before: u64) {
        let since = Instant::now();
        while self.received_packets() < before + 60 {
            assert!(since.elapsed() < Duration::from_secs(120), "no frames flow");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn cut_receiver(&self, is_cut: bool) {
        self.lan.cable(RECEIVER, !is_cut);
    }

    /// From now on neither host sends or accepts larger packets.
    pub(crate) fn set_mtu(&self, mtu: u32) {
        for host in [SENDER, RECEIVER] {
            let words = format!("-n {} link set eth0 mtu {mtu}", self.lan.namespace(host));
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
        }
    }
}

impl Running {
    fn new(mut child: Child, stderr: BufReader<ChildStderr>) -> Running {
        let stdout = child.stdout.take().unwrap();
        Running { child, stdout: Some(read(stdout)), stderr: Some(read(stderr)) }
    }

    pub(crate) fn end(mut self) -> Output {
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }

    /// Presses Ctrl-C.
    pub(crate) fn interrupt(self) -> Output {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Receiver {
    pub(crate) fn end(self) -> Output {
        self.running.end()
    }

    /// Kills it; it can say nothing to the sender.
    pub(crate) fn kill(self) {
        kill_process(Pid::from_child(&self.running.child), Signal::KILL).unwrap();
        self.running.end();
    }
}

/// Reads to the end, in a thread.
fn read(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A command that was killed writes no end.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_qfabric"))
}

pub(crate) fn said(output: &Output) -> String {
    let code = output.status;
    format!(
        "{code}\n{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(500)])
    )
}

/// The JSON object in a command's output.
pub(crate) fn json(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let begin = text.find('{').unwrap_or_else(|| panic!("no JSON in {text}"));
    let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter();
    values.next().unwrap().unwrap()
}

/// Four seconds of video, H.264 and MPEG-2. None: ffmpeg is not here, which is said.
fn videos() -> Option<Vec<(&'static str, &'static [u8])>> {
    static MADE: OnceLock<Option<[Vec<u8>; 2]>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        Some([
            encode("h264", &["libx264", "-preset", "veryfast", "-bf", "2"])?,
            encode("mpeg2video", &["mpeg2video", "-q:v", "4", "-bf", "2"])?,
        ])
    });
    let Some([h264, mpeg2]) = made else {
        qfabric_linux::testing::skip("needs ffmpeg with libx264, and ffprobe");
        return None;
    };
    Some(vec![("video.264", h264.as_slice()), ("video.m2v", mpeg2.as_slice())])
}

fn encode(format: &str, codec: &[&str]) -> Option<Vec<u8>> {
    Command::new("ffprobe").arg("-version").output().ok()?;
    let source = "testsrc2=size=320x240:rate=25:duration=4";
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-f", "lavfi", "-i", source, "-g", "12", "-c:v"]).args(codec);
    let output = command.args(["-f", format, "-"]).output().ok()?;
    (output.status.success() && !output.stdout.is_empty()).then_some(output.stdout)
}
