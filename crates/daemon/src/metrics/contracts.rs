//! The metrics of joint contracts.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::Value::{Counter, Gauge};
use super::{Metric, of, one};
use crate::contracts::ContractsReport;

pub(super) const TOTALS: [Metric<ContractsReport>; 8] = [
    of("contracts_in_force", "joint contracts in force that users of this host asked for", |r| {
        Gauge(r.in_force as f64)
    }),
    of("contracts_parts", "parts of joint contracts that this host holds, for itself and for other hosts", |r| {
        Gauge(r.parts as f64)
    }),
    of("contracts_made", "joint contracts that came into force", |r| Counter(r.made)),
    of("contracts_refused", "joint contracts that were refused", |r| Counter(r.refused)),
    of("contracts_lost", "joint contracts in force that ended because of a host", |r| Counter(r.lost)),
    of("contracts_upgraded", "upgrades of partly satisfied joint contracts", |r| Counter(r.upgraded)),
    of("contracts_expired", "parts of joint contracts that were freed because their time was over", |r| {
        Counter(r.expired)
    }),
    of("contracts_dropped", "messages about joint contracts that were lost because too many waited", |r| {
        Counter(r.dropped)
    }),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, report: &ContractsReport) -> fmt::Result {
    TOTALS.iter().try_for_each(|metric| one(encoder, metric, report))
}
