//! A session's tie to the daemon, which may come and go.
//!
//! ```text
//!             lease broke                     helper thread: tried once per second
//!   Joined ----------------> Alone (why) --+--> joined again: the lease is adopted at the next job's end
//!      ^                                   |    or wait
//!      +-----------------------------------+
//! ```
//!
//! Telling the daemon of a job never fails, blocks or allocates; alone, it does nothing. Whether the lease
//! still holds is looked at once per second at most, and only while waiting for the next job or when the
//! daemon has missed a look it had promised.
//!
//! A child of a fork has copies of all this. It closes its copies of the descriptors and tells nobody anything:
//! contract, ring and connection are its parent's, which goes on with them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use qfabric_shm::Process;
use qfabric_types::api::ApplicationRequest;
use qfabric_types::ring::{Grant, JobEvent, Producer, Pushed};
use qfabric_types::{AppId, Instant, Nanos};

use crate::attempt::Attempt;
use crate::client::Client;
use crate::error::ClientError;
use crate::lease::{Lease, join};

/// Between two looks at the lease, and two attempts to join again.
const RETRY: Nanos = Nanos::from_millis(1_000);

/// How a session stands with the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Under contract.
    Joined(AppId),
    /// Without a reservation, trying to join again.
    Alone {
        /// Why it is alone, or why the last attempt failed.
        why: String,
    },
}

/// What a session counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records the ring had no room for: the daemon did not look in time.
    pub dropped: u64,
    /// Wake-up calls made.
    pub wake_ups: u64,
    /// Hints, intervals or budgets that could not be meant, and were not sent.
    pub nonsense: u64,
    /// Jobs left out under [`crate::Late::Skip`].
    pub skipped: u64,
    /// Times the daemon was lost.
    pub lost: u64,
    /// Times it was joined again.
    pub rejoined: u64,
}

/// How to join again.
type Way = (Client, ApplicationRequest);

#[derive(Debug)]
pub(crate) struct Link {
    lease: Option<Lease>,
    producer: Producer,
    /// None: there is no daemon to come back to.
    way: Option<Way>,
    owner: Owner,
    looked: Instant,
    attempt: Option<Arc<Attempt<Lease>>>,
    pub(crate) counters: Counters,
}

/// Whose the link is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// Nobody's promise: it never had a lease.
    Any,
    /// This process's alone.
    Only(Process),
    /// The parent's; what was copied of it is closed.
    Parent,
}

/// What a session is called in [`ClientError::Forked`].
const SESSION: &str = "the session";

impl Link {
    pub(crate) fn new(lease: Option<Lease>, way: Option<Way>) -> Link {
        let (producer, counters) = (Producer::default(), Counters::default());
        let owner = lease.as_ref().map_or(Owner::Any, |lease| Owner::Only(lease.process));
        Link { lease, producer, way, owner, looked: Instant::ZERO, attempt: None, counters }
    }

    /// Tells the daemon, if there is one. Wait-free; at most one wake-up call.
    pub(crate) fn tell(&mut self, event: JobEvent, now: Instant) {
        self.part();
        let pushed = match &self.lease {
            Some(lease) => self.producer.push(&lease.ring, event, now),
            None => return self.keep(now),
        };
        match pushed {
            Pushed::Quiet => return,
            Pushed::Wake => self.wake(),
            Pushed::Dropped => self.counters.dropped += 1,
        }
        self.keep(now);
    }

    /// The counter of an eventfd cannot practically overflow, and a full one wakes just as well.
    fn wake(&mut self) {
        if let Some(lease) = &self.lease {
            self.counters.wake_ups += 1;
            let _ = rustix::io::write(&lease.wake, &1u64.to_ne_bytes());
        }
    }

    /// Looks after the connection, at most once per second; nothing here waits for anybody.
    pub(crate) fn keep(&mut self, now: Instant) {
        self.part();
        self.adopt();
        if now.since(self.looked) < RETRY {
            return;
        }
        self.looked = now;
        if self.lease.as_ref().is_some_and(|lease| !lease.holds()) {
            self.lease = None;
            self.counters.lost += 1;
        }
        if self.lease.is_none() && self.attempt.is_none() {
            self.start_rejoining();
        }
    }

    fn adopt(&mut self) {
        if let Some(lease) = self.attempt.as_ref().and_then(|attempt| attempt.adopt()) {
            self.install(lease);
            self.counters.rejoined += 1;
        }
    }

    /// A new ring starts empty, so its producer starts from the beginning.
    fn install(&mut self, lease: Lease) {
        (self.lease, self.producer, self.attempt) = (Some(lease), Producer::default(), None);
    }

    fn start_rejoining(&mut self) {
        let Some((client, request)) = self.way.clone() else { return };
        let attempt = Arc::new(Attempt::new("the daemon closed the connection"));
        let helped = attempt.clone();
        let helper = thread::Builder::new().name("qfabric-rejoin".into());
        // Where no thread is to be had, the next look tries again.
        self.attempt = helper.spawn(move || rejoin(&client, &request, &helped)).ok().map(|_| attempt);
    }

    /// The helper sees it and stops; a lease that it has won is closed.
    fn give_up(&mut self) {
        drop(self.attempt.take().and_then(|attempt| attempt.give_up()));
    }

    /// Joins now, waiting for the daemon.
    pub(crate) fn reconnect(&mut self) -> Result<(), ClientError> {
        self.part();
        if matches!(self.owner, Owner::Parent) {
            return Err(ClientError::Forked { what: SESSION });
        }
        if self.lease.as_ref().is_some_and(Lease::holds) {
            return Ok(());
        }
        self.give_up();
        let Some((client, request)) = &self.way else { return Ok(()) };
        let (lease, _) = join(client, request)?;
        self.install(lease);
        self.counters.rejoined += 1;
        Ok(())
    }

    pub(crate) fn way_mut(&mut self) -> Option<&mut Way> {
        self.part();
        self.way.as_mut()
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

    /// In a child of a fork: parts from what is the parent's. Its helper thread is the parent's, too, and may hold
    /// the attempt's lock for ever here.
    fn part(&mut self) {
        if !self.is_own() {
            (self.lease, self.way, self.attempt, self.owner) = (None, None, None, Owner::Parent);
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

    /// What the daemon last published; nothing while alone.
    pub(crate) fn grant(&self) -> Grant {
        self.lease().map(|lease| lease.ring.grant()).unwrap_or_default()
    }

    /// Leaves. Numbers start anew in a restarted daemon, so an application is only released by its number
    /// while its lease holds.
    pub(crate) fn leave(&mut self) -> Result<(), ClientError> {
        self.part();
        self.give_up();
        let (Some(lease), Some((client, _))) = (self.lease.take(), &self.way) else { return Ok(()) };
        if lease.holds() { client.release(lease.id) } else { Ok(()) }
    }
}

/// Runs in the helper thread until it has joined, or the session no longer wants it to.
fn rejoin(client: &Client, request: &ApplicationRequest, attempt: &Attempt<Lease>) {
    loop {
        thread::sleep(Duration::from_nanos(RETRY.get()));
        if !attempt.is_wanted() {
            return;
        }
        match join(client, request) {
            // Closed again where it comes back.
            Ok((lease, _)) => return drop(attempt.joined(lease)),
            Err(why) => attempt.failed(why.to_string()),
        }
    }
}
