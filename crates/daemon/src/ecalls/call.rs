//! The generic call (000 §3.2.1): by the service's name, answered by its owner, for what may take its time.

use std::sync::Arc;
use std::time::Duration;

use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{CallAnswer, EventData};
use qfabric_types::ecalls_wire::FromDaemon;
use qfabric_types::event_json;
use tokio::sync::oneshot;

use super::registry::{Call, ServiceOwner};
use super::{Ecalls, problems, raise};
use crate::api::answers::aside;
use crate::auth::Peer;

/// Calls that may wait for answers; the next is refused.
const WAITING: usize = 256;

impl Ecalls {
    /// Calls, and waits at most `patience`.
    pub async fn call(
        self: &Arc<Self>,
        peer: Peer,
        name: &str,
        data: EventData,
        patience: Duration,
    ) -> Result<CallAnswer, Problem> {
        let (ecalls, service) = (self.clone(), name.to_owned());
        let (call, answer) = aside(move || ecalls.begin_call(peer, &service, &data)).await?;
        let answered = tokio::time::timeout(patience, answer).await;
        let ecalls = self.clone();
        // Answered calls are off the list already.
        let forget = move || {
            ecalls.registry().calls.remove(&call);
            Ok(())
        };
        aside(forget).await?;
        match answered {
            Ok(Ok(data)) => Ok(CallAnswer { data: event_json::to_hex(&data) }),
            Ok(Err(_)) => Err(problems::no_answer(name, "its process has ended")),
            Err(_) => Err(problems::no_answer(name, &format!("nothing came within {} ms", patience.as_millis()))),
        }
    }

    fn begin_call(
        &self,
        peer: Peer,
        name: &str,
        data: &EventData,
    ) -> Result<(u64, oneshot::Receiver<Vec<u8>>), Problem> {
        let mut registry = self.registry();
        let (id, service) = registry.service(name)?;
        let owner = callable(name, service.owner, peer)?;
        let data = raise::data(&service.format, data)?;
        if registry.calls.len() >= WAITING {
            return Err(problems::limit("too many calls wait for answers", WAITING, "nothing: call again later"));
        }
        let (answer, receiver) = oneshot::channel();
        let call = registry.number();
        registry.calls.insert(call, Call { service: id, answer });
        drop(registry);
        let message = FromDaemon::Call { call, service: id, pid: peer.pid, data: &data };
        match self.tell(Some(owner.lease), &message) {
            true => Ok((call, receiver)),
            false => Err(problems::no_answer(name, "its connection is gone")),
        }
    }
}

fn callable(name: &str, owner: Option<ServiceOwner>, peer: Peer) -> Result<ServiceOwner, Problem> {
    let owner = owner.ok_or_else(|| {
        problems::chain(format!("service {name} is no process's and takes no calls"), "subscribe to it instead")
    })?;
    match owner.open || peer.may_touch(owner.peer.owner) {
        true => Ok(owner),
        false => Err(problems::not_your_service(name, owner.peer.owner.uid, peer.owner.uid)),
    }
}
