//! What other hosts were asked to do with their filters, until they have answered.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use crate::exit::Exit;
use crate::wire::Answer;
use crate::{Notice, RequestId};

/// A host that has not answered by then is said not to.
const PATIENCE: Nanos = Nanos::from_millis(2_000);

/// All that are open.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: BTreeMap<u32, Waiting>,
}

/// Hosts that have not answered yet.
#[derive(Debug)]
struct Waiting {
    hosts: BTreeSet<Name>,
    until: Instant,
}

impl Requests {
    /// Those hosts were asked.
    pub fn begin(&mut self, request: RequestId, hosts: BTreeSet<Name>, now: Instant, exit: &mut Exit) {
        if !hosts.is_empty() {
            let until = now + PATIENCE;
            self.open.insert(request.0, Waiting { hosts, until });
            exit.wake_by(until);
        }
    }

    pub fn answered(&mut self, from: &Name, answer: Answer, exit: &mut Exit) {
        let Some(waiting) = self.open.get_mut(&answer.request.0) else { return };
        if answer.to != exit.incarnation() || !waiting.hosts.remove(from) {
            return;
        }
        if waiting.hosts.is_empty() {
            self.open.remove(&answer.request.0);
        }
        let (request, host) = (answer.request, from.clone());
        exit.notice(Notice::Answered { request, host, result: answer.result });
    }

    /// Says of those who have not answered in time that they have not.
    pub fn wake(&mut self, now: Instant, exit: &mut Exit) {
        let all = std::mem::take(&mut self.open).into_iter();
        let (overdue, open): (BTreeMap<_, _>, _) = all.partition(|(_, waiting)| waiting.until <= now);
        self.open = open;
        for (request, waiting) in overdue {
            for host in waiting.hosts {
                let result = Err(format!("no answer within {PATIENCE}; it may have been done all the same"));
                exit.notice(Notice::Answered { request: RequestId(request), host, result });
            }
        }
        let due = self.open.values().map(|waiting| waiting.until).min();
        due.into_iter().for_each(|due| exit.wake_by(due));
    }
}
