//! Inter-media synchronization at a sink: the picture follows the sound.
//!
//! Both players of this host report [`POSITION`]; the instructions to the follower are [`SPEED`] and [`SKIP`].

use qfabric_control::adapt::inter_media::{Correction, InterMedia, Terms};
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Topic, View};

/// Name of the attribute by which a player reports its position, in ns of media time.
pub const POSITION: &str = "app.position";

/// Name of the attribute that tells the follower by how many millionths to play faster (positive) or slower than
/// normal.
pub const SPEED: &str = "app.speed_ppm";

/// Name of the attribute that tells the follower how much media time, in ns, to skip (positive) or to wait
/// (negative), once.
pub const SKIP: &str = "app.skip";

/// An older position is ignored: its player stands still or has ended.
const FRESH: Nanos = Nanos::from_millis(1_000);

/// Time after a jump in which positions are ignored: they may be from before the jump, and would cause another one.
const ON_THE_WAY: Nanos = Nanos::from_millis(200);

#[derive(Debug)]
pub struct MediaSync {
    leader: AppId,
    follower: AppId,
    policy: InterMedia,
    speed: i32,
    /// Until then the follower jumps or stands still, and its reports do not show its new position.
    jumps_until: Instant,
}

impl MediaSync {
    /// For two applications of this host: the sound leads, the picture follows.
    pub fn new(leader: AppId, follower: AppId, terms: Terms) -> Self {
        MediaSync { leader, follower, policy: InterMedia::new(terms), speed: 0, jumps_until: Instant::ZERO }
    }

    /// The leader's position at the time of the follower's report, for a leader at normal speed.
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

    /// Jumps once; the follower stands still for the time `standing`.
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
        // Reports to others come back on channels that this host feeds; only the first one counts.
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
