//! Groups, hosts and monitored attributes.

use serde::{Deserialize, Serialize};

use super::LeaseId;
use crate::Nanos;
use crate::channel::Name;
use crate::monitor::{AdaptivePeriod, Summary};

/// The wanted range of one metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QosRange {
    /// The metric, such as `frame_rate`.
    pub metric: String,
    /// The least useful value.
    pub min: i64,
    /// The greatest useful value.
    pub max: i64,
}

/// Registers an application with a group (000 §2.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// The lease of the registration; when it ends, the registration is removed.
    pub lease: LeaseId,
    /// The application's name, which is the same on all its hosts.
    pub application: Name,
    /// The group's name.
    pub group: Name,
    /// The parent of the group in a QoS tree.
    #[serde(default)]
    pub parent: Option<Name>,
    /// Level in the QoS tree: 1 connection, 2 role, 3 stream, 4 system.
    #[serde(default = "connection")]
    pub level: u8,
    /// The wanted ranges.
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
    /// The registration's number on this host.
    pub number: u32,
    /// The group's Q-channel.
    pub channel: String,
}

/// A group with its members on all hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupInfo {
    /// The group's name.
    pub name: Name,
    /// The members on all hosts.
    pub members: Vec<GroupMember>,
}

/// An application in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupMember {
    /// The host of the application.
    pub host: Name,
    /// The application's name.
    pub application: Name,
    /// The parent of the group in a QoS tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// Level in the QoS tree.
    pub level: u8,
    /// The wanted ranges.
    pub qos: Vec<QosRange>,
}

/// A host of the realm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostInfo {
    /// The host's name.
    pub host: Name,
    /// Whether it is this host.
    pub here: bool,
    /// The host's incarnation, in hexadecimal.
    pub incarnation: String,
    /// Number of channels that are open on the host.
    pub channels: u32,
    /// Number of registrations of its applications in groups.
    pub registrations: u32,
    /// Difference of its clock to this host's clock, positive if it is ahead; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ns: Option<i64>,
    /// Largest error of that difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<Nanos>,
}

/// The monitoring of one attribute for one application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MonitorInfo {
    /// The attribute's name, such as `cpu.run_queue`.
    pub attribute: String,
    /// The unit of its values.
    pub unit: String,
    /// The application's number; 0: the host.
    pub application: u64,
    /// Time between two polls; absent: not polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_ns: Option<Nanos>,
    /// The threshold at which a reading is sent at once, such as `> 4 until 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// Time between two looks for the threshold and the summary, if they are more frequent than polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_ns: Option<Nanos>,
    /// Whether readings are sent only when the threshold is crossed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quiet: bool,
    /// The way in which the looks between two polls become one value; absent: not polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The limits of `poll_ns`, if it is adapted by feedback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptivePeriod>,
    /// Whether the kernel watches the threshold between looks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_kernel: bool,
    /// The reason why the kernel does not watch the threshold although it could; the threshold is then checked only
    /// at looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_refused: Option<String>,
    /// The last value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// The time of the last value, in nanoseconds of CLOCK_MONOTONIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
    /// The reason why the attribute is unavailable on this host; absent if it is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// Changes the monitoring of an attribute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MonitorRequest {
    /// The application's number; 0: the host.
    #[serde(default)]
    pub application: u64,
    /// Time between two polls. Absent: unchanged; 0: no polls. Without `adaptive` in the same request, the time
    /// stays fixed from now on.
    #[serde(default)]
    pub poll_ns: Option<Nanos>,
    /// The threshold at which a reading is sent at once, such as `> 4 until 3`. Absent: unchanged; empty: no
    /// threshold.
    #[serde(default)]
    pub threshold: Option<String>,
    /// Time between two looks for the threshold and the summary, if they should be more frequent than polls.
    /// Absent: unchanged; 0: look only at polls.
    #[serde(default)]
    pub check_ns: Option<Nanos>,
    /// Whether readings are sent only when the threshold is crossed; needs a threshold. Absent: unchanged.
    #[serde(default)]
    pub quiet: Option<bool>,
    /// The way in which the looks between two polls become one value. Absent: unchanged.
    #[serde(default)]
    pub summary: Option<Summary>,
    /// Lets feedback adapt the time between two polls from now on, within these limits. Absent: unchanged.
    #[serde(default)]
    pub adaptive: Option<AdaptivePeriod>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}
