//! The share of each user in the answers of the API: a rate of bytes. An answer that describes 200 applications, a page
//! of the timeline, or the metrics takes far more work than an answer about one application, also in the control thread;
//! the bytes of an answer are the measure of this work.
//!
//! Each user has a [`RateAccount`]. A request waits while the account is more than [`AHEAD`] ahead, so a user who asks
//! without a pause gets answers at the rate, and nobody else waits. Administrators have no account. Callers on TCP have
//! places for connections instead.
//!
//! Reads and changes have an account each: a user whose programs read without a pause can still end a contract at once.
//!
//! A caller that closes its connection early has caused the work, too: its request costs as much as a long answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body as HttpBody;
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::{Instant, Nanos, RateAccount};

use super::answers::Refused;
use crate::auth::Peer;
use crate::problem;

/// Bytes of answers that a user gets in a second, in the long run.
pub(crate) const PER_SECOND: u64 = 8 << 20;
/// Bytes that each request counts for beside its answer.
const REQUEST: u64 = 4 << 10;
/// Bytes that a request counts for if its caller gives up, or its time is over, before there is an answer.
const GIVEN_UP: u64 = 256 << 10;
/// Answers of this time are given at once.
const AHEAD: Nanos = Nanos::from_millis(1_000);
/// Accounts that are remembered: two for each user.
const MOST_ACCOUNTS: usize = 2_048;

/// Which requests of a user an account is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// GET and HEAD.
    Read,
    Change,
}

/// Whose account it is: a user, and the kind of the requests.
type Key = (u32, Kind);

/// The accounts of all users. Cheap to clone.
#[derive(Clone)]
pub(super) struct AnswerShares {
    accounts: Arc<Lock<Accounts, { rank::ANSWERS }>>,
    /// A request that would have to wait longer is refused.
    longest: Nanos,
}

impl AnswerShares {
    /// A request waits for at most half of `timeout`, the time for a whole answer.
    pub(super) fn new(timeout: Duration) -> AnswerShares {
        let longest = Nanos::new(u64::try_from(timeout.as_nanos() / 2).unwrap_or(u64::MAX));
        AnswerShares { accounts: Arc::default(), longest }
    }
}

/// Lets a request of a user wait until the user's share covers the earlier answers, and charges the user for this one.
pub(super) async fn within_share(State(shares): State<AnswerShares>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let Some(peer) = peer.filter(|peer| !peer.administers()) else { return next.run(request).await };
    let uid = peer.owner.uid;
    let kind = if request.method().is_safe() { Kind::Read } else { Kind::Change };
    let key = (uid, kind);
    let begun = shares.accounts.with(|accounts| accounts.begin(key, shares.longest, clock::now()));
    match (begun, kind) {
        (Ok(Nanos::ZERO), _) => {}
        (Ok(wait), _) => tokio::time::sleep(Duration::from_nanos(wait.get())).await,
        (Err(wait), Kind::Read) => return Refused(problem::too_many_answers(uid, wait)).into_response(),
        (Err(wait), Kind::Change) => return Refused(problem::too_many_changes(uid, wait)).into_response(),
    }
    let mut charge = Charge { shares, key, bytes: GIVEN_UP };
    let response = next.run(request).await;
    charge.bytes = HttpBody::size_hint(response.body()).lower();
    response
}

/// Charges an account when it is dropped, so also if the request is cancelled.
struct Charge {
    shares: AnswerShares,
    key: Key,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Charge { shares, key, bytes } = self;
        shares.accounts.with(|accounts| accounts.charge(*key, *bytes, clock::now()));
    }
}

/// The accounts of answers, at most [`MOST_ACCOUNTS`].
#[derive(Debug, Default)]
struct Accounts(HashMap<Key, RateAccount>);

impl Accounts {
    /// Charges an account for a request, and returns the time that the request has to wait.
    ///
    /// # Errors
    /// It would have to wait for more than `longest`; returns that time, and charges nothing.
    fn begin(&mut self, key: Key, longest: Nanos, now: Instant) -> Result<Nanos, Nanos> {
        let account = self.0.get(&key).copied().unwrap_or_default();
        let wait = account.ahead(now).saturating_sub(AHEAD);
        if wait > longest {
            return Err(wait);
        }
        self.charge(key, REQUEST, now);
        Ok(wait)
    }

    fn charge(&mut self, key: Key, bytes: u64, now: Instant) {
        if self.0.len() >= MOST_ACCOUNTS && !self.0.contains_key(&key) {
            self.forget(now);
        }
        self.0.entry(key).or_default().charge(bytes, PER_SECOND, now);
    }

    /// Forgets accounts whose share covers all answers. If there are none, all accounts start again: users with very
    /// many ids must not keep others out.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, account| account.ahead(now) > Nanos::ZERO);
        if self.0.len() >= MOST_ACCOUNTS {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::http::Method;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use hyper::body::{Frame, SizeHint};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use qfabric_types::Owner;

    use super::*;

    const START: Instant = Instant::new(1_000_000_000_000);
    const MIB: u64 = 1 << 20;
    const LONGEST: Nanos = Nanos::from_millis(2_500);

    const fn reads(uid: u32) -> Key {
        (uid, Kind::Read)
    }

    /// Asks without a pause for answers of `bytes` until `end`, and waits as long as it has to. Returns the number of
    /// answers.
    fn answers(accounts: &mut Accounts, key: Key, bytes: u64, end: Instant) -> u64 {
        let (mut now, mut count) = (START, 0);
        while now < end {
            match accounts.begin(key, LONGEST, now) {
                Ok(wait) => {
                    now = now + wait;
                    accounts.charge(key, bytes, now);
                    count += 1;
                }
                Err(wait) => now = now + wait,
            }
        }
        count
    }

    #[test]
    fn a_user_who_asks_without_a_pause_gets_the_rate_after_a_burst_and_others_wait_for_nothing() {
        let mut accounts = Accounts::default();
        let count = answers(&mut accounts, reads(54_321), MIB, START + Nanos::from_millis(10_000));
        let most = 11 * PER_SECOND / MIB + 1;
        assert!((80..=most).contains(&count), "{count} answers of 1 MiB in 10 s, at most {most}");
        let now = START + Nanos::from_millis(10_000);
        assert!(accounts.begin(reads(54_321), LONGEST, now).unwrap() > Nanos::ZERO);
        assert_eq!(accounts.begin(reads(54_322), LONGEST, now), Ok(Nanos::ZERO));
        assert_eq!(
            accounts.begin(reads(54_321), LONGEST, now + Nanos::from_millis(5_000)),
            Ok(Nanos::ZERO),
            "after a pause"
        );
    }

    #[test]
    fn a_wait_beyond_the_longest_is_refused_and_a_refused_request_costs_nothing() {
        let mut accounts = Accounts::default();
        accounts.charge(reads(54_321), 64 * MIB, START);
        let wait = Nanos::from_millis(7_000);
        assert!((0..1_000).all(|_| accounts.begin(reads(54_321), LONGEST, START) == Err(wait)));
        assert_eq!(accounts.begin(reads(54_321), LONGEST, START + Nanos::from_millis(4_500)), Ok(LONGEST));
    }

    #[test]
    fn the_guide_names_the_bytes_and_the_requests_of_a_user_in_a_second() {
        let (mib, requests) = (PER_SECOND / MIB, PER_SECOND / REQUEST);
        let requests = format!("{},{:03}", requests / 1_000, requests % 1_000);
        let daemon = include_str!("../../../../docs/guide/src/daemon.md");
        let row = daemon.lines().find(|line| line.starts_with("| answers |")).expect("a row of the table");
        let counts = format!("each request counts for {} KiB", REQUEST / 1_024);
        for says in [format!("{mib} MiB of answers"), counts, format!("at most {requests} changes in a second")] {
            assert!(row.contains(&says), "{row} does not say {says:?}");
        }
        let ecalls = include_str!("../../../../docs/guide/src/ecalls.md");
        assert!(ecalls.contains(&format!("at most {requests} blocking calls in a second")), "{requests}");
    }

    #[test]
    fn a_bounded_number_of_users_is_remembered() {
        let mut accounts = Accounts::default();
        for uid in 0..3_000 {
            accounts.charge(reads(uid), MIB, START);
            assert!(accounts.0.len() <= MOST_ACCOUNTS);
        }
    }

    /// States a size of 8 GiB, and ends at once.
    struct LargeBody;

    impl HttpBody for LargeBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(None)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(8 << 30)
        }
    }

    async fn large() -> Response {
        Response::new(Body::new(LargeBody))
    }

    fn request_of(uid: u32, method: Method) -> Request {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        request.extensions_mut().insert(Peer { pid: 1, owner: Owner { uid, gid: uid } });
        request
    }

    #[tokio::test]
    async fn an_answer_is_charged_to_the_user_who_asked_with_its_bytes() {
        let shares = AnswerShares::new(Duration::from_secs(5));
        let router: Router = Router::new().route("/", get(large));
        let router = TowerToHyperService::new(router.layer(from_fn_with_state(shares, within_share)));
        let ask = async |uid: u32| router.call(request_of(uid, Method::GET)).await.unwrap().status().as_u16();
        assert_eq!([ask(54_321).await, ask(54_321).await], [200, 429]);
        assert_eq!([ask(54_322).await, ask(0).await, ask(0).await], [200; 3], "others, and root without a share");
    }

    #[tokio::test]
    async fn a_change_does_not_wait_behind_the_reads_of_its_user_nor_a_read_behind_changes() {
        let shares = AnswerShares::new(Duration::from_secs(5));
        let router: Router = Router::new().route("/", get(large).delete(large));
        let router = TowerToHyperService::new(router.layer(from_fn_with_state(shares, within_share)));
        let ask =
            async |uid: u32, method: Method| router.call(request_of(uid, method)).await.unwrap().status().as_u16();
        let (read, change) = (Method::GET, Method::DELETE);
        assert_eq!([ask(54_321, read.clone()).await, ask(54_321, read.clone()).await], [200, 429]);
        assert_eq!([ask(54_321, change.clone()).await, ask(54_321, change.clone()).await], [200, 429]);
        assert_eq!([ask(54_322, change.clone()).await, ask(54_322, change).await], [200, 429]);
        assert_eq!([ask(54_322, read.clone()).await, ask(54_322, read).await], [200, 429]);
    }

    #[tokio::test]
    async fn a_request_whose_caller_gives_up_costs_as_much_as_a_long_answer() {
        let shares = AnswerShares::new(Duration::from_secs(5));
        let router: Router = Router::new().route("/", get(async || std::future::pending::<()>().await));
        let router = TowerToHyperService::new(router.layer(from_fn_with_state(shares.clone(), within_share)));
        let begin = clock::now();
        tokio::select! {
            biased;
            _ = router.call(request_of(54_321, Method::GET)) => panic!("there is an answer"),
            () = std::future::ready(()) => {}
        }
        let mut least = RateAccount::default();
        least.charge(REQUEST + GIVEN_UP, PER_SECOND, begin);
        let account = shares.accounts.with(|accounts| accounts.0[&reads(54_321)]);
        assert!(account.until() >= least.until(), "{account:?} after {begin:?}");
    }
}
