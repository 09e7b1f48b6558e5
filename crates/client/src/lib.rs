//! Client library: an application requests a contract, marks the end of each job, and waits for the next one.
//!
//! ```no_run
//! use qfabric_client::{Client, Contract, Foresight, Nanos, Session};
//!
//! # fn decode_a_frame() {}
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let contract = Contract::new("player", Nanos::from_millis(40)); // 25 jobs a second
//! let mut session = Session::start(&Client::connect()?, contract)?;
//! loop {
//!     decode_a_frame();
//!     session.end_cycle(Foresight::Nothing);
//!     session.wait_for_next_job();
//! }
//! # }
//! ```
//!
//! A session belongs to the thread that started it. Calls to the daemon use HTTP and JSON on a Unix socket and may
//! block for at most [`Client::PATIENCE`]. [`Session::end_cycle`] writes one record into shared memory and makes at
//! most one write to an eventfd: it never fails, blocks or allocates. If the daemon stops, the session keeps its pace
//! without a reservation, and rejoins when the daemon is back.
//!
//! # AQuoSA's names (its Figure 6)
//!
//! | AQuoSA | here |
//! |---|---|
//! | `qmgr_init()` | [`Client::connect`] |
//! | `qmgr_set_task_period(T)` | [`Contract::new`]`(name, T)`, [`Contract::period`] |
//! | `qmgr_set_server_period(P)` | [`Contract::server_period`] |
//! | `qmgr_set_max_bandwidth(B)` | [`Contract::max_bandwidth`] |
//! | `qmgr_set_predictor(QMGR_PRED_MOVAVG)`, `movavg_set_sample_size(n)` | [`Contract::predictor`]; an own one: [`Session::use_predictor`] |
//! | `qmgr_set_controller(QMGR_CTRL_INVARIANT)` | [`Contract::choice`]; an own one: [`Session::use_controller`] |
//! | `qmgr_start()` | [`Session::start`] |
//! | `qmgr_end_cycle()` | [`Session::end_cycle`] |
//! | `qmgr_end()` | [`Session::end`] |
//! | `qmgr_start_periodic(job)` | [`Session::start_periodic`] |
//!
//! [`Cpu`] is QualMan's interface to the processor (§6.4: probe, reserve, start, yield, free), [`Profiles`] stores what
//! was probed, [`Mem`] the one to memory
//! (reserve, lock the text, allocate, free), [`JointHandle`] the one to contracts over
//! several resources and hosts. [`Ladder`] lowers and raises an encoder's quality. ECalls are in [`ecalls`], Q-channels in
//! [`channel`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attempt;
pub mod channel;
mod checkpoint;
mod client;
pub mod clock;
mod consent;
mod cpu;
mod delays;
pub mod ecalls;
mod error;
mod grid;
mod http;
mod jobs;
mod joint;
mod lease;
mod link;
mod mem;
mod net;
mod overload;
mod plugin;
mod profiles;
mod reserved_rate;
mod services;
mod session;
mod stream;
/// Types that the model checker of `tests/models` replaces.
mod sync {
    pub(crate) use std::sync::{Mutex, MutexGuard};

    /// Waits for the lock. A panic of its last holder, which may be a handler of the application, changes nothing.
    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

pub use client::{Client, sockets};
pub use consent::ConsentHandle;
pub use cpu::{Cpu, Probe};
pub use delays::DelayRecorder;
pub use error::ClientError;
pub use grid::{Job, LatePolicy};
pub use jobs::Jobs;
pub use joint::{JointBuilder, JointHandle};
pub use link::{Connection, Counters};
pub use mem::{Allocation, HugeReserve, Mem};
pub use net::{code_point, set_dscp};
pub use overload::OverloadChange;
pub use plugin::{Controller, Interval, Predictor};
pub use profiles::{Profiles, platform, profiles_folder};
pub use reserved_rate::ReservedRate;
pub use session::Session;
pub use stream::explain;

pub use qfabric_control::ladder::{self, Ladder};
pub use qfabric_control::relief;
pub use qfabric_shm::Process;
pub use qfabric_translate::Explanation;
pub use qfabric_types::api::contracts::{
    ConsentInfo, ConsentPolicy, ConsentQuestion, ConsentRequest, JointContract, JointHolder, JointId, JointPart,
    JointRefusal, JointRequest, JointResource, UpgradeOffer, UpgradePolicy,
};
pub use qfabric_types::api::energy::EnergySaving;
pub use qfabric_types::api::memory::{
    AllocationId, HostMemory, MemoryPressure, MemoryProtection, MemoryStatus, PageKind, PoolStatus, ReserveId,
};
pub use qfabric_types::api::{
    Application, ApplicationRequest, ApplicationScope, Change, Claim, HostLimits, HostMemoryLimits, HostStatus,
    LimitsPatch, Loan, LoanRate, MemoryLimitsPatch, Offer, Problem,
};
pub use qfabric_types::ring::Grant;
pub use qfabric_types::{
    AppId, BitRate, Bytes, Choice, Class, Contract, Foresight, Instant, InvalidProfileName, JobRecord, Nanos, Overload,
    Platform, PredictorSpec, Profile, ProfileBook, ProfileName, Quality, Reclaiming, Resource, Resources, Share, Usage,
    Utility, UtilityMetric, Window,
};

/// Compiles the programs in the guide.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/channels.md")]
    struct Channels;
    #[doc = include_str!("../../../docs/guide/src/client.md")]
    struct Client;
    #[doc = include_str!("../../../docs/guide/src/ecalls.md")]
    struct Ecalls;
    #[doc = include_str!("../../../docs/guide/src/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/guide/src/overload.md")]
    struct Overload;
}
