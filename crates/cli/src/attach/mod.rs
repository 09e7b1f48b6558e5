//! `qfabric attach`: a contract for a process, a unit or a control group that runs already.
//!
//! ```text
//! target ─> its processes ─> one contract for each that is no child of another ─┬─ rows ─┐─ all ended, or Ctrl-C ─> release
//!                              │ one is refused: all are released                └────────┘
//! ```
//! The daemon follows threads and children of each process, as for `run`. Processes that join a unit or a control group
//! later in another way are looked for at every look, as are processes whose contract ended with the daemon.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::{Client, ClientError};
use qfabric_linux::targets::{MOST_ROOTS, Refused, Target, TargetError};
use qfabric_linux::threads;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope, Problem};
use qfabric_types::{Contract, MechanismName, ThreadId};

use crate::connect::{self, DaemonMark, Service, daemon_mark};
use crate::contract::{ContractArgs, mechanisms};
use crate::exit::{Advice, Done, Failure, Outcome};
use crate::interrupt::interrupted_or_hung_up;
use crate::{output, run};

/// Time between two looks at the applications and the target.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);
/// Looks after which a control group that is missing does not come back: 10 s. The restart of a unit removes its group
/// for a moment.
const MISSING: u32 = 20;
/// Largest number of contracts that are reported.
const MOST_EVER: usize = 1_024;

const EXAMPLES: &str = "\
Examples: qfabric attach 4711 --fps 25
          qfabric attach mpd.service --period 20ms --max-bandwidth 0.3
          qfabric attach /sys/fs/cgroup/machine.slice/web --fixed 0.5
          qfabric attach 4711 --fps 25 --name player --detach; qfabric attach player --end";

/// Reserves CPU time for what runs already: a process, a unit of systemd, or a control group.
///
/// Each process gets a contract for its threads and children, also for those that appear later; children of a process
/// share its contract. At Ctrl-C all threads return to their former schedulers and the processes go on. Ends with 0 when
/// all processes have ended and a unit or group is gone. If one of the first processes is refused, nothing has changed
/// and the command ends with 3. After a restart of the daemon, or of the unit, `attach` asks again. A user may attach
/// to the user's own processes, root to all. For a contract that stays in force over restarts, write a table
/// [[contract]] into the daemon's configuration. Uses the daemon of this host. Without a daemon, `attach` does the
/// daemon's work itself until Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Process id, unit such as mpd.service, or folder of a control group (version 1 or 2); with --end also a name
    #[arg(value_name = "PID|UNIT|CGROUP")]
    target: String,
    #[command(flatten)]
    contract: ContractArgs,
    /// Mechanism that must carry the reservations out; ends with 4 if the daemon uses another one
    #[arg(long, default_value_t, value_parser = mechanisms())]
    mechanism: MechanismName,
    /// Write the achieved quality as JSON to this file at the end; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with_all = ["detach", "end"])]
    report: Option<PathBuf>,
    /// End at once and leave the contracts in force until the processes end, or until --end; needs a running daemon
    #[arg(long, conflicts_with = "end")]
    detach: bool,
    /// End all contracts with this name, or of the target's processes, also those that attach did not make
    ///
    /// A name is that of `--name` and of `qfabric status`. An ordinary user ends only the user's own.
    #[arg(long)]
    end: bool,
    /// Print no summary at the end
    #[arg(short, long)]
    quiet: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    if args.end {
        return end(&args);
    }
    let target: Target = args.target.parse()?;
    let contract = args.contract.contract(&target.name())?;
    if let Some(path) = &args.report {
        output::check_writable(path)?;
    }
    let roots = target.roots()?;
    // Before the first contract: a signal from now on ends this command in order.
    let stop = interrupted_or_hung_up()?;
    let service = match args.detach {
        true => Service::running(args.socket.as_deref())?,
        false => Service::find(args.socket.as_deref(), run::mechanism(args.mechanism, &contract))?,
    };
    run::check_mechanism(&service.client, args.mechanism)?;
    let mut attached = Attached::new(&service.client, contract);
    attached.begin(&target, roots).inspect_err(|_| attached.release())?;
    if !args.quiet {
        attached.all.iter().for_each(|one| output::note(format_args!("qfabric: {}", attached_line(&one.last))));
    }
    if args.detach {
        return Ok(Done(0));
    }
    attached.follow(&target, &stop);
    attached.finish(&args, &service.place())
}

/// Ends the contracts of the target's processes, or those with this name.
fn end(args: &Args) -> Outcome {
    let client = connect::daemon(args.socket.as_deref())?;
    let all = client.applications().map_err(connect::failure)?;
    let chosen = chosen(&args.target, all, rustix::process::geteuid().as_raw())?;
    for application in chosen {
        client.release(application.id).map_err(connect::failure)?;
        if !args.quiet {
            let Application { id, pid, owner, contract, .. } = &application;
            output::note(format_args!(
                "qfabric: ended the contract of {} (pid {pid}, user {}), application {id}",
                contract.name, owner.uid
            ));
        }
    }
    Ok(Done(0))
}

/// The applications with the name `text` that user `uid` may end; without one, those of the processes of the target
/// `text`. A number is always a process.
fn chosen(text: &str, all: Vec<Application>, uid: u32) -> Result<Vec<Application>, Failure> {
    let is_number = text.parse::<i64>().is_ok();
    let is_named = |application: &&Application| !is_number && application.contract.name == text;
    let may_end = |application: &&Application| uid == 0 || application.owner.uid == uid;
    let named: Vec<Application> = all.iter().filter(is_named).filter(may_end).cloned().collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let lists = "try: qfabric status, which lists all applications";
    if let Some(other) = all.iter().find(is_named) {
        let why = format!("the contract {text} belongs to user {}, you are user {uid}", other.owner.uid);
        return Err(Failure::refused(format!("{why}\n{lists}")));
    }
    let roots = match text.parse::<Target>() {
        Ok(target) => target.roots()?,
        Err(TargetError::Refused { why, .. }) => {
            return Err(Failure::refused(format!("no contract has the name {text}, and {why}\n{lists}")));
        }
        Err(invalid) => return Err(invalid.into()),
    };
    let chosen: Vec<Application> = all.into_iter().filter(|application| roots.contains(&application.pid)).collect();
    match chosen.is_empty() {
        true => Err(Failure::refused(format!("{text} has no contract\n{lists}"))),
        false => Ok(chosen),
    }
}

fn attached_line(application: &Application) -> String {
    let Application { id, pid, contract, granted, .. } = application;
    format!("attached to {} (pid {pid}) as application {id}: {granted} granted", contract.name)
}

/// The contracts of a target's processes.
struct Attached<'a> {
    client: &'a Client,
    contract: Contract,
    all: Vec<One>,
    /// Processes without a contract, because the daemon refused one.
    refused: Refused,
}

/// The contract of one process.
struct One {
    last: Application,
    /// When the process began: another process may get its number later.
    began: Option<u64>,
    /// The daemon that made the contract.
    daemon: Option<DaemonMark>,
    over: bool,
}

impl One {
    fn lives(&self) -> bool {
        self.began.is_some() && self.began == threads::start_time(ThreadId(self.last.pid))
    }
}

impl<'a> Attached<'a> {
    fn new(client: &'a Client, contract: Contract) -> Attached<'a> {
        Attached { client, contract, all: Vec::new(), refused: Refused::default() }
    }

    /// Attaches to all processes that the target has now. Processes of a group that end meanwhile are left out.
    fn begin(&mut self, target: &Target, roots: Vec<i32>) -> Result<(), Failure> {
        for pid in roots {
            match self.add(pid) {
                Err(error) if target.may_grow() && code(&error) == "gone" => {}
                other => other.map_err(connect::failure)?,
            }
        }
        if self.all.is_empty() { Err(target.nothing_runs().into()) } else { Ok(()) }
    }

    fn add(&mut self, pid: i32) -> Result<(), ClientError> {
        if self.all.iter().filter(|one| !one.over).count() >= MOST_ROOTS {
            let why = format!("the target has more than {MOST_ROOTS} processes that are not children of each other");
            let next = "attach to some of them by their process ids";
            return Err(ClientError::Refused(Problem::new("too_many_applications", why, next)));
        }
        if self.all.len() >= MOST_EVER
            && let Some(oldest) = self.all.iter().position(|one| one.over)
        {
            self.all.remove(oldest);
        }
        let (began, daemon) = (threads::start_time(ThreadId(pid)), daemon_mark(self.client.socket()));
        let contract = self.contract.clone();
        let request = ApplicationRequest { pid, covers: ApplicationScope::Program, contract };
        let last = self.client.admit(&request)?;
        self.all.push(One { last, began, daemon, over: false });
        Ok(())
    }

    fn release(&self) {
        self.all.iter().filter(|one| !one.over).for_each(|one| run::release(self.client, &one.last));
    }

    /// Until every process has ended and a group is gone, or Ctrl-C is pressed.
    fn follow(&mut self, target: &Target, stop: &AtomicBool) {
        let mut missing = 0;
        while !stop.load(Ordering::Relaxed) {
            self.look();
            self.add_new(target);
            missing = if target.exists() { 0 } else { missing + 1 };
            let may_come_back = target.may_grow() && missing < MISSING;
            if !may_come_back && self.all.iter().all(|one| one.over) && self.refused.is_empty() {
                return;
            }
            sleep(stop);
        }
    }

    /// Reads all contracts. Those that a restart of the daemon ended are requested again by [`Attached::add_new`].
    fn look(&mut self) {
        let mark = daemon_mark(self.client.socket());
        for one in self.all.iter_mut().filter(|one| !one.over) {
            let pid = one.last.pid;
            match run::of_same_process(self.client.application(one.last.id), pid) {
                Ok(application) => one.last = application,
                Err(ClientError::Refused(problem)) if problem.code == "not_found" || one.daemon != mark => {
                    one.over = true;
                    if !one.lives() {
                        continue;
                    }
                    if one.daemon == mark {
                        output::note(format_args!(
                            "qfabric: the contract of process {pid} was ended by another command"
                        ));
                    } else {
                        output::note(format_args!(
                            "qfabric: the daemon has restarted; asking again for a contract for process {pid}"
                        ));
                        self.refused.expect(pid);
                    }
                }
                // The daemon may be busy or restarting; the process goes on.
                Err(_) => one.over = !one.lives(),
            }
        }
    }

    /// Covers processes that have no contract: new ones of a group, and those that lost it. A refusal is reported once
    /// for each process, and the next request waits longer.
    fn add_new(&mut self, target: &Target) {
        let known = |pid: &i32| self.all.iter().any(|one| one.last.pid == *pid && one.lives());
        let mut wanted: Vec<i32> = self.refused.pids().filter(known).collect();
        if target.may_grow() {
            wanted.extend(target.roots().unwrap_or_default().into_iter().filter(|pid| !known(pid)));
        }
        self.refused.keep(&wanted);
        for pid in wanted {
            if !self.refused.is_due(pid) {
                continue;
            }
            match self.add(pid) {
                Ok(()) => self.refused.forget(pid),
                Err(error) if code(&error) == "gone" => self.refused.forget(pid),
                Err(error) => {
                    if self.refused.again(pid, code(&error)) {
                        output::note(format_args!("qfabric: process {pid} has no contract: {error}"));
                    }
                }
            }
        }
    }

    fn finish(&self, args: &Args, place: &str) -> Outcome {
        self.release();
        if let Some(path) = &args.report {
            let rows: Vec<_> = self.all.iter().map(|one| run::Row::of(&one.last)).collect();
            output::write_json(path, &rows)?;
        }
        if !args.quiet {
            self.all.iter().for_each(|one| output::note(run::summary(&one.last, place)));
        }
        Ok(Done(0))
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        let problem = error.problem();
        match error {
            TargetError::Invalid { .. } => Failure::usage(Advice(&problem)),
            TargetError::Refused { .. } => Failure::problem(&problem),
        }
    }
}

/// The code of a refusal; empty for another error.
fn code(error: &ClientError) -> &str {
    match error {
        ClientError::Refused(problem) => &problem.code,
        _ => "",
    }
}

fn sleep(stop: &AtomicBool) {
    let began = std::time::Instant::now();
    while began.elapsed() < LOOK && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SIGNAL_CHECK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::application;

    #[test]
    fn contracts_are_ended_by_their_name_and_those_of_others_are_not() {
        let mut all = vec![application(1, "player", 0.1), application(2, "player", 0.1), application(3, "4711", 0.1)];
        all[1].owner.uid = 1000;
        let ids = |text: &str, uid| {
            chosen(text, all.clone(), uid).map(|all| all.iter().map(|one| one.id.0).collect::<Vec<_>>())
        };
        assert_eq!(ids("player", 1000), Ok(vec![2]));
        assert_eq!(ids("player", 0), Ok(vec![1, 2]));
        let refusal = format!("{:?}", ids("player", 7).unwrap_err());
        assert!(refusal.contains("belongs to user 0, you are user 7"), "{refusal}");
        assert!(ids("4711", 0).is_err(), "a number is a process");
        let unknown = format!("{:?}", ids("nobody-has-this", 0).unwrap_err());
        assert!(unknown.contains("no contract has the name nobody-has-this") && unknown.contains("qfabric status"));
    }
}
