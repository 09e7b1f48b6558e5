//! Compares a contract with the features of a mechanism.

use qfabric_types::{Contract, ControlPlace, MechanismFeatures};

/// Named by a mechanism whose servers have a fixed service.
pub(crate) const FEEDBACK: &str = "a budget that feedback finds";

/// The first property of the contract that the mechanism cannot serve; `None`: it can serve all.
pub(super) fn lacking(features: &MechanismFeatures, contract: &Contract) -> Option<&'static str> {
    let kind = contract.reclaiming.beyond_deadline().filter(|_| !features.all_reclaiming);
    if features.slots.is_some() {
        let rest = Contract { service: None, ..contract.clone() };
        let feedback = contract.static_server().is_none().then_some(FEEDBACK);
        return rest.needs().or(kind).or(feedback);
    }
    let in_kernel = contract.controller == ControlPlace::Kernel && !features.kernel_control;
    contract.needs().filter(|_| !features.terms || in_kernel).or(kind)
}

#[cfg(test)]
mod tests {
    use qfabric_types::{DispatchRules, Nanos};

    use super::*;

    #[test]
    fn slots_serve_a_fixed_service_and_neither_feedback_nor_windows() {
        let features = MechanismFeatures { slots: Some(DispatchRules::default()), ..MechanismFeatures::default() };
        let fixed = Contract::fixed("player", Nanos::from_millis(100), Nanos::from_millis(40));
        assert_eq!(lacking(&features, &fixed), None);
        assert_eq!(lacking(&MechanismFeatures::default(), &fixed), fixed.needs());
        let windowed = Contract { window: "1/5".parse().ok(), ..fixed };
        assert_eq!(lacking(&features, &windowed), Some("a window"));
        assert_eq!(lacking(&features, &Contract::new("film", Nanos::from_millis(40))), Some(FEEDBACK));
    }
}
