//! The thread that calls all policies of this host.

use std::sync::Arc;

use qfabric_linux::clock;
use qfabric_sync::contain;
use qfabric_types::Instant;

use super::super::super::Fabric;
use super::{Call, Next};
use crate::ending::{Ending, Running};

/// Starts the thread. It runs at the ordinary priority, so that threads that carry events go first.
pub(crate) fn start_policies(fabric: &Arc<Fabric>, ending: &Ending) -> std::io::Result<Running> {
    let (own, asked) = (fabric.clone(), fabric.clone());
    ending.run("qf-policies", move || own.call_policies(), move || asked.policies.runner.stop())
}

impl Fabric {
    /// Calls policies until the service ends.
    fn call_policies(&self) {
        let runner = &self.policies.runner;
        loop {
            let now = clock::now();
            match runner.next(now) {
                Next::Call(call) => self.call_policy(call, &clock::now),
                Next::Sleep(until) => runner.sleep(until, now),
                Next::Stop => return,
            }
        }
    }

    /// Calls the next policy. `false`: no policy waits.
    #[cfg(test)]
    pub(in crate::channels) fn call_next_policy(&self, now: &dyn Fn() -> Instant) -> bool {
        let Next::Call(call) = self.policies.runner.next(now()) else { return false };
        self.call_policy(call, now);
        true
    }

    /// Calls a policy, and passes its decisions to the manager. The CPU time of both counts as the policy's.
    fn call_policy(&self, mut call: Call, now: &dyn Fn() -> Instant) {
        let (before, mut decisions) = (clock::thread_cpu(), Vec::new());
        let outcome = contain(|| call.run(&self.network.host, now(), &mut decisions));
        let Call { seat, number, called, .. } = call;
        if let Err(message) = outcome {
            // The controller's state may be half changed: it is not called again.
            drop(called);
            return self.policy_failed(seat, message);
        }
        if !decisions.is_empty() {
            self.network.manager(|manager, now| manager.decided(number, decisions, now));
        }
        let cost = clock::thread_cpu().saturating_sub(before);
        if self.policies.runner.put_back(seat, called, cost, now()) {
            self.policy_suspended(seat);
        }
    }
}
