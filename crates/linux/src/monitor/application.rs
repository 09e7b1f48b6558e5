//! `app.*`: resources that an application's processes use, from /proc/PID/stat and their CPU clocks.

use std::io;
use std::path::{Path, PathBuf};

use qfabric_types::Instant;
use qfabric_types::monitor::{Attribute, AttributeId};

use super::text::{OpenFile, Scratch, number, raw, scaled, words};
use crate::clock;

/// Largest number of processes of one application that are read; further ones are refused.
pub const MAX_PROCESSES: usize = 256;

const METRICS: [&str; 6] = ["app.cpu", "app.cpu_time", "app.memory", "app.faults", "app.major_faults", "app.threads"];
const IDS: [AttributeId; 6] = [
    AttributeId::of(METRICS[0]),
    AttributeId::of(METRICS[1]),
    AttributeId::of(METRICS[2]),
    AttributeId::of(METRICS[3]),
    AttributeId::of(METRICS[4]),
    AttributeId::of(METRICS[5]),
];

/// The attributes of every application.
pub(super) fn attributes() -> impl Iterator<Item = Attribute> {
    super::attributes(&METRICS).into_iter().flatten()
}

pub(super) struct Application {
    proc: PathBuf,
    page: u64,
    processes: Vec<Process>,
    /// Totals of the processes that have ended.
    ended: Usage,
    now: Usage,
    looked: Option<Instant>,
}

struct Process {
    pid: i32,
    /// Bound to this process: after its end a read fails, even if another process gets the same id.
    stat: OpenFile,
    last: Usage,
}

/// Totals since the start of a process (CPU time, faults), and present levels (memory, threads).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu_ns: u64,
    faults: u64,
    major_faults: u64,
    memory_bytes: u64,
    threads: u64,
}

impl Usage {
    fn plus(self, other: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_add(other.cpu_ns),
            faults: self.faults.saturating_add(other.faults),
            major_faults: self.major_faults.saturating_add(other.major_faults),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            threads: self.threads.saturating_add(other.threads),
        }
    }
}

impl Application {
    pub(super) fn new(proc: &Path) -> Application {
        Application {
            proc: proc.to_owned(),
            page: rustix::param::page_size() as u64,
            processes: Vec::new(),
            ended: Usage::default(),
            now: Usage::default(),
            looked: None,
        }
    }

    pub(super) fn add(&mut self, pid: i32) -> io::Result<()> {
        if self.processes.iter().any(|process| process.pid == pid) {
            return Ok(());
        }
        if self.processes.len() >= MAX_PROCESSES {
            return Err(io::Error::other(format!(
                "{MAX_PROCESSES} processes of the application are already read, which is the limit"
            )));
        }
        let stat = OpenFile::open(&self.proc.join(pid.to_string()).join("stat"))?;
        self.processes.push(Process { pid, stat, last: Usage::default() });
        Ok(())
    }

    pub(super) fn read(&mut self, attribute: AttributeId, now: Instant, scratch: &mut Scratch) -> Option<i64> {
        let slot = IDS.iter().position(|id| *id == attribute)?;
        if self.looked != Some(now) {
            self.look(scratch);
            self.looked = Some(now);
        }
        let Usage { cpu_ns, faults, major_faults, memory_bytes, threads } = self.now;
        raw([cpu_ns, cpu_ns, memory_bytes, faults, major_faults, threads][slot])
    }

    /// The totals keep the usage of processes that have ended.
    fn look(&mut self, scratch: &mut Scratch) {
        let (mut sum, ended, page) = (Usage::default(), &mut self.ended, self.page);
        self.processes.retain_mut(|process| {
            match process.stat.read(scratch).and_then(|text| parse(text, page)) {
                Some(usage) => {
                    // The clock is exact; the file has the CPU time only in ticks.
                    let cpu_ns = clock::process_cpu(process.pid).map_or(process.last.cpu_ns, |time| time.get());
                    process.last = Usage { cpu_ns, ..usage };
                    sum = sum.plus(process.last);
                    true
                }
                None => {
                    *ended = ended.plus(Usage { memory_bytes: 0, threads: 0, ..process.last });
                    false
                }
            }
        });
        self.now = sum.plus(self.ended);
    }
}

/// Fields of proc_pid_stat(5): 10 minor faults, 12 major faults, 20 threads, 24 resident pages. The name in field 2 may
/// contain any characters, including brackets and spaces.
fn parse(text: &[u8], page: u64) -> Option<Usage> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = words(&text[end + 1..]).skip(10 - 3);
    let minor = fields.next().and_then(number)?;
    let major = fields.nth(1).and_then(number)?;
    let threads = fields.nth(7).and_then(number)?;
    let pages = fields.nth(3).and_then(number)?;
    let memory_bytes = scaled(pages, page)? as u64;
    Some(Usage { cpu_ns: 0, faults: minor.saturating_add(major), major_faults: major, memory_bytes, threads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let text = format!("77 (a) S 1 (b) R {}\n", fields.join(" "));
        let usage = parse(text.as_bytes(), 4_096).unwrap();
        assert_eq!((usage.faults, usage.major_faults, usage.threads), (22, 12, 20));
        assert_eq!(usage.memory_bytes, 24 * 4_096);
        for cut in 0..text.len() - 100 {
            parse(&text.as_bytes()[..cut], 4_096);
        }
    }
}
