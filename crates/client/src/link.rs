//! Connection of a session to the daemon, which may stop and start again.
//!
//! ```text
//!             lease broke                     helper thread: tried once per second
//!   Joined ----------------> Alone (why) --+--> joined again: the lease is adopted at the next job's end
//!      ^                                   |    or wait
//!      +-----------------------------------+
//! ```
//!
//! Reporting a job to the daemon never fails, blocks or allocates; without a daemon it does nothing. The link checks
//! the lease at most once per second, and only while it waits for the next job, or after the daemon missed an
//! announced look.
//!
//! A child of a fork has copies of this state. The child closes its copies of the descriptors and sends nothing:
//! contract, ring and connection belong to the parent, which continues to use them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use qfabric_shm::Process;
use qfabric_types::api::ApplicationRequest;
use qfabric_types::ring::{Grant, JobEvent, Producer, PushOutcome};
use qfabric_types::{AppId, Instant, Nanos};

use crate::attempt::Attempt;
use crate::client::Client;
use crate::error::ClientError;
use crate::lease::{Lease, join};

/// Time between two checks of the lease, and between two attempts to rejoin.
const RETRY: Nanos = Nanos::from_millis(1_000);

/// State of a session's connection to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Under contract, with the application's number.
    Joined(AppId),
    /// Without a reservation; a helper thread tries to rejoin.
    Alone {
        /// Cause of the loss, or error of the last attempt.
        why: String,
    },
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records dropped because the ring was full: the daemon did not read in time.
    pub dropped: u64,
    /// Wake-up calls to the daemon.
    pub wake_ups: u64,
    /// Invalid hints, intervals, budgets and parts of jobs; they are not sent.
    pub nonsense: u64,
    /// Jobs skipped under [`crate::LatePolicy::Skip`] or by [`crate::Session::skip`].
    pub skipped: u64,
    /// Lost connections to the daemon.
    pub lost: u64,
    /// Successful attempts to rejoin.
    pub rejoined: u64,
}

/// Daemon and request with which the session rejoins.
type Rejoin = (Client, ApplicationRequest);

#[derive(Debug)]
pub(crate) struct Link {
    lease: Option<Lease>,
    producer: Producer,
    /// None: there is no daemon to rejoin.
    rejoin: Option<Rejoin>,
    owner: Owner,
    looked: Instant,
    attempt: Option<Arc<Attempt<Lease>>>,
    pub(crate) counters: Counters,
}

/// Process that owns the link.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// Any process: the link never had a lease.
    Any,
    /// Only this process.
    Only(Process),
    /// The parent; this process has closed its copies.
    Parent,
}

/// Name of a session in [`ClientError::Forked`].
const SESSION: &str = "the session";

impl Link {
    pub(crate) fn new(lease: Option<Lease>, rejoin: Option<Rejoin>) -> Link {
        let (producer, counters) = (Producer::default(), Counters::default());
        let owner = lease.as_ref().map_or(Owner::Any, |lease| Owner::Only(lease.process));
        Link { lease, producer, rejoin, owner, looked: Instant::ZERO, attempt: None, counters }
    }

    /// Reports an event to the daemon, if there is one. Wait-free; at most one wake-up call.
    pub(crate) fn report(&mut self, event: JobEvent, now: Instant) {
        self.drop_parents_state();
        let pushed = match &self.lease {
            Some(lease) => self.producer.push(&lease.ring, event, now),
            None => return self.keep(now),
        };
        match pushed {
            PushOutcome::Quiet => return,
            PushOutcome::Wake => self.wake(),
            PushOutcome::Dropped => self.counters.dropped += 1,
        }
        self.keep(now);
    }

    /// Ignores errors: a write fails only if the counter of the eventfd is full, and a full counter wakes the daemon
    /// too.
    fn wake(&mut self) {
        if let Some(lease) = &self.lease {
            self.counters.wake_ups += 1;
            let _ = rustix::io::write(&lease.wake, &1u64.to_ne_bytes());
        }
    }

    /// Checks the connection at most once per second, and adopts a lease that the helper won. Never blocks.
    pub(crate) fn keep(&mut self, now: Instant) {
        self.drop_parents_state();
        self.adopt();
        if now.since(self.looked) < RETRY {
            return;
        }
        self.looked = now;
        self.drop_lost_lease();
        if self.lease.is_none() && self.attempt.is_none() {
            self.start_rejoining();
        }
    }

    fn drop_lost_lease(&mut self) {
        if self.lease.as_ref().is_some_and(|lease| !lease.holds()) {
            self.lease = None;
            self.counters.lost += 1;
        }
    }

    /// The application's number, for a request that changes it; `None` if the lease is lost. A restarted daemon assigns the
    /// numbers again.
    pub(crate) fn held_id(&mut self) -> Option<AppId> {
        self.drop_parents_state();
        self.adopt();
        self.drop_lost_lease();
        self.id()
    }

    /// The request has changed. An attempt that is under way asks for the former contract, so another one begins.
    pub(crate) fn rejoin_anew(&mut self) {
        if self.lease.is_none() {
            self.give_up();
            self.start_rejoining();
        }
    }

    fn adopt(&mut self) {
        if let Some(lease) = self.attempt.as_ref().and_then(|attempt| attempt.adopt()) {
            self.install(lease);
            self.counters.rejoined += 1;
        }
    }

    /// Starts with a new producer, because a new ring is empty.
    fn install(&mut self, lease: Lease) {
        (self.lease, self.producer, self.attempt) = (Some(lease), Producer::default(), None);
    }

    fn start_rejoining(&mut self) {
        let Some((client, request)) = self.rejoin.clone() else { return };
        let attempt = Arc::new(Attempt::new("the daemon closed the connection"));
        let helped = attempt.clone();
        let helper = thread::Builder::new().name("qfabric-rejoin".into());
        // If no thread can be started, the next check tries again.
        self.attempt = helper.spawn(move || rejoin(&client, &request, &helped)).ok().map(|_| attempt);
    }

    /// Ends the attempt: the helper stops, and a lease that it won is closed.
    fn give_up(&mut self) {
        drop(self.attempt.take().and_then(|attempt| attempt.give_up()));
    }

    /// Rejoins now and waits for the daemon's answer.
    pub(crate) fn reconnect(&mut self) -> Result<(), ClientError> {
        self.drop_parents_state();
        if matches!(self.owner, Owner::Parent) {
            return Err(ClientError::Forked { what: SESSION });
        }
        if self.lease.as_ref().is_some_and(Lease::holds) {
            return Ok(());
        }
        self.give_up();
        let Some((client, request)) = &self.rejoin else { return Ok(()) };
        let (lease, _) = join(client, request)?;
        self.install(lease);
        self.counters.rejoined += 1;
        Ok(())
    }

    pub(crate) fn rejoin_mut(&mut self) -> Option<&mut Rejoin> {
        self.drop_parents_state();
        self.rejoin.as_mut()
    }

    pub(crate) fn id(&self) -> Option<AppId> {
        self.lease().map(|lease| lease.id)
    }

    fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().filter(|_| self.is_own())
    }

    fn is_own(&self) -> bool {
        match self.owner {
            Owner::Any => true,
            Owner::Only(process) => process.is_current(),
            Owner::Parent => false,
        }
    }

    /// In a child of a fork, drops the parent's state. The attempt belongs to the parent's helper thread, which does
    /// not exist here; its lock may be held forever.
    fn drop_parents_state(&mut self) {
        if !self.is_own() {
            (self.lease, self.rejoin, self.attempt, self.owner) = (None, None, None, Owner::Parent);
        }
    }

    pub(crate) fn connection(&self) -> Connection {
        if !self.is_own() {
            return Connection::Alone { why: ClientError::Forked { what: SESSION }.to_string() };
        }
        match (&self.lease, &self.attempt) {
            (Some(lease), _) => Connection::Joined(lease.id),
            (None, Some(attempt)) => Connection::Alone { why: attempt.why() },
            (None, None) => Connection::Alone { why: "no daemon".into() },
        }
    }

    /// The grant that the daemon last published; all zero without a lease.
    pub(crate) fn grant(&self) -> Grant {
        self.lease().map(|lease| lease.ring.grant()).unwrap_or_default()
    }

    /// Whether the daemon wants to know of checkpoints.
    pub(crate) fn wants_checkpoints(&self) -> bool {
        self.lease().is_some_and(|lease| lease.ring.wants_checkpoints())
    }

    /// Ends the contract. Releases the application by number only while its lease holds ([`Link::held_id`]).
    pub(crate) fn leave(&mut self) -> Result<(), ClientError> {
        self.drop_parents_state();
        self.give_up();
        let (Some(lease), Some((client, _))) = (self.lease.take(), &self.rejoin) else { return Ok(()) };
        if lease.holds() { client.release(lease.id) } else { Ok(()) }
    }
}

/// Runs in the helper thread until it has joined or the session ends the attempt.
fn rejoin(client: &Client, request: &ApplicationRequest, attempt: &Attempt<Lease>) {
    loop {
        thread::sleep(Duration::from_nanos(RETRY.get()));
        if !attempt.is_wanted() {
            return;
        }
        match join(client, request) {
            // If the session no longer wants the lease, it comes back here and is closed.
            Ok((lease, _)) => return drop(attempt.joined(lease)),
            Err(why) => attempt.failed(why.to_string()),
        }
    }
}
