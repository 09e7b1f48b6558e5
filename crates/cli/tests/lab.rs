//! `qfabric lab` as a user runs it. Tests of real links need root, or skip with the reason.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use qfabric_linux::testing::{Watchdog, live_lock, skip};
use rustix::process::{Pid, Signal, kill_process};

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
    command.arg("lab").args(words);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn expect(output: &Output, code: i32, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let all = text(&output.stdout) + &text(&output.stderr);
    for part in parts {
        assert!(all.contains(part), "{all:?} lacks {part:?}");
    }
}

/// The lock of the live tests. `None`, with a reason, without root or TUN devices.
fn root() -> Option<fs::File> {
    if !rustix::process::geteuid().is_root() {
        skip("this test needs root");
        return None;
    }
    if !fs::exists("/dev/net/tun").unwrap_or(false) {
        skip("no /dev/net/tun");
        return None;
    }
    Some(live_lock())
}

#[test]
fn a_wrong_link_ends_with_2_and_names_value_and_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let schedule = folder.path().join("schedule");
    fs::write(&schedule, "at 1s rate 1M\nat 2s rats 1M\n").unwrap();
    let schedule = schedule.to_str().unwrap();
    for (words, parts) in [
        (&["--rate", "10"][..], &["rate 10 bit/s: the least is 1 kbit/s", "try: choose a rate"][..]),
        (&["--rate", "fast"], &["\"fast\" is not a rate"]),
        (&["--loss", "120%"], &["120%", "ge:1%,30%"]),
        (&["--delay", "20"], &["a time with its unit"]),
        (&["--up", "rate 1M colour red"], &["column 9", "rate, queue, delay, jitter or loss"]),
        (&["--schedule", schedule], &["line 2, column 7: \"rats\"", "try: write lines such as"]),
        (&["--schedule", "/no/such/file"], &["cannot read /no/such/file"]),
        (&["--trace", schedule], &["line 1, column 1: \"at 1s rate 1M\" is not a time in milliseconds"]),
        (&["--scenario", "rfc8867-6.1"], &["rfc8867-5.1 to rfc8867-5.8"]),
        (&["--delay", "1ms", "--rtt", "2ms"], &["cannot be used with"]),
        (&["--mtu", "100"], &["576"]),
    ] {
        expect(&lab(words).args(["--", "true"]).output().unwrap(), 2, parts);
    }
}

#[test]
fn the_exit_code_is_that_of_the_program_and_a_missing_program_ends_with_127() {
    expect(&lab(&["--", "no-such-program"]).output().unwrap(), 127, &["no-such-program: not found"]);
    let Some(_lock) = root() else { return };
    expect(&lab(&["-q", "--", "sh", "-c", "exit 7"]).output().unwrap(), 7, &[]);
    expect(&lab(&["-q", "--", "sh", "-c", "kill -9 $$"]).output().unwrap(), 137, &[]);
}

/// Sends 200 datagrams, then the end until it is confirmed.
const SENDER: &str = "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer = (os.environ['QFABRIC_LAB_PEER'], 9)
for n in range(200): s.sendto(b'%d' % n, peer)
s.settimeout(0.1)
while True:
    s.sendto(b'end', peer)
    try:
        s.recv(9)
        break
    except TimeoutError: pass
";
/// Prints what arrived before the end, and confirms.
const RECEIVER: &str = "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((os.environ['QFABRIC_LAB_PEER'], 9))
arrived = []
while True:
    data, sender = s.recvfrom(99)
    if data == b'end':
        if arrived: print(' '.join(arrived), flush=True)
        arrived = []
        s.sendto(b'done', sender)
    else: arrived.append(data.decode())
";

#[test]
fn the_same_seed_loses_the_same_packets_and_the_report_counts_them() {
    let Some(_lock) = root() else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(file("receiver.py"), RECEIVER).unwrap();
    let run = |seed: &str| {
        let (json, peer) = (file("report.json"), format!("exec python3 {}", file("receiver.py")));
        let words =
            ["--up", "loss 20% delay 2ms", "--seed", seed, "--json", &json, "--peer", &peer, "--", "python3", "-c"];
        let output = lab(&words).arg(SENDER).output().unwrap();
        expect(&output, 0, &["emulator late: p50", &format!("seed {seed}")]);
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        (text(&output.stdout), report["up"]["lost"].as_u64().unwrap())
    };
    let (first, lost) = run("11");
    let arrived = first.split_whitespace().count() as u64;
    assert!(arrived < 200 && arrived + lost >= 200, "{arrived} arrived, {lost} lost");
    assert_eq!(run("11").0, first);
    assert_ne!(run("12").0, first);
}

/// A lab whose program and peer left children behind, and one pid of each namespace.
fn busy_lab() -> (Child, [i32; 2]) {
    let script = "setsid sleep 600 & echo $!; exec sleep 601";
    let peer = format!("({script}) 1>&2");
    let mut lab = lab(&["-q", "--peer", &peer, "--", "sh", "-c", script]);
    let mut child = lab.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let first = |reader: Box<dyn std::io::Read>| {
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no pid"))
    };
    let of_peer = first(Box::new(child.stderr.take().unwrap()));
    let of_program = first(Box::new(child.stdout.take().unwrap()));
    (child, [of_program, of_peer])
}

/// Processes of some network namespaces.
fn inside(namespaces: &[std::path::PathBuf]) -> usize {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("ns/net")).ok());
    processes.filter(|found| namespaces.contains(found)).count()
}

fn sweeper_of(lab: &Child) -> i32 {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", lab.id())).unwrap();
    let is_sweeper =
        |pid: &&str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "qf-sweeper\n");
    children.split_whitespace().find(is_sweeper).expect("a lab has a sweeper").parse().unwrap()
}

fn ends_without_a_trace(signal: Signal) {
    let watchdog = Watchdog::start("a lab that is ended");
    let (mut child, pids) = busy_lab();
    let namespaces = pids.map(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap());
    assert!(namespaces[0] != namespaces[1] && inside(&namespaces) >= 4);
    let sweeper = sweeper_of(&child);
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait().unwrap();
    while inside(&namespaces) > 0 || fs::exists(format!("/proc/{sweeper}")).unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    watchdog.progress();
}

#[test]
fn a_killed_lab_leaves_no_process_and_no_namespace() {
    let Some(_lock) = root() else { return };
    ends_without_a_trace(Signal::KILL);
}

#[test]
fn an_interrupted_lab_leaves_no_process_and_no_namespace() {
    let Some(_lock) = root() else { return };
    ends_without_a_trace(Signal::INT);
}

/// Runs a lab as the user «nobody», with a device file of the given mode.
fn as_nobody(mode: &str, words: &str) -> Output {
    let binary = env!("CARGO_BIN_EXE_qfabric");
    let script = format!(
        "mount -t tmpfs none /dev/net && mknod -m {mode} /dev/net/tun c 10 200 && touch /dev/net/qfabric && \
         mount --bind {binary} /dev/net/qfabric && cd / && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups /dev/net/qfabric lab {words}"
    );
    Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap()
}

#[test]
fn a_user_without_root_has_a_lab_too_or_is_told_what_is_missing() {
    let Some(_lock) = root() else { return };
    let refused = as_nobody("600", "-- true");
    if text(&refused.stderr).contains("user namespaces") {
        return expect(&refused, 4, &["are refused here", "sysctl"]);
    }
    expect(&refused, 4, &["/dev/net/tun may not be opened by this user", "chmod 666"]);
    let output = as_nobody("666", "--rtt 2ms -- sh -c 'id -u; cat /proc/net/dev; exit 5'");
    expect(&output, 5, &["65534", "lab0", "emulator late"]);
}
