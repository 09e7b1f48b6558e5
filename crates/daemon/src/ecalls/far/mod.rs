//! Handlers at services of other hosts (000 §3.4, remote handler deployment).
//!
//! ```text
//! user ── deploy ──> this host ── Install ──> that host: rule of [[ecalls.host]], then as a local subscription
//!                        │  <── Installed, Refused ──┘
//!                        ├── Renew, every 2 s ──> state (Installed), or Ended
//!                        └── Remove: the user, the user's connection, or the end of this daemon
//! ```
//! That host ends the subscription when this host is gone, and 10 s after the last `Renew`. All handlers of one host
//! count as those of one user: its word about its users is not checked. `own` is the installing side, `guests` the other.
//!
//! Every message of another host is hostile: bounded, checked, and handled by one thread that is not the network's. The
//! hosts are served in turn, and renewals before installations.

mod guests;
mod inbox;
mod installs;
mod message;
mod own;

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_sync::{Guard, Lock, contain, lock, rank};
use qfabric_types::api::ecalls::SubscriptionId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::{Ecalls, problems};
use crate::ending::{Ending, Running};
use guests::Guest;
pub(crate) use inbox::Inbox;
use installs::{Installs, Wanted};
use message::Body;
pub(crate) use message::Message;
use own::{Asker, Deployed};

/// Interval between two renewals.
const RENEW_EVERY: Nanos = Nanos::from_millis(2_000);
/// A subscription ends after this time without a renewal, and counts as ended after this time without an answer.
const LEASE: Nanos = Nanos::from_millis(10_000);
/// Longest time between two looks at what is due.
const LOOK: Nanos = Nanos::from_millis(500);
/// Messages that are handled before an installation.
const MESSAGES_PER_TURN: usize = 256;

/// The handlers of this host's users on other hosts, and those of other hosts here.
#[derive(Default)]
pub(crate) struct Far {
    pub inbox: Arc<Inbox>,
    state: Lock<State, { rank::DEPLOYMENTS }>,
}

#[derive(Default)]
struct State {
    own: BTreeMap<SubscriptionId, Deployed>,
    /// Requests that wait for the answer of the other host, by the host and the number of the deployment.
    waiting: BTreeMap<(Name, u64), Asker>,
    /// By host and by the number that the host chose.
    guests: BTreeMap<(Name, u64), Guest>,
    /// The user id under which the handlers of each host run.
    uids: BTreeMap<Name, u32>,
}

impl Far {
    fn state(&self) -> Guard<'_, State, { rank::DEPLOYMENTS }> {
        lock(&self.state)
    }
}

/// Starts the thread that reads messages of other hosts and renews what this host has there.
pub(crate) fn start_far(ecalls: &Arc<Ecalls>, ending: &Ending) -> std::io::Result<Running> {
    let (inbox, ecalls) = (ecalls.far.inbox.clone(), ecalls.clone());
    ending.run("qf-ecalls-far", move || run(&ecalls), move || inbox.stop())
}

fn run(ecalls: &Ecalls) {
    let (mut renew_at, mut lost, mut installs) = (Instant::ZERO, 0, Installs::default());
    loop {
        let mut wait = installs.wait(clock::now(), LOOK);
        for _ in 0..MESSAGES_PER_TURN {
            let work = ecalls.far.inbox.next(Duration::from_nanos(wait.get()));
            if work.stops {
                return;
            }
            for host in &work.gone {
                installs.gone(host);
                ecalls.end_guests_of(host);
                ecalls.host_gone(host);
            }
            if let Some((host, tail)) = work.message {
                ecalls.hear(&mut installs, &host, &tail);
            }
            if ecalls.far.inbox.is_empty() {
                break;
            }
            wait = Nanos::ZERO;
        }
        if let Some((host, Wanted { number, uid, request })) = installs.next(clock::now()) {
            contained(&host, || ecalls.install_for(&host, number, uid, *request));
        }
        let now = clock::now();
        if renew_at <= now {
            renew_at = now + RENEW_EVERY;
            ecalls.renew(now);
            ecalls.expire(now);
            let dropped = ecalls.far.inbox.dropped();
            if std::mem::replace(&mut lost, dropped) != dropped {
                tracing::warn!(dropped, "messages of other hosts about ECalls were dropped: too many waited");
            }
        }
    }
}

impl Ecalls {
    /// Handles a message of another host; an installation waits for its turn.
    fn hear(&self, installs: &mut Installs, host: &Name, tail: &[u8]) {
        let Some(Message { number, body }) = Message::decode(tail) else {
            return tracing::debug!(%host, bytes = tail.len(), "a message about ECalls cannot be read");
        };
        contained(host, || match body {
            Body::Install { uid, request } => {
                if !installs.push(host, Wanted { number, uid, request }) {
                    let what = format!("{} handlers of host {host} wait to be installed", installs::WAITING_OF_HOST);
                    let refused = problems::limit(&what, installs::WAITING_OF_HOST, "nothing: try again");
                    self.tell(host, number, Body::Refused(refused));
                }
            }
            Body::Renew => self.renew_for(host, number),
            Body::Remove => {
                installs.cancel(host, number);
                self.remove_for(host, number);
            }
            answer => self.answered(host, number, answer),
        });
    }

    /// Sends a message to another host. False: it is too long.
    fn tell(&self, host: &Name, number: u64, body: Body) -> bool {
        let Some(tail) = (Message { number, body }).encode() else { return false };
        if let Ok(fabric) = self.fabric() {
            fabric.tell_ecall(host, &tail);
        }
        true
    }
}

/// A panic is a defect that a message triggers; the thread goes on.
fn contained(host: &Name, act: impl FnOnce()) {
    if let Err(message) = contain(act) {
        tracing::error!(%host, message, "the service panicked at a message about ECalls; please report this");
    }
}

/// The next host whose turn it is: the first that is ready behind `last`, in the order of the names, or else of all.
fn next_in_turn<V>(hosts: &BTreeMap<Name, V>, last: Option<Name>, is_ready: impl Fn(&V) -> bool) -> Option<Name> {
    let is_ready = |(_, of_host): &(&Name, &V)| is_ready(of_host);
    let behind = last.and_then(|last| hosts.range((Excluded(last), Unbounded)).find(is_ready));
    behind.or_else(|| hosts.iter().find(is_ready)).map(|(host, _)| host.clone())
}
