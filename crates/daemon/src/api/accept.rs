//! Places for connections: so many in all, fewer for all users together, fewer still for one of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Peer;
use crate::problem;

/// Connections refused since the start, on all sockets.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// How many there were.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Counts connections.
#[derive(Clone)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    shares: Shares,
    taken: Arc<Counts>,
}

/// What users may have. Administrators (root, and the user that the service runs as) have no share: the places that
/// users leave are theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    /// All users together.
    users: usize,
    /// One of them.
    user: usize,
}

/// Places that users have.
#[derive(Debug, Default)]
struct Taken {
    users: usize,
    by_uid: HashMap<u32, usize>,
}

type Counts = Lock<Taken, { rank::PLACES }>;

/// A connection's place, given back when dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    /// Whom it counts for; none: an administrator.
    of_user: Option<(u32, Arc<Counts>)>,
}

impl Shares {
    /// An eighth is reserved for administrators, and one user has at most a quarter; both at least one place.
    fn of(most: usize) -> Shares {
        Shares { users: most.saturating_sub((most / 8).max(1)).max(1), user: (most / 4).max(1) }
    }
}

impl Places {
    /// `most` in all. No user can lock the others out, and all together cannot lock out an administrator.
    pub fn new(most: usize) -> Self {
        Places { all: Arc::new(Semaphore::new(most)), shares: Shares::of(most), taken: Arc::default() }
    }

    /// Waits until a place is free.
    pub async fn wait(&self) -> OwnedSemaphorePermit {
        self.all.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Takes a place for whoever has connected; refused where that user, or all users, have their share. Counted.
    pub fn take(&self, permit: OwnedSemaphorePermit, peer: Peer) -> Result<Place, Problem> {
        if peer.administers() {
            return Ok(Place { _permit: permit, of_user: None });
        }
        let uid = peer.owner.uid;
        let taken = self.taken.with(|taken| taken.take(uid, self.shares));
        taken.inspect_err(|problem| {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(uid, pid = peer.pid, why = problem.message, "a connection was refused");
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

    /// The first of these users' connections that is refused, counted from 0.
    async fn first_refused(places: &Places, uids: impl Iterator<Item = u32>) -> (Vec<Place>, Problem) {
        let mut taken = Vec::new();
        for uid in uids {
            match places.take(places.wait().await, peer(uid)) {
                Ok(place) => taken.push(place),
                Err(problem) => return (taken, problem),
            }
        }
        panic!("nobody was refused");
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
        assert!(roots.into_iter().all(|permit| places.take(permit, peer(0)).is_ok()), "nobody has to wait");
    }

    #[test]
    fn few_places_are_shared_out_too() {
        let shares = [1, 2, 4, 16].map(Shares::of).map(|shares| (shares.users, shares.user));
        assert_eq!(shares, [(1, 1), (1, 1), (3, 1), (14, 4)]);
    }
}
