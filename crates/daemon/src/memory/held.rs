//! Memory that is promised to joint contracts and to loans, until their applications draw from it.
//!
//! It is counted like every promise, and protects no pages: a group is protected when an application draws.

use qfabric_broker::{MemoryRefusal, MemoryRequester, as_much_as_fits};
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::ReserveId;
use qfabric_types::{Bytes, Owner};

use super::{Accounts, Memory, problems};
use crate::auth::Peer;
use crate::problem;

/// A contract or loan, and what a reserve took of its memory.
pub(super) type Drawn = Option<(JointId, Bytes)>;

/// The promise to one joint contract, or to one loan.
pub(super) struct HeldMemory {
    /// Who may draw.
    owner: Owner,
    /// What no application uses.
    pub(super) reserve: ReserveId,
    /// What applications use.
    drawn: Bytes,
    /// The whole promise, in whole pages.
    whole: Bytes,
    /// Whether it is the promise to a joint contract; otherwise to a loan.
    is_contract: bool,
}

impl Memory {
    /// Promises `most` to a contract, or as much as is free, but at least `least`, instead of what it has so far. The
    /// owner's maximum counts, and of `groups` and the owner's own group the smallest maximum.
    ///
    /// # Errors
    /// Less than `least` is free; the contract keeps what it had.
    pub(crate) fn hold(
        &self,
        id: &JointId,
        owner: Owner,
        groups: &[u32],
        most: Bytes,
        least: Bytes,
    ) -> Result<Bytes, MemoryRefusal> {
        let least = least.max(Bytes::new(1));
        self.accounts.with(|accounts| {
            let keep = |asked| accounts.hold(id, owner, groups, asked, true);
            as_much_as_fits(most, least, keep, |refusal| refusal.largest)
        })
    }

    /// Promises `bytes` to a loan: memory for an application that the host of `id` refused. The maximum of user 65534
    /// (nobody) counts. [`Memory::free_held`] ends it.
    ///
    /// # Errors
    /// The amount does not fit; nothing is promised.
    pub(crate) fn lend(&self, id: &JointId, bytes: Bytes) -> Result<(), MemoryRefusal> {
        self.accounts.with(|accounts| accounts.hold(id, Owner::NOBODY, &[], bytes, false))
    }

    /// Whether the caller may draw from the memory of a contract: its owner, and for contracts of other hosts everybody who
    /// knows its number, as for loans.
    pub(super) fn check_drawer(&self, peer: Peer, id: &JointId) -> Result<(), Problem> {
        match self.accounts.with(|accounts| accounts.held.get(id).map(|held| held.owner)) {
            None => Err(problems::no_memory_of(id)),
            Some(owner) if owner != Owner::NOBODY && !peer.may_touch(owner) => {
                Err(problem::not_your_contract(id, owner.uid, peer.owner.uid))
            }
            Some(_) => Ok(()),
        }
    }

    /// The memory that programs and loans have without a joint contract.
    pub(crate) fn without_contract(&self) -> Bytes {
        self.accounts.with(|accounts| {
            let contracts = accounts.held.values().filter(|held| held.is_contract);
            let promised: Bytes = contracts.map(|held| held.whole.max(held.drawn)).sum();
            accounts.broker.promised() - promised
        })
    }

    /// Frees the memory of a contract or loan. What its applications use is free when they leave.
    pub(crate) fn free_held(&self, id: &JointId) {
        self.accounts.with(|accounts| {
            if let Some(held) = accounts.held.remove(id) {
                accounts.broker.release(held.reserve);
            }
        });
    }
}

impl Accounts {
    /// Promises to a joint contract, or to a loan.
    fn hold(
        &mut self,
        id: &JointId,
        owner: Owner,
        groups: &[u32],
        bytes: Bytes,
        is_contract: bool,
    ) -> Result<(), MemoryRefusal> {
        let Some(held) = self.held.get(id) else {
            // The number is the right to the parts on other hosts, and every user may read refusals.
            let what = if is_contract { "contract of" } else { "for" };
            let (name, pid) = (format!("{what} {}", id.host), std::process::id() as i32);
            let (drawer, owner) = (owner, self.broker.limits().counted_for(owner, groups));
            let reserve = self.broker.admit(MemoryRequester { owner, name: &name, pid }, bytes)?;
            let whole = self.broker.whole_pages(bytes);
            let held = HeldMemory { owner: drawer, reserve, drawn: Bytes::ZERO, whole, is_contract };
            self.held.insert(id.clone(), held);
            return Ok(());
        };
        let (reserve, drawn) = (held.reserve, held.drawn);
        let wanted = self.broker.want(reserve, bytes - drawn);
        self.broker.settle(reserve);
        let whole = self.broker.whole_pages(bytes);
        if let Some(held) = self.held.get_mut(id).filter(|_| wanted.is_ok()) {
            held.whole = whole;
        }
        // Of the whole promise.
        wanted.map(drop).map_err(|refusal| MemoryRefusal { largest: refusal.largest + drawn, ..refusal })
    }

    /// Takes up to `bytes` from the memory of a contract, for an application. `None`: it has none.
    pub(super) fn take_from(&mut self, id: JointId, bytes: Bytes) -> Drawn {
        let asked = self.broker.whole_pages(bytes);
        let held = self.held.get_mut(&id)?;
        let left = self.broker.granted(held.reserve)?;
        let taken = asked.min(left);
        held.drawn += taken;
        // A decrease is never refused.
        let _ = self.broker.want(held.reserve, left - taken);
        self.broker.settle(held.reserve);
        Some((id, taken))
    }

    /// Changes a reserve at once. What it needs more is taken from its contract first; what it no longer needs returns
    /// there. A refusal changes nothing.
    pub(super) fn resize(
        &mut self,
        reserve: ReserveId,
        drawn: &mut Drawn,
        bytes: Bytes,
    ) -> Result<Bytes, MemoryRefusal> {
        let more = bytes - self.broker.granted(reserve).unwrap_or_default();
        let contract = drawn.as_ref().filter(|_| more > Bytes::ZERO).map(|(id, _)| id.clone());
        let taken = contract.and_then(|id| self.take_from(id, more));
        let granted = match self.broker.want(reserve, bytes) {
            Ok(granted) => granted,
            Err(refusal) => {
                self.return_to(taken.as_ref());
                return Err(refusal);
            }
        };
        self.broker.settle(reserve);
        if let Some((id, amount)) = drawn {
            *amount += taken.map_or(Bytes::ZERO, |(_, taken)| taken);
            let over = *amount - granted;
            *amount = *amount - over;
            self.return_to(Some(&(id.clone(), over)));
        }
        Ok(granted)
    }

    /// Changes the promise to a program. What it needs more is taken from its contract first. The room of a decrease is
    /// free with [`Accounts::settle_program`]. A refusal changes nothing.
    pub(super) fn change_program(&mut self, reserve: ReserveId, bytes: Bytes) -> Result<Bytes, MemoryRefusal> {
        let more = self.broker.whole_pages(bytes) - self.broker.granted(reserve).unwrap_or_default();
        let drawn = self.programs.get(&reserve).and_then(|program| program.drawn.as_ref());
        let contract = drawn.filter(|_| more > Bytes::ZERO).map(|(id, _)| id.clone());
        let taken = contract.and_then(|id| self.take_from(id, more));
        let granted = self.broker.want(reserve, bytes);
        let drawn = self.programs.get_mut(&reserve).and_then(|program| program.drawn.as_mut());
        match (&granted, drawn, &taken) {
            (Ok(_), Some((_, amount)), Some((_, taken))) => *amount += *taken,
            (Ok(_), ..) => {}
            (Err(_), ..) => self.return_to(taken.as_ref()),
        }
        granted
    }

    /// The decrease of a promise to a program has taken effect: what its contract gave beyond the present promise returns
    /// there.
    pub(super) fn settle_program(&mut self, reserve: ReserveId) {
        self.broker.settle(reserve);
        let granted = self.broker.granted(reserve).unwrap_or_default();
        let drawn = self.programs.get_mut(&reserve).and_then(|program| program.drawn.as_mut());
        let Some((id, amount)) = drawn else { return };
        let over = *amount - granted;
        *amount = *amount - over;
        let returned = (id.clone(), over);
        self.return_to(Some(&returned));
    }

    /// Returns what [`Accounts::take_from`] took, after the application's own promise ended.
    pub(super) fn return_to(&mut self, drawn: Option<&(JointId, Bytes)>) {
        let Some((id, taken)) = drawn else { return };
        let Some(held) = self.held.get_mut(id) else { return };
        held.drawn = held.drawn - *taken;
        let left = self.broker.granted(held.reserve).unwrap_or_default();
        // No more than the contract has now, which may have lost an upgrade. Room for it became free under the same lock.
        let _ = self.broker.want(held.reserve, (left + *taken).min(held.whole - held.drawn));
    }
}
