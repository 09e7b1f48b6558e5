//! Lists threads and processes and reads their properties from `/proc`. Threads may end during a call; the functions
//! skip them. An id alone does not identify a thread, because the kernel reuses ids; the id and the start time together
//! do.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use qfabric_types::text::is_plain;
use qfabric_types::{Nanos, Owner, ThreadId};

use crate::files;

/// Largest number of threads or processes that are followed.
pub const LIMIT: usize = 4_096;

/// The threads of a process, ascending, at most [`LIMIT`]; `ESRCH` if the process has ended.
pub fn list(pid: i32) -> io::Result<Vec<ThreadId>> {
    let gone = |_| io::Error::from_raw_os_error(libc::ESRCH);
    let entries = files::folder(format!("/proc/{pid}/task")).map_err(gone)?;
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let mut threads: Vec<_> = numbers.take(LIMIT).map(ThreadId).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// The threads of all processes of this host, at most sixteen times [`LIMIT`].
pub fn all() -> Vec<ThreadId> {
    let entries = files::folder("/proc").into_iter().flatten();
    let processes = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    processes.flat_map(|pid| list(pid).unwrap_or_default()).take(16 * LIMIT).collect()
}

/// All descendants of `pid`, nearest first, at most [`LIMIT`].
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() && found.len() < LIMIT {
        let below = children(found[next]);
        found.extend(below.into_iter().take(LIMIT - found.len()));
        next += 1;
    }
    found
}

/// The processes that threads of `pid` started and have not yet reaped.
fn children(pid: i32) -> Vec<i32> {
    let of_thread = |tid: ThreadId| files::text(format!("/proc/{pid}/task/{tid}/children")).ok();
    let texts = list(pid).unwrap_or_default().into_iter().filter_map(of_thread);
    texts.flat_map(|t| t.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Start time in clock ticks since boot; together with the id it identifies the thread. `None`: the thread has ended,
/// or is dead and not yet reaped (a reservation of a dead thread would book bandwidth with no owner).
pub fn start_time(thread: ThreadId) -> Option<u64> {
    let stat = files::text(file(thread, "stat")).ok()?;
    let (state, start) = state_and_start(&stat)?;
    (!matches!(state, 'Z' | 'X' | 'x')).then_some(start)
}

/// Path of a file in the `/proc` folder of a thread (id 0: the calling thread).
pub(crate) fn file(thread: ThreadId, name: &str) -> String {
    match thread.0 {
        0 => format!("/proc/thread-self/{name}"),
        tid => format!("/proc/{tid}/{name}"),
    }
}

/// True if the thread neither runs nor waits for a CPU. `false` if it has ended.
pub fn is_asleep(thread: ThreadId) -> bool {
    let stat = files::text(file(thread, "stat")).ok();
    stat.and_then(|s| state_and_start(&s)).is_some_and(|(state, _)| state != 'R')
}

/// Numbers of voluntary and involuntary context switches. `None`: the thread has ended.
pub fn switches(thread: ThreadId) -> Option<(u64, u64)> {
    switches_in(&files::text(file(thread, "status")).ok()?)
}

fn switches_in(status: &str) -> Option<(u64, u64)> {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name))?.trim().parse().ok();
    Some((field("voluntary_ctxt_switches:")?, field("nonvoluntary_ctxt_switches:")?))
}

/// CPU time that a thread has used, in nanoseconds; up to one tick old. `None`: the thread has ended.
pub fn cpu_time(thread: ThreadId) -> Option<u64> {
    files::text(format!("/proc/{thread}/schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

/// Largest number of processes of one program whose CPU time is read.
const MOST_PROCESSES: usize = 256;

/// CPU time of a process, of its descendants, and of those descendants that have ended and were waited for. A program
/// that ends without being waited for takes its time along. `None`: the process has ended.
pub fn program_cpu(pid: i32) -> Option<Nanos> {
    let own = process_and_reaped_cpu(pid)?;
    let below = descendants(pid).into_iter().take(MOST_PROCESSES).filter_map(process_and_reaped_cpu);
    Some(below.fold(own, |sum, time| sum + time))
}

/// The clock of a process is exact; the time of children that it waited for is counted in ticks.
fn process_and_reaped_cpu(pid: i32) -> Option<Nanos> {
    let stat = files::text(format!("/proc/{pid}/stat")).ok()?;
    Some(crate::clock::process_cpu(pid).ok()? + ticks(reaped_ticks(&stat)?))
}

/// Time since the start of a process, up to one tick too long. `None`: the process has ended.
pub fn process_age(pid: i32) -> Option<Nanos> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Nanos::new(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    Some(now.saturating_sub(ticks(start_time(ThreadId(pid))?)))
}

fn ticks(count: u64) -> Nanos {
    Nanos::new(count.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Fields 16 and 17 of proc_pid_stat(5), in ticks. The name in field 2 may contain any characters.
fn reaped_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(16 - 3);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user.saturating_add(system))
}

/// Fields 3 and 22 of proc_pid_stat(5). The name in field 2 may contain any characters, including brackets and spaces.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Name of a thread: at most 15 bytes, without characters that are not plain. `None`: the thread has ended.
pub fn name(thread: ThreadId) -> Option<String> {
    let name = files::bytes(format!("/proc/{thread}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).chars().filter(|c| is_plain(*c)).collect())
}

/// Process of a thread. `None`: the thread has ended.
pub fn process_of(thread: ThreadId) -> Option<i32> {
    let status = files::text(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Effective user and group of a process. `None`: the process has ended.
pub fn owner(pid: i32) -> Option<Owner> {
    let meta = fs::metadata(format!("/proc/{pid}/task")).ok()?;
    Some(Owner { uid: meta.uid(), gid: meta.gid() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn the_calling_thread_is_listed_for_its_process() {
        let me = ThreadId(rustix::thread::gettid().as_raw_nonzero().get());
        assert!(list(id() as i32).unwrap().contains(&me));
        assert_eq!(process_of(me), Some(id() as i32));
        assert!(start_time(me).is_some() && name(me).is_some());
        assert_eq!(start_time(ThreadId(0)), start_time(me), "0 is the calling thread");
    }

    #[test]
    fn valid_switches_are_read_and_invalid_text_is_refused() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(switches_in(status), Some((5, 9)));
        assert_eq!((switches_in("Name:\tx"), switches_in("")), (None, None));
        let me = ThreadId(rustix::thread::gettid().as_raw_nonzero().get());
        assert!(switches(me).is_some() && cpu_time(me).is_some());
    }

    #[test]
    fn grandchildren_are_descendants() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 30 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let found = descendants(id() as i32);
        let grandchildren = descendants(child.id() as i32);
        assert!(found.contains(&(child.id() as i32)) && grandchildren.len() == 1 && found.contains(&grandchildren[0]));
        Command::new("kill").args(grandchildren.iter().map(i32::to_string)).status().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_program_uses_the_cpu_time_of_children_that_it_waited_for() {
        assert_eq!(reaped_ticks("7 (a) S 1) R 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18"), Some(16 + 17));
        assert_eq!(reaped_ticks("7 (a"), None);
        let burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let mut shell = Command::new("sh")
            .args(["-c", &format!("sh -c '{burn}'; echo; read line")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let own = crate::clock::process_cpu(shell.id() as i32).unwrap();
        let all = program_cpu(shell.id() as i32).unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(all > own, "{all} of the program, {own} of its first process");
        assert_eq!(program_cpu(shell.id() as i32), None);
    }

    #[test]
    fn an_ended_or_dead_thread_has_no_start_time() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while start_time(ThreadId(pid)).is_some() {
            std::thread::yield_now(); // until it is a zombie
        }
        child.wait().unwrap();
        assert_eq!(start_time(ThreadId(pid)), None);
        assert_eq!(list(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!((name(ThreadId(pid)), owner(pid)), (None, None));
    }

    #[test]
    fn a_hostile_name_does_not_shift_the_fields() {
        let fields = (4..22).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("7 (a) R 9) S {fields} 4711 0 0\n");
        assert_eq!(state_and_start(&stat), Some(('S', 4711)));
        assert_eq!(state_and_start("7 (x"), None);
        assert_eq!(state_and_start(""), None);
    }

    #[test]
    fn processes_have_owners() {
        let me = owner(id() as i32).unwrap();
        assert_eq!((me.uid, me.gid), (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
    }
}
