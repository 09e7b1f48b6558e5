//! Places for the values that applications report. A policy keeps a bounded number of readings of one host
//! ([`Readings::OF_A_HOST`]), and the users of the host share this number, so that no user takes the places of others.
//!
//! On each channel all users together have [`MOST`] places. While there is room, a user may have any number of them.
//! Without room, a new value of a user takes the place of the user with the most, as long as that one keeps at least as
//! many: so users who want many places have equally many. The value that was reported longest ago gives way. It gives
//! way at all policies, too, because it is not passed on any more and becomes old there.
//!
//! An account of each user bounds the rate of reports, of whatever values and on whatever channels.

use std::collections::BTreeMap;

use qfabric_host::manager::Readings;
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, Nanos};

/// Places on one channel for all users together. The last eighth is for administrators, and for what the service itself
/// counts.
pub(super) const MOST: usize = Readings::OF_A_HOST / 8 * 7;

/// Reports of a user at once after a pause.
const BURST: u64 = 1_000;
/// Afterwards the time between two.
const INTERVAL: Nanos = Nanos::from_millis(1);

/// Time between two log lines about refusals.
const LOG_INTERVAL: Nanos = Nanos::from_millis(30_000);

/// The values that users report, by channel.
#[derive(Debug, Default)]
pub(super) struct Reporters {
    channels: BTreeMap<ChannelId, Users>,
    /// For each user, the time at which the account of reports is full again. Full accounts are not kept.
    full_at: BTreeMap<u32, Instant>,
    logged: Option<Instant>,
}

/// The values of each user on a channel.
type Users = BTreeMap<u32, Values>;

/// The time of the last report of each value.
type Values = BTreeMap<(AttributeId, AppId), Instant>;

/// Why a report is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotTaken {
    #[error(
        "the users of this host report {} values on the channel, which is the limit, and this user has the largest \
         part; report fewer attributes, or of fewer applications",
        MOST
    )]
    NoPlace,
    #[error("the user reports more often than once in {} for long; report each value less often", INTERVAL)]
    TooOften,
}

impl Reporters {
    /// Takes a user's report: charges the user's account, and takes a place for the value.
    ///
    /// # Errors
    /// The account is empty, or there is no room for another value.
    pub(super) fn admit(&mut self, channel: &ChannelId, uid: u32, reading: &Reading) -> Result<(), NotTaken> {
        self.charge(uid, reading.at)?;
        if self.take(channel, uid, reading) { Ok(()) } else { Err(NotTaken::NoPlace) }
    }

    fn charge(&mut self, uid: u32, now: Instant) -> Result<(), NotTaken> {
        let full_at = self.full_at.get(&uid).map_or(now, |full_at| (*full_at).max(now)) + INTERVAL;
        if full_at.since(now) > INTERVAL.saturating_mul(BURST) {
            return Err(NotTaken::TooOften);
        }
        if self.full_at.insert(uid, full_at).is_none() {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        Ok(())
    }

    /// Takes a place for a user's value; a value that has a place keeps it. `false`: there is no room for another one.
    fn take(&mut self, channel: &ChannelId, uid: u32, reading: &Reading) -> bool {
        let (key, now) = ((reading.attribute, reading.application), reading.at);
        let users = self.users(channel, now);
        if let Some(at) = users.get_mut(&uid).and_then(|own| own.get_mut(&key)) {
            *at = now;
            return true;
        }
        if taken(users) >= MOST {
            forget_old(users, now);
        }
        let own = users.get(&uid).map_or(0, BTreeMap::len);
        if taken(users) >= MOST && !give_way(users, own) {
            return false;
        }
        users.entry(uid).or_default().insert(key, now);
        true
    }

    /// The users of a channel. Channels on which nobody reports any more make room for a new one.
    fn users(&mut self, channel: &ChannelId, now: Instant) -> &mut Users {
        if !self.channels.contains_key(channel) {
            self.channels.retain(|_, users| {
                forget_old(users, now);
                !users.is_empty()
            });
        }
        self.channels.entry(channel.clone()).or_default()
    }

    /// Whether a refusal is logged now.
    pub(super) fn may_log(&mut self, now: Instant) -> bool {
        let may = self.logged.is_none_or(|last| now.since(last) >= LOG_INTERVAL);
        if may {
            self.logged = Some(now);
        }
        may
    }
}

fn taken(users: &Users) -> usize {
    users.values().map(BTreeMap::len).sum()
}

/// Removes the values that also a policy would replace.
fn forget_old(users: &mut Users, now: Instant) {
    users.retain(|_, own| {
        own.retain(|_, at| now.since(*at) <= Readings::OLD);
        !own.is_empty()
    });
}

/// Takes a place from the user with the most, for a user who has `own` of them. Returns whether it did.
fn give_way(users: &mut Users, own: usize) -> bool {
    let Some(most) = users.values_mut().max_by_key(|values| values.len()).filter(|values| values.len() > own + 1)
    else {
        return false;
    };
    let oldest = most.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
    oldest.is_some_and(|key| most.remove(&key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::monitor::{Cause, Unit};

    const ALICE: u32 = 54_321;
    const BOB: u32 = 54_322;

    fn reading(application: u64, at: u64) -> Reading {
        let (attribute, application) = (AttributeId::of("app.position"), AppId(application));
        let (at, over, cause, unit) = (Instant::ZERO + Nanos::from_millis(at), Nanos::ZERO, Cause::Poll, Unit::Count);
        Reading { attribute, application, value: 1, at, over, cause, unit }
    }

    #[test]
    fn users_who_report_very_many_values_share_the_places_of_a_channel_equally() {
        let (mut reporters, video): (_, ChannelId) = (Reporters::default(), "video".parse().unwrap());
        let kept = |reporters: &mut Reporters, uid, values: std::ops::Range<u64>| {
            values.filter(|value| reporters.take(&video, uid, &reading(*value, *value))).count()
        };
        assert_eq!(kept(&mut reporters, ALICE, 0..1_000), MOST, "while there is room, one user has all places");
        assert_eq!(kept(&mut reporters, BOB, 0..1_000), MOST / 2);
        assert_eq!(kept(&mut reporters, ALICE, 0..1_000), MOST / 2, "the later half still has places");
        assert_eq!(kept(&mut reporters, BOB, 0..1_000), MOST / 2);
        assert!(reporters.take(&"audio".parse().unwrap(), BOB, &reading(1_000, 0)), "another channel has its own");
    }

    #[test]
    fn values_that_are_not_reported_any_more_give_way() {
        let (mut reporters, video): (_, ChannelId) = (Reporters::default(), "video".parse().unwrap());
        (0..MOST as u64).for_each(|value| assert!(reporters.take(&video, ALICE, &reading(value, 0))));
        assert!(!reporters.take(&video, ALICE, &reading(1_000, 10_000)), "all are still fresh");
        assert!(reporters.take(&video, ALICE, &reading(1_000, 10_001)));
        assert_eq!(taken(&reporters.channels[&video]), 1);
        assert!(reporters.take(&"audio".parse().unwrap(), BOB, &reading(0, 20_002)));
        assert!(!reporters.channels.contains_key(&video), "nobody reports there any more");
    }

    #[test]
    fn a_user_reports_a_burst_and_then_once_each_millisecond() {
        let (mut reporters, video): (_, ChannelId) = (Reporters::default(), "video".parse().unwrap());
        let mut taken = |uid, at: u64| {
            let outcomes = (0..2 * BURST).map(|_| reporters.admit(&video, uid, &reading(7, at)));
            outcomes.filter(|outcome| *outcome != Err(NotTaken::TooOften)).count() as u64
        };
        assert_eq!([taken(ALICE, 0), taken(ALICE, 0), taken(BOB, 0)], [BURST, 0, BURST], "each has an account");
        assert_eq!([taken(ALICE, 3), taken(ALICE, 10 * BURST)], [3, BURST]);
        assert_eq!(taken(54_323, 20 * BURST), BURST);
        assert_eq!(reporters.full_at.len(), 1, "full accounts are not kept");
    }

    #[test]
    fn refusals_are_logged_at_intervals() {
        let mut reporters = Reporters::default();
        let at = |seconds: u64| Instant::ZERO + Nanos::from_millis(1_000 * seconds);
        let logged: Vec<_> = [0, 1, 29, 30, 31, 60].map(|seconds| reporters.may_log(at(seconds))).into();
        assert_eq!(logged, [true, false, false, true, false, true]);
    }
}
