//! A host's process: opens a link, holds the channel `video`, sends twenty events a second on it and prints what it
//! hears, each line with the time in microseconds.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant as Moment, SystemTime, UNIX_EPOCH};

use qfabric_channel::{
    Config as NodeConfig, EventType, Frame, Incarnation, Node, Notice, Output, SinkSpec, SourceId, SourceSpec, Spec,
    Submission, Taken,
};
use qfabric_link::{Config, Link, Listener, NodeOwner, Security, Tls};
use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::format::Format;

use crate::net::{Net, now_us};

/// In the environment of a member's process: its name, its address, its peers' and the folder, by spaces.
pub(crate) const SETTINGS: &str = "QFABRIC_TEST_MEMBER";

/// Ends a test that hangs; nothing takes this long, not even beside eight hogs per core.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a process has printed, each line with its time.
type Lines = (Mutex<Vec<(u64, String)>>, Condvar);

/// A host's process, and what it has printed.
pub(crate) struct Member {
    pub name: String,
    process: Child,
    lines: Arc<Lines>,
}

impl Member {
    pub(crate) fn start(net: &Net, host: usize) -> Member {
        let folder = net.folder.path().display();
        let peers: Vec<String> = (0..4).map(|other| net.address(other)).collect();
        let settings = format!("h{host} {} {} {folder}", net.address(host), peers.join(","));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &net.host(host)]).arg(std::env::current_exe().expect("this program"));
        command.args(["--exact", "member_process", "--nocapture"]).env(SETTINGS, settings);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("a process");
        let lines = Arc::new(Lines::default());
        let (output, kept) = (process.stdout.take().expect("its output"), Arc::clone(&lines));
        thread::spawn(move || keep(BufReader::new(output), &kept));
        Member { name: format!("h{host}"), process, lines }
    }

    /// Waits for a line of at least that time; its time.
    pub(crate) fn until(&self, since: u64, line: &str) -> u64 {
        let begin = Moment::now();
        let mut lines = self.lines.0.lock().expect("lines");
        loop {
            if let Some((at, _)) = lines.iter().find(|(at, said)| *at >= since && said == line) {
                return *at;
            }
            if begin.elapsed() >= PATIENCE {
                let heard: Vec<_> = lines.iter().filter(|(_, said)| !said.starts_with("event")).cloned().collect();
                drop(lines);
                panic!("{}: no {line:?} since {since}, but {heard:?}", self.name);
            }
            lines = self.lines.1.wait_timeout(lines, Duration::from_millis(100)).expect("lines").0;
        }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it ends");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status().expect("kill");
        assert!(status.success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn keep(output: impl BufRead, kept: &Lines) {
    for line in output.lines().map_while(Result::ok) {
        let Some((at, said)) = line.split_once(' ') else { continue };
        let Ok(at) = at.parse() else { continue };
        kept.0.lock().expect("lines").push((at, said.to_owned()));
        kept.1.notify_all();
    }
}

/// Prints what it is told.
struct Printer;

impl Listener for Printer {
    fn on_output(&self, output: Output, _is_arrival: bool) {
        match output {
            Output::Notice(Notice::HostAppeared(host, _)) => println!("{} appeared {host}", now_us()),
            Output::Notice(Notice::HostVanished(host)) => println!("{} vanished {host}", now_us()),
            _ => {}
        }
    }
}

/// A node, and the events of its sink.
struct Viewer {
    node: Node,
    taken: Taken,
}

impl NodeOwner for Viewer {
    fn call<R>(&mut self, _now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        act(&mut self.node)
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        let output = self.node.poll();
        if let Some(Output::Ready(sink)) = output {
            while self.node.take(sink, &mut self.taken, now).expect("the sink is there") {
                self.taken.event().into_iter().for_each(|event| println!("{} event {}", now_us(), event.host));
            }
        }
        output
    }

    fn frame(&self, frame: Frame) -> &[u8] {
        self.node.frame(frame)
    }

    fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        self.node.memory(frame)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.node.next_wakeup()
    }

    fn wake(&mut self, now: Instant) {
        self.node.wake(now);
    }
}

/// One host, until it is killed.
pub(crate) fn run(settings: &str) -> ! {
    println!(); // what the test harness wrote before is no line of ours
    let parts: Vec<&str> = settings.split(' ').collect();
    let [name, address, peers, folder] = parts[..] else { panic!("{settings}") };
    let (name, folder): (Name, &Path) = (name.parse().expect("a name"), Path::new(folder));
    let mut config = Config::new(name.clone());
    config.listen = vec![address.parse().expect("an address")];
    config.peers = peers.split(',').map(|peer| peer.parse().expect("an address")).collect();
    let tls = Tls::from_folder(folder, &name, &folder.join("access.toml")).expect("certificates");
    config.security = Security::Tls(Box::new(tls));
    let link = Link::open(&config, viewer(name), Arc::new(Printer), || {}).expect("a link");
    thread::sleep(Duration::from_millis(700)); // for others to be known, or all would create the channel
    let source = join(&link);
    loop {
        let event = Submission { payload: b"picture", ..Submission::default() };
        let _ = link.with(|viewer, now| viewer.node.submit(source, &event, now));
        thread::sleep(Duration::from_millis(50));
    }
}

fn viewer(name: Name) -> Viewer {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let incarnation = Incarnation::new(since.as_secs() as u32, since.subsec_nanos());
    let mut config = NodeConfig::new(name, incarnation);
    config.unix_offset_ns = since.as_nanos() as u64 - now_us() * 1000;
    Viewer { node: Node::new(config, Instant::new(now_us() * 1000)), taken: Taken::default() }
}

fn join(link: &Link<Viewer>) -> SourceId {
    let video = ChannelId { plane: Plane::Data, name: "video".parse().expect("a name") };
    let format = Format { name: "picture".into(), size: 0, align: 1, fields: Vec::new() };
    let spec = Spec { types: vec![EventType { format }], ..Spec::default() };
    link.with(|Viewer { node, .. }, now| {
        if node.open(&video, now).is_err() {
            node.create(&video, spec, now).expect("a channel");
        }
        node.sink_subscribe(&video, SinkSpec::default(), now).expect("a sink");
        node.source_subscribe(&video, SourceSpec::default(), now).expect("a source")
    })
}
