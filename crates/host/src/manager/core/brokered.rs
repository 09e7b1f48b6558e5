//! Resources whose books are a broker's, who answers later: nothing is offered to another host before the broker keeps
//! it, and nothing is kept beyond the time that was agreed.
//!
//! ```text
//!   Request ──> asked ── keep ──> broker ── kept ──> offered ── Accept ──> accepted ── time, Cancel, asker gone ──> let go
//!                                    └── refused ──> nothing was said            └── claimed: used ──> Cancel to the asker
//! ```

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, QualityKind};
use qfabric_types::{Instant, Nanos};

use super::super::Recipient;
use super::super::requests::{HOLD, Held, Stage, Told, reply, said};
use super::{Effect, Manager};

/// Longest that something is kept, whatever an asker says.
const LONGEST: Nanos = Nanos::from_millis(600_000);

impl Manager {
    /// From now on a broker has the books of a resource, and [`Effect::Keep`] asks it. Other hosts ask for it on this
    /// channel and no other: its access list says who may.
    pub fn broker(&mut self, attribute: AttributeId, channel: ChannelId) {
        self.brokered.insert(attribute, channel);
    }

    /// What the broker says: it keeps what was asked for, and has so much left; or does not keep it.
    pub fn kept(&mut self, (asker, request): (&Name, u64), left: Option<i64>, now: Instant) {
        let key = (asker.clone(), request);
        let Some(Held { stage: Stage::Asked(channel), attribute, .. }) = self.holds.held.get(&key).cloned() else {
            return;
        };
        let Some(left) = left else { return drop(self.holds.held.remove(&key)) };
        self.holds.held.entry(key).and_modify(|held| held.stage = Stage::Offered);
        let offer = said(QualityKind::Offer, request, attribute, left, now);
        self.out.tell(&channel, Recipient::Host(asker.clone()), offer);
    }

    /// An application of this host has what was kept: it is no longer, and the broker knows. So does the asker, which does not
    /// offer it to anybody again.
    pub fn used(&mut self, asker: &Name, request: u64, now: Instant) {
        let Some(held) = self.holds.held.remove(&(asker.clone(), request)) else { return };
        let Some(channel) = self.brokered.get(&held.attribute) else { return };
        let taken = said(QualityKind::Cancel, request, held.attribute, 0, now);
        self.out.tell(channel, Recipient::Host(asker.clone()), taken);
    }

    pub(super) fn ask_broker(&mut self, channel: &ChannelId, host: &Name, event: &QualityEvent, now: Instant) {
        if self.brokered.get(&event.attribute) != Some(channel) {
            return;
        }
        let held = Held::of(event, Stage::Asked(channel.clone()), now);
        self.out.effect(keep(host, event.request, &held));
        self.holds.held.insert((host.clone(), event.request), held);
    }

    /// An offer that has expired is not made again: the asker hears nothing, and takes the next.
    pub(super) fn accepted_of_broker(
        &mut self,
        channel: &ChannelId,
        host: &Name,
        event: &QualityEvent,
        now: Instant,
        told: &mut Vec<Told>,
    ) {
        let Some(held) = self.holds.held.get_mut(&(host.clone(), event.request)) else { return };
        match held.stage {
            Stage::Asked(_) => return,
            Stage::Offered => {
                let hold = Nanos::new(event.other.max(0).unsigned_abs()).clamp(HOLD, LONGEST);
                (held.until, held.stage) = (now + hold, Stage::Accepted);
                self.out.effect(keep(host, event.request, held));
            }
            // Its confirmation was lost, and said again.
            Stage::Accepted => {}
        }
        told.push((channel.clone(), Some(host.clone()), reply(QualityKind::Confirm, event, held.amount, now)));
    }
}

fn keep(asker: &Name, request: u64, held: &Held) -> Effect {
    Effect::Keep { asker: asker.clone(), request, amount: held.amount, until: held.until }
}
