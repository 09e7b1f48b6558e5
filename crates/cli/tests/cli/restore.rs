//! `restore` after a daemon or a `run` was killed, and `run` at the end of its terminal.

use std::path::Path;
use std::process::{Command, Stdio};

use qfabric_linux::net::testing::{Interface, own_network};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Answer, qfabric};
use crate::live::{DEADLINE, Daemon, live, policy, sh, signal, wait_until};

#[test]
fn restore_ends_the_reservations_of_a_killed_daemon() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(folder.path(), "");
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 60", pid_file.display());
    let mut run = sh(folder.path(), "run --period 20ms --quiet", &script).stderr(Stdio::null()).spawn().unwrap();
    let pid = || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok();
    wait_until(|| pid().and_then(policy) == Some(DEADLINE));
    signal(&daemon.0, Signal::KILL);
    daemon.0.wait().unwrap();
    assert_eq!(policy(pid().unwrap()), Some(DEADLINE), "the program keeps its reservation after the daemon was killed");
    let restore = || {
        let mut command = qfabric(folder.path());
        Answer::of(command.args(["restore", "--json", "--directory"]).arg(folder.path().join("qfabric"))).json()
    };
    assert_eq!(restore()["threads"], 1);
    assert_eq!(policy(pid().unwrap()), Some(0));
    assert_eq!(restore()["threads"], 0, "a second restore has nothing to do");
    signal(&run, Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(143));
}

#[test]
fn restore_leaves_the_interfaces_of_a_running_daemon_and_names_its_process() {
    let Some(_lock) = live() else { return };
    if own_network().is_err() {
        return qfabric_linux::testing::skip("needs root for a network of its own");
    }
    let _link = Interface::veth("qf0", "qf0-far").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let net = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
        Answer::of(command.args(words.split(' ')).arg("--socket").arg(folder.path().join("qfabric/qfabric.sock")))
    };
    let daemon = Daemon::start(folder.path(), "");
    net("net attach qf0 --rate 10M --htb").expect(0, &[]);
    let restore = || {
        let mut command = qfabric(folder.path());
        Answer::of(command.args(["restore", "--directory"]).arg(folder.path().join("qfabric")))
    };
    restore().expect(
        1,
        &["0 host settings restored", "belongs to a running service", &format!("process {}", daemon.0.id())],
    );
    assert_eq!(net("net show --json").json()[0]["interface"], "qf0");
    net("net detach qf0").expect(0, &[]);
}

#[test]
fn restore_ends_the_reservations_of_a_killed_run_without_a_daemon() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 60", pid_file.display());
    let mut run = sh(folder.path(), "run --period 20ms --quiet", &script).stderr(Stdio::null()).spawn().unwrap();
    let pid = || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok();
    wait_until(|| pid().and_then(policy) == Some(DEADLINE));
    signal(&run, Signal::KILL);
    run.wait().unwrap();
    assert_eq!(policy(pid().unwrap()), Some(DEADLINE), "the reservation is left behind");
    let report = Answer::of(qfabric(folder.path()).args(["restore", "--json"])).json();
    assert_eq!(policy(pid().unwrap()), Some(0), "{report}");
    assert_eq!(report["threads"], 1, "{report}");
    let journal = report["journals"][0]["path"].as_str().unwrap();
    assert!(journal.contains(&format!("/journals/{}-", run.id())) && !Path::new(journal).exists(), "{report}");
    kill_process(Pid::from_raw(pid().unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// The same command, with SIGHUP as after a login (`default`) or under nohup (`ignore`), whatever this test inherits.
fn with_hangup(how: &str, command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg(format!("--{how}-signal=HUP")).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    env
}

#[test]
fn a_run_under_nohup_and_its_program_survive_the_end_of_the_terminal() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (pid_file, goes_on) = (folder.path().join("pid"), folder.path().join("goes-on"));
    let script = format!("echo $$ > {}; until [ -e {} ]; do sleep 0.05; done", pid_file.display(), goes_on.display());
    let mut command = with_hangup("ignore", &sh(folder.path(), "run --period 20ms --quiet", &script));
    let mut run = command.spawn().unwrap();
    let pid = || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok();
    wait_until(|| pid().is_some());
    signal(&run, Signal::HUP);
    kill_process(Pid::from_raw(pid().unwrap()).unwrap(), Signal::HUP).unwrap();
    std::fs::write(&goes_on, "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
}

#[test]
fn a_run_whose_terminal_closes_ends_all_reservations() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    // The grandchild outlives both processes. It must not keep its reservation.
    let script = format!("(trap '' HUP; exec sleep 60 >&- 2>&-) & echo $! > {}; wait", pid_file.display());
    let mut command = with_hangup("default", &sh(folder.path(), "run --period 20ms", &script));
    let mut run = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let orphan = || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok();
    wait_until(|| orphan().and_then(policy) == Some(DEADLINE));
    drop(run.stderr.take());
    signal(&run, Signal::HUP);
    assert_eq!(
        run.wait().unwrap().code(),
        Some(129),
        "the exit code is the program's, although the summary cannot be printed"
    );
    let orphan = orphan().unwrap();
    assert_eq!(policy(orphan), Some(0), "the orphan is still under a reservation");
    kill_process(Pid::from_raw(orphan).unwrap(), Signal::KILL).unwrap();
}
