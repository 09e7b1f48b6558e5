//! The types that all crates share: units, ids, the six nouns, specifications, the job ring and the local API.
//!
//! This crate does no I/O, reads no clock and starts no thread. Quantities have types with private fields; a
//! promise is rounded up when it is counted and down when it is handed out. Requests travel from the application to
//! the kernel as [`Contract`] → [`Demand`] → [`Setting`]; measurements travel back as [`Sample`] → [`Usage`] →
//! [`Quality`].
#![forbid(unsafe_code)]

pub mod api;
pub mod channel;
pub mod channel_wire;
mod contract;
mod delay_profile;
mod delay_renewal;
mod dispatch;
pub mod ecalls_wire;
mod energy;
pub mod event_json;
pub mod format;
mod ids;
mod invariance;
mod job;
pub mod kernel_path;
mod log_limit;
mod mechanism;
pub mod memory;
pub mod message_ring;
pub mod monitor;
mod nouns;
#[cfg(feature = "openapi")]
mod openapi;
mod options;
mod overload;
pub mod pattern;
pub mod ping;
mod profile_book;
mod quality;
mod random_numbers;
mod rate_account;
mod reclaiming;
mod reservation;
mod resource_arithmetic;
mod resources;
pub mod ring;
mod running_statistics;
mod server;
mod shared;
mod spec;
pub mod text;
mod traffic;
mod units;
mod utility;

/// The layout of a ring is part of the protocol with the other side.
const _: () = assert!(size_of::<ring::JobRing>() == 64 * (3 + ring::CAPACITY) && align_of::<ring::JobRing>() == 64);

pub use contract::{Contract, InvalidContract, JobSource, Profile, SERVICE};
pub use delay_profile::{DelayPoint, DelayProfile, NoDelay};
pub use delay_renewal::DelayRenewal;
pub use dispatch::{DispatchOrder, DispatchRules, InvalidDispatchRules};
pub use energy::{Energy, EnergySource, MixedSources};
pub use ids::{AppId, Owner, ThreadId};
pub use invariance::Invariance;
pub use job::{Foresight, JobRecord};
pub use log_limit::LogLimit;
pub use mechanism::{MechanismName, UnknownMechanism};
pub use nouns::{Demand, Sample, Setting, Usage};
pub use options::{ContractOptions, InvalidOptions, JobRate};
pub use overload::Overload;
pub use profile_book::{InvalidProfileName, Platform, ProfileBook, ProfileName};
pub use quality::{Quality, QualityMeter, quantized_error, virtual_error};
pub use random_numbers::RandomNumbers;
pub use rate_account::RateAccount;
pub use reclaiming::Reclaiming;
pub use reservation::{InvalidReservation, MIN_BUDGET, PERIOD_RANGE, Reservation};
pub use resources::{
    Amount, Direction, InterfaceName, InvalidInterfaceName, LinkEnd, Resource, Resources, TooManyLinks, UnknownResource,
};
pub use running_statistics::RunningStatistics;
pub use server::{ControlPlace, InvalidWindow, KernelController, MechanismFeatures, ServerCounts, ServerTerms, Window};
pub use spec::{Choice, Class, InvalidSpec, PredictorSpec};
pub use traffic::{InvalidTraffic, PathError, TrafficSpec};
pub use units::{BitRate, Bytes, Instant, InvalidQuantity, Nanos, Share};
pub use utility::{InvalidUtility, MetricLevel, Utility, UtilityMetric, UtilityStatus};
