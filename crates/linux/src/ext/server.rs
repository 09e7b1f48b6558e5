//! Parameters and statistics of a server.

use qfabric_types::{Instant, KernelController, Nanos, Reclaiming, Share, Window};

/// Slot of the server in the kernel. A later server can get the slot of a destroyed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Parameters of a server: an amount of service in every period on one CPU, for any number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSpec {
    /// CPU of the server; `None`: the online CPU with the most free share.
    pub cpu: Option<u32>,
    /// T, 100 µs to 4.19 s.
    pub period: Nanos,
    /// C, 1.024 µs to the period.
    pub service: Nanos,
    /// x/y.
    pub window: Window,
    /// Rule for a server that has used its budget.
    pub reclaiming: Reclaiming,
    /// True if the server may be served again after it had its service in the period, while CPU time is left.
    pub work_conserving: bool,
    /// Begin of the first period; later periods stay aligned to it, even after idleness. `None`: the first period
    /// begins at the first demand, and anew at a demand after a deadline has passed (CBS).
    pub phase: Option<Instant>,
    /// True if a wake-up of a thread raises an event.
    pub wake_events: bool,
    /// Controller in the kernel that chooses the budget at the end of each job.
    pub control: Option<KernelController>,
    /// Probability that the server uses the network (Table 5): 0 never, 255 certainly.
    pub network_probability: u8,
}

impl ServerSpec {
    /// `service` in every `period`: hard, without losses, on any CPU.
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

/// Changes of a server; `None` leaves a parameter as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// C. The remaining service in this period changes by the difference at once.
    pub service: Option<Nanos>,
    /// T, from the current deadline on.
    pub period: Option<Nanos>,
    /// x/y. The current window starts anew.
    pub window: Option<Window>,
    pub reclaiming: Option<Reclaiming>,
    /// True if the server may be served more than once in a period.
    pub work_conserving: Option<bool>,
    /// True if wake-ups raise events.
    pub wake_events: Option<bool>,
    /// Probability of Table 5.
    pub network_probability: Option<u8>,
    /// Installs or removes the controller in the kernel. An installed controller starts anew.
    pub control: Option<Option<KernelController>>,
}

impl Change {
    /// Changes only the service.
    pub fn service(service: Nanos) -> Change {
        Change { service: Some(service), ..Change::default() }
    }
}

/// Statistics of a server since its creation. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStatistics {
    /// Periods with service.
    pub served: u64,
    /// Periods without service.
    pub missed: u64,
    /// Missed periods that the window did not allow.
    pub violations: u64,
    /// Events that made the scheduler run the server earlier, by the rule (1 to 5) that applied.
    pub boosts: [u64; 5],
    /// Events that expired first.
    pub expired: u64,
    /// CPU time within the budget.
    pub used: Nanos,
    /// CPU time outside its periods, before best effort: extra service of work-conserving servers, and service for
    /// events.
    pub extra: Nanos,
    /// Ended jobs. A job ends with sched_yield, or when the last runnable thread falls asleep.
    pub jobs: u64,
    pub last_job: Nanos,
    /// Server periods by which the last job ended after its deadline; 0 without a controller in the kernel.
    pub last_late: u32,
    /// Times that the budget ran out while a thread was still runnable.
    pub throttles: u64,
    /// Wake-ups after which a thread ran.
    pub wakeups: u64,
    /// Delay from the last wake-up until the thread ran.
    pub run_queue_delay: Nanos,
    /// Longest such delay.
    pub run_queue_delay_max: Nanos,
    /// Sum of all such delays.
    pub run_queue_delay_sum: Nanos,
    /// Present C.
    pub service: Nanos,
    /// Remaining service in the period that ends at the deadline.
    pub remaining: Nanos,
    pub deadline: Instant,
    /// Present x'/y'.
    pub window_now: (u16, u16),
    pub threads: u32,
    /// Times that the server was chosen while none of its threads could run on its CPU (they were being moved there).
    pub lost: u64,
}

/// Statistics of a CPU since the scheduler was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStatistics {
    pub decisions: u64,
    /// Times that the CPU was interrupted for a new decision.
    pub kicks: u64,
    /// Times that the CPU's timer ended a decision.
    pub timers: u64,
    /// Timers that could not be started, or fired so late that the tick acted first.
    pub late_timers: u32,
    /// CPU time of threads without a server, and of soft servers beyond their budget.
    pub best_effort: Nanos,
    /// Periods in which best effort demanded its guaranteed part and did not get all of it.
    pub best_effort_missed: u64,
    /// Promised share, including best effort's part.
    pub booked: Share,
    pub online: bool,
}
