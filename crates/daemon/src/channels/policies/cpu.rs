//! Decisions about CPU time go to the broker, through the control thread: as a change of the contract that an application
//! of this host has.

use qfabric_types::Share;
use qfabric_types::monitor::AttributeId;

use super::super::{Fabric, count};
use crate::auth::Peer;
use crate::control::{Adjustment, AdjustmentTarget};

/// Most that an application may have, in millionths of a CPU: the contract's `max_bandwidth`.
pub(super) const CPU_MOST: &str = "app.cpu_most";
/// Its weight among others of its level, 1 to 10,000: the contract's `weight`.
pub(super) const CPU_WEIGHT: &str = "app.cpu_weight";

/// Whether an attribute is about CPU time.
pub(super) fn is_cpu(attribute: AttributeId) -> bool {
    [CPU_MOST, CPU_WEIGHT].iter().any(|name| AttributeId::of(name) == attribute)
}

/// What the amount of an attribute means to a broker; none: it is no matter of CPU time, or no amount.
fn adjustment(attribute: AttributeId, amount: i64) -> Option<Adjustment> {
    let is = |name: &str| attribute == AttributeId::of(name);
    let amount = u32::try_from(amount).ok()?;
    match () {
        () if is(CPU_MOST) => Some(Adjustment::Most(Share::from_ppm(amount))),
        () if is(CPU_WEIGHT) => Some(Adjustment::Weight(amount)),
        () => None,
    }
}

impl Fabric {
    /// A policy that `peer` answers for decided about what is under reservation.
    pub(in crate::channels) fn adjust(&self, peer: Peer, whom: AdjustmentTarget, attribute: AttributeId, amount: i64) {
        let Some(adjustment) = adjustment(attribute, amount) else { return };
        if !self.requests.adjust(peer, whom, adjustment) {
            count(&self.totals.notices_dropped);
            tracing::warn!(?whom, ?adjustment, "the control thread is busy: a policy's decision is not carried out");
        }
    }
}
