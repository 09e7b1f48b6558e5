//! Decisions of policies about one contract, beside the owner's contract.
//!
//! ```text
//!   contract in force = the owner's parts + the largest bandwidths decided + all other decisions, the newest last
//! ```
//! A policy raises a guarantee and gives back what it added: no decision leads below the owner's guarantee. When a policy
//! ends, its decisions are removed and the rest is applied to the owner's parts again.

use qfabric_types::api::{Application, Problem};
use qfabric_types::channel::Name;
use qfabric_types::{AppId, Class, Contract, Nanos, Share, Window};

use super::command::Adjustment;
use super::loans::{ControlWord, Grant, Teller};
use crate::problem;

/// Limit of the decisions that stand about one contract; a further one is refused.
const MOST: usize = 64;

/// A decision of a policy.
#[derive(Clone)]
pub(crate) struct Decision {
    pub policy: Name,
    /// The number by which the policy knows the application.
    pub member: AppId,
    pub adjustment: Adjustment,
    /// Tells the policy what was granted.
    pub teller: Teller,
}

/// The parts of a contract that policies change, as the owner set them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OwnParts {
    class: Class,
    guaranteed: Option<Share>,
    service: Option<Nanos>,
    server_period: Nanos,
    max_bandwidth: Share,
    weight: u32,
    window: Option<Window>,
}

impl OwnParts {
    fn of(contract: &Contract) -> OwnParts {
        let Contract { class, guaranteed, service, server_period, max_bandwidth, weight, window, .. } = *contract;
        OwnParts { class, guaranteed, service, server_period, max_bandwidth, weight, window }
    }

    fn put_into(self, contract: &mut Contract) {
        let OwnParts { class, guaranteed, service, server_period, max_bandwidth, weight, window } = self;
        if service.is_none() && contract.service.is_some() {
            // A fixed service has set it to the period.
            contract.server_period = server_period;
        }
        *contract = Contract { class, guaranteed, service, max_bandwidth, weight, window, ..contract.clone() };
    }

    /// The owner's parts after a change by the owner from the contract in force. A part that the owner leaves as it is
    /// shown stays the owner's former one: it may show a decision. A class and its guarantee are one part.
    fn changed(self, shown: OwnParts, new: OwnParts) -> OwnParts {
        fn part<T: PartialEq>(own: T, shown: T, new: T) -> T {
            if new == shown { own } else { new }
        }
        let promise = |of: OwnParts| (of.class, of.guaranteed);
        let (class, guaranteed) = part(promise(self), promise(shown), promise(new));
        let server = |of: OwnParts| (of.service, of.server_period);
        let (service, server_period) = part(server(self), server(shown), server(new));
        OwnParts {
            class,
            guaranteed,
            service,
            server_period,
            max_bandwidth: part(self.max_bandwidth, shown.max_bandwidth, new.max_bandwidth),
            weight: part(self.weight, shown.weight, new.weight),
            window: part(self.window, shown.window, new.window),
        }
    }
}

/// The decisions that stand about a contract.
#[derive(Clone)]
pub(crate) struct Decided {
    own: OwnParts,
    /// The share that the owner's parts guarantee.
    own_share: Share,
    /// The newest last; one of each policy for each member and part.
    standing: Vec<Decision>,
}

impl Decided {
    /// For a contract about which nothing is decided yet.
    pub(super) fn new(shown: &Application) -> Decided {
        Decided { own: OwnParts::of(&shown.contract), own_share: guaranteed(shown), standing: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// Adds a decision, which replaces the policy's former one about the same part.
    pub(super) fn add(&mut self, decision: &Decision) -> Result<(), Problem> {
        let part = std::mem::discriminant(&decision.adjustment);
        let is_former = |one: &Decision| {
            (&one.policy, one.member) == (&decision.policy, decision.member)
                && std::mem::discriminant(&one.adjustment) == part
        };
        self.standing.retain(|one| !is_former(one));
        if self.standing.len() >= MOST {
            return Err(problem::too_many_decisions(MOST));
        }
        self.standing.push(decision.clone());
        Ok(())
    }

    /// Removes the decisions of a policy: those about a member, or all. Returns whether there were any.
    pub(super) fn remove(&mut self, policy: &Name, member: Option<AppId>) -> bool {
        let before = self.standing.len();
        let is_removed = |one: &Decision| one.policy == *policy && member.is_none_or(|member| one.member == member);
        self.standing.retain(|one| !is_removed(one));
        self.standing.len() != before
    }

    /// The contract with all decisions; `shown` is the one in force.
    pub(super) fn contract(&self, shown: &Contract) -> Contract {
        let mut contract = shown.clone();
        self.own.put_into(&mut contract);
        let is_most = |one: &&Decision| matches!(one.adjustment, Adjustment::Most(_));
        // A guarantee is at most the largest bandwidth, which therefore comes first.
        let ordered = self.standing.iter().filter(is_most).chain(self.standing.iter().filter(|one| !is_most(one)));
        ordered.for_each(|one| one.adjustment.apply(self.own_share, &mut contract));
        contract
    }

    /// The owner changes the contract from `shown` to `new`. Returns the owner's contract, without any decision.
    pub(super) fn owners(&mut self, shown: &Contract, mut new: Contract) -> Contract {
        self.own = self.own.changed(OwnParts::of(shown), OwnParts::of(&new));
        self.own.put_into(&mut new);
        new
    }

    /// The owner's contract is in force, and guarantees this.
    pub(super) fn owner_has(&mut self, shown: &Application) {
        self.own_share = guaranteed(shown);
    }

    /// The share that the owner's parts guarantee.
    pub(super) fn own_share(&self) -> Share {
        self.own_share
    }

    /// Tells the policies what is guaranteed now.
    pub(super) fn tell(&self, shown: &Application) {
        for Decision { member, teller, .. } in &self.standing {
            let grant = Grant { member: *member, own: self.own_share, granted: guaranteed(shown) };
            teller.tell(ControlWord::Granted(grant));
        }
    }
}

/// The guaranteed share of an application, as a decision names it: of a fixed service, without what its window lets pass.
pub(super) fn guaranteed(shown: &Application) -> Share {
    let Contract { service, period, .. } = shown.contract;
    service.map_or(shown.guaranteed, |service| Share::of_budget(service, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn shown(contract: Contract, share: u32) -> Application {
        let value = serde_json::json!({
            "id": 1, "pid": 1, "owner": { "uid": 7, "gid": 7 }, "contract": contract, "guaranteed": share as f64 / 1e6,
            "wanted": 0.0, "granted": 0.0, "threads": [], "quality": qfabric_types::Quality::default(), "used": 0.0,
        });
        serde_json::from_value(value).unwrap()
    }

    fn decision(policy: &str, adjustment: Adjustment) -> Decision {
        let (teller, _) = Teller::new(std::sync::Arc::new(crate::control::wake_descriptor().unwrap()));
        Decision { policy: policy.parse().unwrap(), member: AppId(3), adjustment, teller }
    }

    fn share(per_cent: u32) -> Share {
        Share::from_ppm(per_cent * 10_000)
    }

    /// The contract after decisions about the guarantee by the policy `cpu`.
    fn after(own: &Contract, own_share: u32, guaranteed: &[u32]) -> Contract {
        let mut decided = Decided::new(&shown(own.clone(), own_share));
        guaranteed.iter().fold(own.clone(), |contract, per_cent| {
            decided.add(&decision("cpu", Adjustment::Guaranteed(share(*per_cent)))).unwrap();
            decided.contract(&contract)
        })
    }

    #[test]
    fn a_decision_adds_to_the_owners_guarantee_and_never_cuts_it() {
        let own = Contract { class: Class::B, guaranteed: Some(share(60)), ..Contract::default() };
        assert_eq!(after(&own, 600_000, &[35]), own);
        assert_eq!(after(&own, 600_000, &[80]).guaranteed, Some(share(80)));
        for less in [0, 35, 60] {
            assert_eq!(after(&own, 600_000, &[80, less]), own, "the owner's contract comes back");
        }
        let derived = Contract { class: Class::B, max_bandwidth: share(50), ..Contract::default() };
        assert_eq!(after(&derived, 500_000, &[35]), derived, "a guarantee that the host derived");
        let best_effort = Contract::default();
        let raised = after(&best_effort, 0, &[35]);
        assert_eq!((raised.class, raised.guaranteed), (Class::B, Some(share(35))));
        assert_eq!(after(&best_effort, 0, &[35, 0]), best_effort);
    }

    #[test]
    fn a_fixed_service_grows_and_comes_back() {
        let own = Contract { service: Some(MS(4)), ..Contract::new("service", MS(40)) }.settled();
        assert_eq!(after(&own, 100_000, &[25]).service, Some(MS(10)));
        assert_eq!(after(&own, 100_000, &[5]), own);
        assert_eq!(after(&own, 100_000, &[25, 0]), own);
    }

    #[test]
    fn when_a_policy_ends_the_decisions_of_others_stand() {
        let own = Contract { class: Class::B, guaranteed: Some(share(20)), ..Contract::default() };
        let mut decided = Decided::new(&shown(own.clone(), 200_000));
        decided.add(&decision("crew", Adjustment::Most(share(50)))).unwrap();
        decided.add(&decision("cpu", Adjustment::Guaranteed(share(70)))).unwrap();
        let both = decided.contract(&own);
        assert_eq!((both.max_bandwidth, both.guaranteed), (share(50), Some(share(50))));
        assert!(
            !decided.remove(&"other".parse().unwrap(), None)
                && !decided.remove(&"cpu".parse().unwrap(), Some(AppId(9)))
        );
        assert!(decided.remove(&"crew".parse().unwrap(), None));
        let one = decided.contract(&both);
        assert_eq!((one.max_bandwidth, one.guaranteed), (own.max_bandwidth, Some(share(70))));
        assert!(decided.remove(&"cpu".parse().unwrap(), Some(AppId(3))) && decided.is_empty());
        assert_eq!(decided.contract(&one), own);
    }

    #[test]
    fn a_change_by_the_owner_takes_no_decision_for_the_owners_will() {
        let own = Contract { class: Class::B, guaranteed: Some(share(20)), ..Contract::default() };
        let mut decided = Decided::new(&shown(own.clone(), 200_000));
        decided.add(&decision("cpu", Adjustment::Guaranteed(share(70)))).unwrap();
        let in_force = decided.contract(&own);
        let renamed = decided.owners(&in_force, Contract { weight: 7, ..in_force.clone() });
        assert_eq!((renamed.weight, renamed.guaranteed), (7, Some(share(20))), "the guarantee shown is a decision");
        let larger = decided.owners(&in_force, Contract { guaranteed: Some(share(80)), ..in_force.clone() });
        assert_eq!(larger.guaranteed, Some(share(80)));
    }

    #[test]
    fn decisions_about_one_contract_are_bounded() {
        let mut decided = Decided::new(&shown(Contract::default(), 0));
        let add = |decided: &mut Decided, number: usize| {
            decided.add(&decision(&format!("policy{number}"), Adjustment::Weight(5)))
        };
        (0..MOST).for_each(|number| add(&mut decided, number).unwrap());
        assert!(add(&mut decided, MOST).unwrap_err().message.contains("64"));
        add(&mut decided, 0).unwrap();
    }
}
