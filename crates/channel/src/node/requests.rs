//! Commands about filters that other hosts have not answered yet.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use crate::exit::Exit;
use crate::wire::Answer;
use crate::{Notice, RequestId};

/// After this time a host is reported as not answering.
const PATIENCE: Nanos = Nanos::from_millis(2_000);

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
    /// Waits for the answers of these hosts.
    pub(super) fn begin(&mut self, request: RequestId, hosts: BTreeSet<Name>, now: Instant, exit: &mut Exit) {
        if !hosts.is_empty() {
            let until = now + PATIENCE;
            self.open.insert(request.0, Waiting { hosts, until });
            exit.wake_by(until);
        }
    }

    pub(super) fn answered(&mut self, from: &Name, answer: Answer, exit: &mut Exit) {
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

    /// Reports each host that has not answered in time.
    pub(super) fn wake(&mut self, now: Instant, exit: &mut Exit) {
        let all = std::mem::take(&mut self.open).into_iter();
        let (overdue, open): (BTreeMap<_, _>, _) = all.partition(|(_, waiting)| waiting.until <= now);
        self.open = open;
        for (request, waiting) in overdue {
            for host in waiting.hosts {
                let result = Err(format!("no answer within {PATIENCE}; the host may have carried out the command"));
                exit.notice(Notice::Answered { request: RequestId(request), host, result });
            }
        }
        let due = self.open.values().map(|waiting| waiting.until).min();
        due.into_iter().for_each(|due| exit.wake_by(due));
    }
}
