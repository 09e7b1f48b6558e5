//! The rate of a session: the granted one while its reservation is live, else what congestion control allows.

use qfabric_metp::Config;
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use super::Driver;
use crate::handover::Event;
use crate::options::{Options, nanos};

/// A window that did not limit for this time says nothing about the path: the frames were too small to fill it. A rate from
/// such a window would drop frames, and so keep the window from ever growing.
const LIMITED: Nanos = Nanos::from_millis(200);
/// The session sends a little faster than the window allows, so that the window stays full and can grow; what does not
/// fit waits in the session.
const ABOVE_WINDOW: (u64, u64) = (5, 4);
/// The bucket holds the bytes of this time. The first part of a large frame leaves at the rate of the path; a larger bucket
/// would only move the frame into the link's queue.
const BUCKET_NS: u64 = 10_000_000;
/// METP refuses lower rates.
const LEAST_RATE: BitRate = BitRate::new(16_000);

/// The session's configuration.
pub(super) fn config(options: &Options, tag: u16) -> Config {
    let bucket = options.rate.get() / 8 * BUCKET_NS / 1_000_000_000;
    Config {
        tag,
        largest_message: options.largest_message,
        messages_in_flight: options.messages_in_flight,
        send_memory: options.memory(),
        receive_memory: options.memory(),
        rate: options.rate,
        bucket: Bytes::new(bucket.max(8 * u64::from(options.mtu))),
        lateness: Config::USUAL_LATENESS,
        mode: options.mode,
        tpdu_size: options.mtu,
        accepted_tpdu: options.mtu,
        send_time: options.send_time.map(nanos),
        receive_time: options.receive_time.map(nanos),
        order: options.order,
        idle_limit: nanos(options.idle_limit),
    }
}

impl Driver {
    pub(super) fn tick(&mut self, now: Instant) {
        self.ticked = now;
        self.drop_lost();
        let ids: Vec<u32> = self.carriers.keys().copied().collect();
        for id in ids {
            self.look_at_path(id);
        }
        self.watch_grant();
        self.follow_path();
    }

    /// Puts the grant into force on the sending carrier, and on no other one.
    pub(super) fn apply_grant(&mut self) {
        for attached in self.carriers.values() {
            self.grants.apply(attached.carrier.governor(), attached.id == self.sending);
        }
        // It may be for other addresses than the new path has.
        self.watch_grant();
        self.look_at_path(self.sending);
        self.follow_path();
    }

    /// Call it before another carrier sends, too: the verdict on the former one would be lost.
    pub(super) fn watch_grant(&mut self) {
        let Some(sending) = self.carriers.get(&self.sending) else { return };
        if let Some(why) = self.grants.watch(&*sending.carrier) {
            self.handover.report(Event::Revoked(why));
        }
    }

    /// The granted rate; else the wanted one, unless congestion control limits it.
    pub(super) fn follow_path(&mut self) {
        let Some(sending) = self.carriers.get(&self.sending) else { return };
        let granted = sending.carrier.governor().and_then(|governor| governor.granted());
        if let Some(recording) = &mut self.recording {
            recording.follow(granted, self.session.next_number().get());
        }
        let is_limited = sending.full.is_some_and(|at| super::now().since(at) < LIMITED);
        let rate = match (granted, sending.path.rate) {
            (Some(granted), _) => granted,
            (None, Some(window)) if is_limited || sending.carrier.governor().is_none() => {
                self.wanted_rate.min(BitRate::new(window.get() / ABOVE_WINDOW.1 * ABOVE_WINDOW.0))
            }
            _ => self.wanted_rate,
        };
        let rate = rate.max(LEAST_RATE);
        if rate != self.rate {
            self.rate = rate;
            self.session.set_rate(super::now(), rate);
        }
    }
}
