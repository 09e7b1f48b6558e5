//! What is kept for applications that are still to come: guarantees without threads.
//!
//! In the books it is an application that wants nothing now: its guarantee counts when others are admitted, and
//! until it comes, whoever wants more than is guaranteed to him has it. It counts as user and group `nobody`, so that an
//! administrator bounds all of it as he bounds a user. Where servers are bound to CPUs it has its place on one.

use qfabric_types::api::Problem;
use qfabric_types::{AppId, Class, Contract, Nanos, Owner, Share};

use super::Host;

/// `nobody` and `nogroup`.
const NOBODY: Owner = Owner { uid: 65_534, gid: 65_534 };
/// Server period of the promise, in place of the one that is still to be said.
const PERIOD: Nanos = Nanos::from_millis(10);

impl Host {
    /// Guarantees `share` to nobody yet.
    pub(super) fn keep(&mut self, name: &str, share: Share) -> Result<AppId, Problem> {
        let contract = Contract {
            class: Class::A,
            guaranteed: Some(share),
            max_bandwidth: share,
            server_period: PERIOD,
            ..Contract::new(name, PERIOD)
        };
        let app = AppId(self.next_app);
        let before = self.promise(app, &contract, share)?;
        if let Err(refusal) = self.books.admit(app, NOBODY, &contract, share) {
            self.unpromise(before);
            return Err(refusal.into());
        }
        self.next_app += 1;
        self.kept.push(app);
        self.make_room_for(app);
        self.share_anew();
        Ok(app)
    }

    /// Whether that was kept; then it is no longer.
    pub(super) fn let_go(&mut self, app: AppId) -> bool {
        let Some(at) = self.kept.iter().position(|kept| *kept == app) else { return false };
        self.kept.remove(at);
        self.books.release(app, self.now);
        self.end_promise(app);
        self.share_anew();
        self.follow_grants();
        true
    }
}
