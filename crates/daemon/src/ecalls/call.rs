//! The generic call (000 §3.2.1): a process calls a service by its name, and the service's owner answers. The
//! caller waits.

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

/// Calls that may wait for answers; a further call is refused.
const WAITING: usize = 256;
/// Calls of one user that may wait (root excepted).
const WAITING_OF_USER: usize = WAITING / 4;

impl Ecalls {
    /// Calls the service and waits for the answer, at most `timeout`.
    pub(crate) async fn call(
        self: &Arc<Self>,
        peer: Peer,
        name: &str,
        data: EventData,
        timeout: Duration,
    ) -> Result<CallAnswer, Problem> {
        let (ecalls, service) = (self.clone(), name.to_owned());
        let (call, answer) = aside(move || ecalls.begin_call(peer, &service, &data)).await?;
        let answered = tokio::time::timeout(timeout, answer).await;
        let ecalls = self.clone();
        // An answered call is off the list already.
        let forget = move || {
            ecalls.registry().calls.remove(&call);
            Ok(())
        };
        aside(forget).await?;
        match answered {
            Ok(Ok(data)) => Ok(CallAnswer { data: event_json::to_hex(&data) }),
            Ok(Err(_)) => Err(problems::no_answer(name, "its process has ended")),
            Err(_) => Err(problems::no_answer(name, &format!("no answer within {} ms", timeout.as_millis()))),
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
        // A request that the API aborts never takes its call off the list.
        registry.calls.retain(|_, call| !call.answer.is_closed());
        if registry.calls.len() >= WAITING {
            return Err(problems::limit("too many calls wait for answers", WAITING, "nothing: call again later"));
        }
        let own = registry.calls.values().filter(|call| call.caller == peer.owner.uid).count();
        if peer.owner.uid != 0 && own >= WAITING_OF_USER {
            let what = format!("{own} calls of user {} wait for answers", peer.owner.uid);
            return Err(problems::limit(&what, WAITING_OF_USER, "nothing: call again later"));
        }
        let (answer, receiver) = oneshot::channel();
        let call = registry.number();
        registry.calls.insert(call, Call { service: id, caller: peer.owner.uid, answer });
        drop(registry);
        let message = FromDaemon::Call { call, service: id, pid: peer.pid, data: &data };
        match self.send_to(Some(owner.lease), &message) {
            true => Ok((call, receiver)),
            false => Err(problems::no_answer(name, "its connection has closed")),
        }
    }
}

fn callable(name: &str, owner: Option<ServiceOwner>, peer: Peer) -> Result<ServiceOwner, Problem> {
    let owner = owner.ok_or_else(|| {
        problems::chain(
            format!("service {name} does not belong to a process and takes no calls"),
            "subscribe to it instead",
        )
    })?;
    match owner.open || peer.may_touch(owner.peer.owner) {
        true => Ok(owner),
        false => Err(problems::not_your_service(name, owner.peer.owner.uid, peer.owner.uid)),
    }
}
