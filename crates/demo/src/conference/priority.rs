//! The paper's CPU managers as a rival: with each report of the client, the SCHED_RR priority of server and client moves by
//! one. Source: thesis §5.4; the step is [`qfabric_control::priority`].
//!
//! Departure: the spinning programs stay under the kernel's fair policy, and priority 0 means that policy. With real-time
//! priorities they would take the CPUs from the daemons, too. So one step decides, and the rate never asks for a step down.

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::{Context, Result};
use qfabric_control::priority;
use qfabric_linux::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use qfabric_linux::threads;
use serde::Deserialize;

use super::RATE;

/// The managers of both hosts.
pub(super) struct Managers {
    /// What the client prints, a line per second.
    reports: PathBuf,
    hosts: RefCell<[Manager; 2]>,
    seen: RefCell<usize>,
    /// The first failure.
    failed: RefCell<Option<anyhow::Error>>,
}

/// The manager of a host: the program and its priority.
struct Manager {
    pid: i32,
    priority: i64,
}

/// A second of the client, in thousandths of a picture per second.
#[derive(Clone, Copy, Debug, Deserialize)]
struct ClientSecond {
    arrived: u32,
    shown: u32,
}

impl Managers {
    /// For the program that serves and the one that joins.
    pub(super) fn new(reports: PathBuf, programs: [u32; 2]) -> Managers {
        let hosts = programs.map(|pid| Manager { pid: pid as i32, priority: 0 });
        Managers { reports, hosts: RefCell::new(hosts), seen: RefCell::default(), failed: RefCell::default() }
    }

    /// One step for the newest report, if there is a new one.
    pub(super) fn look(&self) {
        if let Err(error) = self.step() {
            self.failed.borrow_mut().get_or_insert(error);
        }
    }

    /// The first failure of [`Managers::look`].
    pub(super) fn end(self) -> Result<()> {
        self.failed.into_inner().map_or(Ok(()), Err)
    }

    fn step(&self) -> Result<()> {
        let text = std::fs::read_to_string(&self.reports)?;
        // The last line may be unfinished.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let count = whole.lines().count();
        let Some(last) = whole.lines().last().filter(|_| self.seen.replace(count) < count) else { return Ok(()) };
        let second: ClientSecond =
            serde_json::from_str(last).with_context(|| format!("a second of the client: {last}"))?;
        // The server's manager knows what arrives at the client, the client's what it shows.
        let rates = [second.arrived, second.shown].map(|milli| f64::from(milli) / 1e3);
        self.hosts.borrow_mut().iter_mut().zip(rates).try_for_each(|(host, rate)| host.step(rate))
    }
}

impl Manager {
    fn step(&mut self, rate: f64) -> Result<()> {
        self.priority = (self.priority + priority::step(rate, f64::from(RATE))).clamp(0, 99);
        let attributes = match self.priority as u32 {
            0 => SchedAttr::fair(0),
            priority => SchedAttr { policy: Policy::RR, priority, flags: RESET_ON_FORK, ..SchedAttr::fair(0) },
        };
        // Also without a step: there may be new threads. A thread that has ended needs none.
        let threads = threads::list(self.pid).unwrap_or_default();
        let given = threads.into_iter().map(|thread| attributes.give(thread));
        let refused = given.filter_map(Result::err).find(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
        refused.map_or(Ok(()), |error| Err(error).context("cannot set SCHED_RR; run the demo as root"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use qfabric_linux::testing::may_reserve;
    use qfabric_types::ThreadId;

    use super::*;
    use crate::children;

    #[test]
    fn each_report_moves_the_priorities_by_one() {
        if !may_reserve() {
            return;
        }
        let sleeping = || {
            let mut command = Command::new("sleep");
            command.arg("60");
            children::spawn(command).unwrap()
        };
        let (programs, mut file) = ([sleeping(), sleeping()], tempfile::NamedTempFile::new().unwrap());
        let managers = Managers::new(file.path().to_owned(), [programs[0].id(), programs[1].id()]);
        let mut after = |text: &str| {
            file.write_all(text.as_bytes()).unwrap();
            managers.look();
            [0, 1].map(|host: usize| SchedAttr::of(ThreadId(programs[host].id() as i32)).unwrap().priority)
        };
        assert_eq!(after(""), [0, 0]);
        assert_eq!(
            after("{\"arrived\": 5000, \"shown\": 5000}\n{\"arrived\": 50"),
            [1, 1],
            "an unfinished line is no report"
        );
        assert_eq!(after(""), [1, 1], "no new report");
        assert_eq!(after("00, \"shown\": 20000}\n"), [2, 1]);
        assert_eq!(after("{\"arrived\": 30000, \"shown\": 30000}\n"), [1, 0]);
        assert_eq!(after("{\"arrived\": 20000, \"shown\": 30000}\n"), [1, 0]);
        managers.end().unwrap();
    }
}
