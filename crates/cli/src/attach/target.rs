//! What `attach` takes hold of: a process, a unit of systemd or a control group, and the processes in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::str::FromStr;

use qfabric_linux::threads;
use qfabric_types::ThreadId;
use qfabric_types::text::is_plain;

use crate::exit::Failure;

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// Folders of a control group that are read, and processes that are looked at.
const FOLDERS: usize = 256;
const PROCESSES: usize = 4_096;
/// Ends of the names of units that have processes.
const UNITS: [&str; 5] = [".service", ".scope", ".slice", ".socket", ".mount"];
/// The kernel's flag of its own threads, in field 9 of proc_pid_stat(5).
const PF_KTHREAD: u64 = 0x0020_0000;

/// The thing that is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Process(i32),
    /// A unit, or a folder; its name, and the folder with its `cgroup.procs`.
    Group {
        name: String,
        folder: PathBuf,
    },
}

impl FromStr for Target {
    type Err = Failure;

    /// A number is a process, a text with a slash is a control group, any other text is a unit.
    fn from_str(text: &str) -> Result<Target, Failure> {
        if let Ok(pid) = text.parse::<i64>() {
            let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
            return pid.map(Target::Process).ok_or_else(|| {
                Failure::usage(format!("{text} is not a process id; give a positive number such as 4711"))
            });
        }
        if text.is_empty() || text.len() > 4_096 || !text.chars().all(is_plain) {
            return Err(Failure::usage("the target is not a process id, a unit or the folder of a control group"));
        }
        let folder = if text.contains('/') { group(text)? } else { unit(text)? };
        Ok(Target::Group { name: name_of(&folder), folder })
    }
}

impl Target {
    /// The name for the contract.
    pub(super) fn name(&self) -> String {
        match self {
            Target::Process(pid) => threads::name(ThreadId(*pid)).filter(|name| !name.is_empty()),
            Target::Group { name, .. } => Some(name.clone()),
        }
        .unwrap_or_else(|| "unnamed".to_owned())
    }

    /// Whether it may get processes that are not children of those that it has.
    pub(super) fn may_grow(&self) -> bool {
        matches!(self, Target::Group { .. })
    }

    /// Whether it is still there: a process always counts as there, its end is seen otherwise.
    pub(super) fn exists(&self) -> bool {
        match self {
            Target::Process(_) => true,
            Target::Group { folder, .. } => folder.join("cgroup.procs").exists(),
        }
    }

    /// The refusal of a target without processes.
    pub(super) fn nothing_runs(&self) -> Failure {
        let why = match self {
            Target::Process(pid) => format!("no process {pid} runs"),
            Target::Group { folder, .. } => format!("no process runs in {}", folder.display()),
        };
        Failure::refused(format!("{why}\ntry: start it first, then attach"))
    }

    /// Its processes that are not children of each other, ascending.
    pub(super) fn roots(&self) -> Result<Vec<i32>, Failure> {
        match self {
            Target::Process(pid) => {
                check(*pid)?;
                Ok(vec![*pid])
            }
            Target::Group { folder, .. } => {
                let mut all = processes(folder)?;
                all.remove(&(id() as i32));
                all.retain(|pid| check(*pid).is_ok());
                if all.is_empty() {
                    return Err(self.nothing_runs());
                }
                let below: BTreeSet<i32> = all.iter().flat_map(|pid| threads::descendants(*pid)).collect();
                Ok(all.difference(&below).copied().collect())
            }
        }
    }
}

/// Refuses what cannot have a contract. The daemon checks the rest: the user, and other contracts.
fn check(pid: i32) -> Result<(), Failure> {
    if pid == id() as i32 {
        return Err(Failure::refused(format!("process {pid} is this command itself\ntry: another process")));
    }
    match threads::process_of(ThreadId(pid)) {
        None => Err(Failure::refused(format!("no process {pid} runs\ntry: ps -e, which lists all processes"))),
        Some(process) if process != pid => {
            Err(Failure::refused(format!("{pid} is a thread of process {process}\ntry: qfabric attach {process}")))
        }
        Some(_) if is_kernel_thread(pid) => {
            let why = format!("process {pid} is a thread of the kernel, which schedules it itself");
            Err(Failure::refused(format!("{why}\ntry: a process of a program")))
        }
        Some(_) => Ok(()),
    }
}

fn is_kernel_thread(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    flags(&stat).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Field 9 of proc_pid_stat(5). The name in field 2 may contain any characters.
fn flags(stat: &str) -> Option<u64> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// All processes of a control group and of the groups in it.
fn processes(folder: &Path) -> Result<BTreeSet<i32>, Failure> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    let mut next = 0;
    while next < folders.len() {
        let list = folders[next].join("cgroup.procs");
        match fs::read_to_string(&list) {
            Ok(text) => {
                found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()).filter(|pid| *pid > 0))
            }
            // A group below may have ended, or may have threads only.
            Err(_) if next > 0 => {}
            Err(error) => return Err(Failure::refused(format!("cannot read {}: {error}", list.display()))),
        }
        if found.len() > PROCESSES {
            let why = format!("more than {PROCESSES} processes run in {}", folder.display());
            return Err(Failure::refused(format!("{why}\ntry: a smaller control group")));
        }
        let below = fs::read_dir(&folders[next]).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        let room = FOLDERS.saturating_sub(folders.len());
        folders.extend(below.take(room).collect::<Vec<_>>());
        next += 1;
    }
    Ok(found)
}

/// The folder of a control group: as given, or below the mount of version 2 or of a hierarchy of version 1.
fn group(text: &str) -> Result<PathBuf, Failure> {
    let given = Path::new(text);
    let relative = text.trim_start_matches('/');
    let below = |place: PathBuf| place.join(relative);
    let hierarchies = fs::read_dir(MOUNT).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut places: Vec<PathBuf> = vec![given.to_owned(), below(MOUNT.into())];
    places.extend(["unified", "systemd"].map(|name| below(Path::new(MOUNT).join(name))));
    places.extend(hierarchies.map(below));
    let found = places.into_iter().find(|place| place.join("cgroup.procs").is_file());
    found.ok_or_else(|| {
        let why = format!("{text} is not a control group: no folder of this name with cgroup.procs is in {MOUNT}");
        Failure::refused(format!("{why}\ntry: cat /proc/PID/cgroup, which shows the group of a process"))
    })
}

/// The folder of a unit's control group, as systemd names it: of the system, then of the user.
fn unit(text: &str) -> Result<PathBuf, Failure> {
    let unit = if UNITS.iter().any(|end| text.ends_with(end)) { text.to_owned() } else { format!("{text}.service") };
    if unit.starts_with('-') {
        return Err(Failure::usage(format!("{text} is not the name of a unit")));
    }
    let asked = [&["show"][..], &["--user", "show"]].map(|how| asked(how, &unit));
    if let Some(path) = asked.iter().filter_map(|answer| answer.as_ref().ok()).find(|path| path.len() > 1) {
        return group(path);
    }
    let why = match &asked[0] {
        Ok(_) => format!("no unit {unit} runs"),
        Err(why) => format!("systemd does not say where the unit {unit} runs: {why}"),
    };
    Err(Failure::refused(format!(
        "{why}\ntry: systemctl status {unit}, or attach to a process id or the folder of a control group"
    )))
}

/// The property ControlGroup of a unit; empty if the unit does not run.
fn asked(how: &[&str], unit: &str) -> Result<String, String> {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(how).args(["--property=ControlGroup", "--value", "--"]).arg(unit);
    let output = systemctl.output().map_err(|error| format!("cannot run systemctl: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().chars().take(300).collect::<String>();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The last part of a folder, as a name for contracts.
fn name_of(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.chars().filter(|c| is_plain(*c)).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
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
        assert!(refusal("a\u{7}b".parse::<Target>()).contains("not a process id, a unit"));
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
