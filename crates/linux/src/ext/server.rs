//! What is asked of a server, and what it did.

use qfabric_types::{Instant, KernelControl, Nanos, Reclaiming, Share, Window};

/// A server's number: its slot in the kernel. Free for another one once it is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// A server: so much service in every period on one CPU, for any number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSpec {
    /// The CPU on which it serves; `None`: the one with most left by the sum of service over period.
    pub cpu: Option<u32>,
    /// T, 100 µs to 4.19 s.
    pub period: Nanos,
    /// C, 1.024 µs to the period.
    pub service: Nanos,
    /// x/y.
    pub window: Window,
    /// What happens at the end of the budget.
    pub reclaiming: Reclaiming,
    /// Whether it may be served again in a period in which it was served, while CPU time is left.
    pub work_conserving: bool,
    /// When its first period begins; periods then stay aligned to it, also after idleness. `None`: at the first
    /// demand, and anew at a demand after a deadline has passed (CBS).
    pub phase: Option<Instant>,
    /// Whether a thread's wake-up raises an event.
    pub wake_events: bool,
    /// Budgets chosen in the kernel at each job's end.
    pub control: Option<KernelControl>,
    /// How probably it uses the network (Table 5): 0 never, 255 surely.
    pub network_probability: u8,
}

impl ServerSpec {
    /// `service` in every `period`: hard, no losses, any CPU.
    pub fn new(period: Nanos, service: Nanos) -> ServerSpec {
        ServerSpec {
            cpu: None,
            period,
            service,
            window: Window::NONE,
            reclaiming: Reclaiming::Hard,
            work_conserving: false,
            phase: None,
            wake_events: false,
            control: None,
            network_probability: 0,
        }
    }
}

/// What to change of a server; `None` leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// C. What is left in this period grows or shrinks by the difference at once.
    pub service: Option<Nanos>,
    /// T, from the current deadline on.
    pub period: Option<Nanos>,
    /// x/y: the current window starts anew.
    pub window: Option<Window>,
    /// What happens at the end of the budget.
    pub reclaiming: Option<Reclaiming>,
    /// May be served more than once in a period.
    pub work_conserving: Option<bool>,
    /// Wake-ups raise events.
    pub wake_events: Option<bool>,
    /// Table 5's probability.
    pub network_probability: Option<u8>,
    /// Gives it a controller in the kernel, or takes it away. The controller starts anew.
    pub control: Option<Option<KernelControl>>,
}

impl Change {
    /// Another budget, nothing else.
    pub fn service(service: Nanos) -> Change {
        Change { service: Some(service), ..Change::default() }
    }
}

/// What a server did since it was created. Periods are counted, times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStatistics {
    /// Periods served.
    pub served: u64,
    /// Periods missed.
    pub missed: u64,
    /// Missed ones that the window did not allow.
    pub violations: u64,
    /// Events brought to it, by the rule (1 to 5) that did.
    pub boosts: [u64; 5],
    /// Events that expired before.
    pub expired: u64,
    /// CPU time within the budget.
    pub used: Nanos,
    /// CPU time beside its periods, before best effort: extra service of work-conserving servers, and for events.
    pub extra: Nanos,
    /// Jobs ended: by sched_yield, or by the last runnable thread's going to sleep.
    pub jobs: u64,
    /// CPU time of the last job.
    pub last_job: Nanos,
    /// How late it ended, in whole server periods behind its deadline; 0 without a controller in the kernel.
    pub last_late: u32,
    /// Times that the budget ran out while a thread still wanted more.
    pub throttles: u64,
    /// Wake-ups that led to running.
    pub wakeups: u64,
    /// From the last wake-up to running.
    pub run_queue_delay: Nanos,
    /// The longest such delay.
    pub run_queue_delay_max: Nanos,
    /// All of them.
    pub run_queue_delay_sum: Nanos,
    /// C as it is now.
    pub service: Nanos,
    /// What is left of it in the period that ends at the deadline.
    pub remaining: Nanos,
    /// The current deadline.
    pub deadline: Instant,
    /// x'/y' now.
    pub window_now: (u16, u16),
    /// Threads that are members.
    pub threads: u32,
    /// Times that its turn came while none of its threads could run there (they were on their way).
    pub lost: u64,
}

/// What a CPU did since the scheduler was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStatistics {
    /// Scheduling decisions.
    pub decisions: u64,
    /// Times that it was interrupted for another decision.
    pub kicks: u64,
    /// Times that its timer ended a decision.
    pub timers: u64,
    /// Timers that were not started, or came so late that the tick helped.
    pub late_timers: u32,
    /// CPU time of threads without a server, and of soft ones beyond their budget.
    pub best_effort: Nanos,
    /// Periods in which best effort wanted its guaranteed part and did not get all of it.
    pub best_effort_missed: u64,
    /// What is promised on it, best effort's part included.
    pub booked: Share,
    /// Whether it is online.
    pub online: bool,
}
