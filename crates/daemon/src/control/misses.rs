//! Misses as events of `sched.deadline_miss`: seen where a job has just been told to the host.

use std::collections::HashMap;

use qfabric_host::Host;
use qfabric_types::{AppId, Instant};

use crate::ecalls::{Miss, Misses};

/// Which jobs were looked at already. While nobody is subscribed it does nothing and knows nothing.
pub(crate) struct MissWatch {
    misses: Misses,
    seen: HashMap<AppId, u64>,
}

impl MissWatch {
    pub fn new(misses: Misses) -> MissWatch {
        MissWatch { misses, seen: HashMap::new() }
    }

    /// Whether there is anything to look at.
    pub fn is_on(&mut self) -> bool {
        let wanted = self.misses.wanted();
        if !wanted {
            self.seen.clear();
        }
        wanted
    }

    /// Tells if the last job of `app` ended after its deadline: its scheduling error is then a server period or
    /// more. The first look only learns where the application stands.
    pub fn look(&mut self, host: &Host, app: AppId, pid: i32, now: Instant) {
        let Some(grant) = host.grant(app) else { return };
        let before = self.seen.insert(app, grant.jobs);
        if before.is_some_and(|jobs| jobs < grant.jobs) && grant.error_ns > 0 {
            let (budget_ns, period_ns) = (grant.budget.get(), grant.period.get());
            let miss = Miss { app, pid, job: grant.jobs, error_ns: grant.error_ns, budget_ns, period_ns };
            self.misses.tell(miss, now.get());
        }
    }
}
