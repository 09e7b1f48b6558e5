//! The conference between two hosts: frames arrive and are shown, while quality, size and codec change, a codec is
//! missing, policies of the daemon decide, a host floods the server, and the server or its daemon is killed and comes back.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use qfabric_client::channel::{SourceOptions, Submission};
use serde_json::Value;

use crate::host::{Host, PATIENCE, Site, eventually};

/// The program, built in the folder of this test, with the same profile: it is another package. `QFABRIC_CONFERENCE`
/// names one that is built already.
fn program() -> PathBuf {
    if let Some(built) = std::env::var_os("QFABRIC_CONFERENCE") {
        return built.into();
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_qfabric")).with_file_name("qfabric-conference");
    let folder = program.parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "-q", "-p", "qfabric-conference", "--target-dir"]).arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "qfabric-conference does not build");
    program
}

/// A program of the conference, and the seconds that it has reported.
pub(crate) struct Talker {
    child: Child,
    input: ChildStdin,
    seconds: Arc<Mutex<VecDeque<Value>>>,
}

impl Talker {
    pub(crate) fn start(host: &Host, words: &[&str]) -> Talker {
        Talker::spawn(host.inside(&["conference"]), host, words)
    }

    /// The same, bound to a CPU.
    pub(crate) fn start_on(host: &Host, cpu: usize, words: &[&str]) -> Talker {
        let inside = host.inside(&["conference"]);
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(inside.get_program()).args(inside.get_args());
        command.current_dir(&host.folder);
        Talker::spawn(command, host, words)
    }

    fn spawn(mut command: Command, host: &Host, words: &[&str]) -> Talker {
        command.env("QFABRIC_CONFERENCE", program()).args(words).args(["--json", "--socket"]).arg(host.socket());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (output, input) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        let seconds = Arc::<Mutex<VecDeque<Value>>>::default();
        let kept = seconds.clone();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                kept.lock().unwrap().push_back(serde_json::from_str(&line).unwrap());
            }
        });
        Talker { child, input, seconds }
    }

    pub(crate) fn serve(host: &Host, more: &[&str]) -> Talker {
        Talker::start(host, &[&["serve", "test"], more].concat())
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Until a second that is reported from now on fulfils the condition.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.seconds.lock().unwrap().clear();
        let mut found = None;
        eventually(what, || {
            found = self.seconds.lock().unwrap().drain(..).find(&condition);
            found.is_some()
        });
        found.unwrap()
    }

    /// Whether `count` seconds in a row that are reported from now on fulfil the condition, which gets the first second
    /// of the row, too.
    #[track_caller]
    pub(crate) fn in_a_row(&self, count: usize, condition: impl Fn(&Value, &Value) -> bool) -> bool {
        self.seconds.lock().unwrap().clear();
        let (since, mut row, mut last) = (Instant::now(), Vec::new(), None);
        while row.len() < count && since.elapsed() < PATIENCE {
            let next = self.seconds.lock().unwrap().pop_front();
            let Some(second) = next else {
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            if !condition(row.first().unwrap_or(&second), &second) {
                row.clear();
            }
            if condition(row.first().unwrap_or(&second), &second) {
                row.push(second.clone());
            }
            last = Some(second);
        }
        assert!(last.is_some(), "nothing is reported");
        if row.len() < count {
            eprintln!("not {count} seconds in a row; the last one: {last:?}");
        }
        row.len() == count
    }

    /// Until pictures of this level are shown, at whatever rate: other programs may need the machine.
    #[track_caller]
    pub(crate) fn shows(&self, what: &str, level: u64) {
        self.until(what, |second| second["shown"].as_u64() > Some(0) && second["level"] == level);
    }

    /// Bytes of a picture, in a second in which all pictures have this level.
    #[track_caller]
    fn picture_bytes(&self, level: &str) -> u64 {
        let is_whole = |second: &Value| second["sent"].as_u64() > Some(0) && second["level"] == level;
        self.until(level, is_whole);
        let second = self.until(level, is_whole);
        1_000 * second["bytes"].as_u64().unwrap() / second["sent"].as_u64().unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn frames_are_shown_while_quality_size_and_codec_change() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    let mut server = Talker::serve(&site[0], &["--level", "jpeg:80:640x480", "--fragment", "20000"]);
    let client = Talker::start(&site[1], &["join", "h0"]);
    client.shows("frames in several events", 0);
    let before = server.picture_bytes("jpeg:80:640x480");
    server.say("quality 10");
    client.shows("the new quality", 1);
    let after = server.picture_bytes("jpeg:10:640x480");
    assert!(before > 20_000 && after < before / 2, "{before} {after}");
    server.say("size small");
    client.shows("the new size", 2);
    server.say("quality 96");
    // Another host asks by an event.
    site[1].run(&["conference", "level", "jpeg:60:352x288"]).expect(0, &[]);
    client.shows("the level of the other host", 3);
    let told = server.until("feedback", |second| second["receivers"].as_object().is_some_and(|all| all.len() == 1));
    assert_eq!((&told["level"], &told["level_changes"]), (&"jpeg:60:352x288".into(), &3.into()));
    assert!(told["receivers"].as_object().unwrap().keys().all(|name| name.starts_with("h1/")), "{told}");
}

/// The channel carries reports and levels only.
#[test]
fn pictures_over_metp_are_shown_while_the_level_changes_and_after_the_server_was_killed() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    let metp = ["--transport", "metp", "--tls", "tls"];
    let serve = |level: &str| Talker::serve(&site[0], &[&["--level", level][..], &metp].concat());
    let address = format!("{}:7800", site.lan.address(0));
    let mut server = serve("jpeg:80:640x480");
    let client = Talker::start(&site[1], &[&["join", "h0", "--address", &address][..], &metp].concat());
    client.shows("pictures over METP", 0);
    server.say("quality 10");
    client.shows("the new quality", 1);
    let is_connected = |second: &Value| second["metp"]["receivers"] == 1 && second["sent"].as_u64() > Some(0);
    server.until("a connection", is_connected);
    let submitted = || {
        let sources = site[0].show("video")?.hosts.into_iter().flat_map(|holding| holding.sources);
        sources.filter_map(|source| source.counts).map(|counts| counts.submitted).max()
    };
    assert_eq!(submitted(), Some(0), "pictures are no events");
    server.kill();
    client.until("nothing is shown", |second| second["shown"] == 0);
    let server = serve("jpeg:30:176x144");
    client.shows("the second run", 0);
    server.until("a connection again", is_connected);
}

#[test]
fn a_missing_codec_is_named_and_the_conference_goes_on_with_jpeg() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    let mut server = Talker::serve(&site[0], &["--level", "h261:15:352x288"]);
    let able = Talker::start(&site[1], &["join", "h0"]);
    able.shows("H.261", 0);
    let receivers = |second: &Value| second["receivers"].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    let told = server.until("its feedback", |second| receivers(second).is_some_and(|all| all.len() == 1));
    let only_able = receivers(&told);
    let poor = Talker::start(&site[1], &["join", "h0", "--codecs", "jpeg"]);
    poor.shows("JPEG instead", 1);
    able.shows("JPEG instead", 1);
    server.say("codec h261");
    let told =
        server.until("the level stays", |second| second["receivers"].as_object().is_some_and(|all| all.len() == 2));
    assert_eq!(told["level"], "jpeg:47:352x288");
    drop(poor);
    server.until("it has left", |second| receivers(second) == only_able);
    server.say("h261:20:352x288");
    able.shows("H.261 again", 2);
}

#[test]
fn the_conference_goes_on_when_the_server_or_its_daemon_was_killed() {
    let Some(mut site) = Site::started(&[0, 0]) else { return };
    let mut server = Talker::serve(&site[0], &["--level", "h264:15:352x288", "--codecs", "jpeg,h264,h261"]);
    let client = Talker::start(&site[1], &["join", "h0"]);
    client.shows("the first run", 0);
    server.kill();
    client.until("nothing is shown", |second| second["shown"] == 0);
    let server = Talker::serve(&site[0], &["--level", "jpeg:30:176x144"]);
    client.shows("the second run", 0);
    site.kill(0);
    client.until("nothing is shown", |second| second["shown"] == 0);
    site.start(0, "");
    client.shows("the daemon is back", 0);
    drop(server);
}

/// A tenth of the wanted rate is generated, so every step down has to come.
#[test]
fn policies_of_the_daemon_decide_the_level_and_the_contract_of_a_server() {
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    // It has fixed services.
    site.start(0, "[mechanism]\nname = 'dispatcher'\nslot = '5ms'");
    site.start(1, "");
    site.all_meet();
    let options = ["--level", "jpeg:90:1280x720", "--fps", "10", "--by-policy", "--cpu", "0.6"];
    let mut server = Talker::serve(&site[0], &options);
    let client = Talker::start(&site[1], &["join", "h0"]);
    client.shows("the first level", 0);
    let service = |second: &Value| second["service_ns"].as_u64().unwrap();
    let first = service(&server.until("a contract", |second| service(second) > 0));
    let (channel, rate) = (["--channel", "video"], ["--rate", "100"]);
    let ladder = ["--ladder", "quality=90,40,20", "--ladder", "size=1280,640"];
    let start = |kind, more: &[&str]| {
        let words = [&["policy", "start", kind][..], &channel, &rate, more].concat();
        site[0].run(&words).expect(0, &[kind, "video runs"]);
    };
    start("cpu", &[]);
    server.until("a contract of the policy", |second| service(second) != first);
    start("adapt", &ladder);
    server.until("the minimum of the policy", |second| second["level"] == "jpeg:20:640x360");
    site[0].run(&["policy", "why", "video"]).expect(0, &["guarantee", "quality 20, size 640"]);
    // The policy has told its decision, and has nothing more to tell.
    server.kill();
    let again = Talker::serve(&site[0], &options);
    again.until("the decision in force", |second| second["level"] == "jpeg:20:640x360");
}

/// Sends feedback of more receivers than the server keeps of all hosts together, again and again.
struct Flood(Arc<AtomicBool>);

impl Flood {
    fn start(host: &Host) -> Flood {
        let (channels, mut talk) = (host.channels(), None);
        eventually("the channel is known", || {
            talk = channels.open("video.talk").ok();
            talk.is_some()
        });
        let talk = talk.unwrap();
        let source = talk.source_subscribe(&SourceOptions::default()).unwrap();
        let event_type = talk.type_number("feedback").unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let ends = is_over.clone();
        thread::spawn(move || {
            let _connected = (channels, talk);
            for receiver in (0..1_200_u32).cycle().take_while(|_| !ends.load(Ordering::Relaxed)) {
                let mut payload = [0; 56];
                payload[4..8].copy_from_slice(&receiver.to_le_bytes());
                if source.submit(&Submission { event_type, payload: &payload, ..Submission::default() }).is_err() {
                    return; // the daemon has ended
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Flood(is_over)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn one_host_that_floods_the_server_takes_no_place_of_others() {
    let Some(site) = Site::started(&[0, 0, 0]) else { return };
    let server = Talker::serve(&site[0], &["--fps", "5"]);
    server.until("it serves", |second| second["sent"].as_u64() > Some(0));
    let of = |second: &Value, host: &str| {
        second["receivers"].as_object().unwrap().keys().filter(|name| name.starts_with(host)).count()
    };
    let _flood = Flood::start(&site[1]);
    server.until("the places of the host are taken", |second| of(second, "h1/") == 16);
    let _client = Talker::start(&site[2], &["join", "h0"]);
    let told = server.until("another host", |second| of(second, "h2/") == 1);
    assert_eq!(of(&told, "h1/"), 16, "{told}");
}
