//! The memory of applications under contract: promised before the processor is asked for, and returned if that refuses.

use qfabric_types::api::contracts::JointId;
use qfabric_types::api::{ApplicationScope, Claim, Problem};
use qfabric_types::{AppId, Bytes, Contract};

use super::engine::Engine;
use crate::auth::Target;
use crate::memory::{Promise, PromiseTarget, not_for_a_thread};

impl Engine {
    /// Promises the memory of a new contract, as far as possible from the memory of the claimed joint contract or loan.
    /// `None`: the contract asks for none.
    pub(super) fn promise(
        &self,
        target: &Target,
        covers: ApplicationScope,
        contract: &Contract,
        claim: Option<&Claim>,
    ) -> Result<Option<Promise>, Problem> {
        let Target { owner, groups, pid, .. } = target;
        let from = claim.map(|claim| JointId { host: claim.host.clone(), number: claim.number });
        self.promised(PromiseTarget { owner: *owner, groups, name: &contract.name, pid: *pid, from }, covers, contract)
    }

    fn promised(
        &self,
        whom: PromiseTarget<'_>,
        covers: ApplicationScope,
        contract: &Contract,
    ) -> Result<Option<Promise>, Problem> {
        if contract.memory == Bytes::ZERO {
            return Ok(None);
        }
        if covers != ApplicationScope::Program {
            return Err(not_for_a_thread());
        }
        self.memory.promise(whom, contract.memory).map(Some)
    }

    /// Makes the promise as large as the changed contract asks, if that is more. Returns the former amount.
    pub(super) fn enlarge_memory(&mut self, id: AppId, contract: &Contract) -> Result<Bytes, Problem> {
        let Some(app) = self.apps.by_id.get(&id) else { return Ok(Bytes::ZERO) };
        let former = app.memory.as_ref().map_or(Bytes::ZERO, Promise::bytes);
        if contract.memory <= former {
            return Ok(former);
        }
        match &app.memory {
            Some(promise) => promise.change(contract.memory)?,
            None => {
                let (owner, pid, name) = (app.memory_owner, app.pid, &contract.name);
                let whom = PromiseTarget { owner, groups: &[], name, pid, from: None };
                let promise = self.promised(whom, app.covers, contract)?;
                promise.iter().for_each(|promise| promise.belongs_to(id));
                if let Some(app) = self.apps.by_id.get_mut(&id) {
                    app.memory = promise;
                }
            }
        }
        Ok(former)
    }

    /// Decreases the promise to `bytes`; zero ends it. An amount that is not smaller changes nothing.
    pub(super) fn set_memory(&mut self, id: AppId, bytes: Bytes) {
        let Some(app) = self.apps.by_id.get_mut(&id) else { return };
        if bytes == Bytes::ZERO {
            app.memory = None;
        }
        if let Some(promise) = app.memory.as_ref().filter(|promise| promise.bytes() > bytes) {
            // A decrease is never refused.
            let _ = promise.change(bytes);
        }
    }
}
