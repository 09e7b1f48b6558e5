//! Attributes of applications that a host itself counts: jobs, misses, budgets.
//!
//! The owner of the [`Host`] publishes them as atomics; a monitor reads them on any thread without a lock. A
//! monitor holds a [`Weak`] to each application's numbers, which end when the application leaves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};

use qfabric_types::monitor::{Attribute, AttributeId, Metric, Readers};
use qfabric_types::{AppId, Instant};

use crate::Host;

const JOBS: AttributeId = AttributeId::of("app.jobs");
const MISSES: AttributeId = AttributeId::of("app.misses");
const BUDGET: AttributeId = AttributeId::of("app.budget");

static ATTRIBUTES: LazyLock<Vec<Attribute>> = LazyLock::new(|| {
    let of = |name| Metric::find(name).and_then(|metric| Attribute::new(name, metric.unit, metric.shape).ok());
    ["app.jobs", "app.misses", "app.budget"].into_iter().filter_map(of).collect()
});

/// The published numbers of one application. Each is exact; two of them may be from different times.
#[derive(Debug, Default)]
pub struct Published {
    jobs: AtomicI64,
    misses: AtomicI64,
    budget_ns: AtomicI64,
}

/// The writing end for one application.
#[derive(Debug, Default)]
pub struct Publisher {
    published: Arc<Published>,
    /// Jobs and misses of the host at the last call. A change of the period resets the host's numbers, but not the
    /// published ones.
    before: (u64, u64),
}

impl Publisher {
    /// A reference for readers.
    pub fn reader(&self) -> Weak<Published> {
        Arc::downgrade(&self.published)
    }

    /// Publishes the present numbers of `app`. Allocates no memory.
    pub fn publish(&mut self, host: &Host, app: AppId) {
        if let Some(grant) = host.grant(app) {
            self.published.budget_ns.store(whole(grant.budget.get()), Relaxed);
        }
        let Some((jobs, misses)) = host.jobs(app) else { return };
        let (jobs_before, misses_before) = std::mem::replace(&mut self.before, (jobs, misses));
        let has_begun_anew = jobs < jobs_before;
        let came = |now: u64, before: u64| whole(if has_begun_anew { now } else { now.saturating_sub(before) });
        self.published.jobs.fetch_add(came(jobs, jobs_before), Relaxed);
        self.published.misses.fetch_add(came(misses, misses_before), Relaxed);
    }
}

/// Reads the published numbers of several applications.
#[derive(Debug, Default)]
pub struct Jobs(BTreeMap<AppId, Weak<Published>>);

impl Jobs {
    /// Adds an application with its numbers.
    pub fn add(&mut self, application: AppId, numbers: Weak<Published>) {
        self.0.insert(application, numbers);
    }

    /// Whether the application was added, even if it has left since.
    pub fn has(&self, application: AppId) -> bool {
        self.0.contains_key(&application)
    }

    /// Removes an application.
    pub fn remove(&mut self, application: AppId) {
        self.0.remove(&application);
    }

    /// Added applications that have left.
    pub fn left(&self) -> impl Iterator<Item = AppId> {
        self.0.iter().filter(|(_, numbers)| numbers.strong_count() == 0).map(|(application, _)| *application)
    }
}

impl Readers for Jobs {
    fn attributes(&self) -> &[Attribute] {
        &ATTRIBUTES
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, _: Instant) -> Option<i64> {
        let number: fn(&Published) -> &AtomicI64 = match attribute {
            JOBS => |numbers| &numbers.jobs,
            MISSES => |numbers| &numbers.misses,
            BUDGET => |numbers| &numbers.budget_ns,
            _ => return None,
        };
        let numbers = self.0.get(&application)?.upgrade()?;
        Some(number(&numbers).load(Relaxed))
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
