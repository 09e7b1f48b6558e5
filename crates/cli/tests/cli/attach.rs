//! `attach` with real processes, control groups and the real scheduler.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Answer, answer, qfabric};
use crate::live::{Daemon, live, policy, wait_until};

/// Numbers of the policies SCHED_DEADLINE and SCHED_OTHER.
const DEADLINE: Option<u32> = Some(6);
const OTHER: Option<u32> = Some(0);
/// A user without an account.
const NOBODY: u32 = 54_321;

/// A program that ends when this value is dropped.
struct Program(Child);

impl Program {
    /// A shell that starts a child and waits for it. Returns the child's process id, too.
    fn with_child() -> (Program, i32) {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        (Program(shell), line.trim().parse().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn answer_of(folder: &Path, line: &str) -> Answer {
    Answer::of(qfabric(folder).args(line.split_whitespace()))
}

fn attach(folder: &Path, line: &str) -> Answer {
    answer_of(folder, &format!("attach {line}"))
}

/// `attach` that runs until it is signalled.
fn attached(folder: &Path, line: &str) -> Child {
    let mut attach = qfabric(folder);
    attach.arg("attach").args(line.split_whitespace()).stderr(Stdio::piped());
    attach.spawn().unwrap()
}

fn end(attach: Child, signal: Signal) -> Answer {
    kill_process(Pid::from_child(&attach), signal).unwrap();
    Answer::from(attach.wait_with_output().unwrap())
}

#[test]
fn attach_covers_a_process_and_its_children_and_ctrl_c_puts_all_back() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let (program, child) = Program::with_child();
    let attach = attached(folder.path(), &format!("{} --fixed 0.1", program.pid()));
    wait_until(|| policy(program.pid()) == DEADLINE && policy(child) == DEADLINE);
    let answer = end(attach, Signal::INT);
    answer.expect(0, &[&format!("attached to sh (pid {})", program.pid()), "qfabric: sh: "]);
    assert_eq!((policy(program.pid()), policy(child)), (OTHER, OTHER));
}

#[test]
fn attach_ends_with_the_process_and_follows_a_child_that_starts_later() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go; sleep 60 & echo $!; wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Program(shell.spawn().unwrap());
    let attach = attached(folder.path(), &format!("{} --fixed 0.1 --quiet", program.pid()));
    wait_until(|| policy(program.pid()) == DEADLINE);
    std::io::Write::write_all(&mut program.0.stdin.take().unwrap(), b"go\n").unwrap();
    let mut line = String::new();
    BufReader::new(program.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let child: i32 = line.trim().parse().unwrap();
    wait_until(|| policy(child) == DEADLINE);
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    program.0.wait().unwrap();
    Answer::from(attach.wait_with_output().unwrap()).expect(0, &[]);
}

#[test]
fn a_detached_contract_stays_until_it_is_ended_and_a_second_one_is_refused() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, _) = Program::with_child();
    let target = program.pid().to_string();
    attach(folder.path(), &format!("{target} --fixed 0.1 --detach")).expect(4, &["qfabric daemon"]);
    let _daemon = Daemon::start(folder.path(), "");
    attach(folder.path(), &format!("{target} --fixed 0.1 --detach --name player")).expect(0, &["attached to player"]);
    assert_eq!(policy(program.pid()), DEADLINE);
    attach(folder.path(), "player --end").expect(0, &["ended the contract of player"]);
    assert_eq!(policy(program.pid()), OTHER);
    attach(folder.path(), &format!("{target} --fixed 0.1 --detach")).expect(0, &["attached to sh"]);
    attach(folder.path(), &format!("{target} --fixed 0.1")).expect(3, &["application 2 covers"]);
    assert_eq!(policy(program.pid()), DEADLINE, "a refusal changes nothing");
    attach(folder.path(), &format!("{target} --end")).expect(0, &[]);
    assert_eq!(policy(program.pid()), OTHER);
    attach(folder.path(), &format!("{target} --end")).expect(3, &["has no contract", "qfabric status"]);
}

fn stop_and_start(folder: &Path, daemon: Daemon) -> Daemon {
    drop(daemon);
    Daemon::start(folder, "")
}

/// After a restart, the first application of the new daemon has the number that a stopped command still knows.
#[test]
fn after_a_restart_attach_asks_again_and_run_and_attach_leave_the_contract_of_a_stranger() {
    let Some(_lock) = live() else { return };
    for running in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(folder.path(), "");
        let ((program, _), (stranger, _)) = (Program::with_child(), Program::with_child());
        let command = match running {
            false => attached(folder.path(), &format!("{} --fixed 0.1", program.pid())),
            true => {
                let mut run = qfabric(folder.path());
                let run = run.args(["run", "--fixed", "0.1", "--", "sleep", "600"]);
                run.stderr(Stdio::piped()).spawn().unwrap()
            }
        };
        let applications =
            || Answer::of(qfabric(folder.path()).args(["status", "--json"])).json()["applications"].clone();
        wait_until(|| applications()[0]["threads"][0].is_object());
        let pid = Pid::from_child(&command);
        kill_process(pid, Signal::STOP).unwrap();
        let _daemon = stop_and_start(folder.path(), daemon);
        attach(folder.path(), &format!("{} --fixed 0.1 --detach", stranger.pid())).expect(0, &["as application 1:"]);
        kill_process(pid, Signal::CONT).unwrap();
        if running {
            end(command, Signal::TERM);
        } else {
            wait_until(|| policy(program.pid()) == DEADLINE);
            end(command, Signal::INT).expect(0, &["the daemon has restarted; asking again"]);
            assert_eq!(policy(program.pid()), OTHER);
        }
        assert_eq!(policy(stranger.pid()), DEADLINE, "the contract of the stranger was ended");
    }
}

/// `run` that runs until it is signalled, and the process id of its program.
fn running(folder: &Path) -> (Child, i32) {
    let mut run = qfabric(folder);
    run.args("run --fixed 0.1 --report - -- sleep 600".split_whitespace());
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let application = || answer_of(folder, "status --json").json()["applications"][0].clone();
    wait_until(|| application()["threads"][0].is_object());
    let pid = application()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    (run, pid.unwrap())
}

#[test]
fn after_a_restart_of_the_daemon_run_reserves_for_its_program_again() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), "");
    let (run, program) = running(folder.path());
    wait_until(|| policy(program) == DEADLINE);
    drop(daemon);
    assert_eq!(policy(program), OTHER, "a daemon that ends restores the threads");
    let _daemon = Daemon::start(folder.path(), "");
    wait_until(|| policy(program) == DEADLINE);
    let ended = end(run, Signal::TERM);
    ended.expect(143, &["the daemon has restarted; asking again"]);
    assert_eq!(ended.json().as_array().map(Vec::len), Some(2), "one row for each contract");
}

#[test]
fn a_contract_of_run_that_another_command_ends_is_not_requested_again() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let (mut run, program) = running(folder.path());
    attach(folder.path(), &format!("{program} --end")).expect(0, &[]);
    let mut line = String::new();
    BufReader::new(run.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("the contract of sleep has ended"), "{line}");
    assert_eq!(policy(program), OTHER);
    let ended = end(run, Signal::TERM);
    assert_eq!(ended.json().as_array().map(Vec::len), Some(1), "one row");
}

#[test]
fn a_contract_that_another_command_ends_is_not_requested_again() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let (program, _) = Program::with_child();
    let following = attached(folder.path(), &format!("{} --fixed 0.1", program.pid()));
    wait_until(|| policy(program.pid()) == DEADLINE);
    attach(folder.path(), &format!("{} --end", program.pid())).expect(0, &[]);
    Answer::from(following.wait_with_output().unwrap()).expect(0, &["was ended by another command"]);
    assert_eq!(policy(program.pid()), OTHER);
}

/// A process in a pid namespace of its own knows its child as a small number, which is another process of the host.
#[test]
fn a_pid_from_a_container_is_translated_and_one_of_the_host_is_refused_there() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let inside = |line: &str| {
        let command = qfabric(folder.path());
        let mut inside = Command::new("unshare");
        inside.args(["--pid", "--fork", "--mount-proc"]).arg(command.get_program()).args(line.split_whitespace());
        inside.env("XDG_RUNTIME_DIR", folder.path()).env_remove("QFABRIC_SOCKET");
        Answer::of(&mut inside)
    };
    if inside("--version").code != 0 {
        return qfabric_linux::testing::skip("this test needs a pid namespace that it may make");
    }
    inside("status").expect(0, &[]);
    let (program, _) = Program::with_child();
    inside(&format!("attach {} --fixed 0.1 --detach", program.pid())).expect(3, &["no process"]);
    assert_eq!(answer_of(folder.path(), "status --json").json()["applications"].as_array().map(Vec::len), Some(0));
    let ran = inside("run --fixed 0.1 --report - -- sleep 0.1");
    ran.expect(0, &[]);
    assert_eq!(policy(program.pid()), OTHER, "a process of the host with the same number is left alone");
}

/// A control group of this test, in the first hierarchy that lets it make one; removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let name = format!("qfabric-attach-{}", std::process::id());
        let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];
        let is_group = |folder: &PathBuf| folder.join("cgroup.procs").is_file();
        let mount = places.into_iter().map(PathBuf::from).find(|place| is_group(place))?;
        let folder = mount.join(&name);
        fs::create_dir(&folder).ok()?;
        Some(Group(folder))
    }

    fn take_in(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while a process of it ends; then the folder stays until the next boot.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn every_process_of_a_control_group_is_covered_also_one_that_joins_after_all_others_ended() {
    let Some(_lock) = live() else { return };
    let Some(group) = Group::new() else {
        return qfabric_linux::testing::skip("this test needs a control group that it may make");
    };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let ((first, _), (second, _), (later, _)) = (Program::with_child(), Program::with_child(), Program::with_child());
    group.take_in(first.pid());
    group.take_in(second.pid());
    let attach = attached(folder.path(), &format!("{} --fixed 0.05", group.0.display()));
    wait_until(|| [&first, &second].into_iter().all(|program| policy(program.pid()) == DEADLINE));
    drop((first, second));
    wait_until(|| fs::read_to_string(group.0.join("cgroup.procs")).unwrap().is_empty());
    group.take_in(later.pid());
    wait_until(|| policy(later.pid()) == DEADLINE);
    end(attach, Signal::TERM).expect(0, &["attached to qfabric-attach-"]);
    assert_eq!(policy(later.pid()), OTHER);
}

#[test]
fn a_user_may_neither_attach_to_nor_trace_what_belongs_to_others() {
    let Some(_lock) = live() else { return };
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("this test needs root to act as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let (program, _) = Program::with_child();
    let copy = folder.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_qfabric"), &copy).unwrap();
    let as_nobody = |line: &str| {
        let mut command = Command::new(&copy);
        command.args(line.split_whitespace()).env("QFABRIC_SOCKET", folder.path().join("qfabric/qfabric.sock"));
        Answer::of(command.uid(NOBODY).gid(NOBODY))
    };
    let refusal = as_nobody(&format!("attach {} --fixed 0.1", program.pid()));
    refusal.expect(3, &["runs as user 0, you are user 54321"]);
    attach(folder.path(), &format!("{} --fixed 0.1 --detach", program.pid())).expect(0, &[]);
    as_nobody("trace --last 600s -o /dev/null").expect(0, &["0 applications, 0 jobs", "0 decisions"]);
    answer_of(folder.path(), "trace --last 600s -o /dev/null").expect(0, &["1 application, 0 jobs", "1 decision,"]);
    as_nobody(&format!("attach {} --end", program.pid())).expect(3, &["belongs to user 0"]);
}

#[test]
fn what_cannot_be_attached_to_is_refused_with_the_reason() {
    answer("attach").expect(2, &["PID|UNIT|CGROUP"]);
    answer("attach 0 --fps 25").expect(2, &["not a process id"]);
    answer("attach 4194305 --fps 25").expect(3, &["no process 4194305 runs", "ps -e"]);
    answer("attach /no/such/group --fps 25").expect(3, &["not a control group", "/proc/PID/cgroup"]);
    answer("attach qfabric-no-such.service").expect(3, &["qfabric-no-such.service", "systemctl status"]);
    answer("attach 1 --detach --end").expect(2, &["cannot be used with"]);
    answer("attach 1 --fps 0").expect(2, &["0.2385"]);
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        answer("attach 2 --fps 25").expect(3, &["thread of the kernel"]);
    }
}
