//! The competitors: puts a task under each scheduler, with the same budget if the scheduler accepts one.

use anyhow::{Context, Result, bail};
use qfabric_linux::ext::{Ext, ExtConfig, ServerId, ServerSpec, ServerStatistics};
use qfabric_linux::net;
use qfabric_linux::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use qfabric_types::{Instant, Nanos, Reservation, ServerCounts, ThreadId, Window};
use serde::{Deserialize, Serialize};

/// The contest uses one CPU.
const CPU: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Competitor {
    /// The kernel's fair scheduler with default settings.
    Default,
    /// SCHED_RR with priority 1, which the papers used for their players.
    Rr,
    /// SCHED_DEADLINE with static budgets.
    Deadline,
    /// Q-Fabric's scheduler in the kernel, with budgets and windows.
    Ext,
    /// Like `ext`, and a wake-up is an event that favours its sink.
    ExtEvents,
    /// Packets in order of arrival.
    Fifo,
    /// Packets under `fq`, with a queue per flow.
    Fq,
    /// Packets in classes of a hierarchical token bucket.
    Htb,
    /// Packets under Q-Fabric's queueing discipline, with deadlines and windows.
    Dwcs,
    /// A stream without reservations.
    Neither,
    /// A stream with reserved CPU time.
    CpuOnly,
    /// A stream with reserved packets.
    PacketsOnly,
    /// A stream with reserved CPU time and packets, on one clock.
    Together,
}

impl Competitor {
    /// Name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Competitor::Default => "default",
            Competitor::Rr => "round robin",
            Competitor::Deadline => "SCHED_DEADLINE",
            Competitor::Ext => "ext",
            Competitor::ExtEvents => "ext with events",
            Competitor::Fifo => "fifo",
            Competitor::Fq => "fq",
            Competitor::Htb => "HTB",
            Competitor::Dwcs => "DWCS",
            Competitor::Neither => "neither",
            Competitor::CpuOnly => "CPU only",
            Competitor::PacketsOnly => "packets only",
            Competitor::Together => "both",
        }
    }

    pub fn needs_ext(self) -> bool {
        use Competitor::{CpuOnly, Ext, ExtEvents, Together};
        matches!(self, Ext | ExtEvents | CpuOnly | Together)
    }

    pub fn needs_dwcs(self) -> bool {
        matches!(self, Competitor::Dwcs | Competitor::PacketsOnly | Competitor::Together)
    }

    /// The reason for which this host cannot run the competitor, with the next step; `None` if it can.
    pub fn missing_support(self) -> Option<String> {
        let cpu = self.needs_ext().then(|| Ext::supported().err().map(|e| e.to_string())).flatten();
        let net = || self.needs_dwcs().then(|| net::supported().err().map(|e| e.to_string())).flatten();
        cpu.or_else(net)
    }
}

/// The requirements of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// T.
    pub period: Nanos,
    /// C.
    pub budget: Nanos,
    /// x/y.
    pub window: Window,
    /// Start of the first period; `None`: at the first demand.
    pub first: Option<Instant>,
    /// The task also gets time beyond its service.
    pub work_conserving: bool,
}

/// The competitor in use. Dropping the value undoes all changes to the host.
pub struct Regime {
    competitor: Competitor,
    ext: Option<Ext>,
    servers: Vec<ServerId>,
}

impl Regime {
    /// Activates the competitor.
    pub fn begin(competitor: Competitor) -> Result<Regime> {
        let ext = competitor.needs_ext().then(|| Ext::load(&ExtConfig::default())).transpose()?;
        Ok(Regime { competitor, ext, servers: Vec::new() })
    }

    /// Puts a task under the competitor. A refused admission is an error that gives the reason.
    pub fn place(&mut self, thread: ThreadId, requirement: Requirement) -> Result<()> {
        match self.competitor {
            Competitor::Rr => round_robin().give(thread).context("cannot set SCHED_RR"),
            Competitor::Deadline => {
                let reservation = Reservation::new(requirement.budget, requirement.period)?;
                SchedAttr::deadline(reservation, false).give(thread).context("SCHED_DEADLINE refused the task")
            }
            Competitor::Ext | Competitor::ExtEvents => self.serve(thread, requirement),
            _ => Ok(()),
        }
    }

    fn serve(&mut self, thread: ThreadId, requirement: Requirement) -> Result<()> {
        let ext = self.ext.as_mut().context("the scheduler is not loaded")?;
        let spec = ServerSpec {
            cpu: Some(CPU),
            window: requirement.window,
            work_conserving: requirement.work_conserving,
            phase: requirement.first,
            wake_events: self.competitor == Competitor::ExtEvents,
            ..ServerSpec::new(requirement.period, requirement.budget)
        };
        let server = ext.create(&spec)?;
        self.servers.push(server);
        Ok(ext.join(server, thread, false)?)
    }

    /// The scheduler's own counters of each task, in the order of [`Regime::place`]; empty if it counts nothing.
    /// Fails if the kernel has ejected the scheduler.
    pub fn counts(&self) -> Result<Vec<ServerCounts>> {
        let Some(ext) = &self.ext else { return Ok(Vec::new()) };
        if let Some(reason) = ext.exit_reason() {
            bail!("the kernel ejected the scheduler: {reason}");
        }
        self.servers.iter().map(|&server| Ok(counts(&ext.statistics(server)?))).collect()
    }
}

fn counts(statistics: &ServerStatistics) -> ServerCounts {
    ServerCounts {
        served: statistics.served,
        missed: statistics.missed,
        violations: statistics.violations,
        boosts: statistics.boosts.iter().sum(),
        throttles: statistics.throttles,
        used_ns: (statistics.used + statistics.extra).get(),
        ..ServerCounts::default()
    }
}

fn round_robin() -> SchedAttr {
    SchedAttr { policy: Policy::RR, priority: 1, flags: RESET_ON_FORK, ..SchedAttr::fair(0) }
}

/// Gives a thread a priority above all competitors. Used for the conductor and for processes that stand for other
/// machines. Children of the thread start as ordinary tasks.
pub fn elevate(thread: ThreadId, priority: u32) -> Result<()> {
    SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(priority) }
        .give(thread)
        .context("cannot set SCHED_FIFO, which needs CAP_SYS_NICE; run the contest as root")
}
