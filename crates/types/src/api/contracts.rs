//! Joint contracts: resources of several hosts that are promised together or not at all.
//!
//! | call | body → answer |
//! |---|---|
//! | `POST /v1/contracts` | [`JointRequest`] → 201 [`JointContract`], or 409 [`JointRefusal`], or a [`super::Problem`] |
//! | `GET /v1/host` | → `{"host"}`: the name of this host in contracts |
//! | `GET /v1/contracts` | → list of [`JointContract`] |
//! | `GET /v1/contracts/{id}` | → [`JointContract`] |
//! | `DELETE /v1/contracts/{id}` | → 204 |
//! | `GET /v1/contracts/{id}/upgrade?wait_ms=N` | → 200 [`UpgradeOffer`], or 204 if none came in time |
//! | `POST /v1/contracts/{id}/upgrade` | [`UpgradeAnswer`] → 204 |
//! | `GET /v1/consents` | → list of [`ConsentInfo`] |
//! | `PUT /v1/consents/{application}` | [`ConsentRequest`] → [`ConsentInfo`] |
//! | `DELETE /v1/consents/{application}` | → 204 |
//! | `GET /v1/consents/{application}/question?wait_ms=N` | → 200 [`ConsentQuestion`], or 204 if none came in time |
//! | `POST /v1/consents/{application}/questions/{number}` | [`ConsentAnswer`] → 204 |
//! | `POST /v1/contracts/{id}/streams/{interface}` | [`super::net::StreamSpec`] → 201 [`super::net::StreamInfo`]; the stream draws from the contract's rate on that link |
//! | `POST /v1/claims/{id}` | [`super::ApplicationRequest`] → 201 [`super::Application`]; the application draws from the contract |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Claim, Problem};
use crate::channel::Name;
use crate::{Amount, BitRate, Bytes, Nanos, Resource, Resources, Share};

/// Largest number of hosts of one joint contract; bounds the messages of one attempt.
pub const MAX_HOSTS: usize = 16;

/// Longest time that a request may be tried again, in milliseconds; bounds the attempts of one request.
pub const MAX_PATIENCE_MS: u64 = 60_000;

/// The identity of a joint contract: `HOST:NUMBER`. HOST initiated it; NUMBER is random.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JointId {
    /// The initiator.
    pub host: Name,
    /// The contract's number on that host.
    pub number: u64,
}

/// A text is not the identity of a joint contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub struct NoJointId {
    /// The given text, cut to the length of an identity.
    pub given: String,
}

impl NoJointId {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let next_step = "use the HOST:NUMBER of `qfabric contract ls`, such as alpha:5f3c09a1d2e4b687";
        Problem::new("invalid_contract_id", format!("{:?} is not a contract", self.given), next_step)
    }
}

impl FromStr for JointId {
    type Err = NoJointId;

    fn from_str(text: &str) -> Result<JointId, NoJointId> {
        let Claim { host, number } = text.parse::<Claim>().map_err(|refused| NoJointId { given: refused.given })?;
        Ok(JointId { host, number })
    }
}

impl TryFrom<String> for JointId {
    type Error = NoJointId;

    fn try_from(text: String) -> Result<JointId, NoJointId> {
        text.parse()
    }
}

/// Applications draw from a contract as they use a loan.
impl From<&JointId> for Claim {
    fn from(id: &JointId) -> Claim {
        Claim { host: id.host.clone(), number: id.number }
    }
}

impl From<JointId> for String {
    fn from(id: JointId) -> String {
        id.to_string()
    }
}

impl fmt::Display for JointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.host, self.number)
    }
}

/// The part of one host in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JointPart {
    pub host: Name,
    pub wanted: Resources,
    /// The smallest amounts with which the application works; all of `wanted` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Resources>,
    /// The application on that host that must consent (QualMan, Figure 8); nobody is asked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Name>,
}

impl JointPart {
    pub fn minimum(&self) -> &Resources {
        self.minimum.as_ref().unwrap_or(&self.wanted)
    }
}

/// A request for a joint contract: 1 to [`MAX_HOSTS`] parts, one per host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "RequestBody")]
pub struct JointRequest {
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 16))]
    parts: Vec<JointPart>,
    /// Time to try again after a refusal that waiting may change, in milliseconds; nothing is held between attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(required = false, maximum = 60_000))]
    patience_ms: u64,
    /// The process with which the contract ends; it must belong to the asking user. Absent: the contract stays in force
    /// until it is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_pid: Option<i32>,
    /// Who decides on more for a partly satisfied contract.
    #[serde(default, skip_serializing_if = "UpgradePolicy::is_default")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    upgrades: UpgradePolicy,
}

/// What happens if capacity becomes free for a partly satisfied contract (QualMan §5.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum UpgradePolicy {
    /// The daemon accepts it at once.
    #[default]
    Accept,
    /// A program decides on each [`UpgradeOffer`]; without its answer the contract stays as it is.
    Ask,
    /// Nothing is offered.
    Never,
}

impl UpgradePolicy {
    fn is_default(&self) -> bool {
        *self == UpgradePolicy::Accept
    }
}

/// More that a host holds for a partly satisfied contract, until it is accepted or its time is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UpgradeOffer {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Name,
    /// The asked amounts of that host, and the whole amounts after the upgrade.
    pub resources: Vec<JointResource>,
    /// Time that is left for an answer.
    pub left_ns: Nanos,
}

/// The answer to an [`UpgradeOffer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UpgradeAnswer {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Name,
    pub accept: bool,
}

/// What a user answers for an application whose consent joint contracts need (QualMan, Figure 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConsentPolicy {
    Accept,
    Decline,
    /// The program that answers for the application decides on each [`ConsentQuestion`].
    Ask,
}

/// From now on the caller answers for an application of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConsentRequest {
    pub policy: ConsentPolicy,
    /// The process with which the caller's answers end; it must belong to the caller. Absent: they end with
    /// `DELETE`, or with the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
}

/// Who answers for an application of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConsentInfo {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub application: Name,
    pub uid: u32,
    pub policy: ConsentPolicy,
    /// The process with which the answers end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Questions without an answer yet.
    pub open: usize,
}

/// A joint contract of another host needs the consent of an application of this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConsentQuestion {
    /// Its number on this host, for the answer.
    pub number: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub application: Name,
    /// The contract. Its number is the right to draw from the part of this host.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub contract: JointId,
    /// What this host holds for it.
    pub resources: Resources,
    /// Time that is left for an answer.
    pub left_ns: Nanos,
}

/// The answer to a [`ConsentQuestion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConsentAnswer {
    pub accept: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(patience: &u64) -> bool {
    *patience == 0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestBody {
    parts: Vec<JointPart>,
    #[serde(default)]
    patience_ms: u64,
    #[serde(default)]
    lease_pid: Option<i32>,
    #[serde(default)]
    upgrades: UpgradePolicy,
}

/// A request for a joint contract is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJointRequest {
    #[error("the contract has {given} hosts, of 1 to {MAX_HOSTS} allowed")]
    Hosts { given: usize },
    #[error("the contract has two parts for host {host}")]
    Twice { host: Name },
    #[error("the contract asks nothing of host {host}")]
    Nothing { host: Name },
    #[error("on host {host}, the minimum of {resource} is {minimum}, more than the wanted {wanted}")]
    Minimum { host: Name, resource: Resource, minimum: Amount, wanted: Amount },
    #[error("on host {host}, {asked} of {resource} is wanted, more than the {limit} that a contract may ask for")]
    TooMuch { host: Name, resource: Resource, asked: Amount, limit: Amount },
    #[error("a patience of {given} ms is more than the {MAX_PATIENCE_MS} ms allowed")]
    Patience { given: u64 },
}

impl InvalidJointRequest {
    pub fn problem(&self) -> Problem {
        let next = match self {
            InvalidJointRequest::Hosts { .. } => "split it into several contracts",
            InvalidJointRequest::Twice { .. } => "write all resources of a host into one part",
            InvalidJointRequest::Nothing { .. } => "remove the part, or ask for at least one resource",
            InvalidJointRequest::Minimum { .. } => "lower the minimum, or raise the wanted amount",
            InvalidJointRequest::TooMuch { .. } => "check the unit of the amount: CPUs, bytes, or bits per second",
            InvalidJointRequest::Patience { .. } => "ask again after the last attempt",
        };
        Problem::new("invalid_contract", self.to_string(), next)
    }
}

impl JointRequest {
    /// Checks the parts.
    ///
    /// # Errors
    /// The first rule that the parts break.
    pub fn new(parts: Vec<JointPart>) -> Result<JointRequest, InvalidJointRequest> {
        if !(1..=MAX_HOSTS).contains(&parts.len()) {
            return Err(InvalidJointRequest::Hosts { given: parts.len() });
        }
        for (at, part) in parts.iter().enumerate() {
            if parts[..at].iter().any(|other| other.host == part.host) {
                return Err(InvalidJointRequest::Twice { host: part.host.clone() });
            }
            check(part)?;
        }
        Ok(JointRequest { parts, patience_ms: 0, lease_pid: None, upgrades: UpgradePolicy::default() })
    }

    /// Tries again until this time after the request, in milliseconds.
    ///
    /// # Errors
    /// More than [`MAX_PATIENCE_MS`].
    pub fn with_patience_ms(self, patience_ms: u64) -> Result<JointRequest, InvalidJointRequest> {
        match patience_ms <= MAX_PATIENCE_MS {
            true => Ok(JointRequest { patience_ms, ..self }),
            false => Err(InvalidJointRequest::Patience { given: patience_ms }),
        }
    }

    /// Ends the contract with this process.
    #[must_use]
    pub fn with_lease(self, pid: i32) -> JointRequest {
        JointRequest { lease_pid: Some(pid), ..self }
    }

    /// Who decides on upgrades.
    #[must_use]
    pub fn with_upgrades(self, upgrades: UpgradePolicy) -> JointRequest {
        JointRequest { upgrades, ..self }
    }

    /// The process with which the contract ends.
    pub fn lease_pid(&self) -> Option<i32> {
        self.lease_pid
    }

    pub fn upgrades(&self) -> UpgradePolicy {
        self.upgrades
    }

    pub fn patience(&self) -> Nanos {
        Nanos::from_millis(self.patience_ms)
    }

    pub fn parts(&self) -> &[JointPart] {
        &self.parts
    }
}

fn check(part: &JointPart) -> Result<(), InvalidJointRequest> {
    if part.wanted.is_zero() {
        return Err(InvalidJointRequest::Nothing { host: part.host.clone() });
    }
    for (resource, asked) in part.wanted.iter() {
        let limit = largest(&resource);
        if asked.units() > limit.units() {
            return Err(InvalidJointRequest::TooMuch { host: part.host.clone(), resource, asked, limit });
        }
    }
    for (resource, minimum) in part.minimum().iter() {
        let wanted = resource.amount(part.wanted.units(&resource));
        if minimum.units() > wanted.units() {
            return Err(InvalidJointRequest::Minimum { host: part.host.clone(), resource, minimum, wanted });
        }
    }
    Ok(())
}

/// The largest amount that messages between hosts carry.
fn largest(resource: &Resource) -> Amount {
    match resource {
        Resource::Cpu => Amount::Cpu(Share::MAX),
        Resource::Memory => Amount::Memory(Bytes::MAX),
        Resource::Network(_) => Amount::Network(BitRate::MAX),
    }
}

impl TryFrom<RequestBody> for JointRequest {
    type Error = InvalidJointRequest;

    fn try_from(body: RequestBody) -> Result<JointRequest, InvalidJointRequest> {
        let request = JointRequest::new(body.parts)?.with_patience_ms(body.patience_ms)?;
        Ok(JointRequest { lease_pid: body.lease_pid, upgrades: body.upgrades, ..request })
    }
}

/// One resource of one host in a joint contract. Amounts as numbers: CPUs, bytes, bits per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JointResource {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Name,
    /// `cpu`, `memory`, or `network INTERFACE out|in`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub resource: Resource,
    pub asked: f64,
    /// Less than `asked` if the contract is partly satisfied.
    pub granted: f64,
}

impl JointResource {
    /// The resources of one host: what was wanted beside what is granted.
    pub fn of<'a>(
        host: &'a Name,
        wanted: &'a Resources,
        granted: &'a Resources,
    ) -> impl Iterator<Item = JointResource> + 'a {
        wanted.iter().map(move |(resource, asked)| {
            let granted = resource.amount(granted.units(&resource)).value();
            JointResource { host: host.clone(), resource, asked: asked.value(), granted }
        })
    }
}

/// A joint contract in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JointContract {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: JointId,
    pub resources: Vec<JointResource>,
}

impl JointResource {
    /// The granted amount in [`Amount::units`].
    pub fn granted_units(&self) -> u64 {
        match self.resource {
            Resource::Cpu => Share::from_f64(self.granted).ppm().into(),
            // Whole numbers below 2^53.
            Resource::Memory | Resource::Network(_) => self.granted as u64,
        }
    }
}

impl JointContract {
    /// Whether less is granted than was asked for.
    pub fn is_partial(&self) -> bool {
        self.resources.iter().any(|resource| resource.granted < resource.asked)
    }
}

/// The part of a joint contract that a host holds or has committed, in [`super::HostStatus`]. It does not name the
/// contract, because its number is the right to the part on hosts that did not initiate it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JointHolding {
    /// The host that initiated the contract.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub initiator: Name,
    /// The user whose maximum counts; nobody (65534) for contracts of other hosts.
    pub uid: u32,
    /// What is held for the contract, with a held upgrade.
    pub resources: Resources,
    /// Whether the contract is in force here; otherwise the amounts are only held.
    pub in_force: bool,
    /// Time after which the part is free without another message of the initiator.
    pub left_ns: Nanos,
}

/// What the contracts of one host hold of a resource that is short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JointHolder {
    /// The host that initiated the contracts. Their numbers are not told: a number is the right to a contract's parts.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub initiator: Name,
    /// Their sum on the host that refused, as in [`JointResource`].
    pub amount: f64,
}

/// Why a joint contract was refused. Nothing is held afterwards. Amounts as in [`JointResource`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JointRefusal {
    /// The host that refused, or did not answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub refused_by: Name,
    /// The resource that was short; absent if another rule refused: see `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub resource: Option<Resource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<f64>,
    /// The largest amount that would have been granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<f64>,
    /// The initiators of the contracts that hold the resource, largest amount first, at most 8. Empty: the host is older, or
    /// no contract holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<JointHolder>,
    /// What programs of that host, and its loans, hold without a contract, together. Absent: the host is older, or a
    /// maximum refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    pub problem: Problem,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(host: &str, wanted: u32, minimum: u32) -> JointPart {
        let cpu = |ppm| {
            let mut vector = Resources::default();
            vector.cpu = Share::from_ppm(ppm);
            vector
        };
        JointPart { host: host.parse().unwrap(), wanted: cpu(wanted), minimum: Some(cpu(minimum)), application: None }
    }

    #[test]
    fn a_printed_identity_parses_to_itself() {
        let id: JointId = "alpha:5f3c09a1d2e4b687".parse().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("alpha".parse::<JointId>().unwrap_err().to_string().contains("contract ls"));
    }

    #[test]
    fn an_invalid_request_is_refused_with_the_rule() {
        let refused = |parts| JointRequest::new(parts).unwrap_err().to_string();
        assert_eq!(refused(vec![]), "the contract has 0 hosts, of 1 to 16 allowed");
        assert!(refused(vec![part("a", 2, 1), part("a", 2, 1)]).contains("two parts for host a"));
        assert!(refused(vec![part("a", 0, 0)]).contains("asks nothing of host a"));
        let text = refused(vec![part("a", 250_000, 500_000)]);
        assert_eq!(text, "on host a, the minimum of cpu is 0.5 CPU, more than the wanted 0.25 CPU");
    }

    #[test]
    fn a_request_in_json_is_checked_as_it_is_read() {
        let body = r#"{"parts":[{"host":"a","wanted":{"cpu":0.5}},{"host":"a","wanted":{"cpu":0.5}}]}"#;
        assert!(serde_json::from_str::<JointRequest>(body).unwrap_err().to_string().contains("two parts"));
        let body = r#"{"parts":[{"host":"a","wanted":{"cpu":0.5},"lowest":{}}]}"#;
        assert!(serde_json::from_str::<JointRequest>(body).unwrap_err().to_string().contains("lowest"));
        let body = r#"{"parts":[{"host":"a","wanted":{"memory_bytes":18446744073709551615}}]}"#;
        let refused = serde_json::from_str::<JointRequest>(body).unwrap_err().to_string();
        assert!(refused.contains("more than the 1024 TiB that a contract may ask for"), "{refused}");
        let good = JointRequest::new(vec![part("a", 2, 1), part("b", 2, 2)]).unwrap();
        let text = serde_json::to_string(&good).unwrap();
        assert!(!text.contains("patience"), "{text}");
        assert_eq!(serde_json::from_str::<JointRequest>(&text).unwrap(), good);
        let patient = good.with_patience_ms(10_000).unwrap();
        let text = serde_json::to_string(&patient).unwrap();
        assert_eq!(serde_json::from_str::<JointRequest>(&text).unwrap(), patient);
        let leased = patient.clone().with_lease(7).with_upgrades(UpgradePolicy::Ask);
        let shown = serde_json::to_string(&leased).unwrap();
        assert!(shown.ends_with(r#""lease_pid":7,"upgrades":"ask"}"#), "{shown}");
        assert_eq!(serde_json::from_str::<JointRequest>(&shown).unwrap(), leased);
        let text = text.replace("10000", "60001");
        let refused = serde_json::from_str::<JointRequest>(&text).unwrap_err().to_string();
        assert!(refused.contains("60001 ms is more than the 60000 ms allowed"), "{refused}");
    }

    #[test]
    fn the_answer_has_the_names_that_tools_read() {
        let host = "a".parse().unwrap();
        let (wanted, granted) = (part("a", 500_000, 0).wanted, part("a", 250_000, 0).wanted);
        let resources = JointResource::of(&host, &wanted, &granted).collect();
        let contract = JointContract { id: "a:1".parse().unwrap(), resources };
        let text = serde_json::to_string(&contract).unwrap();
        let expected =
            r#"{"id":"a:0000000000000001","resources":[{"host":"a","resource":"cpu","asked":0.5,"granted":0.25}]}"#;
        assert_eq!(text, expected);
    }
}
