//! Accepts connections, and limits them: a number in total, a smaller one for all users together, and a smaller one for
//! each user.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Peer;
use crate::{ending, problem};

/// Pause after a failed accept: descriptors are used up, so the next one would fail, too.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections refused since the start, on all sockets.
static REFUSED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Logs a failed accept of the named socket, and pauses.
pub(crate) async fn after_failure(error: &io::Error, socket: &str) {
    tracing::warn!(%error, "cannot accept a connection to {socket}; raise LimitNOFILE if this repeats");
    tokio::time::sleep(PAUSE).await;
}

/// Accepts the connections of a socket until dropped, at most `places` at once. Each is served in a task of its own; one
/// without a place is refused. `socket` is the name for the log.
pub(crate) async fn accept_each<S: Future<Output = ()> + Send + 'static>(
    listener: OwnedFd,
    socket: &str,
    places: usize,
    serve: impl Fn(UnixStream, Peer, Place) -> S,
    refuse: impl Fn(&UnixStream, Problem),
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener.into())?;
    let places = Places::new(places);
    loop {
        let permit = places.wait().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = match Peer::of(&stream) {
                    Ok(peer) => peer,
                    Err(error) => {
                        tracing::debug!(%error, "a connection to {socket} is closed");
                        continue;
                    }
                };
                match places.take(permit, peer) {
                    Ok(place) => drop(ending::spawn("API connection", serve(stream, peer, place))),
                    Err(problem) => refuse(&stream, problem),
                }
            }
            Err(error) => after_failure(&error, socket).await,
        }
    }
}

/// The places for connections of one socket. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    shares: Shares,
    taken: Arc<Counts>,
}

/// The places for users. Administrators (root, and the user that the service runs as) have no limit of their own:
/// they may use every place, and some places only they may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    /// Places for all users together.
    users: usize,
    /// Places for each user.
    user: usize,
}

/// Places in use by users.
#[derive(Debug, Default)]
struct Taken {
    users: usize,
    by_uid: HashMap<u32, usize>,
}

type Counts = Lock<Taken, { rank::PLACES }>;

/// The place of one connection; freed when dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    /// The user that the place counts for; `None` for an administrator.
    of_user: Option<(u32, Arc<Counts>)>,
}

impl Shares {
    /// An eighth is reserved for administrators, and one user has at most a quarter; at least one place each.
    fn of(most: usize) -> Shares {
        Shares { users: most.saturating_sub((most / 8).max(1)).max(1), user: (most / 4).max(1) }
    }
}

impl Places {
    /// `most` places in total. No user can lock out the others, and all users together cannot lock out an
    /// administrator.
    pub(crate) fn new(most: usize) -> Self {
        Places { all: Arc::new(Semaphore::new(most)), shares: Shares::of(most), taken: Arc::default() }
    }

    async fn wait(&self) -> OwnedSemaphorePermit {
        self.all.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Takes a place for `peer` without waiting, if there is one.
    pub(crate) fn try_take(&self, peer: Peer) -> Option<Place> {
        let permit = self.all.clone().try_acquire_owned().ok()?;
        self.take(permit, peer).ok()
    }

    /// Takes a place for `peer`. Refuses, and counts, if the user or all users together have no place left.
    fn take(&self, permit: OwnedSemaphorePermit, peer: Peer) -> Result<Place, Problem> {
        if peer.administers() {
            return Ok(Place { _permit: permit, of_user: None });
        }
        let uid = peer.owner.uid;
        let taken = self.taken.with(|taken| taken.take(uid, self.shares));
        taken.inspect_err(|problem| {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(uid, pid = peer.pid, why = problem.message, "connection refused");
        })?;
        Ok(Place { _permit: permit, of_user: Some((uid, self.taken.clone())) })
    }
}

impl Taken {
    fn take(&mut self, uid: u32, shares: Shares) -> Result<(), Problem> {
        let own = self.by_uid.get(&uid).copied().unwrap_or(0);
        if own >= shares.user {
            return Err(problem::too_many_connections(&format!("user {uid} has"), own, shares.user));
        }
        if self.users >= shares.users {
            return Err(problem::too_many_connections("all users together have", self.users, shares.users));
        }
        self.by_uid.insert(uid, own + 1);
        self.users += 1;
        Ok(())
    }

    fn give_back(&mut self, uid: u32) {
        let Some(own) = self.by_uid.get_mut(&uid) else { return };
        *own -= 1;
        self.users -= 1;
        if *own == 0 {
            self.by_uid.remove(&uid);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((uid, taken)) = &self.of_user {
            taken.with(|taken| taken.give_back(*uid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Owner;

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, owner: Owner { uid, gid: uid } }
    }

    // Connects these users in turn. Returns the places up to the first refusal, and the refusal.
    async fn first_refused(places: &Places, uids: impl Iterator<Item = u32>) -> (Vec<Place>, Problem) {
        let mut taken = Vec::new();
        for uid in uids {
            match places.take(places.wait().await, peer(uid)) {
                Ok(place) => taken.push(place),
                Err(problem) => return (taken, problem),
            }
        }
        panic!("no connection was refused");
    }

    #[tokio::test]
    async fn one_user_gets_a_quarter_of_the_places_and_gives_them_back() {
        let places = Places::new(128);
        let (mut taken, problem) = first_refused(&places, std::iter::repeat(54_321)).await;
        assert_eq!((taken.len(), problem.code.as_str()), (32, "too_many_connections"));
        for part in ["54321", "32", "api.max_connections"] {
            assert!(format!("{} {}", problem.message, problem.next_step).contains(part), "{problem:?}");
        }
        assert!(places.take(places.wait().await, peer(54_322)).is_ok());
        taken.pop();
        assert!(places.take(places.wait().await, peer(54_321)).is_ok());
    }

    #[tokio::test]
    async fn all_users_together_leave_places_for_root() {
        let places = Places::new(128);
        let (taken, problem) = first_refused(&places, (0..).map(|number| 54_000 + number % 9)).await;
        assert_eq!(taken.len(), 112, "{problem:?}");
        let roots: Vec<_> = (0..16).map(|_| places.all.clone().try_acquire_owned().unwrap()).collect();
        assert!(
            roots.into_iter().all(|permit| places.take(permit, peer(0)).is_ok()),
            "administrators get the remaining places at once"
        );
    }

    #[test]
    fn a_few_places_are_divided_too() {
        let shares = [1, 2, 4, 16].map(Shares::of).map(|shares| (shares.users, shares.user));
        assert_eq!(shares, [(1, 1), (1, 1), (3, 1), (14, 4)]);
    }
}
