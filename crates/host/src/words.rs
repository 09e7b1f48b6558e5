//! The inputs and outputs of a [`crate::Host`].

use qfabric_broker::Limits;
use qfabric_types::api::timeline::EndedJob;
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::ring::JobEvent;
use qfabric_types::{
    AppId, Contract, Instant, MechanismFeatures, MechanismName, Nanos, Owner, Reservation, Sample, Setting, Share,
    ThreadId,
};

/// The configuration of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// The capacity, and the maximum of each user, group and level.
    pub limits: Limits,
    /// Applications at the same time; a further one is refused with `too_many_applications`.
    pub max_applications: usize,
    /// Threads of one application under reservation; a further one stays under the normal scheduler and is reported
    /// by [`HostEvent::TooManyThreads`].
    pub max_threads: usize,
    /// Version of the program, shown in the status.
    pub version: String,
    /// Name of the mechanism, shown in the status.
    pub mechanism: String,
    /// What the mechanism supports beyond one budget per thread.
    pub features: MechanismFeatures,
    /// The mechanisms that this machine could use instead, which refusals suggest. Found once, when the service starts.
    pub alternatives: Vec<(MechanismName, MechanismFeatures)>,
    /// The capacity of each CPU, if servers are bound to CPUs.
    pub cpu_capacity: Share,
    /// The reservation of the service's own server, if servers are bound to CPUs.
    pub own: Option<Reservation>,
    /// The reservation of best effort on each CPU, beside that capacity, if servers are bound to CPUs.
    pub best_effort: Option<Reservation>,
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig {
            limits: Limits::default(),
            max_applications: 256,
            max_threads: 256,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mechanism: "none".to_owned(),
            features: MechanismFeatures::default(),
            alternatives: Vec::new(),
            cpu_capacity: Limits::default().capacity,
            own: None,
            best_effort: None,
        }
    }
}

/// An event for the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An application requests a contract. Answered by [`Output::Admitted`] or [`Output::Refused`].
    Join {
        /// Returned in the answer.
        request: u64,
        /// The application's process.
        pid: i32,
        /// The owner of the process, as the kernel reports it.
        owner: Owner,
        /// The threads that the contract covers.
        covers: ApplicationScope,
        /// The covered threads that exist now. Threads covered by a program's contract so far are taken over with
        /// their reservations.
        threads: Vec<ThreadId>,
        /// The requested contract; checked by the host.
        contract: Contract,
        /// The CPUs on which the threads may run; `None`: all.
        cpus: Option<Vec<u32>>,
    },
    /// An application requests another contract. Answered by [`Output::Changed`] or [`Output::Refused`].
    Change {
        /// Returned in the answer.
        request: u64,
        app: AppId,
        /// The requested contract; checked by the host.
        contract: Contract,
    },
    /// Keeps a share for a future application (a loan): guaranteed, but not used by any application yet. Answered by
    /// [`Output::Admitted`] or [`Output::Refused`]; [`Input::Leave`] ends it.
    Keep {
        /// Returned in the answer.
        request: u64,
        /// The name that refusals show for the holder.
        name: String,
        /// The user and group that the share counts against.
        owner: Owner,
        share: Share,
    },
    /// An application has left, or its lease ended: every thread is restored.
    Leave { app: AppId },
    /// A thread that the contract covers has appeared.
    ThreadBorn { app: AppId, thread: ThreadId },
    /// A thread returns to the contract of its program, with its reservation.
    HandBack {
        /// The application that covers it so far.
        app: AppId,
        thread: ThreadId,
        /// The application of the thread's program.
        to: AppId,
    },
    /// A thread has ended.
    ThreadGone { app: AppId, thread: ThreadId },
    /// A record from the application's ring.
    Job { app: AppId, event: JobEvent },
    /// The scheduling deadline of a thread's server, read when a job ended; comes before the end of that job.
    Served {
        app: AppId,
        thread: ThreadId,
        /// s_k of AQuoSA's Corollary 1.
        deadline: Instant,
    },
    /// A thread ran on a CPU.
    Ran { app: AppId, sample: Sample },
    /// The outcome of an [`Output::Set`] or [`Output::GiveBack`]. Every one has an answer, in order.
    Applied { thread: ThreadId, outcome: Outcome },
    /// The capacity of the host changed, or was probed.
    Capacity(Share),
    /// The administrator's limits changed; all of them apply from now on. Guarantees stay; present applications and
    /// threads stay, even if there are more than the new limits allow.
    Limits {
        /// The capacity, and the maximum of each user, group and level.
        limits: Limits,
        max_applications: usize,
        max_threads: usize,
    },
    /// The kernel ejected the mechanism and another one is in force. Every thread is under the normal scheduler,
    /// and all earlier settings are void.
    Mechanism {
        name: String,
        features: MechanismFeatures,
        /// The capacity of the new mechanism.
        capacity: Share,
    },
    /// Exactly these CPUs are online, and servers are bound to CPUs.
    Cpus(Vec<u32>),
    /// Only time has passed.
    Tick,
}

/// The outcome of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The mechanism applied it.
    Done,
    /// There is no room at this time; the old value is in force. Tried again when decreases have settled.
    Busy,
    /// It was to be applied only while the thread sleeps, and the thread is awake or in debt; the old value is in
    /// force.
    Awake,
    /// The thread has ended.
    Gone,
    /// The mechanism refuses permanently, with this errno; the old value is in force.
    Denied(i32),
}

/// An instruction or a report of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Answer to [`Input::Join`].
    Admitted {
        request: u64,
        /// The application's number from now on.
        app: AppId,
    },
    /// Answer to [`Input::Change`].
    Changed { request: u64, app: AppId },
    /// Answer to a refused request; a refusal changes nothing.
    Refused {
        request: u64,
        /// The reason and the next step.
        problem: Problem,
    },
    /// Apply this setting now and answer with [`Input::Applied`].
    Set(Setting),
    /// Apply this setting only if the thread sleeps and is not in debt; otherwise answer [`Outcome::Awake`].
    GiveBack(Setting),
    /// A job ended and was counted.
    Job { app: AppId, job: EndedJob },
    /// For logs and counters.
    Event(HostEvent),
}

/// An event for logs and counters, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// An application is granted less than its controller wants.
    Saturated { app: AppId, wanted: Share, granted: Share },
    /// An application is granted what its controller wants again.
    Satisfied { app: AppId, granted: Share },
    /// The application has more threads than one application may have under reservation. The thread stays under the
    /// normal scheduler.
    TooManyThreads {
        app: AppId,
        thread: ThreadId,
        /// Largest number of threads per application.
        limit: usize,
    },
    /// The mechanism refused a setting permanently. The thread stays under, or returns to, the normal scheduler,
    /// and nothing is tried again until its contract changes.
    Denied {
        app: AppId,
        thread: ThreadId,
        /// The reason of the refusal.
        errno: i32,
    },
    /// The mechanism had no room for a setting that fits into the ledger.
    Busy {
        app: AppId,
        thread: ThreadId,
        /// Number of attempts in a row.
        attempts: u32,
    },
    /// A job used up its foreseen budget, and receives the largest budget of its application at once.
    Rescue { app: AppId, thread: ThreadId },
    /// A period was found in the activations of a program whose contract leaves it to the host; it is in force.
    RhythmFound {
        app: AppId,
        /// The period T.
        period: Nanos,
        /// Sharpness of the period in percent: 100 for activations without jitter.
        percent: u32,
        /// Duration of the search.
        after: Nanos,
    },
    /// The activations of a program show its period no longer: budgets follow its consumption until a period is
    /// found again.
    RhythmLost {
        app: AppId,
        /// The former period T.
        period: Nanos,
    },
    /// The mechanism in force cannot keep an application's promise, or its CPU is offline. The application receives
    /// nothing until its contract changes, or a CPU with room goes online.
    Suspended {
        app: AppId,
        /// The ability or room that is missing.
        what: &'static str,
    },
    /// The last thread of an application has ended; it keeps its contract until it leaves.
    Empty { app: AppId },
    /// An application has left and all its threads are restored.
    Left { app: AppId },
    /// The capacity fell below the sum of guarantees: guarantees are scaled down to it.
    GuaranteesCut { capacity: Share, guaranteed: Share },
    /// An input named an unknown application or thread, or was inconsistent; it was ignored.
    Ignored {
        /// Number of ignored inputs so far.
        count: u64,
    },
}
