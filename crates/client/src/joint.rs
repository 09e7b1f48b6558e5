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
//! A contract lives until it is ended, or until the daemon of this host ends: it survives the program that made it,
//! except with [`JointBuilder::leased`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_shm::Process;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{
    JointContract, JointId, JointPart, JointRefusal, JointRequest, JointResource, NoJointId, UpgradeAnswer,
    UpgradeOffer, UpgradePolicy,
};
use qfabric_types::channel::{InvalidName, Name};
use qfabric_types::{BitRate, Bytes, Resource, Resources, Share};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::ClientError;

/// Longest time from a request without patience to its decision: eight attempts of at most 5.4 s.
const LONGEST: Duration = Duration::from_secs(44);

/// Longest time that the daemon waits for something to answer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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

    /// Waits for a host to offer more for a partly satisfied contract of [`UpgradePolicy::Ask`], for at most this time and
    /// 30 s. `None`: no host did.
    pub fn next_offer(&self, id: &JointId, wait: Duration) -> Result<Option<UpgradeOffer>, ClientError> {
        self.wait(&format!("{}/upgrade", path(id)), wait)
    }

    /// Accepts or declines an offer. Fails with [`ClientError::Refused`] if its time is over.
    pub fn answer_offer(&self, id: &JointId, offer: &UpgradeOffer, accept: bool) -> Result<(), ClientError> {
        let body = serde_json::to_vec(&UpgradeAnswer { host: offer.host.clone(), accept });
        let body = body.expect("the API's bodies are plain values");
        self.exchange("POST", &format!("{}/upgrade", path(id)), Some(body)).map(drop)
    }

    /// Asks a path that answers with 204 if nothing came in time.
    pub(crate) fn wait<A: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<Option<A>, ClientError> {
        let wait = wait.min(LONGEST_WAIT);
        let path = format!("{path}?wait_ms={}", wait.as_millis());
        let client = self.clone().with_patience(self.patience() + wait);
        let (status, answer) = client.answer("GET", &path, None)?;
        if status == 204 {
            return Ok(None);
        }
        let answer = Client::successful("GET", &path, status, answer).map_err(|error| self.older(error))?;
        Client::parsed("GET", &path, &answer).map(Some)
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
    pub(crate) fn older(&self, error: ClientError) -> ClientError {
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
    /// The applications that must consent, by host.
    applications: BTreeMap<String, String>,
    patience_ms: u64,
    lease_pid: Option<i32>,
    upgrades: UpgradePolicy,
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

    /// Needs the consent of an application on this host, as it is named there (QualMan, Figure 8).
    pub fn application(mut self, host: &str, application: &str) -> Self {
        self.applications.insert(host.to_owned(), application.to_owned());
        self
    }

    /// Ends the contract with the calling process, however it ends, and when the last copy of its handle is dropped.
    pub fn leased(self) -> Self {
        self.with_process(std::process::id() as i32)
    }

    /// Ends the contract with another process of the same user.
    pub fn with_process(mut self, pid: i32) -> Self {
        self.lease_pid = Some(pid);
        self
    }

    /// Who decides on more, if the contract is satisfied partly; the daemon accepts it by default.
    pub fn upgrades(mut self, upgrades: UpgradePolicy) -> Self {
        self.upgrades = upgrades;
        self
    }

    /// Like [`JointBuilder::upgrades`], by the policy's name: `accept`, `ask` or `never`.
    pub fn upgrades_named(self, policy: &str) -> Result<Self, ClientError> {
        Ok(self.upgrades(match policy {
            "accept" => UpgradePolicy::Accept,
            "ask" => UpgradePolicy::Ask,
            "never" => UpgradePolicy::Never,
            _ => {
                let refused = format!("the policy {policy:?} for upgrades is unknown");
                return Err(ClientError::invalid(refused, "use accept, ask or never"));
            }
        }))
    }

    /// The request, with the name `here` for this host.
    pub fn request(&self, here: &Name) -> Result<JointRequest, ClientError> {
        if let Some(host) = self.applications.keys().find(|host| !self.hosts.contains_key(*host)) {
            let refused = format!("an application of host {host:?}, of which nothing is wanted");
            return Err(ClientError::invalid(refused, "ask for amounts of this host, or leave the application out"));
        }
        let part = |(host, amounts): (&String, &Vec<Wanted>)| part(host, here, amounts, self.applications.get(host));
        let parts = self.hosts.iter().map(part).collect::<Result<_, _>>()?;
        let request = JointRequest::new(parts).and_then(|request| request.with_patience_ms(self.patience_ms));
        let request = request.map_err(|error| ClientError::value(error.problem()))?.with_upgrades(self.upgrades);
        Ok(match self.lease_pid {
            Some(pid) => request.with_lease(pid),
            None => request,
        })
    }

    /// Makes the contract: see [`Client::apply`].
    pub fn apply(&self, client: &Client) -> Result<JointHandle, ClientError> {
        JointHandle::apply(client, &self.request(&client.host_name()?)?)
    }
}

fn part(host: &str, here: &Name, amounts: &[Wanted], application: Option<&String>) -> Result<JointPart, ClientError> {
    let host = match host {
        "" => here.clone(),
        name => named("the host", name)?,
    };
    let (mut wanted, mut minimum) = (Resources::default(), Resources::default());
    for (resource, most, least) in amounts {
        set(&mut wanted, resource, *most)?;
        set(&mut minimum, resource, *least)?;
    }
    let application = application.map(|name| named("the application", name)).transpose()?;
    Ok(JointPart { host, wanted, minimum: Some(minimum), application })
}

/// A name that the caller gave for `what`.
pub(crate) fn named(what: &str, text: &str) -> Result<Name, ClientError> {
    text.parse().map_err(|error: InvalidName| ClientError::value(error.problem().at(format_args!("{what} {text:?}"))))
}

fn set(vector: &mut Resources, resource: &Resource, amount: f64) -> Result<(), ClientError> {
    let units = match resource {
        Resource::Cpu => Share::from_f64(amount).ppm().into(),
        Resource::Memory | Resource::Network(_) => amount.ceil() as u64,
    };
    vector
        .set_units(resource, units)
        .map_err(|error| ClientError::invalid(error.to_string(), "ask for fewer links in one contract"))
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
        false => {
            let refused = format!("{amount} {unit} of {resource} is out of range");
            Err(ClientError::invalid(refused, format!("ask for 0 to {largest}")))
        }
    }
}

/// A joint contract of this host, and the way to its daemon. The contract survives this value, except if the calling
/// process is its lease; [`JointHandle::end`] ends it.
#[derive(Clone, Debug)]
pub struct JointHandle {
    client: Client,
    contract: JointContract,
    lease: Option<Arc<Lease>>,
}

/// A contract that ends with the last copy of its handle.
#[derive(Debug)]
struct Lease {
    client: Client,
    id: JointId,
    has_ended: AtomicBool,
    /// In a child of a fork the contract belongs to the parent.
    by: Process,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.has_ended.load(Ordering::Relaxed) && self.by.is_current() {
            // If it fails, the contract ends with this process.
            let _ = self.client.end_joint_contract(&self.id);
        }
    }
}

impl JointHandle {
    /// Makes a contract: see [`Client::apply`].
    pub fn apply(client: &Client, request: &JointRequest) -> Result<JointHandle, ClientError> {
        let by = Process::current().map_err(ClientError::unnumbered)?;
        let (contract, own) = (client.apply(request)?, Some(std::process::id() as i32));
        let has_ended = AtomicBool::new(false);
        let lease = || Lease { client: client.clone(), id: contract.id.clone(), has_ended, by };
        let lease = (request.lease_pid() == own).then(|| Arc::new(lease()));
        Ok(JointHandle { client: client.clone(), contract, lease })
    }

    /// A contract that is in force already.
    pub fn open(client: &Client, id: &JointId) -> Result<JointHandle, ClientError> {
        Ok(JointHandle { client: client.clone(), contract: client.joint_contract(id)?, lease: None })
    }

    /// Like [`JointHandle::open`], for an identity as it is printed.
    pub fn open_named(client: &Client, id: &str) -> Result<JointHandle, ClientError> {
        let id = id.parse().map_err(|error: NoJointId| ClientError::value(error.problem()))?;
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

    /// Waits for a host to offer more: see [`Client::next_offer`].
    pub fn next_offer(&self, wait: Duration) -> Result<Option<UpgradeOffer>, ClientError> {
        self.client.next_offer(&self.contract.id, wait)
    }

    /// Accepts or declines an offer: see [`Client::answer_offer`].
    pub fn answer_offer(&self, offer: &UpgradeOffer, accept: bool) -> Result<(), ClientError> {
        self.client.answer_offer(&self.contract.id, offer, accept)
    }

    /// Ends the contract on all hosts.
    pub fn end(self) -> Result<(), ClientError> {
        self.lease.iter().for_each(|lease| lease.has_ended.store(true, Ordering::Relaxed));
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
        assert_eq!((request.lease_pid(), request.upgrades()), (None, UpgradePolicy::Accept));
    }

    #[test]
    fn a_lease_a_policy_and_an_application_become_part_of_the_request() {
        let builder = || JointBuilder::new().want("bob", Resource::Cpu, 0.3, 0.2).unwrap();
        let request = builder().leased().upgrades(UpgradePolicy::Ask).application("bob", "player").request(&here());
        let request = request.unwrap();
        assert_eq!((request.lease_pid(), request.upgrades()), (Some(std::process::id() as i32), UpgradePolicy::Ask));
        assert_eq!(request.parts()[0].application.as_ref().unwrap().as_str(), "player");
        let refused = |host, name| builder().application(host, name).request(&here()).unwrap_err().problem();
        assert!(refused("carl", "player").message.contains("carl"));
        let Problem { code, message, next_step, .. } = refused("bob", "no/name");
        assert_eq!((code.as_str(), next_step.starts_with("use 1 to 64")), ("invalid_name", true), "{next_step}");
        assert!(message.starts_with("the application \"no/name\": "), "{message}");
    }

    #[test]
    fn amounts_and_names_that_cannot_be_are_refused_with_the_value() {
        for amount in [f64::NAN, -1.0, f64::INFINITY, 1e30] {
            let refused = JointBuilder::new().want("", Resource::Memory, amount, 0.0).unwrap_err().to_string();
            assert!(
                refused.contains("of memory is out of range; ask for 0 to") && refused.contains(&amount.to_string())
            );
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
