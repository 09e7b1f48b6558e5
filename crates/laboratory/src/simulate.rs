//! Runs one policy, or none, in a scenario of the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_channel::interpreter;
use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{CapacityTerms, Code, Roles};
use qfabric_sim::fabric::experiments::laboratory::{FRAME_BITS, Options, Outcome, Scenario, channel, run};
use qfabric_types::Instant;
use qfabric_types::api::channel::{CodePolicy, Policy};
use qfabric_types::channel::{ChannelId, Plane};
use serde::{Deserialize, Serialize};

use crate::answer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// The body of `POST /v1/policies`; absent: no policy.
    #[serde(default)]
    policy: Option<Policy>,
    scenario: Scenario,
    #[serde(default = "one")]
    seed: u64,
}

fn one() -> u64 {
    1
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    outcome: Outcome,
    /// Calls of the E-code that faulted.
    faults: u64,
}

/// Simulates a request `{"scenario": …, "seed": …, "policy": …}`. The policies `code` and `roles` can run.
pub fn simulate(request: &str) -> String {
    answer(request, |request| {
        let Request { policy, scenario, seed } = serde_json::from_str(request).map_err(|error| error.to_string())?;
        let faults = Arc::new(AtomicU64::new(0));
        let controller = policy.map(|policy| controller(&policy, &faults)).transpose()?;
        let outcome = run(&Options { scenario, seed }, controller);
        Ok(Answer { outcome, faults: faults.load(Ordering::Relaxed) })
    })
}

/// The controller of a policy, with the channel of the simulation.
fn controller(policy: &Policy, faults: &Arc<AtomicU64>) -> Result<Box<dyn Controller>, String> {
    let channel = channel();
    match policy {
        Policy::Code(code) => {
            let code = CodePolicy { channel: channel.name, ..code.clone() };
            let faults = faults.clone();
            let on_fault = Box::new(move |_: &_| _ = faults.fetch_add(1, Ordering::Relaxed));
            Ok(Box::new(Code::new(&code, &interpreter(), on_fault).map_err(|why| why.to_string())?))
        }
        Policy::Roles(roles) => {
            let channel = ChannelId { plane: Plane::Quality, ..channel };
            let controller = Roles::new(&channel, FRAME_BITS, CapacityTerms::default(), Instant::ZERO);
            Ok(Box::new(if roles.fade { controller.fading() } else { controller }))
        }
        other => Err(format!("the simulation runs policies of the kinds code and roles, not {}", other.kind())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn simulated(policy: &Value) -> Value {
        let request = json!({ "scenario": "viewer-link", "policy": policy });
        serde_json::from_str(&simulate(&request.to_string())).unwrap()
    }

    #[test]
    fn a_policy_runs_on_the_channel_of_the_simulation_whatever_its_own_is() {
        let text = "struct output { long rate_milli; }; output.rate_milli = 5000; return 1;";
        let outcome = simulated(&json!({ "kind": "code", "channel": "video", "code": text }));
        assert_eq!((&outcome["decisions"], &outcome["faults"]), (&json!(3), &json!(0)), "{outcome}");
        assert!(simulated(&Value::Null)["lost"].as_u64() > outcome["lost"].as_u64());
        assert!(simulated(&json!({ "kind": "roles", "channel": "video" }))["decisions"].as_u64() > Some(2));
    }

    /// Every call for the viewer behind the narrow link executes as many instructions as one call may.
    #[test]
    fn endless_loops_are_faults_and_the_simulation_ends() {
        let text = "struct output { long rate_milli; }; long i = 0;
            while (input.value < 10000 && i < 1000000000) i++; output.rate_milli = 25000; return 1;";
        let outcome = simulated(&json!({ "kind": "code", "channel": "video", "code": text }));
        assert_eq!(outcome["decisions"], 3, "{outcome}");
        assert!(outcome["faults"].as_u64() > Some(100), "{outcome}");
    }

    #[test]
    fn what_the_simulation_cannot_run_is_refused() {
        let refused = |policy: Value| simulated(&policy)["error"].as_str().unwrap().to_owned();
        assert!(refused(json!({ "kind": "hold", "channel": "film", "rate": 5.0 })).contains("not hold"));
        assert!(refused(json!({ "kind": "code", "channel": "film", "code": "return" })).contains("line 1"));
        assert!(refused(json!({ "kind": "none" })).contains("unknown variant"));
        assert!(simulate("{\"scenario\": \"x\"}").contains("source-link"));
    }
}
