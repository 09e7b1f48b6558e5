//! Decisions about CPU time change the contract of an application of this host: they go to the broker, through the
//! control thread, which answers what is guaranteed now. When a policy ends, so do its decisions.

use std::collections::BTreeSet;

use qfabric_host::manager::Input;
use qfabric_host::manager::policies::{CPU_GRANTED, CPU_GUARANTEED, CPU_MOST, CPU_OWN, CPU_WEIGHT};
use qfabric_linux::clock;
use qfabric_types::monitor::{AttributeId, Cause, Reading, Unit};
use qfabric_types::{Nanos, Share, Window};

use super::super::mailbox::{Adjusted, Audience, ContractOrder};
use super::super::registry::Registry;
use super::super::{Fabric, Network, count};
use crate::control::{Adjust, Adjustment, AdjustmentTarget, Decision, Grant};

/// C of an application with a fixed service, in nanoseconds per period: the contract's `service`.
pub(super) const CPU_SERVICE: &str = "app.cpu_service";
/// `256·x + y`: at most x of every y periods may be missed; the contract's `window`.
pub(super) const CPU_WINDOW: &str = "app.cpu_window";

/// All attributes about CPU time.
const ALL: [&str; 5] = [CPU_MOST, CPU_WEIGHT, CPU_GUARANTEED, CPU_SERVICE, CPU_WINDOW];

/// Whether an attribute is about CPU time.
pub(super) fn is_cpu(attribute: AttributeId) -> bool {
    ALL.iter().any(|name| AttributeId::of(name) == attribute)
}

/// The change of the contract; none: the attribute is not about CPU time, or the amount is out of range.
fn adjustment(attribute: AttributeId, amount: i64) -> Option<Adjustment> {
    let is = |name: &str| attribute == AttributeId::of(name);
    if is(CPU_SERVICE) {
        return Some(Adjustment::Service(Nanos::new(u64::try_from(amount).ok()?)));
    }
    let amount = u32::try_from(amount).ok()?;
    match () {
        () if is(CPU_GUARANTEED) => Some(Adjustment::Guaranteed(Share::from_ppm(amount))),
        () if is(CPU_WINDOW) => {
            Some(Adjustment::Window(Window::new((amount >> 8).into(), (amount & 0xff).into()).ok()?))
        }
        () if is(CPU_MOST) => Some(Adjustment::Most(Share::from_ppm(amount))),
        () if is(CPU_WEIGHT) => Some(Adjustment::Weight(amount)),
        () => None,
    }
}

impl Fabric {
    /// Passes on a policy's decision about contracts, or the end of such decisions.
    pub(in crate::channels) fn change_contracts(&self, registry: &Registry, order: ContractOrder) {
        match order {
            ContractOrder::Adjust(adjusted) => self.adjust(registry, adjusted),
            ContractOrder::Withdraw(policy, application) => self.requests.withdraw(policy, application),
        }
    }

    fn adjust(&self, registry: &Registry, adjusted: Adjusted) {
        let Some(adjustment) = adjustment(adjusted.attribute, adjusted.amount) else { return };
        let targets = self.network.whom(registry, &adjusted);
        let Adjusted { policy, peer, application: member, .. } = adjusted;
        if targets.is_empty() {
            tracing::warn!(%policy, %member, uid = peer.owner.uid, "a policy decides about an application of another user");
            return self.report_grant(Grant { member, own: Share::ZERO, granted: Share::ZERO });
        }
        for whom in targets {
            let decision = Decision { policy: policy.clone(), member, adjustment, teller: self.lending.teller() };
            if !self.requests.adjust(Adjust { peer, whom, decision }) {
                count(&self.totals.notices_dropped);
                tracing::warn!(
                    ?whom,
                    ?adjustment,
                    "the control thread is busy: a policy's decision is not carried out"
                );
            }
        }
    }

    /// Reports to the policies of this host what an application is guaranteed.
    pub(in crate::channels) fn report_grant(&self, grant: Grant) {
        let Grant { member, own, granted } = grant;
        // The policy learns its lower limit before the share.
        for (name, share) in [(CPU_OWN, own), (CPU_GRANTED, granted)] {
            let (attribute, value) = (AttributeId::of(name), share.ppm().into());
            let (at, over, cause, unit) = (clock::now(), Nanos::ZERO, Cause::Asked, Unit::Millionths);
            let reading = Reading { attribute, application: member, value, at, over, cause, unit };
            let input = Input::Reading(None, self.network.host.clone(), reading);
            self.network.manager(|manager, now| manager.handle(input, now));
        }
    }
}

impl Network {
    /// The application, or the processes that registered under its name and that the policy's user may change.
    fn whom(&self, registry: &Registry, adjusted: &Adjusted) -> BTreeSet<AdjustmentTarget> {
        let Some((channel, name)) = &adjusted.member else {
            return [AdjustmentTarget::Application(adjusted.application)].into();
        };
        let registered = self.concerned(registry, channel, &Audience::Member(name.clone())).into_iter();
        let peers = registered.filter_map(|id| Some(registry.leases.get(&id)?.peer));
        let own = peers.filter(|peer| adjusted.peer.may_touch(peer.owner));
        own.map(|peer| AdjustmentTarget::Process(peer.pid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_changes_its_part_of_the_contract() {
        let changed = |name: &str, amount| adjustment(AttributeId::of(name), amount);
        assert_eq!(changed(CPU_GUARANTEED, 250_000), Some(Adjustment::Guaranteed(Share::from_ppm(250_000))));
        assert_eq!(changed(CPU_SERVICE, 3_000_000), Some(Adjustment::Service(Nanos::from_millis(3))));
        assert_eq!(changed(CPU_WINDOW, 256 + 5), Some(Adjustment::Window(Window::new(1, 5).unwrap())));
        assert_eq!(changed(CPU_WINDOW, 5 * 256 + 5), None, "every period would be missed");
        assert_eq!((changed(CPU_GUARANTEED, -1), changed("app.rate_milli", 1)), (None, None));
        assert!(ALL.iter().all(|name| is_cpu(AttributeId::of(name))));
    }
}
