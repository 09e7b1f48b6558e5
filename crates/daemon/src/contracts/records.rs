//! The contracts that users of this host asked for.

use std::collections::BTreeMap;

use qfabric_host::manager::contracts::Refused;
use qfabric_types::api::contracts::{JointContract, JointId, JointRefusal, JointRequest, JointResource, UpgradeOffer};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner, Resources};
use tokio::sync::oneshot;

use super::NotMade;
use super::lease::Lease;

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
    /// The process with which the contract ends.
    pub lease: Option<Lease>,
    /// The upgrades that hosts offer, with the end of each.
    pub offers: BTreeMap<Name, (Resources, Instant)>,
    /// The program that waits for the next offer.
    pub waiting: Option<oneshot::Sender<UpgradeOffer>>,
}

impl Record {
    pub(super) fn new(
        owner: Owner,
        request: JointRequest,
        lease: Option<Lease>,
        reply: oneshot::Sender<Result<JointContract, NotMade>>,
    ) -> Record {
        let (granted, offers) = Default::default();
        Record { owner, request, granted, reply: Some(reply), lease, offers, waiting: None }
    }

    /// Tells the program that waits the first offer.
    pub(super) fn tell(&mut self, now: Instant) {
        self.offers.retain(|_, (_, until)| *until > now);
        let Some((host, (whole, until))) = self.offers.first_key_value() else { return };
        let part = self.request.parts().iter().find(|part| part.host == *host);
        let Some((part, waiting)) = part.zip(self.waiting.take()) else { return };
        let resources = JointResource::of(host, &part.wanted, whole).collect();
        // A program that waits no more asks again.
        let _ = waiting.send(UpgradeOffer { host: host.clone(), resources, left_ns: until.since(now) });
    }

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

    /// The answer of a refused contract. The reason of a host without a broker for a resource has no asked amount.
    pub(super) fn refusal(&self, refused: &Refused) -> JointRefusal {
        let answer = refused.answer();
        let part = self.request.parts().iter().find(|part| part.host == refused.host);
        let wanted = answer.resource.as_ref().zip(part);
        let wanted = wanted.map(|(resource, part)| resource.amount(part.wanted.units(resource)).value());
        JointRefusal { asked: answer.asked.or(wanted), ..answer }
    }
}

/// All of them, by identity.
#[derive(Default)]
pub(super) struct Records(pub BTreeMap<JointId, Record>);

impl Records {
    pub(super) fn in_force(&self) -> impl Iterator<Item = (&JointId, &Record)> {
        self.0.iter().filter(|(_, record)| record.is_in_force())
    }

    /// The contract that ends with the process of this lease.
    pub(super) fn of_lease(&self, number: u64) -> Option<JointId> {
        let holds = |record: &Record| record.lease.as_ref().is_some_and(|lease| lease.number == number);
        self.0.iter().find(|(_, record)| holds(record)).map(|(id, _)| id.clone())
    }

    pub(super) fn is_full_for(&self, uid: u32) -> bool {
        uid != 0 && self.0.values().filter(|record| record.owner.uid == uid).count() >= MOST_PER_USER
    }
}
