use qfabric_ecode::Fault;
use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Code, filter_id, paces};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{CodePolicy, PolicyKind, Resource};

use super::super::super::{lock, node};
use super::{Fabric, Pacing, Peer, Runs, Shared};

impl Runs for CodePolicy {
    fn controller(&self, _fabric: &Fabric, record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let record = record.clone();
        let on_fault = move |fault: &Fault| {
            let mut record = lock(&record);
            record.faults += 1;
            record.fault = Some(fault.to_string());
        };
        Ok(Box::new(Code::new(self, &node::engines(), Box::new(on_fault)).map_err(|why| why.problem())?))
    }

    /// The compiler finds out whether a text decides rates.
    fn resources(&self) -> Result<Vec<Resource>, Problem> {
        let rates = paces(self).map_err(|why| why.problem())?.then(|| Resource::Rates(self.channel.clone()));
        Ok(self.decides().into_iter().chain(rates).collect())
    }

    fn pacing(&self) -> Pacing {
        // A text receives the rates as they were reported.
        Pacing { corrects: false, ..Pacing::default() }
    }

    /// Only a filter's owner may change its parameters.
    fn check_rights(&self, fabric: &Fabric, peer: Peer) -> Result<(), Problem> {
        match &self.filter {
            Some(filter) => fabric.check_owner(peer, &filter_id(&self.channel, filter).map_err(|why| why.problem())?),
            None => Ok(()),
        }
    }
}
