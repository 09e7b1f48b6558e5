//! At a sink: the picture keeps to its sound (inter-media synchronization).
//!
//! Both players of this host report [`POSITION`]; what the follower is to do comes back as [`SPEED`] and [`SKIP`].

use qfabric_control::adapt::inter_media::{Correction, InterMedia, Terms};
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Topic, View};

/// How far a player is, in ns of media time: the attribute's name.
pub const POSITION: &str = "app.position";

/// Millionths that the follower is to play faster (positive) or slower than normal.
pub const SPEED: &str = "app.speed_ppm";

/// Media time, in ns, that the follower is to leave out (positive) or to stand still for (negative), once.
pub const SKIP: &str = "app.skip";

/// A position that is older says nothing: its player stands still or is gone.
const FRESH: Nanos = Nanos::from_millis(1_000);

/// Positions that may have been said before a jump was heard of, and would ask for another one.
const ON_THE_WAY: Nanos = Nanos::from_millis(200);

/// The controller.
#[derive(Debug)]
pub struct MediaSync {
    leader: AppId,
    follower: AppId,
    policy: InterMedia,
    speed: i32,
    /// Until then the follower jumps, or stands still: what it says is not where it is going to be.
    jumps_until: Instant,
}

impl MediaSync {
    /// For two applications of this host: sound leads, the picture follows.
    pub fn new(leader: AppId, follower: AppId, terms: Terms) -> Self {
        MediaSync { leader, follower, policy: InterMedia::new(terms), speed: 0, jumps_until: Instant::ZERO }
    }

    /// The follower has reported; where the leader was at that moment: it plays at the normal speed.
    fn leader_at(&self, follower: &Reading, view: &View<'_>) -> Option<Nanos> {
        let leader = view.latest(view.host, follower.attribute, self.leader)?;
        let since = follower.at.signed_since(leader.at);
        if since.unsigned_abs() > FRESH.get() {
            return None;
        }
        Some(Nanos::new(leader.value.saturating_add(since).max(0) as u64))
    }

    fn apply(&self, attribute: &str, amount: i64, decisions: &mut Decisions) {
        let (application, attribute) = (self.follower, AttributeId::of(attribute));
        decisions.push(Decision::Apply { application, attribute, amount });
    }

    /// Once; `standing`: for so long the follower stands still.
    fn jump(&mut self, by: i64, standing: Nanos, now: Instant, decisions: &mut Decisions) {
        self.play_at(0, decisions);
        self.apply(SKIP, by, decisions);
        self.jumps_until = now + standing + ON_THE_WAY;
    }

    fn play_at(&mut self, ppm: i32, decisions: &mut Decisions) {
        if std::mem::replace(&mut self.speed, ppm) != ppm {
            self.apply(SPEED, ppm.into(), decisions);
        }
    }
}

impl Controller for MediaSync {
    fn name(&self) -> &str {
        "media-sync"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::anywhere(Topic::Reading(AttributeId::of(POSITION)))]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let ChangeKind::Reading(reading) = &change.what else { return };
        // What it says to others comes back on channels that this host feeds: once is enough.
        let here = change.channel.is_none() && change.host == *view.host;
        if !here || reading.application != self.follower || view.now < self.jumps_until {
            return;
        }
        let Some(leader) = self.leader_at(reading, view) else { return };
        match self.policy.on_positions(leader, Nanos::new(reading.value.max(0) as u64)) {
            Correction::Keep => self.play_at(0, decisions),
            Correction::Speed(ppm) => self.play_at(ppm, decisions),
            Correction::Skip(by) => self.jump(by.get() as i64, Nanos::ZERO, view.now, decisions),
            Correction::Wait(by) => self.jump(-(by.get() as i64), by, view.now, decisions),
        }
    }
}
