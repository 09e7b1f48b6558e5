//! The processor's part of joint contracts: a share that is guaranteed to a contract until its applications draw from it.
//!
//! ```text
//!   hold ──> kept for the contract ── claim ──> an application has a part, the rest is kept ── it leaves ──> kept again
//!                     └── free ──> nothing is kept, and the applications that drew from it lose their contracts
//! ```
//! The times of holds are not known here: the thread of contracts frees what is over.

use std::collections::BTreeMap;

use qfabric_broker::{HoldBound, as_much_as_fits};
use qfabric_host::Input;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::{Claim, Problem};
use qfabric_types::{AppId, Instant, Owner, Share};

use super::core::Answer;
use super::engine::Engine;
use super::notes::Note;
use crate::auth::Peer;
use crate::config::counted_for;
use crate::problem;

/// A request to guarantee a share to a contract, instead of what it has so far.
#[derive(Clone, Debug)]
pub(crate) struct ShareHold {
    pub id: JointId,
    /// Whose maximum counts.
    pub owner: Owner,
    /// All groups of the program that asked for the contract: the one with the smallest maximum counts.
    pub groups: Vec<u32>,
    /// The wanted share. Zero: the contract has no part of the processor, and its applications are recorded.
    pub most: Share,
    /// The smallest useful share.
    pub least: Share,
}

/// Less than the smallest useful share is free. The contract keeps what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareShortage {
    pub free: Share,
    /// The largest share that this contract could have.
    pub largest: Share,
    /// The limit that decides on it.
    pub bound: HoldBound,
    /// The share that programs, and loans to other hosts, are guaranteed without a contract.
    pub others: Share,
}

struct Joint {
    /// The user who may draw, with the group that the share counts for.
    owner: Owner,
    share: Share,
    /// The part that no application uses.
    kept: Option<AppId>,
    users: BTreeMap<AppId, Share>,
}

impl Joint {
    fn used(&self) -> Share {
        self.users.values().copied().fold(Share::ZERO, |sum, share| Share::from_ppm(sum.ppm() + share.ppm()))
    }
}

/// The shares of contracts.
#[derive(Default)]
pub(super) struct Joints(BTreeMap<JointId, Joint>);

/// The identity of a joint contract, or of the memory of a loan, with the number of the claim.
pub(super) fn id_of(claim: &Claim) -> JointId {
    JointId { host: claim.host.clone(), number: claim.number }
}

impl Engine {
    /// Whether a joint contract has the number of the claim.
    pub(super) fn has_joint(&self, claim: &Claim) -> bool {
        self.joints.0.contains_key(&id_of(claim))
    }

    /// Guarantees the wanted share, or what is free of it.
    pub(super) fn hold_share(&mut self, hold: ShareHold, now: Instant) -> Result<Share, ShareShortage> {
        let ShareHold { id, owner, groups, most, least } = hold;
        let owner = counted_for(&self.limits, owner, &groups);
        let empty = || Joint { owner, share: Share::ZERO, kept: None, users: BTreeMap::new() };
        let is_new = !self.joints.0.contains_key(&id);
        let before = self.joints.0.entry(id.clone()).or_insert_with(empty).share;
        let least = least.max(Share::from_ppm(1));
        let keep = |asked| self.keep_share(&id, asked, now);
        let granted = as_much_as_fits(most, least, keep, |(largest, _)| *largest);
        granted.map_err(|(largest, bound)| {
            // Free in this turn, so it is not refused.
            let _ = self.keep_share(&id, before, now);
            // A contract without a share has applications, too.
            if is_new {
                self.joints.0.remove(&id);
            }
            ShareShortage { free: self.core.host.free(), largest, bound, others: self.without_contract() }
        })
    }

    /// The share that is guaranteed without a contract.
    fn without_contract(&self) -> Share {
        let contracts = self.joints.0.values().map(|joint| joint.share.max(joint.used()).ppm());
        let contracts = contracts.fold(0, u32::saturating_add);
        self.core.host.guaranteed().saturating_sub(Share::from_ppm(contracts))
    }

    /// Keeps `share` for a contract, less the part that its applications use. An error is the largest share that would
    /// fit, and the limit that decides on it; then nothing is kept.
    fn keep_share(&mut self, id: &JointId, share: Share, now: Instant) -> Result<(), (Share, HoldBound)> {
        let Some(joint) = self.joints.0.get_mut(id) else { return Ok(()) };
        let (owner, used, kept) = (joint.owner, joint.used(), joint.kept.take());
        if let Some(app) = kept {
            self.core.handle(Input::Leave { app }, now);
        }
        let rest = share.saturating_sub(used);
        let kept = (rest > Share::ZERO).then(|| self.keep_rest(id, owner, rest, now)).transpose();
        let kept = kept.map_err(|refused| {
            let free = refused.free.unwrap_or_default();
            (Share::from_ppm(used.ppm().saturating_add(free.ppm())), self.bound(&refused, owner))
        })?;
        if let Some(joint) = self.joints.0.get_mut(id) {
            (joint.share, joint.kept) = (share, kept);
        }
        Ok(())
    }

    /// The limit behind a refusal of the supervisor.
    fn bound(&self, refused: &Problem, owner: Owner) -> HoldBound {
        let Owner { uid, gid } = owner;
        let units = |cap: Option<Share>| cap.unwrap_or_default().ppm().into();
        let limits = self.core.host.limits();
        match refused.code.as_str() {
            "user_cap" | "not_permitted" => HoldBound::User { uid, cap: units(limits.user_cap(owner)) },
            "group_cap" => HoldBound::Group { gid, cap: units(limits.group_cap(owner)) },
            _ => HoldBound::Free,
        }
    }

    fn keep_rest(&mut self, id: &JointId, owner: Owner, share: Share, now: Instant) -> Answer {
        self.requests_made += 1;
        // The number is the right to the parts on other hosts, and every user may read refusals.
        let name = format!("contract of {}", id.host);
        self.core.ask(Input::Keep { request: self.requests_made, name, owner, share }, now)
    }

    /// Frees the share of a contract. The applications that drew from the contract stay without one.
    pub(super) fn free_share(&mut self, id: &JointId, now: Instant) {
        let Some(joint) = self.joints.0.remove(id) else { return };
        for app in joint.users.into_keys() {
            self.core.notes.push(Note::JointEnded { app });
            self.leave(app, now);
        }
        if let Some(app) = joint.kept {
            self.core.handle(Input::Leave { app }, now);
        }
    }

    /// Whether the caller may draw from a contract: its owner, and for contracts of other hosts everybody who knows its
    /// number, as for loans. A claim of neither is refused.
    pub(super) fn check_drawer(&self, peer: Peer, claim: &Claim) -> Result<(), Problem> {
        match self.joints.0.get(&id_of(claim)).map(|joint| joint.owner) {
            Some(owner) if owner != Owner::NOBODY && !peer.may_touch(owner) => {
                Err(problem::not_your_contract(&id_of(claim), owner.uid, peer.owner.uid))
            }
            None if !self.loans.has(claim) => Err(problem::no_such_claim(claim)),
            _ => Ok(()),
        }
    }

    /// Requests an application that draws from a contract. The kept share is released first, so that only this
    /// application can use it; what the application does not need is kept again.
    pub(super) fn draw(&mut self, input: Input, claim: &Claim, now: Instant) -> Answer {
        let id = id_of(claim);
        let joint = self.joints.0.get_mut(&id).ok_or_else(|| problem::no_such_claim(claim))?;
        let share = joint.share;
        if let Some(app) = joint.kept.take() {
            self.core.handle(Input::Leave { app }, now);
        }
        let answer = self.core.ask(input, now);
        if let Ok(app) = answer {
            let guaranteed = self.core.host.application(app).map_or(Share::ZERO, |shown| shown.guaranteed);
            self.joints.0.entry(id.clone()).and_modify(|joint| _ = joint.users.insert(app, guaranteed));
        }
        // Free in this turn, so it is not refused.
        let _ = self.keep_share(&id, share, now);
        answer
    }

    /// An application has left: what it drew is kept for the contract again.
    pub(super) fn drawer_left(&mut self, app: AppId, now: Instant) {
        let left = |joint: &mut Joint| joint.users.remove(&app).map(|_| joint.share);
        let of = self.joints.0.iter_mut().find_map(|(id, joint)| Some((id.clone(), left(joint)?)));
        if let Some((id, share)) = of {
            // Free in this turn, so it is not refused.
            let _ = self.keep_share(&id, share, now);
        }
    }
}
