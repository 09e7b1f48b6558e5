//! Joint contracts as values: resources of several hosts that are promised together or not at all (QualMan §2.3).
//!
//! ```no_run
//! use qfabric_client::{Client, JointBuilder, Resource};
//!
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let client = Client::connect()?;
//! let out: Resource = "network eth0 out".parse().expect("a resource");
//! let contract = JointBuilder::new()
//!     .want("", Resource::Cpu, 0.3, 0.2)? // CPUs of this host: 0.3 are wanted, 0.2 are enough
//!     .want("", out, 5e6, 5e6)? // bits per second
//!     .want("bob", Resource::Memory, 33554432.0, 33554432.0)? // bytes
//!     .apply(&client)?;
//! println!("{} is in force", contract.id());
//! contract.end()
//! # }
//! ```
//!
//! A contract lives until it is ended, or until the daemon of this host ends: it survives the program that made it.

use std::collections::BTreeMap;
use std::time::Duration;

use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{
    JointContract, JointId, JointPart, JointRefusal, JointRequest, JointResource, NoJointId,
};
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Resource, Resources, Share};
use serde::Deserialize;

use crate::client::Client;
use crate::error::ClientError;

/// Longest time from a request without patience to its decision: eight attempts of at most 5.4 s.
const LONGEST: Duration = Duration::from_secs(44);

impl Client {
    /// Makes a joint contract. May block until all attempts are over: 44 s, and the patience of the request. Fails with
    /// [`ClientError::JointRefused`] if a host refuses its part; nothing is held then.
    pub fn apply(&self, request: &JointRequest) -> Result<JointContract, ClientError> {
        let patience = Duration::from_nanos(request.patience().get());
        let client = self.clone().with_patience(self.patience() + LONGEST + patience);
        let body = serde_json::to_vec(request).expect("the API's bodies are plain values");
        let (status, answer) = client.answer("POST", "/v1/contracts", Some(body))?;
        if let (409, Ok(refusal)) = (status, serde_json::from_slice::<JointRefusal>(&answer)) {
            return Err(ClientError::JointRefused(Box::new(refusal)));
        }
        let answer = Client::successful("POST", "/v1/contracts", status, answer).map_err(|error| self.older(error))?;
        Client::parsed("POST", "/v1/contracts", &answer)
    }

    /// The joint contracts in force that users of this host asked for.
    pub fn joint_contracts(&self) -> Result<Vec<JointContract>, ClientError> {
        self.get("/v1/contracts").map_err(|error| self.older(error))
    }

    /// One joint contract; fails with [`ClientError::Refused`] if none with this identity is in force.
    pub fn joint_contract(&self, id: &JointId) -> Result<JointContract, ClientError> {
        self.get(&path(id)).map_err(|error| self.older(error))
    }

    /// Ends a joint contract on all its hosts. Only its user and root may do this.
    pub fn end_joint_contract(&self, id: &JointId) -> Result<(), ClientError> {
        self.exchange("DELETE", &path(id), None).map(drop).map_err(|error| self.older(error))
    }

    /// The name of the daemon's host in joint contracts.
    pub fn host_name(&self) -> Result<Name, ClientError> {
        #[derive(Deserialize)]
        struct OwnHost {
            host: Name,
        }
        Ok(self.get::<OwnHost>("/v1/host").map_err(|error| self.older(error))?.host)
    }

    /// An older daemon of the same minor version knows no path of contracts.
    fn older(&self, error: ClientError) -> ClientError {
        let is_unknown = match &error {
            ClientError::Refused(problem) => problem.code == "no_such_path",
            ClientError::Answer { why, .. } => why.starts_with("HTTP status 404"),
            _ => false,
        };
        if !is_unknown {
            return error;
        }
        let version = self.status().map_or_else(|error| format!("({error})"), |status| status.version);
        let own = env!("CARGO_PKG_VERSION");
        let message = format!("the daemon, version {version}, knows no joint contracts; this program is version {own}");
        ClientError::Refused(Problem::new("no_contracts", message, "update the daemon, and start it again"))
    }
}

fn path(id: &JointId) -> String {
    format!("/v1/contracts/{id}")
}

/// A resource, and its wanted and smallest useful amount in the units of [`JointResource`].
type Wanted = (Resource, f64, f64);

/// The amounts of a joint contract, collected one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JointBuilder {
    /// The amounts by host; the empty name is this host.
    hosts: BTreeMap<String, Vec<Wanted>>,
    patience_ms: u64,
}

impl JointBuilder {
    /// Asks for nothing.
    pub fn new() -> JointBuilder {
        JointBuilder::default()
    }

    /// Asks for an amount of a resource of a host: CPUs, bytes, or bits per second. With less than `minimum` the
    /// program has no use for the contract. An empty `host` is the host of the daemon. A second amount of the same
    /// resource replaces the first.
    pub fn want(mut self, host: &str, resource: Resource, wanted: f64, minimum: f64) -> Result<Self, ClientError> {
        for amount in [wanted, minimum] {
            check(&resource, amount)?;
        }
        let amounts = self.hosts.entry(host.to_owned()).or_default();
        amounts.retain(|(other, ..)| *other != resource);
        amounts.push((resource, wanted, minimum));
        Ok(self)
    }

    /// Tries again for this time, if a refusal may pass when other contracts end. At most a minute.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// The request, with the name `here` for this host.
    pub fn request(&self, here: &Name) -> Result<JointRequest, ClientError> {
        let parts = self.hosts.iter().map(|(host, amounts)| part(host, here, amounts)).collect::<Result<_, _>>()?;
        let request = JointRequest::new(parts).and_then(|request| request.with_patience_ms(self.patience_ms));
        request.map_err(|error| invalid(&error.problem()))
    }

    /// Makes the contract: see [`Client::apply`].
    pub fn apply(&self, client: &Client) -> Result<JointHandle, ClientError> {
        JointHandle::apply(client, &self.request(&client.host_name()?)?)
    }
}

fn part(host: &str, here: &Name, amounts: &[Wanted]) -> Result<JointPart, ClientError> {
    let host = match host {
        "" => here.clone(),
        name => name.parse().map_err(|error| ClientError::Value(format!("the host {name:?}: {error}")))?,
    };
    let (mut wanted, mut minimum) = (Resources::default(), Resources::default());
    for (resource, most, least) in amounts {
        set(&mut wanted, resource, *most)?;
        set(&mut minimum, resource, *least)?;
    }
    Ok(JointPart { host, wanted, minimum: Some(minimum), application: None })
}

fn set(vector: &mut Resources, resource: &Resource, amount: f64) -> Result<(), ClientError> {
    let units = match resource {
        Resource::Cpu => Share::from_f64(amount).ppm().into(),
        Resource::Memory | Resource::Network(_) => amount.ceil() as u64,
    };
    vector.set_units(resource, units).map_err(|error| ClientError::Value(error.to_string()))
}

/// Refuses what no amount of the resource can be, before it is rounded to whole units.
fn check(resource: &Resource, amount: f64) -> Result<(), ClientError> {
    let (largest, unit) = match resource {
        Resource::Cpu => (Share::MAX.as_f64(), "CPU"),
        Resource::Memory => (Bytes::MAX.as_f64(), "bytes"),
        Resource::Network(_) => (BitRate::MAX.as_f64(), "bit/s"),
    };
    match (0.0..=largest).contains(&amount) {
        true => Ok(()),
        false => Err(ClientError::Value(format!("{amount} {unit} of {resource} is not within 0 to {largest}"))),
    }
}

fn invalid(problem: &Problem) -> ClientError {
    ClientError::Value(format!("{}; {}", problem.message, problem.next_step))
}

/// A joint contract of this host, and the way to its daemon. The contract survives this value; [`JointHandle::end`]
/// ends it.
#[derive(Clone, Debug)]
pub struct JointHandle {
    client: Client,
    contract: JointContract,
}

impl JointHandle {
    /// Makes a contract: see [`Client::apply`].
    pub fn apply(client: &Client, request: &JointRequest) -> Result<JointHandle, ClientError> {
        Ok(JointHandle { client: client.clone(), contract: client.apply(request)? })
    }

    /// A contract that is in force already.
    pub fn open(client: &Client, id: &JointId) -> Result<JointHandle, ClientError> {
        Ok(JointHandle { client: client.clone(), contract: client.joint_contract(id)? })
    }

    /// Like [`JointHandle::open`], for an identity as it is printed.
    pub fn open_named(client: &Client, id: &str) -> Result<JointHandle, ClientError> {
        let id = id.parse().map_err(|error: NoJointId| ClientError::Value(error.to_string()))?;
        JointHandle::open(client, &id)
    }

    /// The identity, with which other programs find the contract and draw from it.
    pub fn id(&self) -> &JointId {
        &self.contract.id
    }

    /// The asked and granted amounts of all hosts, as last read.
    pub fn resources(&self) -> &[JointResource] {
        &self.contract.resources
    }

    /// Whether less is granted than was asked for.
    pub fn is_partial(&self) -> bool {
        self.contract.is_partial()
    }

    /// Reads the contract again: a partly satisfied one is raised as soon as more is free. Fails with
    /// [`ClientError::Refused`] if the contract has ended.
    pub fn refresh(&mut self) -> Result<(), ClientError> {
        self.contract = self.client.joint_contract(&self.contract.id)?;
        Ok(())
    }

    /// Ends the contract on all hosts.
    pub fn end(self) -> Result<(), ClientError> {
        self.client.end_joint_contract(&self.contract.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Name {
        "alpha".parse().unwrap()
    }

    #[test]
    fn amounts_become_one_part_per_host() {
        let out: Resource = "network eth0 out".parse().unwrap();
        let builder = JointBuilder::new()
            .want("", Resource::Cpu, 0.9, 0.9)
            .and_then(|builder| builder.want("bob", Resource::Memory, 4096.0, 0.0))
            .and_then(|builder| builder.want("", out.clone(), 5e6, 1e6))
            .and_then(|builder| builder.want("", Resource::Cpu, 0.3, 0.2));
        let request = builder.unwrap().patience(Duration::from_secs(2)).request(&here()).unwrap();
        let [alpha, bob] = request.parts() else { panic!("{request:?}") };
        assert_eq!((alpha.host.as_str(), bob.host.as_str()), ("alpha", "bob"));
        assert_eq!((alpha.wanted.cpu, alpha.minimum().cpu), (Share::from_ppm(300_000), Share::from_ppm(200_000)));
        assert_eq!((alpha.wanted.units(&out), alpha.minimum().units(&out)), (5_000_000, 1_000_000));
        assert_eq!((bob.wanted.memory, bob.minimum().memory), (Bytes::new(4_096), Bytes::ZERO));
        assert_eq!(request.patience().get(), 2_000_000_000);
    }

    #[test]
    fn amounts_and_names_that_cannot_be_are_refused_with_the_value() {
        for amount in [f64::NAN, -1.0, f64::INFINITY, 1e30] {
            let refused = JointBuilder::new().want("", Resource::Memory, amount, 0.0).unwrap_err().to_string();
            assert!(refused.contains("of memory is not within 0 to") && refused.contains(&amount.to_string()));
        }
        let request = |host: &str, wanted, minimum| {
            let builder = JointBuilder::new().want(host, Resource::Cpu, wanted, minimum).unwrap();
            builder.request(&here()).unwrap_err().to_string()
        };
        assert!(request("no/name", 1.0, 1.0).contains("no/name"));
        assert!(request("", 0.2, 0.3).contains("more than the wanted 0.2 CPU"));
        assert!(request("", 0.0, 0.0).contains("asks nothing of host alpha"));
        assert!(JointBuilder::new().request(&here()).unwrap_err().to_string().contains("0 hosts"));
        let long = JointBuilder::new().want("", Resource::Cpu, 0.1, 0.1).unwrap().patience(Duration::from_secs(61));
        assert!(long.request(&here()).unwrap_err().to_string().contains("61000 ms"));
    }
}
