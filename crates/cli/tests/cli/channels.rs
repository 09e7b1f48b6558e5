//! `channel`, `monitor` and `group` on two hosts: two daemons on one machine, connected by Unix sockets.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_linux::testing::{live_lock, may_reserve};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Answer, qfabric};

pub(crate) const FORMAT: &str = "struct frame { int number; int size; };";
/// Longest wait for a condition, long enough for a loaded machine. A policy tries a higher rate every 2 to 16 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon with its own folder. It is killed when this value is dropped.
pub(crate) struct Host {
    name: &'static str,
    pub folder: PathBuf,
    child: Child,
}

impl Host {
    fn start(all: &Path, name: &'static str, other: &str) -> Host {
        Host::among(all, name, &[other])
    }

    /// A daemon that connects to `others`.
    pub(crate) fn among(all: &Path, name: &'static str, others: &[&str]) -> Host {
        Host::configured(all, name, others, "")
    }

    /// A daemon with additional configuration: first keys of the section [channels], then further sections.
    pub(crate) fn configured(all: &Path, name: &'static str, others: &[&str], more: &str) -> Host {
        let address = |host: &str| format!("unix:{}/{host}.link", all.display());
        let config = format!(
            "[channels]\nenabled = true\nhost = '{name}'\nengine = 'tcp'\ninsecure = true\npriority = 0\n\
             listen = ['{}']\nconnect = {:?}\n{more}[control]\nbudget = '0ms'\nlock_memory = false\n\
             [log]\nfilter = 'warn'\n[api]\ntimeout = '120s'\n",
            address(name),
            others.iter().map(|host| address(host)).collect::<Vec<_>>()
        );
        let _ = std::fs::remove_file(all.join(format!("{name}.link")));
        Host::of(all, name, &config)
    }

    /// A daemon with this configuration.
    fn of(all: &Path, name: &'static str, config: &str) -> Host {
        let folder = all.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("daemon.toml"), config).unwrap();
        let child = qfabric(&folder)
            .args(["daemon", "--config"])
            .arg(folder.join("daemon.toml"))
            .arg("--directory")
            .arg(&folder)
            .spawn()
            .unwrap();
        let host = Host { name, folder, child };
        eventually("the daemon answers", || host.run(&["status"]).code == 0);
        host
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = qfabric(&self.folder);
        command.args(words).arg("--socket").arg(self.folder.join("qfabric.sock"));
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        Answer::of(&mut self.command(words))
    }

    /// Runs `channel pub video` with the options `words`; the events are `lines`.
    pub(crate) fn publish(&self, words: &[&str], lines: &str) -> Answer {
        let file = self.folder.join("frame.h");
        std::fs::write(&file, FORMAT).unwrap();
        let mut command = self.command(&["channel", "pub", "video"]);
        command.args(words).arg("--format").arg(file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        Answer::from(child.wait_with_output().unwrap())
    }

    /// Starts a publisher that keeps the channel open, because it waits for more sinks than there are.
    fn hold(&self) -> Running {
        std::fs::write(self.folder.join("held.h"), FORMAT).unwrap();
        let mut command = self.command(&["channel", "pub", "video", "--sinks", "50"]);
        let mut child = command.arg("--format").arg(self.folder.join("held.h")).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    pub(crate) fn subscribe(&self, words: &[&str]) -> Running {
        let mut command = self.command(&["channel", "sub", "video", "--wait", "--json"]);
        let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    /// A client that waits for each answer as long as a test does.
    pub(crate) fn client(&self) -> Client {
        Client::connect_to(self.folder.join("qfabric.sock")).unwrap().with_patience(PATIENCE)
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        let answer = self.run(&["group", "hosts", "--json"]);
        let list = answer.json();
        list.as_array().unwrap().iter().map(|host| host["host"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Ignored: the daemon may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Ends the command as Ctrl-C does.
    fn interrupt(&self) {
        let child = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(child, rustix::process::Signal::INT).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Locks the scheduler for this test and creates a folder. None if this host offers no mechanism.
pub(crate) fn live() -> Option<(File, TempDir)> {
    may_reserve().then(|| (live_lock(), tempfile::tempdir().unwrap()))
}

pub(crate) fn two_hosts(all: &Path) -> [Host; 2] {
    let hosts = [Host::start(all, "alpha", "beta"), Host::start(all, "beta", "alpha")];
    eventually("each daemon lists both hosts", || hosts.iter().all(|host| host.hosts() == ["alpha", "beta"]));
    hosts
}

#[test]
fn events_reach_the_other_host_and_a_crash_of_a_host_is_noticed() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let mut reading = beta.subscribe(&["--count", "2"]);
    let lines = "{\"number\": 1, \"size\": 7}\n{\"number\": 2}\n";
    let sent = alpha.publish(&["--sinks", "1", "--attribute", "rate=25"], lines);
    sent.expect(0, &[]);
    let became = sent.json();
    // The publisher ends a few seconds after its last event: the reports of a starving host come later.
    let [remote, delivered, unknown] = ["remote", "delivered", "unknown"].map(|key| became[key].as_u64().unwrap());
    assert_eq!((remote, delivered + unknown), (2, 2), "{sent:?}");
    let first = reading.line();
    assert_eq!((&first["host"], &first["type"]), (&"alpha".into(), &"frame".into()));
    assert!(first["latency_us"].as_f64().unwrap() >= 0.0);
    assert_eq!((&first["event"]["size"], &first["attributes"]["rate"]), (&7.into(), &25.into()));
    assert_eq!(reading.line()["event"]["number"], 2);
    assert!(reading.child.wait().unwrap().success(), "the subscriber ends after --count events");
    let killed = beta.name;
    drop(beta);
    eventually("the crashed host is no longer listed", || !alpha.hosts().contains(&killed.to_owned()));
}

/// Runs the block of the README line by line: the lines for viewers on one host, the others on the host of the source.
#[test]
fn the_channel_commands_of_the_readme_work_in_their_order() {
    let Some((_lock, all)) = live() else { return };
    let [cam, wall] = two_hosts(all.path());
    let work = all.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("frame.h"), FORMAT).unwrap();
    std::fs::write(work.join("frames.json"), "{\"number\": 1, \"size\": 1400}\n".repeat(3)).unwrap();
    let readme = include_str!("../../../../README.md");
    // The mark of a block is on its first line.
    let mut blocks = readme.split("```sh").filter_map(|block| block.split_once('\n')).map(|(_, text)| text);
    let block = blocks.find(|text| text.starts_with("qfabric channel init-ca")).unwrap();
    let lines: Vec<&str> = block.split("```").next().unwrap().lines().collect();
    assert!(lines.len() >= 5, "{lines:?}");
    let shell = |line: &str| {
        let host = if line.contains("each viewer") { &wall } else { &cam };
        let qfabric = env!("CARGO_BIN_EXE_qfabric");
        let mut command = Command::new("sh");
        command.arg("-c").arg(line.replace("qfabric ", &format!("{qfabric} "))).current_dir(&work);
        command.env("QFABRIC_SOCKET", host.folder.join("qfabric.sock")).stdout(Stdio::piped());
        command
    };
    let mut viewer = None;
    for line in lines {
        match line.contains("channel sub") {
            true => {
                let counted = line.replacen("channel sub video", "channel sub video --json --count 3", 1);
                viewer = Some(shell(&counted).spawn().unwrap());
            }
            false => Answer::of(&mut shell(line)).expect(0, &[]),
        }
    }
    let seen = Answer::from(viewer.expect("the block has a viewer").wait_with_output().unwrap());
    assert_eq!((seen.code, seen.out.lines().count()), (0, 3), "{seen:?}");
}

/// The refusal of a subscription to a missing channel names the option --wait.
#[test]
fn the_refusal_for_a_missing_channel_names_the_option_to_wait() {
    let Some((_lock, all)) = live() else { return };
    let [alpha, _beta] = two_hosts(all.path());
    alpha.run(&["channel", "sub", "none"]).expect(3, &["there is no channel `none`", "--wait"]);
}

/// Each finds no channel, creates it, and closes it as the last member, in any order.
#[test]
fn publishers_that_begin_at_the_same_time_share_the_channel() {
    let Some((_lock, all)) = live() else { return };
    let alpha = Host::start(all.path(), "alpha", "beta");
    let file = alpha.folder.join("frame.h");
    std::fs::write(&file, FORMAT).unwrap();
    let start = |_| {
        let mut command = alpha.command(&["channel", "pub", "video"]);
        command.arg("--format").arg(&file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let publishing: Vec<Child> = (0..12).map(start).collect();
    publishing.into_iter().for_each(|child| Answer::from(child.wait_with_output().unwrap()).expect(0, &[]));
}

#[test]
fn a_publisher_that_fails_midway_prints_the_counts_of_the_events_before() {
    let Some((_lock, all)) = live() else { return };
    let [alpha, _beta] = two_hosts(all.path());
    let sent = alpha.publish(&[], "{\"number\": 1}\n{\"number\": 2}\n{\"number\": \"three\"}\n{\"number\": 4}\n");
    sent.expect(2, &["event 3"]);
    assert_eq!(sent.json()["events"], 2, "{sent:?}");
}

/// A daemon with certificates, whose access list has this rule for the host.
fn with_access_list(all: &Path, rights: &str) -> Host {
    let run = |words: &[&str]| Answer::of(qfabric(all).args(words).current_dir(all)).expect(0, &[]);
    run(&["channel", "init-ca", "authority", "--realm", "studio"]);
    run(&["channel", "issue", "alpha", "--ca", "authority", "--address", "127.0.0.1", "--out", "tls"]);
    allow(all, rights);
    let config = format!(
        "[channels]\nenabled = true\nhost = 'alpha'\nrealm = 'studio'\nengine = 'zenoh'\ntls = '{}'\npriority = 0\n\
         listen = []\n[control]\nbudget = '0ms'\nlock_memory = false\n[log]\nfilter = 'warn'\n",
        all.join("tls").display()
    );
    Host::of(all, "alpha", &config)
}

fn allow(all: &Path, rights: &str) {
    let list = format!("hosts = ['alpha']\n[[rule]]\nchannels = ['*']\nhosts = ['alpha']\nrights = [{rights}]\n");
    std::fs::write(all.join("tls/access.toml"), list).unwrap();
}

#[test]
fn a_subscriber_whose_sink_is_ended_by_the_access_list_says_why_and_ends_with_3() {
    let Some((_lock, all)) = live() else { return };
    let alpha = with_access_list(all.path(), "'create', 'join', 'send'");
    let _held = alpha.hold();
    let mut command = alpha.command(&["channel", "sub", "video", "--wait"]);
    let reading = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    alpha.publish(&["--sinks", "1"], "{\"number\": 1}\n").expect(0, &[]);
    allow(all.path(), "'create', 'send'");
    alpha.run(&["channel", "reload"]).expect(0, &[]);
    let ended = Answer::from(reading.wait_with_output().unwrap());
    ended.expect(3, &["number=1", "this host may not join it any more, says the access list"]);
}

#[test]
fn a_late_host_finds_the_channel_and_receives_later_events() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::start(all.path(), "alpha", "beta");
    let mut own = alpha.subscribe(&["--count", "3"]);
    let publishing = std::thread::scope(|scope| {
        // The channel lives as long as the publisher, which waits for two sinks.
        let publishing =
            scope.spawn(|| alpha.publish(&["--sinks", "2"], "{\"number\": 3}\n{\"number\": 4}\n{\"number\": 5}"));
        let beta = Host::start(all.path(), "beta", "alpha");
        let mut late = beta.subscribe(&["--count", "3"]);
        let numbers = |reading: &mut Running| [(); 3].map(|()| reading.line()["event"]["number"].as_i64().unwrap());
        assert_eq!((numbers(&mut late), numbers(&mut own)), ([3, 4, 5], [3, 4, 5]));
        publishing.join().unwrap()
    });
    assert_eq!((&publishing.json()["remote"], &publishing.json()["local"]), (&3.into(), &3.into()));
}

#[test]
fn filters_run_at_source_and_sink_and_refusals_name_the_next_step() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::start(all.path(), "alpha", "beta");
    let filter = all.path().join("large.ec");
    std::fs::write(&filter, "return input.size > 100;").unwrap();
    let broken = all.path().join("broken.ec");
    std::fs::write(&broken, "return input.length;").unwrap();
    alpha.run(&["channel", "show", "video"]).expect(3, &["no channel `video`", "channel ls"]);
    alpha.run(&["channel", "sub", "a/b"]).expect(2, &["a/b", "1 to 64"]);
    let _holding = alpha.hold();
    eventually("the channel is there", || alpha.run(&["channel", "show", "video"]).code == 0);
    alpha.run(&["channel", "show", "video"]).expect(0, &["struct frame", "source", "alpha"]);
    let text = broken.to_str().unwrap();
    alpha.run(&["channel", "sub", "video", "--in-filter", text]).expect(3, &["length"]);
    alpha.run(&["channel", "sub", "video", "--type", "sound"]).expect(3, &["sound", "frame"]);
    let mut reading = alpha.subscribe(&["--out-filter", filter.to_str().unwrap(), "--count", "1"]);
    eventually("the filter is there", || {
        let filters = alpha.run(&["channel", "show", "video", "--json"]).json()["filters"].clone();
        filters.as_array().is_some_and(|filters| filters.len() == 1)
    });
    let sent = alpha.publish(&[], "{\"number\": 1, \"size\": 5}\n{\"number\": 2, \"size\": 500}\n");
    assert_eq!(sent.json()["filtered"], 1, "{sent:?}");
    assert_eq!(reading.line()["event"]["number"], 2, "the small one was not sent");
    let nonsense = alpha.publish(&[], "{\"nmber\": 1}");
    nonsense.expect(2, &["event 1", "nmber", "number, size"]);
}

/// The channel `video` with a publisher and a subscriber on one host, and the commands that filter its events.
struct FilteredChannel {
    _publisher: Running,
    _subscriber: Running,
    host: Host,
}

impl FilteredChannel {
    fn open(host: Host) -> FilteredChannel {
        let (publisher, subscriber) = (host.hold(), host.subscribe(&[]));
        eventually("both are there", || {
            let shown = host.run(&["channel", "show", "video", "--json"]);
            let sinks = || shown.json()["hosts"][0]["sinks"].as_array().map_or(0, Vec::len);
            shown.code == 0 && sinks() == 1
        });
        FilteredChannel { _publisher: publisher, _subscriber: subscriber, host }
    }

    fn code(&self, name: &str, code: &str) -> String {
        let file = self.host.folder.join(name);
        std::fs::write(&file, code).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn filter(&self, words: &[&str]) -> Answer {
        self.host.run(&[&["channel", "filter"], words].concat())
    }

    /// Installs a filter that stays as long as the command runs.
    fn install_until_ctrl_c(&self, name: &str, code: &str) -> Running {
        let words = ["channel", "filter", "install", "video", name, code, "--param", "most=100"];
        let mut child = self.host.command(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "alpha: installed, until Ctrl-C\n");
        Running { child, out }
    }

    /// Publishes one event of each size. Returns which of them passed the filters.
    fn passed<const N: usize>(&self, sizes: [u32; N]) -> [bool; N] {
        sizes.map(|size| {
            let sent = self.host.publish(&[], &format!("{{\"number\": 1, \"size\": {size}}}"));
            sent.json()["filtered"] == 0
        })
    }

    fn expect_only_filter(&self, name: &str, direction: &str) {
        let list = self.filter(&["ls", "video", "--json"]).json();
        let first = (&list[0]["name"], &list[0]["direction"], list.as_array().unwrap().len());
        assert_eq!(first, (&name.into(), &direction.into(), 1));
    }
}

#[test]
fn a_filter_is_installed_changed_replaced_and_removed_while_events_flow() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::start(all.path(), "alpha", "beta");
    alpha.run(&["channel", "filter", "ls", "video"]).expect(3, &["no channel `video`"]);
    let video = FilteredChannel::open(alpha);
    let small = video.code("small.ec", "return input.size <= get_attribute(most);");
    let large = video.code("large.ec", "return input.size > get_attribute(most);");
    let broken = video.code("broken.ec", "return input.length;");
    video.filter(&["ls", "video"]).expect(0, &["no filters", "filter install"]);
    let mut first = video.install_until_ctrl_c("small", &small);
    assert_eq!(video.passed([50, 500]), [true, false]);
    video.filter(&["set", "video", "small", "most=1000"]).expect(0, &["alpha: changed"]);
    assert_eq!(video.passed([500, 5_000]), [true, false]);
    video.filter(&["set", "video", "small", "least=1"]).expect(3, &["least"]);
    // Another text under the same name: a parameter with the same name keeps its value.
    video.filter(&["install", "video", "small", &large, "--stay"]).expect(0, &["alpha: installed"]);
    assert_eq!(video.passed([500, 5_000]), [false, true]);
    video.expect_only_filter("small", "out");
    video.filter(&["rm", "video", "small"]).expect(0, &["alpha: removed"]);
    assert_eq!(video.passed([500]), [true]);
    video.filter(&["rm", "video", "small"]).expect(3, &["small"]);
    first.child.kill().unwrap();
    let second = video.install_until_ctrl_c("again", &small);
    assert_eq!(video.passed([500]), [false]);
    second.interrupt();
    eventually("the command that ends removes its filter", || video.passed([500]) == [true]);
    video.filter(&["install", "video", "broken", &broken]).expect(3, &["length"]);
    video.filter(&["install", "video", "small", &small, "--on", "nowhere"]).expect(3, &["nowhere"]);
}

/// The commands about the monitored attribute `cpu.run_queue`.
struct RunQueue<'a>(&'a Host);

impl RunQueue<'_> {
    fn set(&self, options: &[&str]) -> Answer {
        self.0.run(&[&["monitor", "set", "cpu.run_queue"], options].concat())
    }

    /// Changes how the attribute is watched. Returns the changed options.
    fn watch_by(&self, options: &[&str]) -> Value {
        let answer = self.set(&[&["--json"], options].concat());
        answer.expect(0, &[]);
        answer.json()
    }

    fn is_listed_with(&self, condition: impl Fn(&Value) -> bool) -> bool {
        let list = self.0.run(&["monitor", "ls", "--json"]).json();
        list.as_array().unwrap().iter().any(|info| info["attribute"] == "cpu.run_queue" && condition(info))
    }
}

/// Options of `monitor set` that are refused, the exit code, and words of the refusal.
const REFUSED_OPTIONS: [(&[&str], i32, &[&str]); 4] = [
    (&["--adaptive", "2s:20ms"], 3, &["2 s", "20 ms", "shorter one first"]),
    (&["--adaptive", "20us:20ms"], 3, &["20 µs", "1 ms to"]),
    (&["--quiet", "--threshold", ""], 3, &["quiet", "threshold"]),
    (&["--adaptive", "20ms"], 2, &["two times", "20ms:2s"]),
];

#[test]
fn a_monitored_attribute_is_listed_with_its_options_and_value() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::start(all.path(), "alpha", "beta");
    let queue = RunQueue(&alpha);
    alpha.run(&["monitor", "ls"]).expect(0, &["cpu.run_queue", "memory"]);
    queue.set(&["--poll", "20ms", "--threshold", "> 400"]).expect(0, &["cpu.run_queue", "20 ms", "> 400"]);
    eventually("there is a value", || queue.is_listed_with(|info| info["value"].is_i64()));
    alpha.run(&["monitor", "watch", "--count", "1"]).expect(0, &["cpu.run_queue="]);
    let info = queue.watch_by(&["--check", "5ms", "--quiet", "--summary", "max"]);
    assert_eq!((&info["check_ns"], &info["quiet"], &info["summary"]), (&5_000_000.into(), &true.into(), &"max".into()));
    let info = queue.watch_by(&["--adaptive", "10ms:15ms", "--quiet", "false", "--tolerance", "3"]);
    let adaptive = serde_json::json!({ "least_ns": 10_000_000, "most_ns": 15_000_000, "tolerance": 3 });
    assert_eq!((&info["adaptive"], &info["poll_ns"], &info["quiet"]), (&adaptive, &15_000_000.into(), &().into()));
    // On a quiet machine differences of more than 3 threads are rare; each command here makes one of at least 1.
    queue.watch_by(&["--tolerance", "0", "--adaptive", "10ms:15ms"]);
    eventually("feedback sets the period", || queue.is_listed_with(|info| info["poll_ns"] != 15_000_000));
    alpha.run(&["monitor", "ls"]).expect(0, &["(10 ms to 15 ms)", "max, looked at every 5 ms"]);
    assert!(queue.watch_by(&["--poll", "1s", "--check", "0s"])["adaptive"].is_null(), "a fixed period ends feedback");
    for (options, code, words) in REFUSED_OPTIONS {
        queue.set(options).expect(code, words);
    }
    alpha.run(&["monitor", "set", "cpu.run_que"]).expect(3, &["cpu.run_que", "cpu.run_queue"]);
    queue.set(&["--off"]).expect(0, &[]);
    alpha.run(&["group", "ls"]).expect(0, &["register()"]);
    expect_bench_without_losses(&alpha);
}

fn expect_bench_without_losses(host: &Host) {
    let bench = host.run(&["channel", "bench", "--sinks", "8", "--rate", "50", "--seconds", "0.4", "--json"]);
    bench.expect(0, &[]);
    assert_eq!((&bench.json()["expected"], &bench.json()["lost"]), (&160.into(), &0.into()), "{bench:?}");
}

#[test]
fn two_commands_create_an_authority_and_the_certificates_of_all_hosts() {
    let all = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| Answer::of(qfabric(all.path()).args(words).current_dir(all.path()));
    run(&["channel", "init-ca", "authority", "--realm", "studio"]).expect(0, &["ca.pem", "channel issue"]);
    let issue = ["channel", "issue", "cam-1", "--ca", "authority", "--address", "127.0.0.1", "--out", "cam-1"];
    run(&issue).expect(0, &["cam-1.pem", "0600", "access.toml"]);
    assert!(all.path().join("cam-1/cam-1.key").exists() && all.path().join("cam-1/ca.pem").exists());
    let issue = ["channel", "issue", "cam-2", "wall", "--ca", "authority", "--out", "hosts"];
    run(&issue).expect(0, &["hosts/wall/wall.key", "authority/access.toml"]);
    let list = std::fs::read_to_string(all.path().join("hosts/wall/access.toml")).unwrap();
    assert!(["cam-1", "cam-2", "wall"].iter().all(|host| list.contains(host)), "{list}");
    let both = ["channel", "issue", "a", "b", "--ca", "authority", "--address", "127.0.0.1", "--out", "x"];
    run(&both).expect(2, &["--address is for one host"]);
    run(&["channel", "issue", "cam-2", "--ca", "nowhere", "--out", "x"]).expect(1, &["nowhere"]);
}

#[test]
fn a_daemon_without_certificates_starts_only_with_insecure() {
    let all = tempfile::tempdir().unwrap();
    let file = all.path().join("daemon.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Answer::of(qfabric(all.path()).args(["daemon", "--check", "--config"]).arg(&file))
    };
    check("[channels]\nenabled = true\n").expect(2, &["channels.tls", "channel issue"]);
    check("[channels]\nenabled = true\ninsecure = true\n").expect(0, &[]);
    check("[channels]\nmode = 'relay'\n").expect(2, &["relay", "router"]);
}
