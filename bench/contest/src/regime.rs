//! The competitors: how a task is put under each scheduler, with the same budget where it takes one.

use anyhow::{Context, Result, bail};
use qfabric_linux::ext::{Ext, ExtConfig, ServerId, ServerSpec, ServerStatistics};
use qfabric_linux::net;
use qfabric_linux::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use qfabric_types::{Instant, Nanos, Reservation, ServerCounts, ThreadId, Window};
use serde::{Deserialize, Serialize};

/// The contest is about one CPU.
const CPU: u32 = 0;

/// A competitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Competitor {
    /// The kernel's fair scheduler, as programs get it.
    Default,
    /// SCHED_RR at priority 1: what the papers ran their players under.
    Rr,
    /// SCHED_DEADLINE with static budgets.
    Deadline,
    /// Q-Fabric's scheduler in the kernel, which knows budgets and windows.
    Ext,
    /// The same, and a wake-up is an event that favours its sink.
    ExtEvents,
    /// Packets in the order in which they come.
    Fifo,
    /// Packets under `fq`, flow by flow.
    Fq,
    /// Packets in classes of a hierarchical token bucket.
    Htb,
    /// Packets under Q-Fabric's queueing discipline, which knows deadlines and windows.
    Dwcs,
    /// A stream under the default scheduler whose packets are queued as they come.
    Neither,
    /// A stream with CPU time reserved.
    CpuOnly,
    /// A stream with its packets reserved for.
    PacketsOnly,
    /// A stream with both, on one clock.
    Together,
}

impl Competitor {
    /// As tables and plots say it.
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

    /// Whether it needs Q-Fabric's CPU scheduler.
    pub fn needs_ext(self) -> bool {
        use Competitor::{CpuOnly, Ext, ExtEvents, Together};
        matches!(self, Ext | ExtEvents | CpuOnly | Together)
    }

    /// Whether it needs Q-Fabric's packet scheduler.
    pub fn needs_dwcs(self) -> bool {
        matches!(self, Competitor::Dwcs | Competitor::PacketsOnly | Competitor::Together)
    }

    /// Why this host cannot run it, and what to do; `None`: it can.
    pub fn lacks(self) -> Option<String> {
        let cpu = self.needs_ext().then(|| Ext::supported().err().map(|e| e.to_string())).flatten();
        let net = || self.needs_dwcs().then(|| net::supported().err().map(|e| e.to_string())).flatten();
        cpu.or_else(net)
    }
}

/// What a task needs of its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// T.
    pub period: Nanos,
    /// C.
    pub budget: Nanos,
    /// x/y.
    pub window: Window,
    /// When its first period begins; `None`: with its first demand.
    pub first: Option<Instant>,
    /// Gets time beyond its service.
    pub work_conserving: bool,
}

/// A competitor in charge. Dropping it puts the host back.
pub struct Regime {
    competitor: Competitor,
    ext: Option<Ext>,
    servers: Vec<ServerId>,
}

impl Regime {
    /// Puts it in charge.
    pub fn begin(competitor: Competitor) -> Result<Regime> {
        let ext = competitor.needs_ext().then(|| Ext::load(&ExtConfig::default())).transpose()?;
        Ok(Regime { competitor, ext, servers: Vec::new() })
    }

    /// Puts a task under it. A refusal of its admission is an error that says so.
    pub fn place(&mut self, thread: ThreadId, claim: Claim) -> Result<()> {
        match self.competitor {
            Competitor::Rr => round_robin().give(thread).context("SCHED_RR"),
            Competitor::Deadline => {
                let reservation = Reservation::new(claim.budget, claim.period)?;
                SchedAttr::deadline(reservation, false).give(thread).context("SCHED_DEADLINE refuses the task")
            }
            Competitor::Ext | Competitor::ExtEvents => self.serve(thread, claim),
            _ => Ok(()),
        }
    }

    fn serve(&mut self, thread: ThreadId, claim: Claim) -> Result<()> {
        let ext = self.ext.as_mut().context("the scheduler is not loaded")?;
        let spec = ServerSpec {
            cpu: Some(CPU),
            window: claim.window,
            work_conserving: claim.work_conserving,
            phase: claim.first,
            wake_events: self.competitor == Competitor::ExtEvents,
            ..ServerSpec::new(claim.period, claim.budget)
        };
        let server = ext.create(&spec)?;
        self.servers.push(server);
        Ok(ext.join(server, thread, false)?)
    }

    /// What the scheduler itself counted of each task, in the order in which they were placed; empty where it counts
    /// nothing. An error where it was thrown out meanwhile.
    pub fn counts(&self) -> Result<Vec<ServerCounts>> {
        let Some(ext) = &self.ext else { return Ok(Vec::new()) };
        if let Some(reason) = ext.exit_reason() {
            bail!("the kernel threw the scheduler out: {reason}");
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

/// Puts a thread above all competitors: what stands for other machines, and the conductor itself. Its children
/// start as ordinary tasks.
pub fn elevate(thread: ThreadId, priority: u32) -> Result<()> {
    SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(priority) }
        .give(thread)
        .context("cannot run above the contest: SCHED_FIFO needs CAP_SYS_NICE; run it as root")
}
