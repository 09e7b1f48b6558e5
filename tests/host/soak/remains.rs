//! Compares the machine before and after the soak, to find leftovers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::{books, threads};
use qfabric_types::ThreadId;
use serde_json::Value;

/// Wait for leftovers to go away: the kernel frees some resources later, and programs of killed clients end within
/// seconds.
const LATER: Duration = Duration::from_secs(30);

/// Resources that could be left behind, as text for people.
pub(crate) struct Machine {
    things: BTreeSet<String>,
    /// Booked bandwidth without an owner, in units of 2⁻²⁰ CPU. Not every kernel shows its sums.
    booked: Option<i64>,
}

impl Machine {
    pub(crate) fn look(program: &Path) -> Machine {
        let all = [real_time(), processes(program), queues(), files(), journals(), cgroups(), bpf()];
        let booked = books::lost(Path::new(DEBUGFS)).ok().map(|books| books.without_owner());
        Machine { things: all.into_iter().flatten().collect(), booked }
    }

    /// Resources that exist now and did not exist before, after a wait for the last ones to go away.
    pub(crate) fn left(&self, program: &Path) -> Vec<String> {
        let until = Instant::now() + LATER;
        loop {
            let now = Machine::look(program);
            let mut left: Vec<_> = now.things.difference(&self.things).cloned().collect();
            let more = now.booked.zip(self.booked).map_or(0, |(now, before)| now - before);
            left.extend((more != 0).then(|| format!("bandwidth booked without an owner: {more:+} units of 2^-20 CPU")));
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Threads in a real-time class in this network namespace; other threads of the machine do not belong to the soak.
fn real_time() -> Vec<String> {
    let of = |thread: ThreadId| {
        let policy = SchedAttr::of(thread).ok()?.policy;
        let name = threads::name(thread)?;
        (policy.is_real_time() && is_here(thread)).then(|| format!("thread {} ({name}) in {}", thread.0, policy.name()))
    };
    threads::all().into_iter().filter_map(of).collect()
}

fn is_here(thread: ThreadId) -> bool {
    let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).ok();
    namespace(&thread.0.to_string()) == namespace("self")
}

/// Processes of the program under test.
fn processes(program: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_ours =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
    all.filter(is_ours).map(|entry| format!("process {}", entry.file_name().display())).collect()
}

fn queues() -> Vec<String> {
    let output = Command::new("tc").args(["qdisc", "show"]).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().map(|line| format!("queue {line}")).collect()
}

/// Pins and shared memory.
fn files() -> Vec<String> {
    ["/sys/fs/bpf", "/dev/shm"].into_iter().flat_map(|folder| below(Path::new(folder))).collect()
}

/// Journals of `qfabric run` with a service inside; journals of a running one in another network namespace are ignored.
fn journals() -> Vec<String> {
    let goes_on_elsewhere = |file: &String| {
        let pid = file.rsplit('/').next().and_then(|name| name.split('-').next()?.parse().ok());
        pid.is_some_and(|pid| threads::name(ThreadId(pid)).is_some() && !is_here(ThreadId(pid)))
    };
    let mut journals = below(Path::new("/run/qfabric/journals"));
    journals.retain(|file| !goes_on_elsewhere(file));
    journals
}

fn below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| format!("file {}", entry.path().display())).collect()
}

/// Control groups of Q-Fabric; other groups of the machine are ignored.
fn cgroups() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let roots = mounts.lines().filter(|line| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup")));
    let folders = roots.filter_map(|line| line.split(' ').nth(1)).flat_map(|root| below(Path::new(root)));
    folders.filter(|folder| folder.contains("qfabric")).collect()
}

/// BPF programs and links in the kernel, of any process.
fn bpf() -> Vec<String> {
    let links = libbpf_rs::query::LinkInfoIter::default().map(|link| format!("BPF link {}", link.id));
    let programs = libbpf_rs::query::ProgInfoIter::default();
    links
        .chain(programs.map(|program| format!("BPF program {} ({})", program.id, program.name.to_string_lossy())))
        .collect()
}

/// Threads that the daemon's journal lists as not restored, and files that the daemon should have removed.
pub(crate) fn of_daemon(folder: &Path) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let sockets = below(folder).into_iter().filter(|file| file.ends_with(".sock"));
    let threads = unreleased(&read("journal.jsonl")).into_iter().map(|thread| format!("journal: thread {thread}"));
    let entries = serde_json::from_str::<Value>(&read("net.json")).map(|net| net["entries"].to_string());
    let interfaces = entries.ok().filter(|entries| entries != "[]").map(|entries| format!("journal: {entries}"));
    sockets.chain(threads).chain(interfaces).collect()
}

/// Threads that the journal lists as entered and not as left.
fn unreleased(journal: &str) -> BTreeSet<u64> {
    let mut held = BTreeSet::new();
    for line in journal.lines() {
        // The last line of a killed daemon may be incomplete.
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        held.extend(record["thread"]["tid"].as_u64());
        if let Some(released) = record["released"].as_u64() {
            held.remove(&released);
        }
    }
    held
}
