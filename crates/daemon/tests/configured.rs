//! Contracts of the configuration with real control groups, processes and the real scheduler.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::*;
use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::cgroup::Mounts;
use qfabric_linux::sched_attr::Policy;
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::ThreadId;
use qfabric_types::api::ConfiguredContract;

/// A control group of this test; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// In the hierarchy of version 2, with a parent that is a slice of this test.
    fn new(name: &str) -> Option<Group> {
        Group::below(&slice()?, name)
    }

    fn below(parent: &Path, name: &str) -> Option<Group> {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).ok()?;
        Some(Group(folder))
    }

    fn take_in(&self, process: &Process) {
        fs::write(self.0.join("cgroup.procs"), process.pid().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was killed leaves the group a little later.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // Fails while another group of this test is in it.
        self.0.parent().map(fs::remove_dir);
    }
}

fn slice() -> Option<PathBuf> {
    Some(Mounts::here().v2?.join(format!("qfabrictest{}.slice", std::process::id())))
}

const NO_GROUPS: &str = "this test needs a control group that it may make";

fn sleeper() -> Process {
    Process(Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap())
}

fn config(tables: &str) -> Config {
    let text = format!("[log]\nfilter = 'error'\n[control]\nlock_memory = false\n{tables}");
    Config::parse(&text, Path::new("daemon.toml")).unwrap()
}

fn is_reserved(process: &Process) -> bool {
    policy(ThreadId(process.pid())) == Some(Policy::DEADLINE)
}

fn is_free(process: &Process) -> bool {
    policy(ThreadId(process.pid())) == Some(Policy::OTHER)
}

fn configured(client: &Client) -> ConfiguredContract {
    client.status().unwrap().configured.remove(0)
}

fn started(config: &Config, folder: &Path) -> (Embedded, Client) {
    let service = Embedded::start(config.clone().in_directory(folder)).unwrap();
    let client = connected(service.socket());
    (service, client)
}

#[test]
fn a_contract_stays_over_restarts_of_the_unit_and_of_the_daemon() {
    let _lock = live_lock();
    let name = format!("qfabric-restarts-{}.service", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    let config = config(&format!("[[contract]]\nname = 'player'\nunit = '{name}'\nfixed = 0.05\n"));
    let (service, client) = started(&config, folder.path());
    assert!(configured(&client).applications.is_empty());
    let mut applications = Vec::new();
    for _ in 0..2 {
        let Some(unit) = Group::new(&name) else { return skip(NO_GROUPS) };
        let process = sleeper();
        // Most often the service looks at the new group while it is empty.
        std::thread::sleep(std::time::Duration::from_millis(100));
        unit.take_in(&process);
        eventually("the unit has its contract", || is_reserved(&process));
        let shown = client.applications().unwrap();
        assert!(shown.len() == 1 && shown[0].contract.name == "player" && shown[0].pid == process.pid(), "{shown:?}");
        applications.push(shown[0].id);
        drop(process);
        eventually("the contract ends with the unit", || client.applications().unwrap().is_empty());
    }
    assert_ne!(applications[0], applications[1]);
    let (unit, process) = (Group::new(&name).unwrap(), sleeper());
    unit.take_in(&process);
    eventually("the unit has its contract", || is_reserved(&process));
    drop(service);
    assert!(is_free(&process), "the end of the daemon restores everything");
    let (_service, client) = started(&config, folder.path());
    eventually("the contract is back", || is_reserved(&process));
    eventually("it is shown", || configured(&client).applications.len() == 1);
}

#[test]
fn processes_that_join_are_covered_and_one_that_leaves_the_group_is_restored() {
    let _lock = live_lock();
    let Some(group) = Group::new("web") else { return skip(NO_GROUPS) };
    let folder = tempfile::tempdir().unwrap();
    let config = config(&format!("[[contract]]\ncgroup = '{}'\nfixed = 0.05\n", group.0.display()));
    let (_service, client) = started(&config, folder.path());
    let (first, second) = (sleeper(), sleeper());
    group.take_in(&first);
    eventually("the first process is covered", || is_reserved(&first));
    group.take_in(&second);
    eventually("a process that joins it is covered, too", || is_reserved(&second));
    let outside = Mounts::here().v2.unwrap().join("cgroup.procs");
    fs::write(outside, first.pid().to_string()).unwrap();
    eventually("the process that left is restored", || is_free(&first));
    assert!(is_reserved(&second));
    eventually("one application is left", || configured(&client).applications.len() == 1);
}

#[test]
fn a_refusal_is_shown_with_its_advice_and_the_contract_begins_when_there_is_room() {
    let _lock = live_lock();
    let Some(group) = Group::new("refused") else { return skip(NO_GROUPS) };
    let folder = tempfile::tempdir().unwrap();
    let tables = format!(
        "[limits]\ncapacity = 0.1\n[[contract]]\ncgroup = '{}'\nclass = 'B'\nguaranteed = 0.3\nfixed = 0.3\n",
        group.0.display()
    );
    let (_service, client) = started(&config(&tables), folder.path());
    let process = sleeper();
    group.take_in(&process);
    eventually("the refusal is shown", || configured(&client).refused.is_some_and(|why| why.contains("0.3 CPU")));
    assert!(is_free(&process));
    let patch = serde_json::from_str(r#"{"capacity": 0.5}"#).unwrap();
    client.change_limits(&patch).unwrap();
    eventually("it is asked for again", || is_reserved(&process));
    eventually("the refusal is over", || configured(&client).refused.is_none());
}

/// A service begins as root and changes its user later: its contract then counts against that user.
#[test]
fn the_contract_of_a_process_that_changes_its_user_counts_against_the_new_one() {
    let _lock = live_lock();
    let Some(group) = Group::new("user") else { return skip(NO_GROUPS) };
    if !rustix::process::geteuid().is_root() {
        return skip("this test needs root to act as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let config = config(&format!("[[contract]]\ncgroup = '{}'\nfixed = 0.05\n", group.0.display()));
    let (_service, client) = started(&config, folder.path());
    let script = format!("read go; exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sleep 600");
    let mut shell = Process(Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap());
    group.take_in(&shell);
    let owners = || client.applications().unwrap().iter().map(|app| app.owner.uid).collect::<Vec<_>>();
    eventually("the shell is covered as root's", || owners() == [0]);
    std::io::Write::write_all(&mut shell.0.stdin.take().unwrap(), b"go\n").unwrap();
    eventually("the program is covered as its user's", || owners() == [NOBODY] && is_reserved(&shell));
}

/// Groups of version 1 report nothing: the daemon looks in intervals.
#[test]
fn a_group_of_version_1_is_followed_as_well() {
    let _lock = live_lock();
    let mounts = Mounts::here();
    let Some(group) = mounts.v1_of("pids").and_then(|at| Group::below(&at.join("qfabric-test"), "old")) else {
        return skip("no /sys/fs/cgroup/pids");
    };
    let folder = tempfile::tempdir().unwrap();
    let config = config(&format!("[[contract]]\ncgroup = '{}'\nfixed = 0.05\n", group.0.display()));
    let (_service, client) = started(&config, folder.path());
    let process = sleeper();
    group.take_in(&process);
    eventually("the process is covered", || is_reserved(&process));
    drop(process);
    eventually("its contract ends with it", || client.applications().unwrap().is_empty());
}
