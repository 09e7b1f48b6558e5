//! The joint contract of a stream, and the applications that draw CPU and memory from it.
//!
//! A contract only holds an amount of memory. The daemon protects pages for the application that draws it, so each
//! process draws its part together with its CPU, and the report says for each whether its pages are protected.

use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_client::{Client, JointBuilder, JointHandle};
use qfabric_demo::children::ChildGuard;
use qfabric_types::api::memory::MemoryStatus;
use qfabric_types::api::{ApplicationRequest, ApplicationScope, Claim};
use qfabric_types::{AppId, Bytes, Class, Contract, JobSource, Nanos, Resource, Share};

use super::Ends;
use super::daemons::{End, INTERFACE};
use crate::experiment::StreamPlan;

/// Memory of each process of a stream: the paper's 16 MB.
const MEMORY: Bytes = Bytes::new(16 << 20);

/// What holds a stream's reservations; dropping it ends them.
pub(super) struct Held {
    pub(super) contract: JointHandle,
    /// Which process has how much memory, and whether it is protected.
    pub(super) notes: Vec<String>,
    _applications: Vec<Drawn>,
}

/// An application that draws from the contract, until it is dropped.
struct Drawn {
    client: Client,
    id: AppId,
}

impl Drop for Drawn {
    fn drop(&mut self) {
        // Fails if the process has ended: its reservation has ended with it.
        self.client.release(self.id).ok();
    }
}

/// One joint contract for a stream: CPU, memory and the rate on both hosts; all its processes draw from it.
pub(super) fn reserve(clients: &[Client; 2], ends: &Ends, plan: &StreamPlan) -> Result<Held> {
    let contract = wanted(plan)?.leased().apply(&clients[0]).context("the joint contract is refused")?;
    let claim = Claim::from(contract.id());
    let [sending, receiving] = clients;
    let mut processes = vec![
        (sending, "sender", &ends.sender, plan.sender_share()),
        (receiving, "receiver", &ends.receiver, plan.share()),
    ];
    if let Some(decoder) = &ends.decoder {
        processes.push((receiving, "decoder", &decoder.process, plan.decoder_share()));
    }
    let (mut notes, mut applications) = (Vec::new(), Vec::new());
    for (client, part, process, share) in processes {
        let request = request(part, process, share, plan.period());
        let admitted = client.claim(&claim, &request).with_context(|| format!("CPU and memory of the {part}"))?;
        applications.push(Drawn { client: client.clone(), id: admitted.id });
        notes.push(note(part, admitted.memory.as_ref()));
    }
    Ok(Held { contract, notes, _applications: applications })
}

/// The amounts on both hosts.
fn wanted(plan: &StreamPlan) -> Result<JointBuilder> {
    let rate = plan.rate().get() as f64;
    let receivers = if plan.decoder_share > 0.0 { 2.0 } else { 1.0 };
    let (memory, receiving) = (MEMORY.as_f64(), plan.share + plan.decoder_share);
    let network = |direction: &str| format!("network {INTERFACE} {direction}").parse::<Resource>();
    let host = End::Receiver.name();
    Ok(JointBuilder::new()
        .want("", Resource::Cpu, plan.sender_share, plan.sender_share)?
        .want("", Resource::Memory, memory, memory)?
        .want("", network("out")?, rate, rate)?
        .want(host, Resource::Cpu, receiving, receiving)?
        .want(host, Resource::Memory, receivers * memory, receivers * memory)?
        .want(host, network("in")?, rate, rate)?
        .patience(Duration::from_secs(5)))
}

/// What a process of the stream draws.
fn request(part: &str, process: &ChildGuard, share: Share, period: Nanos) -> ApplicationRequest {
    let contract = Contract {
        class: Class::B,
        guaranteed: Some(share),
        max_bandwidth: share,
        jobs: JobSource::Consumption,
        memory: MEMORY,
        ..Contract::new(part, period)
    };
    ApplicationRequest { pid: process.id() as i32, covers: ApplicationScope::Program, contract }
}

/// Whether the memory of a process is protected.
fn note(part: &str, memory: Option<&MemoryStatus>) -> String {
    match memory {
        None => format!("memory of the {part} is not promised"),
        Some(MemoryStatus { promised, missing: None, .. }) => {
            format!("{promised} of the {part}'s memory are protected")
        }
        Some(MemoryStatus { promised, missing: Some(why), .. }) => {
            format!("{promised} of the {part}'s memory are promised, not protected: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn status(missing: &str) -> MemoryStatus {
        let missing = if missing.is_empty() { String::new() } else { format!(r#","missing":"{missing}""#) };
        let text = format!(r#"{{"reserve":7,"promised_bytes":16777216,"used_bytes":0,"protection":"none"{missing}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_note_says_whether_memory_is_protected() {
        let lacking = note("sender", Some(&status("no control groups")));
        assert!(lacking.contains("sender's memory are promised, not protected: no control groups"), "{lacking}");
        assert!(note("decoder", Some(&status(""))).contains("decoder's memory are protected"));
        assert!(note("receiver", None).contains("not promised"));
    }

    #[test]
    fn a_contract_holds_memory_for_each_process() {
        let memory = |plan: &StreamPlan| {
            let here = "h0".parse().unwrap();
            let request = serde_json::to_value(wanted(plan).unwrap().request(&here).unwrap()).unwrap();
            let parts = request["parts"].as_array().unwrap().clone();
            parts.iter().map(|part| part["wanted"]["memory_bytes"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let decoded = Experiment::ALL.into_iter().find(|experiment| experiment.is_decoded()).unwrap();
        let plain = |experiment: &Experiment| experiment.is_of_two_hosts() && !experiment.is_decoded();
        let plain = Experiment::ALL.into_iter().find(plain).unwrap();
        assert_eq!(memory(&plain.streams()[0]), [MEMORY.get(), MEMORY.get()]);
        assert_eq!(memory(&decoded.streams()[0]), [MEMORY.get(), 2 * MEMORY.get()], "receiver and decoder");
    }
}
