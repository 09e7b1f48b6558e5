//! What contracts take hold of besides the programs that Q-Fabric starts: a process, a unit of systemd or a control
//! group, and the processes in it. `qfabric attach` and the tables `[[contract]]` of the daemon use the same definition.
//!
//! | file | contents |
//! |---|---|
//! | `place.rs` | where the control group of a unit is |
//! | `watch.rs` | wakes when groups appear, fill, empty and vanish |
//! | `refused.rs` | when to ask again for a process whose contract was refused |

mod place;
mod refused;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::id;
use std::str::FromStr;

use qfabric_types::ThreadId;
use qfabric_types::api::Problem;
use qfabric_types::text::is_plain;

pub use place::Place;
pub use refused::Refused;
pub use watch::GroupWatch;

use crate::{files, threads};

/// Folders of a control group that are read, and processes that are looked at.
const FOLDERS: usize = 256;
const PROCESSES: usize = 4_096;
/// Largest number of processes of one target with a contract of their own at the same time.
pub const MOST_ROOTS: usize = 32;
/// The kernel's flag of its own threads, in field 9 of proc_pid_stat(5).
const PF_KTHREAD: u64 = 0x0020_0000;

/// Nothing can be attached to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum TargetError {
    /// The text cannot name a target.
    Invalid {
        /// The reason, with the text.
        why: String,
        /// The suggested next step.
        next: String,
    },
    /// There is nothing to take hold of now.
    Refused {
        /// The reason, with its values.
        why: String,
        /// The suggested next step.
        next: String,
    },
}

impl TargetError {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        match self {
            TargetError::Invalid { why, next } => Problem::new("invalid_target", why, next),
            TargetError::Refused { why, next } => Problem::new("no_target", why, next),
        }
    }
}

fn invalid(why: String, next: impl Into<String>) -> TargetError {
    TargetError::Invalid { why, next: next.into() }
}

fn refused(why: String, next: impl Into<String>) -> TargetError {
    TargetError::Refused { why, next: next.into() }
}

/// The thing that is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its process id.
    Process(i32),
    /// A unit, or a folder; its name, and the folder with its `cgroup.procs`.
    Group {
        /// The name for the contract.
        name: String,
        /// The folder with its `cgroup.procs`.
        folder: PathBuf,
    },
}

impl FromStr for Target {
    type Err = TargetError;

    /// A number is a process, a text with a slash is a control group, any other text is a unit.
    fn from_str(text: &str) -> Result<Target, TargetError> {
        if let Ok(pid) = text.parse::<i64>() {
            let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
            return pid
                .map(Target::Process)
                .ok_or_else(|| invalid(format!("{text} is not a process id"), "give a positive number such as 4711"));
        }
        let place = if text.contains('/') { Place::group(text)? } else { Place::unit(text)? };
        place.folder().map(Target::in_folder).ok_or_else(|| match place {
            Place::Unit(unit) => {
                let next =
                    format!("systemctl status {unit}, or attach to a process id or the folder of a control group");
                refused(format!("no unit {unit} runs"), next)
            }
            Place::Group(path) => {
                let why = format!("{} is not a control group: no folder of this name has cgroup.procs", path.display());
                refused(why, "cat /proc/PID/cgroup, which shows the group of a process")
            }
        })
    }
}

impl Target {
    /// A control group, by its folder.
    pub fn in_folder(folder: PathBuf) -> Target {
        Target::Group { name: name_of(&folder), folder }
    }

    /// The name for the contract.
    pub fn name(&self) -> String {
        match self {
            Target::Process(pid) => threads::name(ThreadId(*pid)).filter(|name| !name.is_empty()),
            Target::Group { name, .. } => Some(name.clone()),
        }
        .unwrap_or_else(|| "unnamed".to_owned())
    }

    /// Whether it may get processes that are not children of those that it has.
    pub fn may_grow(&self) -> bool {
        matches!(self, Target::Group { .. })
    }

    /// Whether it is still there: a process always counts as there, its end is seen otherwise.
    pub fn exists(&self) -> bool {
        match self {
            Target::Process(_) => true,
            Target::Group { folder, .. } => folder.join("cgroup.procs").exists(),
        }
    }

    /// The refusal of a target without processes.
    pub fn nothing_runs(&self) -> TargetError {
        let why = match self {
            Target::Process(pid) => format!("no process {pid} runs"),
            Target::Group { folder, .. } => format!("no process runs in {}", folder.display()),
        };
        refused(why, "start it first, then attach")
    }

    /// Its processes that are not children of each other, ascending.
    ///
    /// # Errors
    /// There is none that can have a contract, or there are too many.
    pub fn roots(&self) -> Result<Vec<i32>, TargetError> {
        match self {
            Target::Process(pid) => {
                check(*pid)?;
                Ok(vec![*pid])
            }
            Target::Group { folder, .. } => {
                let roots = roots_among(processes(folder)?);
                if roots.is_empty() { Err(self.nothing_runs()) } else { Ok(roots) }
            }
        }
    }
}

/// Those of these processes that can have a contract and are not children of each other, ascending.
pub fn roots_among(mut all: BTreeSet<i32>) -> Vec<i32> {
    all.remove(&(id() as i32));
    all.retain(|pid| check(*pid).is_ok());
    let below: BTreeSet<i32> = all.iter().flat_map(|pid| threads::descendants(*pid)).collect();
    all.difference(&below).copied().collect()
}

/// Refuses what cannot have a contract. The daemon checks the rest: the user, and other contracts.
fn check(pid: i32) -> Result<(), TargetError> {
    if pid == id() as i32 {
        return Err(refused(format!("process {pid} is this command itself"), "name another process"));
    }
    match threads::process_of(ThreadId(pid)) {
        None => Err(refused(format!("no process {pid} runs"), "list all processes with ps -e")),
        Some(process) if process != pid => Err(refused(
            format!("{pid} is a thread of process {process}"),
            format!("attach to the process: qfabric attach {process}"),
        )),
        Some(_) if is_kernel_thread(pid) => {
            let why = format!("process {pid} is a thread of the kernel, which schedules it itself");
            Err(refused(why, "name a process of a program"))
        }
        Some(_) => Ok(()),
    }
}

fn is_kernel_thread(pid: i32) -> bool {
    let stat = files::text(format!("/proc/{pid}/stat")).unwrap_or_default();
    flags(&stat).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Field 9 of proc_pid_stat(5). The name in field 2 may contain any characters.
fn flags(stat: &str) -> Option<u64> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// All processes of a control group and of the groups in it.
///
/// # Errors
/// The group is gone, or has too many processes.
pub fn processes(folder: &Path) -> Result<BTreeSet<i32>, TargetError> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    let mut next = 0;
    while next < folders.len() {
        let list = folders[next].join("cgroup.procs");
        match files::text(&list) {
            Ok(text) => {
                found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()).filter(|pid| *pid > 0))
            }
            // A group below may have ended, or may have threads only.
            Err(_) if next > 0 => {}
            Err(error) => {
                let next = "check that this user may read it, or name another control group";
                return Err(refused(format!("cannot read {}: {error}", list.display()), next));
            }
        }
        if found.len() > PROCESSES {
            let why = format!("more than {PROCESSES} processes run in {}", folder.display());
            return Err(refused(why, "name a smaller control group"));
        }
        let below = files::folder(&folders[next]).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        let room = FOLDERS.saturating_sub(folders.len());
        folders.extend(below.take(room).collect::<Vec<_>>());
        next += 1;
    }
    Ok(found)
}

/// The last part of a folder, as a name for contracts.
fn name_of(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.chars().filter(|c| is_plain(*c)).take(64).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn refusal<T: std::fmt::Debug>(result: Result<T, TargetError>) -> String {
        format!("{:?}", result.unwrap_err())
    }

    /// A folder that looks like a control group with these processes.
    fn group_with(folder: &Path, pids: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cgroup.procs"), pids).unwrap();
    }

    #[test]
    fn numbers_are_processes_and_texts_with_a_slash_are_control_groups() {
        assert_eq!("4711".parse::<Target>().unwrap(), Target::Process(4711));
        for text in ["0", "-7", "99999999999"] {
            assert!(refusal(text.parse::<Target>()).contains("not a process id"), "{text}");
        }
        assert!(refusal("/nowhere/at/all".parse::<Target>()).contains("not a control group"));
        assert!(refusal("a\u{7}b".parse::<Target>()).contains("is not the name of a unit"));
    }

    #[test]
    fn a_text_that_is_no_target_and_a_target_that_is_not_there_have_different_codes() {
        for (text, code, next) in [
            ("-7", "invalid_target", "4711"),
            ("a\u{7}b", "invalid_target", "mpd.service"),
            ("nosuch", "no_target", "systemctl"),
        ] {
            let problem = text.parse::<Target>().unwrap_err().problem();
            assert_eq!(problem.code, code);
            assert!(problem.next_step.contains(next) && !problem.message.contains(next), "{problem:?}");
        }
    }

    #[test]
    fn a_unit_that_does_not_run_is_named_with_the_next_step() {
        let why = refusal("qfabric-no-such-unit".parse::<Target>());
        assert!(why.contains("qfabric-no-such-unit.service") && why.contains("systemctl status"), "{why}");
    }

    #[test]
    fn processes_that_cannot_have_a_contract_are_refused_with_the_reason() {
        assert!(refusal(check(i32::MAX)).contains("no process 2147483647 runs"));
        assert!(refusal(check(id() as i32)).contains("this command itself"));
        let other = std::thread::spawn(|| {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            refusal(check(own))
        });
        let why = other.join().unwrap();
        assert!(why.contains(&format!("qfabric attach {}", id())), "{why}");
    }

    #[test]
    fn a_thread_of_the_kernel_is_known_by_its_flag() {
        let kernel = flags("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0").unwrap();
        let program = flags("7 (a) b) c) R 1 7 7 0 -1 4194304 0").unwrap();
        assert_eq!((kernel, program), (2_129_984, 4_194_304));
        assert_eq!(flags("7 (cut"), None);
        assert_eq!((kernel & PF_KTHREAD != 0, program & PF_KTHREAD), (true, 0));
    }

    #[test]
    fn a_control_group_has_the_processes_of_its_groups_and_children_share_a_contract() {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.as_mut().unwrap()), &mut line).unwrap();
        let (parent, child): (i32, i32) = (shell.id() as i32, line.trim().parse().unwrap());
        group_with(folder.path(), &format!("{child}\n{}\n", id()));
        group_with(&folder.path().join("below"), &format!("{parent}\nnonsense\n-3\n{}\n", i32::MAX));
        let target = Target::Group { name: "x".to_owned(), folder: folder.path().to_owned() };
        assert_eq!(target.roots().unwrap(), [parent]);
        let sleeping = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::kill_process(sleeping, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert!(refusal(target.roots()).contains("no process runs in"));
    }
}
