//! Leases of streams: a stream ends with its holder's process, at a time, or when its packets no longer belong to its
//! user. What the ended streams leave is offered to partly granted ones.

use qfabric_linux::{clock, watch};
use qfabric_types::api::net::{StreamId, StreamTerms};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::{Instant, Nanos, Owner};

use super::interface::Interface;
use super::rights::{self, Caller};
use super::{State, problems};
use crate::auth::{self, Peer};

/// The lease of an ordinary user who states none.
pub(super) const DEFAULT: Nanos = Nanos::from_millis(3_600_000);
/// Longest lease of an ordinary user.
pub(super) const MAX: Nanos = Nanos::from_millis(86_400_000);

/// Whom a stream belongs to, and how long.
#[derive(Debug)]
pub(super) struct Lease {
    pub owner: Owner,
    /// All groups of the owner's process.
    pub groups: Vec<u32>,
    /// The process with which the stream ends.
    pub holder: Option<watch::Process>,
    /// The process that asked, if the stream does not end with a process.
    pub asker: Option<watch::Process>,
    /// The number of `holder` or `asker`.
    pub pid: i32,
    pub until: Option<Instant>,
    /// The stream belongs to a user who may not change interfaces.
    pub is_ordinary: bool,
}

impl Lease {
    /// The lease for a caller's terms. A named holder must be a process of the caller.
    pub(super) fn of(caller: Caller, terms: &StreamTerms) -> Result<Lease, Problem> {
        let is_ordinary = !caller.is_privileged;
        let until = until(caller, terms.lease, terms.holder.is_some())?;
        match terms.holder {
            None => {
                let Peer { pid, owner } = caller.peer;
                let (groups, asker) = (auth::groups(caller.peer), watch::Process::watch(pid).ok());
                Ok(Lease { owner, groups, holder: None, asker, pid, until, is_ordinary })
            }
            Some(pid) => {
                let auth::Target { owner, groups, watch, .. } =
                    auth::target(caller.peer, pid, ApplicationScope::Program)?;
                Ok(Lease { owner, groups, holder: Some(watch), asker: None, pid, until, is_ordinary })
            }
        }
    }
}

/// The end of a lease of this length from now. An ordinary user without a holder gets the default.
pub(super) fn until(caller: Caller, lease: Option<Nanos>, has_holder: bool) -> Result<Option<Instant>, Problem> {
    let default = (!caller.is_privileged && !has_holder).then_some(DEFAULT);
    let Some(lease) = lease.or(default) else { return Ok(None) };
    if lease == Nanos::ZERO || (lease > MAX && !caller.is_privileged) {
        let message = format!("lease is {lease}");
        return Err(problems::invalid(message, format!("use a time above 0, and at most {MAX} without root")));
    }
    Ok(Some(Instant::new(clock::now().get().saturating_add(lease.get()))))
}

/// Ends the streams whose leases are over, and raises streams that wait for freed rates. `recheck`: whether also to
/// look whether packets still belong to the streams' users.
pub(super) fn tick(state: &mut State, recheck: bool) {
    let now = clock::now();
    for (name, entry) in &mut state.attached {
        for (id, why) in over(entry, now, recheck) {
            match entry.end(id) {
                Ok(()) => tracing::info!(interface = name, stream = id, "the stream has ended, because {why}"),
                Err(problem) => tracing::warn!(interface = name, stream = id, "the stream has not ended: {problem}"),
            }
        }
        for (id, size) in entry.upgrade() {
            tracing::info!(interface = name, stream = id, size, "the stream got the rate that another one freed");
        }
    }
}

/// The streams whose leases are over, with the reason.
fn over(entry: &Interface, now: Instant, recheck: bool) -> Vec<(StreamId, &'static str)> {
    let mut ended: Vec<_> = entry.broker.expired(now).map(|id| (id, "its lease has ended")).collect();
    let rest = entry.holders.iter().filter(|(id, _)| !ended.iter().any(|(other, _)| other == *id));
    let mut more = Vec::new();
    for (id, holder) in rest {
        if holder.process.as_ref().is_some_and(watch::Process::ended) {
            more.push((*id, "its holder's process has ended"));
        } else if recheck && holder.is_ordinary && !is_own(entry, *id) {
            more.push((*id, "its packets no longer belong to its user"));
        }
    }
    ended.extend(more);
    ended
}

fn is_own(entry: &Interface, id: StreamId) -> bool {
    let uid = entry.broker.owner(id).map(|owner| owner.uid);
    let selector = entry.attachment.spec(id).map(|spec| &spec.selector);
    match (uid, selector) {
        (Some(uid), Ok(selector)) => rights::still_own(selector, uid),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(is_privileged: bool) -> Caller {
        let owner = Owner { uid: 54_321, gid: 54_321 };
        Caller { peer: Peer { pid: std::process::id() as i32, owner }, is_privileged }
    }

    #[test]
    fn a_user_without_terms_gets_the_default_lease_and_root_none() {
        let before = clock::now();
        let end = until(caller(false), None, false).unwrap().unwrap();
        assert!(end.since(before) >= DEFAULT && end.since(before) < DEFAULT.saturating_mul(2));
        assert_eq!(until(caller(false), None, true), Ok(None));
        assert_eq!(until(caller(true), None, false), Ok(None));
    }

    #[test]
    fn a_lease_has_a_longest_time_for_users() {
        let longer = Nanos::new(MAX.get() + 1);
        assert!(until(caller(false), Some(longer), false).unwrap_err().message.contains("lease is 86400 s"));
        assert!(until(caller(true), Some(Nanos::MAX), false).unwrap().is_some());
        assert_eq!(until(caller(true), Some(Nanos::ZERO), true).unwrap_err().code, "net_invalid");
    }

    #[test]
    fn the_process_of_another_user_cannot_hold_a_stream() {
        let terms = StreamTerms { holder: Some(std::process::id() as i32), ..StreamTerms::default() };
        assert_eq!(Lease::of(caller(false), &terms).unwrap_err().code, "not_yours");
    }
}
