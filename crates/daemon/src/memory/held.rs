//! Memory that is promised to joint contracts, until their applications draw from it.
//!
//! It is counted like every promise, and protects no pages: a group is protected when an application draws.

use qfabric_broker::{MemoryRefusal, MemoryRequester, as_much_as_fits};
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::ReserveId;
use qfabric_types::{Bytes, Owner};

use super::{Accounts, Memory};

/// The promise to one joint contract.
pub(super) struct HeldMemory {
    /// What no application uses.
    reserve: ReserveId,
    /// What applications use.
    drawn: Bytes,
}

impl Memory {
    /// Promises `most` to a contract, or as much as is free, but at least `least`, instead of what it has so far. The
    /// owner's maximum counts.
    ///
    /// # Errors
    /// Less than `least` is free; the contract keeps what it had.
    pub(crate) fn hold(&self, id: &JointId, owner: Owner, most: Bytes, least: Bytes) -> Result<Bytes, MemoryRefusal> {
        let least = least.max(Bytes::new(1));
        self.accounts.with(|accounts| {
            as_much_as_fits(most, least, |asked| accounts.hold(id, owner, asked), |refusal| refusal.largest)
        })
    }

    /// Frees the memory of a contract. What its applications use is free when they leave.
    pub(crate) fn free_held(&self, id: &JointId) {
        self.accounts.with(|accounts| {
            if let Some(held) = accounts.held.remove(id) {
                accounts.broker.release(held.reserve);
            }
        });
    }
}

impl Accounts {
    fn hold(&mut self, id: &JointId, owner: Owner, bytes: Bytes) -> Result<(), MemoryRefusal> {
        let Some(held) = self.held.get(id) else {
            // The number is the right to the parts on other hosts, and every user may read refusals.
            let (name, pid) = (format!("contract of {}", id.host), std::process::id() as i32);
            let owner = self.broker.limits().counted_for(owner, &[]);
            let reserve = self.broker.admit(MemoryRequester { owner, name: &name, pid }, bytes)?;
            self.held.insert(id.clone(), HeldMemory { reserve, drawn: Bytes::ZERO });
            return Ok(());
        };
        let (reserve, drawn) = (held.reserve, held.drawn);
        let wanted = self.broker.want(reserve, bytes - drawn);
        self.broker.settle(reserve);
        // Of the whole promise.
        wanted.map(drop).map_err(|refusal| MemoryRefusal { largest: refusal.largest + drawn, ..refusal })
    }

    /// Takes up to `bytes` from the memory of a contract, for an application. `None`: it has none.
    pub(super) fn take_from(&mut self, id: JointId, bytes: Bytes) -> Option<(JointId, Bytes)> {
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

    /// Returns what [`Accounts::take_from`] took, after the application's own promise ended.
    pub(super) fn return_to(&mut self, drawn: Option<&(JointId, Bytes)>) {
        let Some((id, taken)) = drawn else { return };
        let Some(held) = self.held.get_mut(id) else { return };
        held.drawn = held.drawn - *taken;
        let left = self.broker.granted(held.reserve).unwrap_or_default();
        // Room for it became free under the same lock.
        let _ = self.broker.want(held.reserve, left + *taken);
    }
}
