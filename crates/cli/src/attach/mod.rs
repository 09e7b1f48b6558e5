//! `qfabric attach`: a contract for a process, a unit or a control group that runs already.
//!
//! ```text
//! target ─> its processes ─> one contract for each that is no child of another ─┬─ rows ─┐─ all ended, or Ctrl-C ─> release
//!                              │ one is refused: all are released                └────────┘
//! ```
//! The daemon follows threads and children of each process, as for `run`. Processes that join a unit or a control group
//! later in another way are looked for at every look.

mod target;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::{Client, ClientError};
use qfabric_linux::threads;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope};
use qfabric_types::{Contract, MechanismName, ThreadId};

use self::target::Target;
use crate::connect::{self, Service};
use crate::contract::{ContractArgs, mechanisms};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::{output, run};

/// Time between two looks at the applications and the target.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);
/// Largest number of processes with a contract of their own, at the same time and together.
const MOST: usize = 32;
const MOST_EVER: usize = 1_024;

const EXAMPLES: &str = "\
Examples: qfabric attach 4711 --fps 25
          qfabric attach mpd.service --period 20ms --max-bandwidth 0.3
          qfabric attach /sys/fs/cgroup/machine.slice/web --fixed 0.5
          qfabric attach 4711 --fps 25 --detach; qfabric attach 4711 --end";

/// Reserves CPU time for what runs already: a process, a unit of systemd, or a control group.
///
/// Each process gets a contract for its threads and children, also for those that appear later; children of a process
/// share its contract. At Ctrl-C all threads return to their former schedulers and the processes go on. Ends with 0 when
/// all processes have ended, and with 3 if one of them is refused: then nothing has changed. A user may attach to the
/// user's own processes, root to all. Uses the daemon of this host. Without a daemon, `attach` does the daemon's work
/// itself until Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Process id, unit such as mpd.service, or folder of a control group (version 1 or 2)
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
    /// End the contracts of the target that --detach left in force
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
    let target: Target = args.target.parse()?;
    let contract = args.contract.contract(&target.name())?;
    if let Some(path) = &args.report {
        output::check_writable(path)?;
    }
    let roots = target.roots()?;
    if args.end {
        return end(&args, &roots);
    }
    // Before the first contract: a signal from now on ends this command in order.
    let stop = interrupted()?;
    let service = match args.detach {
        true => Service::running(args.socket.as_deref())?,
        false => Service::find(args.socket.as_deref(), run::mechanism(args.mechanism, &contract))?,
    };
    run::check_mechanism(&service.client, args.mechanism)?;
    let mut attached = Attached { client: &service.client, contract, all: Vec::new() };
    for pid in roots {
        attached.add(pid).inspect_err(|_| attached.release())?;
    }
    if !args.quiet {
        attached.all.iter().for_each(|one| eprintln!("qfabric: {}", attached_line(&one.last)));
    }
    if args.detach {
        return Ok(Done(0));
    }
    attached.follow(&target, &stop);
    attached.finish(&args, &service.place())
}

/// Ends the contracts of the target's processes.
fn end(args: &Args, roots: &[i32]) -> Outcome {
    let client = connect::daemon(args.socket.as_deref())?;
    let mut own = client.applications().map_err(connect::failure)?;
    own.retain(|application| roots.contains(&application.pid));
    if own.is_empty() {
        let why = format!("{} has no contract", args.target);
        return Err(Failure::refused(format!("{why}\ntry: qfabric status, which lists all applications")));
    }
    for application in own {
        client.release(application.id).map_err(connect::failure)?;
    }
    Ok(Done(0))
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
}

/// The contract of one process.
struct One {
    last: Application,
    over: bool,
}

impl Attached<'_> {
    fn add(&mut self, pid: i32) -> Result<(), Failure> {
        if self.all.iter().filter(|one| !one.over).count() >= MOST || self.all.len() >= MOST_EVER {
            let why = format!("the target has more than {MOST} processes that are not children of each other");
            return Err(Failure::refused(format!("{why}\ntry: attach to some of them by their process ids")));
        }
        let contract = self.contract.clone();
        let request = ApplicationRequest { pid, covers: ApplicationScope::Program, contract };
        let last = self.client.admit(&request).map_err(connect::failure)?;
        self.all.push(One { last, over: false });
        Ok(())
    }

    /// Errors are ignored: the daemon may have released an application already, or may have ended itself.
    fn release(&self) {
        for one in self.all.iter().filter(|one| !one.over) {
            let _ = self.client.release(one.last.id);
        }
    }

    /// Until every process has ended, the daemon is gone, or Ctrl-C is pressed.
    fn follow(&mut self, target: &Target, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let mut answers = false;
            for one in self.all.iter_mut().filter(|one| !one.over) {
                match self.client.application(one.last.id) {
                    Ok(application) => (one.last, answers) = (application, true),
                    Err(ClientError::Refused(_)) => one.over = true,
                    // The daemon may be restarting; the processes go on.
                    Err(_) => answers |= lives(one.last.pid),
                }
            }
            if !answers {
                return;
            }
            self.add_new(target);
            sleep(stop);
        }
    }

    /// Covers processes of the target that no contract covers yet. A refusal is no error: the process may be a new child
    /// of a covered one, or may have ended.
    fn add_new(&mut self, target: &Target) {
        if !target.may_grow() {
            return;
        }
        let known = |pid: &i32| self.all.iter().any(|one| one.last.pid == *pid);
        let new: Vec<i32> = target.roots().unwrap_or_default().into_iter().filter(|pid| !known(pid)).collect();
        for pid in new {
            let _ = self.add(pid);
        }
    }

    fn finish(&self, args: &Args, place: &str) -> Outcome {
        self.release();
        if let Some(path) = &args.report {
            let rows: Vec<_> = self.all.iter().map(|one| run::Row::of(&one.last)).collect();
            output::write_json(path, &rows)?;
        }
        if !args.quiet {
            self.all.iter().for_each(|one| eprintln!("{}", run::summary(&one.last, place)));
        }
        Ok(Done(0))
    }
}

fn lives(pid: i32) -> bool {
    threads::start_time(ThreadId(pid)).is_some()
}

fn sleep(stop: &AtomicBool) {
    let began = std::time::Instant::now();
    while began.elapsed() < LOOK && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SIGNAL_CHECK);
    }
}
