//! The contracts that users of this host asked for.

use std::collections::BTreeMap;

use qfabric_types::api::contracts::{JointContract, JointId, JointRequest, JointResource};
use qfabric_types::channel::Name;
use qfabric_types::{Owner, Resources};
use tokio::sync::oneshot;

use super::NotMade;

/// Most contracts of one user, made and being made; root is excepted.
pub(super) const MOST_PER_USER: usize = 256;

/// A contract that is being made or in force.
pub(super) struct Record {
    pub owner: Owner,
    pub request: JointRequest,
    /// The granted vectors; empty until the contract is in force.
    pub granted: BTreeMap<Name, Resources>,
    /// The request that waits for the outcome; `None` after the answer.
    pub reply: Option<oneshot::Sender<Result<JointContract, NotMade>>>,
}

impl Record {
    pub(super) fn is_in_force(&self) -> bool {
        !self.granted.is_empty()
    }

    pub(super) fn shown(&self, id: &JointId) -> JointContract {
        let nothing = Resources::default();
        let resources = self.request.parts().iter().flat_map(|part| {
            let granted = self.granted.get(&part.host).unwrap_or(&nothing);
            JointResource::of(&part.host, &part.wanted, granted).collect::<Vec<_>>()
        });
        JointContract { id: id.clone(), resources: resources.collect() }
    }
}

/// All of them, by identity.
#[derive(Default)]
pub(super) struct Records(pub BTreeMap<JointId, Record>);

impl Records {
    pub(super) fn in_force(&self) -> impl Iterator<Item = (&JointId, &Record)> {
        self.0.iter().filter(|(_, record)| record.is_in_force())
    }

    pub(super) fn is_full_for(&self, uid: u32) -> bool {
        uid != 0 && self.0.values().filter(|record| record.owner.uid == uid).count() >= MOST_PER_USER
    }
}
