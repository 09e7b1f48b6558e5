//! Reports deadline misses as events of `sched.deadline_miss`, directly after a job was given to the host.

use std::collections::HashMap;

use qfabric_host::Host;
use qfabric_types::{AppId, Instant};

use crate::ecalls::{Miss, Misses};

/// The number of the last job checked, per application. Does nothing while there is no subscription.
pub(crate) struct MissWatch {
    misses: Misses,
    seen: HashMap<AppId, u64>,
}

impl MissWatch {
    pub(super) fn new(misses: Misses) -> MissWatch {
        MissWatch { misses, seen: HashMap::new() }
    }

    /// Whether there is a subscription. If not, forgets all numbers.
    pub(super) fn is_on(&mut self) -> bool {
        let wanted = self.misses.wanted();
        if !wanted {
            self.seen.clear();
        }
        wanted
    }

    /// Reports a miss if the last job of `app` ended after its deadline; its scheduling error is then a server
    /// period or more. The first look at an application only records its job number.
    pub(super) fn look(&mut self, host: &Host, app: AppId, pid: i32, now: Instant) {
        let Some(grant) = host.grant(app) else { return };
        let before = self.seen.insert(app, grant.jobs);
        if before.is_some_and(|jobs| jobs < grant.jobs) && grant.error_ns > 0 {
            let (budget_ns, period_ns) = (grant.budget.get(), grant.period.get());
            let miss = Miss { app, pid, job: grant.jobs, error_ns: grant.error_ns, budget_ns, period_ns };
            self.misses.add(miss, now.get());
        }
    }
}
