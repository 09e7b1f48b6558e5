//! Resources that a broker accounts for. The broker answers later: an amount is offered to another host only when
//! the broker keeps it, and is kept only for the agreed time.
//!
//! ```text
//!   Request ──> asked ── keep ──> broker ── kept ──> offered ── Accept ──> accepted ── time over, Cancel, asker gone ──> ended
//!                                    └── refused ──> no answer             └── claimed: used ──> Cancel to the asker
//! ```

use qfabric_types::api::LoanRate;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, QualityKind};
use qfabric_types::{Instant, Nanos};

use super::super::Recipient;
use super::super::requests::{HOLD, Held, Message, Stage, quality_event, reply, with_kept_rate, with_memory};
use super::{Effect, Manager};

/// Longest time that an amount is kept, whatever the asker requests.
const LONGEST: Nanos = Nanos::from_millis(600_000);

impl Manager {
    /// From now on a broker accounts for a resource, and [`Effect::Keep`] asks it. Other hosts ask for the resource
    /// on this channel only: its access list decides which hosts may.
    pub fn broker(&mut self, attribute: AttributeId, channel: ChannelId) {
        self.brokered.insert(attribute, channel);
    }

    /// The broker keeps the requested rate on this link. Called before [`Manager::kept`], so that the offer names it.
    pub fn kept_rate(&mut self, (asker, request): (&Name, u64), rate: LoanRate) {
        if let Some(held) = self.holds.held.get_mut(&(asker.clone(), request)) {
            held.kept_rate = Some(rate);
        }
    }

    /// The broker's answer: it keeps the requested amount, memory and rate, and has `left` more of the amount; `None`:
    /// it keeps none of them.
    pub fn kept(&mut self, (asker, request): (&Name, u64), left: Option<i64>, now: Instant) {
        let key = (asker.clone(), request);
        let held = self.holds.held.get(&key).cloned();
        let Some(Held { stage: Stage::AskingBroker(channel), attribute, memory, kept_rate, .. }) = held else { return };
        let Some(left) = left else { return drop(self.holds.held.remove(&key)) };
        self.holds.held.entry(key).and_modify(|held| held.stage = Stage::Offered);
        let offer = quality_event(QualityKind::Offer, request, attribute, left, now);
        let offer = with_kept_rate(with_memory(offer, memory), kept_rate.as_ref());
        self.out.tell(&channel, Recipient::Host(asker.clone()), offer);
    }

    /// An application of this host uses the kept amount: the loan ends. The broker knows already; the asker is
    /// informed, so that it does not offer the loan to another application.
    pub fn used(&mut self, asker: &Name, request: u64, now: Instant) {
        let Some(held) = self.holds.held.remove(&(asker.clone(), request)) else { return };
        let Some(channel) = self.brokered.get(&held.attribute) else { return };
        let taken = quality_event(QualityKind::Cancel, request, held.attribute, 0, now);
        self.out.tell(channel, Recipient::Host(asker.clone()), taken);
    }

    pub(super) fn ask_broker(&mut self, channel: &ChannelId, host: &Name, event: &QualityEvent, now: Instant) {
        if self.brokered.get(&event.attribute) != Some(channel) {
            return;
        }
        let held = Held::of(event, Stage::AskingBroker(channel.clone()), now);
        self.out.effect(keep(host, event.request, &held));
        self.holds.held.insert((host.clone(), event.request), held);
    }

    /// An expired offer is not made again: the asker gets no answer and takes the next offer.
    pub(super) fn accepted_of_broker(
        &mut self,
        channel: &ChannelId,
        host: &Name,
        event: &QualityEvent,
        now: Instant,
        messages: &mut Vec<Message>,
    ) {
        let Some(held) = self.holds.held.get_mut(&(host.clone(), event.request)) else { return };
        match held.stage {
            Stage::AskingBroker(_) => return,
            Stage::Offered => {
                let hold = Nanos::new(event.other.max(0).unsigned_abs()).clamp(HOLD, LONGEST);
                (held.until, held.stage) = (now + hold, Stage::Accepted);
                self.out.effect(keep(host, event.request, held));
            }
            // The confirmation was lost, so it is sent again.
            Stage::Accepted => {}
        }
        messages.push((channel.clone(), Some(host.clone()), reply(QualityKind::Confirm, event, held.amount, now)));
    }
}

fn keep(asker: &Name, request: u64, held: &Held) -> Effect {
    let Held { amount, memory, rate, until, .. } = *held;
    Effect::Keep { asker: asker.clone(), request, amount, memory, rate, until }
}
