//! An emulated link between two network namespaces: any program can be run over a link with given loss, rate, queue and
//! delay, and a seed repeats the losses.
//!
//! | task | module | pure |
//! |---|---|---|
//! | one direction: queue, bottleneck, loss, delay | [`link`] | yes |
//! | both directions and their schedule | [`path`] | yes |
//! | properties, bounds, changes over time | [`settings`], [`schedule`] | yes |
//! | losses from a seed | [`loss`] | yes |
//! | links recorded by mahimahi | [`trace`] | yes |
//! | the test cases of RFC 8867 | [`scenario`] | yes |
//! | the emulator's own lateness; the result of a run | [`lateness`], [`report`] | yes |
//! | namespaces, devices and the thread that moves packets | [`lab`], `emulator` | no |
//!
//! The pure part is a state machine with virtual time: packets and the time go in; packets and the time of the next call
//! come out. Design: docs/design/0040-netlab.md.
#![forbid(unsafe_code)]

mod emulator;
pub mod error;
pub mod lab;
pub mod lateness;
pub mod link;
pub mod loss;
pub mod path;
pub mod report;
pub mod scenario;
pub mod schedule;
pub mod settings;
pub mod spread;
pub mod text;
pub mod trace;

pub use error::LabError;
pub use lab::{Lab, LabEnd, enter_user_namespace};
pub use lateness::{LATE_MAX, LatenessSummary};
pub use link::{Delivery, EmulatedLink};
pub use loss::{LossModel, LossSource};
pub use path::EmulatedPath;
pub use report::{DirectionCounters, DirectionReport, LabReport};
pub use scenario::{MediaFlow, SHORT_TCP, Scenario, TcpTraffic};
pub use schedule::Schedule;
pub use settings::{LabSettings, LinkChange, LinkDirection, LinkRate, LinkSettings, QueueLimit, SettingsError};
pub use spread::Spread;
pub use text::{Fault, TextError};
pub use trace::Trace;
