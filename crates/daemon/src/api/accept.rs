//! Accepts connections, and limits them: a number in total, a smaller one for all users together, and a smaller one for
//! each user.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::{LogLimit, Owner};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::acceptor::warn_of_failure;
use crate::auth::Peer;
use crate::connected::Connected;
use crate::{ending, problem};

/// Pause after a failed accept: descriptors are used up, so the next one would fail, too.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections refused since the start, on all sockets.
static REFUSED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// The failed accepts of one listening socket.
#[derive(Debug)]
pub(crate) struct Failures<'a> {
    /// The name for the log.
    socket: &'a str,
    warnings: LogLimit,
    count: u64,
}

impl Failures<'_> {
    pub(crate) fn of(socket: &str) -> Failures<'_> {
        Failures { socket, warnings: LogLimit::default(), count: 0 }
    }

    /// Counts a failed accept, logs it unless one was logged in the last minute, and pauses.
    pub(crate) async fn pause(&mut self, error: &io::Error) {
        self.count += 1;
        if self.warnings.is_due(Instant::now()) {
            warn_of_failure(error, self.socket);
        } else {
            tracing::debug!(%error, failed = self.count, "cannot accept a connection to {}", self.socket);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The next connection; rests after each failed attempt.
async fn next(listener: &UnixListener, failures: &mut Failures<'_>) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => failures.pause(&error).await,
        }
    }
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
    let (places, mut failures) = (Places::new(places), Failures::of(socket));
    loop {
        let permit = places.wait().await;
        let stream = next(&listener, &mut failures).await;
        let peer = match Peer::of(&stream) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::debug!(%error, "a connection to {socket} is closed");
                continue;
            }
        };
        match places.take(permit, peer) {
            Ok(mut place) => {
                // Without an answer of the kernel, the groups are those of the living process.
                place._groups = Connected::of(&stream, peer).ok();
                drop(ending::spawn("API connection", serve(stream, peer, place)));
            }
            Err(problem) => refuse(&stream, problem),
        }
    }
}

/// Whom a place counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// A user of this host.
    User(u32),
    /// The hosts of a network, on TCP.
    Network(IpAddr),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::User(uid) => write!(f, "user {uid}"),
            Caller::Network(address) => write!(f, "network {address}"),
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
    by_caller: HashMap<Caller, usize>,
}

type Counts = Lock<Taken, { rank::PLACES }>;

/// The place of one connection; freed when dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    /// Whom the place counts for; `None` for an administrator.
    of_caller: Option<(Caller, Arc<Counts>)>,
    /// Keeps the groups of the peer of a Unix socket known.
    _groups: Option<Connected>,
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

    /// Takes a place for a caller on TCP without waiting, if there is one.
    pub(crate) fn try_take_for(&self, caller: Caller) -> Option<Place> {
        let permit = self.all.clone().try_acquire_owned().ok()?;
        match caller {
            // Only the user decides.
            Caller::User(uid) => self.take(permit, Peer { pid: 0, owner: Owner { uid, gid: uid } }).ok(),
            Caller::Network(_) => self.count(permit, caller).ok(),
        }
    }

    /// Takes a place for `peer`. Refuses, and counts, if the user or all users together have no place left.
    fn take(&self, permit: OwnedSemaphorePermit, peer: Peer) -> Result<Place, Problem> {
        if peer.administers() {
            return Ok(Place { _permit: permit, of_caller: None, _groups: None });
        }
        self.count(permit, Caller::User(peer.owner.uid))
    }

    fn count(&self, permit: OwnedSemaphorePermit, caller: Caller) -> Result<Place, Problem> {
        let taken = self.taken.with(|taken| taken.take(caller, self.shares));
        taken.inspect_err(|problem| {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(why = problem.message, "connection refused");
        })?;
        Ok(Place { _permit: permit, of_caller: Some((caller, self.taken.clone())), _groups: None })
    }
}

impl Taken {
    fn take(&mut self, caller: Caller, shares: Shares) -> Result<(), Problem> {
        let own = self.by_caller.get(&caller).copied().unwrap_or(0);
        if own >= shares.user {
            return Err(problem::too_many_connections(&format!("{caller} has"), own, shares.user));
        }
        if self.users >= shares.users {
            return Err(problem::too_many_connections("all users together have", self.users, shares.users));
        }
        self.by_caller.insert(caller, own + 1);
        self.users += 1;
        Ok(())
    }

    fn give_back(&mut self, caller: Caller) {
        let Some(own) = self.by_caller.get_mut(&caller) else { return };
        *own -= 1;
        self.users -= 1;
        if *own == 0 {
            self.by_caller.remove(&caller);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((caller, taken)) = &self.of_caller {
            taken.with(|taken| taken.give_back(*caller));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

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
    fn callers_on_tcp_have_the_same_shares_as_users() {
        let (places, near, far) = (Places::new(16), Caller::User(54_321), Caller::Network([192, 0, 2, 1].into()));
        let take = |caller| (0..16).map_while(|_| places.try_take_for(caller)).collect::<Vec<_>>();
        let (of_user, of_network) = (take(near), take(far));
        assert_eq!((of_user.len(), of_network.len()), (4, 4));
        let others: Vec<_> = (0..16).filter_map(|uid| places.try_take_for(Caller::User(54_400 + uid))).collect();
        assert_eq!((others.len(), take(Caller::User(0)).len()), (6, 2), "administrators keep an eighth");
        drop(of_user);
        assert_eq!(take(near).len(), 4);
    }

    #[tokio::test]
    async fn a_socket_without_a_free_descriptor_rests_before_each_further_attempt() {
        // A descriptor that is always readable and accepts nothing, like a listener without a free descriptor.
        let readable = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let listener = UnixListener::from_std(readable.into()).unwrap();
        let (mut failures, begun) = (Failures::of("test.sock"), Instant::now());
        while failures.count < 3 {
            tokio::select! {
                _ = next(&listener, &mut failures) => panic!("there is no connection"),
                () = tokio::time::sleep(4 * PAUSE) => {}
            }
        }
        let pauses = begun.elapsed().as_millis() / PAUSE.as_millis();
        assert!(u128::from(failures.count) <= pauses + 1, "{} attempts, {pauses} pauses", failures.count);
        assert!(!failures.warnings.is_due(begun), "the first failure was logged, and the next are not");
    }

    #[test]
    fn a_few_places_are_divided_too() {
        let shares = [1, 2, 4, 16].map(Shares::of).map(|shares| (shares.users, shares.user));
        assert_eq!(shares, [(1, 1), (1, 1), (3, 1), (14, 4)]);
    }
}
