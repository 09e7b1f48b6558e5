//! Measures and prints the delay of events. A timer of the kernel raises an event on CPU 0 and writes it, with the
//! time, into shared memory; the receiver, another thread, reads the clock as soon as it sees the event.
//!
//! The receiver has 2 ms in 20 ms, and the events come every 7.3 ms, so its demand does not begin with its period.
//! Under `ext` the periods stay on their grid; under SCHED_DEADLINE a new one begins with the demand.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_ecode::Limits;
use qfabric_linux::ecalls::{Aim, Install, Installed, Kernel, Step, UpMemory};
use qfabric_linux::ext::{Ext, ExtConfig, ServerId, ServerSpec};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{Worker, burn};
use qfabric_linux::{RaiseTarget, clock, cpus::CpuList};
use qfabric_types::memory::{Geometry, Layout, Up, UpParts};
use qfabric_types::{Nanos, Reservation, ThreadId};
use rustix::event::{PollFd, PollFlags, poll};

const INTERVAL: &str = "7300us";
/// How long an event may favour its receiver.
const USEFUL: Nanos = Nanos::from_millis(20);
/// Work of a receiver that sleeps, for each event.
const WORK: Nanos = Nanos::from_micros(200);
/// The first events after the receiver is scheduled as it shall be; the first one may have been raised before.
const FIRST: usize = 4;
const FIFO_PRIORITY: u32 = 10;
/// Classes of the histogram: below 2 µs, below 4 µs and so on; the last one is open.
const CLASSES: usize = 17;

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Delays of each row.
    pub events: usize,
    /// CPU of the receiver's server.
    pub cpu: u32,
    pub service: Nanos,
    pub period: Nanos,
}

impl Plan {
    /// 300 events, for a receiver on the last CPU.
    pub(crate) fn new() -> Plan {
        let cpu = CpuList::online().iter().last().unwrap_or(0);
        Plan { events: 300, cpu, service: Nanos::from_millis(2), period: Nanos::from_millis(20) }
    }
}

/// What the receiver does between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    Sleeps,
    /// Computes: it has used its budget most of the time.
    Computes,
}

/// How the receiver is scheduled.
pub(crate) enum Way<'a> {
    Plain,
    Fifo,
    Deadline,
    /// In a server of `ext`; `favoured`: by its events.
    Server {
        ext: &'a mut Ext,
        favoured: bool,
    },
}

impl Way<'_> {
    fn raised(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Way::Server { ext, favoured: true } => Some(ext.raised()),
            _ => None,
        }
    }

    /// Schedules the thread in this way; returns its server, if it has one.
    fn give(&mut self, thread: ThreadId, plan: &Plan, aim: &Aim) -> Result<Option<ServerId>, String> {
        let attributes = match self {
            Way::Plain => return Ok(None),
            Way::Server { ext, .. } => return server(ext, thread, plan, aim).map(Some),
            Way::Fifo => SchedAttr::fifo(FIFO_PRIORITY),
            Way::Deadline => SchedAttr::deadline(Reservation::new(plan.service, plan.period).map_err(text)?, false),
        };
        attributes.give(thread).map(|()| None).map_err(text)
    }

    fn take_back(&mut self, id: ServerId) {
        if let Way::Server { ext, .. } = self {
            // The scheduler may have ended meanwhile; then the server has ended with it.
            let _ = ext.destroy(id);
        }
    }
}

/// A server on a grid of periods that is independent of the events.
fn server(ext: &mut Ext, thread: ThreadId, plan: &Plan, aim: &Aim) -> Result<ServerId, String> {
    let (cpu, phase) = (Some(plan.cpu), Some(clock::now()));
    let id = ext.create(&ServerSpec { cpu, phase, ..ServerSpec::new(plan.period, plan.service) }).map_err(text)?;
    ext.join(id, thread, false).map_err(text)?;
    aim.at([RaiseTarget { slot: id.0, cpu: ext.cpu_of(id).map_err(text)? }]);
    Ok(id)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// The delays of the events in ns, in their order.
pub(crate) fn delays(kernel: &Kernel, plan: &Plan, receiver: Receiver, way: &mut Way) -> Result<Vec<u64>, String> {
    let bytes = kernel.service("timer").ok_or("there is no timer")?.format.size;
    let up = UpMemory::new(Geometry::new(Layout::Ring, 64, bytes).map_err(text)?).map_err(text)?;
    let aim = Aim::new().map_err(text)?;
    let _installed = install(kernel, &up, way.raised().map(|raised| (raised, &aim)))?;
    let is_given = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tid_sender, tid_receiver) = std::sync::mpsc::channel();
        let (up, events, is_given) = (&up, plan.events, &is_given);
        let sink = scope.spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            tid_sender.send(ThreadId(own)).expect("the other thread waits for the id");
            receive(up, receiver, events, is_given)
        });
        let thread = tid_receiver.recv().expect("the receiver sends its id first");
        let given = way.give(thread, plan, &aim);
        is_given.store(true, Ordering::Release);
        let delays = sink.join().expect("the receiver ends after its last event");
        if let Ok(Some(id)) = given {
            way.take_back(id);
        }
        given.map(|_| delays)
    })
}

/// Installs the chain of the events: it favours the receiver if it can, then it writes the event.
fn install(kernel: &Kernel, up: &UpMemory, favour: Option<(BorrowedFd<'_>, &Aim)>) -> Result<Installed, String> {
    let memory = Step::Memory { memory: up, position: None };
    let favour = favour.map(|(raised, aim)| Step::Favour { raised, aim });
    let steps: Vec<Step> = favour.into_iter().chain([memory]).collect();
    let install = Install {
        service: "timer",
        options: &BTreeMap::from([("period".to_owned(), INTERVAL.to_owned())]),
        only_pid: None,
        steps: &steps,
        limits: Limits::default(),
        down: None,
        deadline: Some(USEFUL),
        fault_passes: true,
        measured: false,
    };
    kernel.install(&install).map_err(text)
}

/// The receiver's thread. Events before `is_given` do not count.
fn receive(up: &UpMemory, receiver: Receiver, events: usize, is_given: &AtomicBool) -> Vec<u64> {
    let mut reader = up.reader();
    let mut delays = Vec::with_capacity(FIRST + events);
    while delays.len() < FIRST + events {
        match (reader.take(&mut []), receiver) {
            (Some(stamp), _) => {
                let delay = clock::now().get().saturating_sub(stamp.time_ns);
                if is_given.load(Ordering::Acquire) {
                    delays.push(delay);
                }
                if receiver == Receiver::Sleeps {
                    burn(WORK);
                }
            }
            (None, Receiver::Computes) => std::hint::spin_loop(),
            (None, Receiver::Sleeps) => sleep(up, &reader),
        }
    }
    delays.split_off(FIRST)
}

fn sleep(up: &UpMemory, reader: &Up<UpParts<'_>>) {
    if reader.may_sleep() {
        let wake = up.wake_fd();
        poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], None).expect("the descriptor is open");
        up.acknowledge().expect("the memory is mapped");
    }
}

/// The delays under one way of scheduling, or why they were not measured.
#[derive(Debug)]
pub(crate) struct Row {
    pub name: &'static str,
    pub delays: Result<Vec<u64>, String>,
}

/// All ways of scheduling, for one kind of receiver; the first row is that of the ratios.
#[derive(Debug)]
pub(crate) struct Table {
    receiver: Receiver,
    cpus: usize,
    pub rows: Vec<Row>,
}

/// Measures everything, beside two threads for each CPU that compute all the time.
pub(crate) fn tables(kernel: &Kernel, plan: &Plan) -> [Table; 2] {
    let cpus = CpuList::online().len();
    let _hogs: Vec<Worker> = (0..2 * cpus).map(|_| Worker::burning()).collect();
    let mut tables = [Receiver::Sleeps, Receiver::Computes].map(|receiver| Table { receiver, cpus, rows: Vec::new() });
    for table in &mut tables {
        for (name, mut way) in [("DEADLINE", Way::Deadline), ("FIFO", Way::Fifo), ("plain", Way::Plain)] {
            table.measure(kernel, plan, name, &mut way);
        }
    }
    match Ext::load(&ExtConfig::default()) {
        Ok(mut ext) => {
            for table in &mut tables {
                for (name, favoured) in [("ext, no event", false), ("ext", true)] {
                    table.measure(kernel, plan, name, &mut Way::Server { ext: &mut ext, favoured });
                }
            }
        }
        Err(why) => tables.iter_mut().for_each(|table| table.rows.push(Row { name: "ext", delays: Err(text(&why)) })),
    }
    for table in &mut tables {
        table.rows.reverse();
    }
    tables
}

impl Table {
    fn measure(&mut self, kernel: &Kernel, plan: &Plan, name: &'static str, way: &mut Way<'_>) {
        self.rows.push(Row { name, delays: delays(kernel, plan, self.receiver, way) });
    }

    /// Percentiles, their ratios to the first row, and the histogram.
    pub(crate) fn text(&self) -> String {
        let does = match self.receiver {
            Receiver::Sleeps => "sleeps until it comes",
            Receiver::Computes => "computes all the time",
        };
        let head = format!(
            "\nFrom the raise of an event to the first instruction of its receiver, which {does} ({} CPUs)\n\
             {:<16} {:>12} {:>12} {:>12} {:>10} {:>10}\n",
            self.cpus, "", "p50", "p99", "longest", "p50 ratio", "p99 ratio"
        );
        let first = self.rows.first().and_then(Row::percentiles);
        let lines = self.rows.iter().map(|row| match (row.percentiles(), &row.delays) {
            (Some(own), _) => format!("{:<16} {}\n", row.name, line(own, first)),
            (None, Err(why)) => format!("{:<16} not measured: {why}\n", row.name),
            (None, Ok(_)) => format!("{:<16} no event\n", row.name),
        });
        head + &lines.collect::<String>() + &self.histogram()
    }

    fn histogram(&self) -> String {
        let measured: Vec<_> = self.rows.iter().filter_map(|row| Some((row.name, row.classes()?))).collect();
        let names: String = measured.iter().map(|(name, _)| format!(" {name:>14}")).collect();
        let lines = (0..CLASSES).map(|class| {
            let counts: String = measured.iter().map(|(_, classes)| format!(" {:>14}", classes[class])).collect();
            let above = if class + 1 == CLASSES { "≥" } else { "<" };
            let limit = format!("{above} {} µs", 1u64 << (class + 1).min(CLASSES - 1));
            format!("{limit:<16}{counts}\n")
        });
        format!("{:<16}{names}\n", "events") + &lines.collect::<String>()
    }
}

impl Row {
    /// p50, p99 and the longest delay in ns. `None`: nothing was measured.
    fn percentiles(&self) -> Option<[u64; 3]> {
        let mut sorted = self.delays.as_ref().ok()?.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        Some([sorted[last / 2], sorted[last * 99 / 100], sorted[last]])
    }

    /// The number of events in each class of the histogram.
    fn classes(&self) -> Option<[usize; CLASSES]> {
        let mut classes = [0; CLASSES];
        for delay in self.delays.as_ref().ok()? {
            let class = (delay / 1_000).max(1).ilog2() as usize;
            classes[class.min(CLASSES - 1)] += 1;
        }
        Some(classes)
    }
}

fn line([p50, p99, longest]: [u64; 3], first: Option<[u64; 3]>) -> String {
    let micros = |ns: u64| format!("{:>9.1} µs", ns as f64 / 1e3);
    let ratio = |ns: u64, first: u64| format!("{:>10.2}", ns as f64 / first.max(1) as f64);
    let ratios = first.map_or(String::new(), |first| format!("{} {}", ratio(p50, first[0]), ratio(p99, first[1])));
    format!("{} {} {} {ratios}", micros(p50), micros(p99), micros(longest))
}
