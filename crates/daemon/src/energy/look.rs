//! Reads meters, CPU times and traffic for the account.

use std::path::Path;

use qfabric_linux::cpus::CpuList;
use qfabric_linux::power::{self, MeanClock, Meters};
use qfabric_linux::threads;
use qfabric_types::api::Application;
use qfabric_types::{Instant, Nanos};

use super::account::{AppLook, Look};

const PROC: &str = "/proc";
/// A program starts this long before its contract at most, and uses little CPU time until then.
const START: Nanos = Nanos::from_millis(1_000);

pub(super) fn look(
    sys: &Path,
    now: Instant,
    looked: Option<Instant>,
    meters: &mut Meters,
    mean_clock: &mut MeanClock,
    applications: &[Application],
) -> Look {
    let since = looked.map(|at| now.since(at));
    Look {
        now,
        busy: power::busy_time(Path::new(PROC)),
        cpus: CpuList::online().len(),
        clock_part: mean_clock.take(sys),
        readings: meters.look(now),
        traffic: power::traffic(sys),
        apps: applications.iter().filter_map(|application| of_application(application, since)).collect(),
    }
}

/// `None`: the process has ended. The daemon removes its application soon.
fn of_application(application: &Application, since: Option<Nanos>) -> Option<AppLook> {
    let pid = application.pid;
    let age = threads::process_age(pid)?;
    Some(AppLook {
        app: application.id,
        name: application.contract.name.clone(),
        pid,
        cpu: threads::program_cpu(pid)?,
        fresh: since.is_some_and(|since| age <= since + START),
    })
}
