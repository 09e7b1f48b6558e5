//! Groups, hosts, and what is monitored.

use serde::{Deserialize, Serialize};

use super::LeaseId;
use crate::Nanos;
use crate::channel::Name;
use crate::monitor::{AdaptivePeriod, Summary};

/// What an application wants of one metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QosRange {
    /// The metric, such as `frame_rate`.
    pub metric: String,
    /// Least that is of use.
    pub min: i64,
    /// Most that is of use.
    pub max: i64,
}

/// Registers an application with a group (000 §2.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// The connection with which it ends.
    pub lease: LeaseId,
    /// The application, the same on all its hosts.
    pub application: Name,
    /// The group.
    pub group: Name,
    /// The group that this one is a part of.
    #[serde(default)]
    pub parent: Option<Name>,
    /// Level in the tree: 1 connection, 2 role, 3 stream, 4 system.
    #[serde(default = "connection")]
    pub level: u8,
    /// Quality of service ranges.
    #[serde(default)]
    pub qos: Vec<QosRange>,
}

fn connection() -> u8 {
    1
}

/// A registration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// Its number on this host.
    pub number: u32,
    /// The group's Q-channel.
    pub channel: String,
}

/// A group with its members on all hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupInfo {
    /// Its name.
    pub name: Name,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// An application in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupMember {
    /// Its host.
    pub host: Name,
    /// The application.
    pub application: Name,
    /// The group that its group is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// Level in the tree.
    pub level: u8,
    /// What it wants.
    pub qos: Vec<QosRange>,
}

/// A host that takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostInfo {
    /// Its name.
    pub host: Name,
    /// Whether it is this one.
    pub here: bool,
    /// Which start of it, in hexadecimal.
    pub incarnation: String,
    /// Channels it holds.
    pub channels: u32,
    /// Applications it has in groups.
    pub registrations: u32,
    /// How far its clock is ahead of this host's; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ns: Option<i64>,
    /// How far that may be off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<Nanos>,
}

/// What is monitored, for one attribute and one application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MonitorInfo {
    /// The attribute, such as `cpu.run_queue`.
    pub attribute: String,
    /// Its unit.
    pub unit: String,
    /// The application; 0: the host.
    pub application: u64,
    /// Time between two polls; none: not polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_ns: Option<Nanos>,
    /// When it reports at once, such as `> 4 until 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// Time between two looks, for the threshold and the summary, where these are more frequent than polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_ns: Option<Nanos>,
    /// Only crossings of the threshold are told.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quiet: bool,
    /// What is told of the looks between two polls; none: not polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Feedback sets `poll_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptivePeriod>,
    /// The kernel watches the threshold between looks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_kernel: bool,
    /// Why the kernel does not, though it could: the threshold is judged at looks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_refused: Option<String>,
    /// Its last value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// When that was, CLOCK_MONOTONIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
    /// Why it cannot be had here; none: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// Changes how an attribute is monitored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MonitorRequest {
    /// The application; 0: the host.
    #[serde(default)]
    pub application: u64,
    /// Time between two polls; none: as it is; 0: not any more. Without `adaptive` beside it, it stays so from now on.
    #[serde(default)]
    pub poll_ns: Option<Nanos>,
    /// When it is to report at once, such as `> 4 until 3`; none: as it is; empty: not any more.
    #[serde(default)]
    pub threshold: Option<String>,
    /// Time between two looks, for the threshold and the summary, where these are to be more frequent than polls; none: as
    /// it is; 0: at polls.
    #[serde(default)]
    pub check_ns: Option<Nanos>,
    /// Whether only crossings of the threshold are told, which has to be there; none: as it is.
    #[serde(default)]
    pub quiet: Option<bool>,
    /// What is told of the looks between two polls; none: as it is.
    #[serde(default)]
    pub summary: Option<Summary>,
    /// Feedback sets the time between two polls from now on; none: as it is.
    #[serde(default)]
    pub adaptive: Option<AdaptivePeriod>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}
