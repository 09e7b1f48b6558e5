//! What goes into a [`crate::Host`] and what comes out of it.

use qfabric_broker::Limits;
use qfabric_types::api::{Covers, Problem};
use qfabric_types::ring::JobEvent;
use qfabric_types::{Abilities, AppId, Contract, Instant, Nanos, Owner, Reservation, Sample, Setting, Share, ThreadId};

/// What a host is told once.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// What may be handed out, and to whom how much of it at most.
    pub limits: Limits,
    /// Applications held at the same time; one more is refused with `too_many_applications`.
    pub max_applications: usize,
    /// Threads of one application under reservation; one more stays under the normal scheduler and is
    /// told by [`HostEvent::TooManyThreads`].
    pub max_threads: usize,
    /// Shown in the status.
    pub version: String,
    /// Which mechanism carries reservations out; shown in the status.
    pub mechanism: String,
    /// What that mechanism can do.
    pub abilities: Abilities,
    /// Where its servers are bound to CPUs: what may be promised on each.
    pub cpu_capacity: Share,
    /// What the service's own threads hold of one CPU there.
    pub own: Option<Reservation>,
    /// What best effort is guaranteed on each CPU there, beside that capacity.
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
            abilities: Abilities::default(),
            cpu_capacity: Limits::default().capacity,
            own: None,
            best_effort: None,
        }
    }
}

/// What happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An application asks for a contract. Answered by [`Output::Admitted`] or [`Output::Refused`].
    Join {
        /// Comes back in the answer.
        request: u64,
        /// Its process.
        pid: i32,
        /// Whose it is, as the kernel vouches for it.
        owner: Owner,
        /// Which threads the contract covers.
        covers: Covers,
        /// Those of them that exist now. Those that a program's contract covers so far are taken over from it, with the
        /// reservations they hold.
        threads: Vec<ThreadId>,
        /// What is asked for; checked here.
        contract: Contract,
    },
    /// An application asks for another contract. Answered by [`Output::Changed`] or [`Output::Refused`].
    Change {
        /// Comes back in the answer.
        request: u64,
        /// Which.
        app: AppId,
        /// What is asked for; checked here.
        contract: Contract,
    },
    /// So much is kept for an application that is still to come: guaranteed, and used by nobody yet. Answered by
    /// [`Output::Admitted`] or [`Output::Refused`]; [`Input::Leave`] ends it.
    Keep {
        /// Comes back in the answer.
        request: u64,
        /// For whom: what refusals call the holder.
        name: String,
        /// How much.
        share: Share,
    },
    /// An application has left, or its lease ended: every thread is put back.
    Leave {
        /// Which.
        app: AppId,
    },
    /// A thread that the contract covers has appeared.
    ThreadBorn {
        /// Whose.
        app: AppId,
        /// Which.
        thread: ThreadId,
    },
    /// A thread goes back to the contract of its program, with the reservation it holds.
    HandBack {
        /// Whose it is so far.
        app: AppId,
        /// Which.
        thread: ThreadId,
        /// The program.
        to: AppId,
    },
    /// A thread has ended.
    ThreadGone {
        /// Whose.
        app: AppId,
        /// Which.
        thread: ThreadId,
    },
    /// What an application says of its jobs, from its ring.
    Job {
        /// Whose.
        app: AppId,
        /// What.
        event: JobEvent,
    },
    /// The scheduling deadline of a thread's server, read when a job of it ended; told before that end is.
    Served {
        /// Whose.
        app: AppId,
        /// Which thread.
        thread: ThreadId,
        /// s_k of AQuoSA's Corollary 1.
        deadline: Instant,
    },
    /// A thread was seen on a CPU.
    Ran {
        /// Whose.
        app: AppId,
        /// Which thread, when and how long.
        sample: Sample,
    },
    /// What became of an [`Output::Set`] or [`Output::GiveBack`]. Every one is answered, in order.
    Applied {
        /// Which thread's.
        thread: ThreadId,
        /// What became of it.
        outcome: Outcome,
    },
    /// The room for reservations on this host changed, or was probed.
    Capacity(Share),
    /// The administrator allows something else: all of it from now on. Guarantees that were given are kept; applications
    /// and threads that are there stay, also where there are more than may come from now on.
    Limits {
        /// What may be handed out, and to whom how much of it at most.
        limits: Limits,
        /// As in [`HostConfig`].
        max_applications: usize,
        /// As in [`HostConfig`].
        max_threads: usize,
    },
    /// Another mechanism is in force, since the kernel ended the one there was: every thread is under the normal
    /// scheduler, and nothing that was told before holds.
    Mechanism {
        /// Its name.
        name: String,
        /// What it can do.
        abilities: Abilities,
        /// What may be handed out in all.
        capacity: Share,
    },
    /// Servers are bound to CPUs, and these are there from now on, no others.
    Cpus(Vec<u32>),
    /// Nothing happened but time passed.
    Tick,
}

/// What became of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The mechanism obeyed.
    Done,
    /// No room for it right now; the old value is in force. Tried again once decreases have settled.
    Busy,
    /// It was to be done only while the thread sleeps, and the thread is awake or in debt; the old value is in force.
    Awake,
    /// The thread does not exist any more.
    Gone,
    /// The mechanism refuses for good, with this errno; the old value is in force.
    Denied(i32),
}

/// What is to be done or told.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Answer to [`Input::Join`].
    Admitted {
        /// The request answered.
        request: u64,
        /// The application's number from now on.
        app: AppId,
    },
    /// Answer to [`Input::Change`].
    Changed {
        /// The request answered.
        request: u64,
        /// Which.
        app: AppId,
    },
    /// Answer to a request that was refused; nothing was changed.
    Refused {
        /// The request answered.
        request: u64,
        /// Why, and what to do.
        problem: Problem,
    },
    /// Carry this out now and answer with [`Input::Applied`].
    Set(Setting),
    /// Carry this out only if the thread sleeps and owes its server nothing; otherwise answer [`Outcome::Awake`].
    GiveBack(Setting),
    /// For logs and counters.
    Event(HostEvent),
}

/// Something worth a log line or a counter, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// An application began to get less than its controller wants.
    Saturated {
        /// Which.
        app: AppId,
        /// What its controller wants.
        wanted: Share,
        /// What it gets.
        granted: Share,
    },
    /// An application gets what its controller wants again.
    Satisfied {
        /// Which.
        app: AppId,
        /// What it gets.
        granted: Share,
    },
    /// The application has more threads than one application may have under reservation. The thread stays
    /// under the normal scheduler.
    TooManyThreads {
        /// Which.
        app: AppId,
        /// The thread left out.
        thread: ThreadId,
        /// How many threads it may have.
        limit: usize,
    },
    /// The mechanism refused a setting for good. The thread is left to (or put back under) the normal
    /// scheduler and not tried again until its contract changes.
    Denied {
        /// Which.
        app: AppId,
        /// Which thread.
        thread: ThreadId,
        /// Its reason.
        errno: i32,
    },
    /// The mechanism had no room for a setting that our own books had room for.
    Busy {
        /// Which.
        app: AppId,
        /// Which thread.
        thread: ThreadId,
        /// How often in a row.
        attempts: u32,
    },
    /// A job used up the budget that was foreseen for it, and gets all that its application may have at once.
    Rescue {
        /// Which.
        app: AppId,
        /// Which thread.
        thread: ThreadId,
    },
    /// A period was found in the activations of a program whose contract leaves that to the host; it is in force.
    RhythmFound {
        /// Which.
        app: AppId,
        /// T.
        period: Nanos,
        /// Its sharpness in percent: 100 for activations without jitter.
        percent: u32,
        /// How long it took.
        after: Nanos,
    },
    /// The activations of a program show its period no longer: consumption decides until one is found again.
    RhythmLost {
        /// Which.
        app: AppId,
        /// T until now.
        period: Nanos,
    },
    /// The mechanism in force cannot give what an application was promised, or its CPU is gone: it gets nothing until
    /// it asks for something else, or a CPU with room comes.
    Suspended {
        /// Which.
        app: AppId,
        /// What it cannot give.
        what: &'static str,
    },
    /// The last thread of an application has ended; it keeps its contract until it leaves.
    Empty {
        /// Which.
        app: AppId,
    },
    /// An application has left and all its threads are put back.
    Left {
        /// Which.
        app: AppId,
    },
    /// The capacity fell below what is guaranteed: guarantees are scaled down to it.
    GuaranteesCut {
        /// What may be handed out now.
        capacity: Share,
        /// What is guaranteed.
        guaranteed: Share,
    },
    /// An input named an application or a thread that is not known, or made no sense; it was ignored.
    Ignored {
        /// How many so far.
        count: u64,
    },
}
