//! Decisions about CPU time change the contract of an application of this host: they go to the broker, through the
//! control thread.

use qfabric_types::Share;
use qfabric_types::monitor::AttributeId;

use super::super::{Fabric, count};
use crate::auth::Peer;
use crate::control::{Adjustment, AdjustmentTarget};

/// Largest bandwidth of an application, in millionths of a CPU: the contract's `max_bandwidth`.
pub(super) const CPU_MOST: &str = "app.cpu_most";
/// Weight of an application among others of its level, 1 to 10,000: the contract's `weight`.
pub(super) const CPU_WEIGHT: &str = "app.cpu_weight";

/// Whether an attribute is about CPU time.
pub(super) fn is_cpu(attribute: AttributeId) -> bool {
    [CPU_MOST, CPU_WEIGHT].iter().any(|name| AttributeId::of(name) == attribute)
}

/// The change of the contract; none: the attribute is not about CPU time, or the amount is out of range.
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
    /// Passes on a policy's decision about a reservation; `peer` answers for the policy.
    pub(in crate::channels) fn adjust(&self, peer: Peer, whom: AdjustmentTarget, attribute: AttributeId, amount: i64) {
        let Some(adjustment) = adjustment(attribute, amount) else { return };
        if !self.requests.adjust(peer, whom, adjustment) {
            count(&self.totals.notices_dropped);
            tracing::warn!(?whom, ?adjustment, "the control thread is busy: a policy's decision is not carried out");
        }
    }
}
