//! Shares kept for future applications (loans): guarantees without threads.
//!
//! For the supervisor, a kept share is an application that wants nothing at present. Its guarantee counts in
//! admission; until it is claimed, applications that want more than their guarantees use it. A loan counts for user and
//! group `nobody`, so that an administrator can bound all loans like a user. If servers are bound to CPUs, it has a
//! place on one.

use qfabric_types::api::Problem;
use qfabric_types::{AppId, Class, Contract, Nanos, Owner, Share};

use super::Host;

/// Server period of the promise, because the future application's period is not known.
const PERIOD: Nanos = Nanos::from_millis(10);

impl Host {
    /// Guarantees `share` to a future application.
    pub(super) fn keep(&mut self, name: &str, owner: Owner, share: Share) -> Result<AppId, Problem> {
        let contract = Contract {
            class: Class::A,
            guaranteed: Some(share),
            max_bandwidth: share,
            server_period: PERIOD,
            ..Contract::new(name, PERIOD)
        };
        let app = AppId(self.next_app);
        let before = self.promise(app, &contract, share, None)?;
        if let Err(refusal) = self.books.admit(app, owner, &contract, share) {
            self.unpromise(before);
            return Err(refusal.into());
        }
        self.next_app += 1;
        self.kept.push(app);
        self.make_room_for(app);
        self.recompute_shares();
        Ok(app)
    }

    /// Ends a kept share. Returns false if `app` is not one.
    pub(super) fn release_kept(&mut self, app: AppId) -> bool {
        let Some(at) = self.kept.iter().position(|kept| *kept == app) else { return false };
        self.kept.remove(at);
        self.books.release(app, self.now);
        self.end_promise(app);
        self.recompute_shares();
        self.follow_grants();
        true
    }
}
