//! Writes the words of `qf_net_config`, the configuration of the queue, while packets pass.
//!
//! The words of a stream are written between two increments of its `change`, which is odd during the write. Then
//! `changes` is incremented, which the queue polls. There is one writer: the owner of the attachment.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use qfabric_types::api::net::StreamSpec;
use qfabric_types::{Nanos, Share};

use super::error::NetError;
use crate::abi::{
    QF_NET_BEST_DEPTH, QF_NET_IN_USE, QF_NET_STREAMS, QF_NET_WORK_CONSERVING, qf_net_config, qf_net_link,
    qf_net_stream_config,
};
use crate::bpf::{Mapping, Object, ObjectError, Plain};

const SECTION: &str = ".data.config";
/// Section of the link's constants.
pub(super) const LINK: &str = ".rodata.link";
/// Lost sending time that a paced queue may make up for, so that a late timer does not lower the rate.
const CATCH_UP: Nanos = Nanos::from_micros(200);

macro_rules! word {
    ($field:ident) => {
        offset_of!(qf_net_config, $field) / 8
    };
}

macro_rules! stream_word {
    ($field:ident) => {
        offset_of!(qf_net_stream_config, $field) / 8
    };
}

/// The configuration of one interface's queue, mapped into this process.
#[derive(Debug)]
pub(super) struct Config {
    memory: Mapping,
    incarnations: u64,
}

/// Settings of an interface that do not change while it is attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub rate_bps: u64,
    pub paced: bool,
    pub best_effort: Share,
    pub hold: Option<Nanos>,
}

/// Length of the kernel's tick, which is the resolution of its coarse clock.
pub(super) fn tick() -> Nanos {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Nanos::new(tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64)
}

// SAFETY: only integers and no holes (checked by the header's size assertions).
#[allow(unsafe_code, reason = "a record of the kernel's side")]
unsafe impl Plain for qf_net_link {}

impl Link {
    /// The link's constants in the form that the queue reads when it is loaded.
    pub(super) fn constants(&self) -> qf_net_link {
        qf_net_link {
            byte_time: if self.paced { byte_time(self.rate_bps) } else { 0 },
            catch_up: CATCH_UP.get(),
            share: owed(self.best_effort),
            hold: self.hold.map_or(0, |hold| hold.get() + 1),
            best_limit: u64::from(QF_NET_BEST_DEPTH),
            tick_ns: tick().get(),
        }
    }
}

/// Time that a byte occupies the link, in 2^-16 ns, rounded up so that the link is never promised more than it carries.
fn byte_time(rate_bps: u64) -> u64 {
    (8_000_000_000u128 << 16).div_ceil(u128::from(rate_bps)) as u64
}

/// Bytes of best effort for each byte of real time, in units of 2^-16: share/(1 − share).
fn owed(share: Share) -> u64 {
    let (ppm, whole) = (u64::from(share.ppm()), u64::from(Share::ONE.ppm()));
    (ppm << 16) / (whole - ppm).max(1)
}

impl Config {
    /// The configuration of a loaded object.
    pub(super) fn of(object: &Object) -> Result<Config, NetError> {
        let failed = |error| ObjectError::Kernel { object: "the queue".to_owned(), name: SECTION.to_owned(), error };
        let memory = object.table(SECTION)?.map(size_of::<qf_net_config>()).map_err(failed)?;
        Ok(Config::new(memory))
    }

    fn new(memory: Mapping) -> Config {
        let config = Config { memory, incarnations: 0 };
        config.set(word!(leaves), 1);
        config
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words(0)
    }

    fn set(&self, word: usize, value: u64) {
        self.words()[word].store(value, Ordering::Relaxed);
    }

    /// Configures a new stream.
    pub(super) fn begin(&mut self, slot: u32, spec: &StreamSpec) {
        self.incarnations += 1;
        let leaves = self.words()[word!(leaves)].load(Ordering::Relaxed);
        self.set(word!(leaves), leaves.max(u64::from(slot + 1).next_power_of_two()));
        self.write(slot, spec, self.incarnations);
    }

    /// Changes the attributes of an existing stream.
    pub(super) fn change(&self, slot: u32, spec: &StreamSpec) {
        let flags = self.words()[stream(slot) + stream_word!(flags)].load(Ordering::Relaxed);
        self.write(slot, spec, flags >> 32);
    }

    fn write(&self, slot: u32, spec: &StreamSpec, incarnation: u64) {
        let (at, words) = (stream(slot), self.words());
        words[at + stream_word!(change)].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in values(spec, incarnation) {
            words[at + word].store(value, Ordering::Relaxed);
        }
        words[at + stream_word!(change)].fetch_add(1, Ordering::Release);
        words[word!(changes)].fetch_add(1, Ordering::Release);
    }
}

/// Index of the first word of a stream.
fn stream(slot: u32) -> usize {
    assert!(slot < QF_NET_STREAMS, "the attachment assigns only valid slots");
    (offset_of!(qf_net_config, stream) + slot as usize * size_of::<qf_net_stream_config>()) / 8
}

fn values(spec: &StreamSpec, incarnation: u64) -> [(usize, u64); 7] {
    let conserving = if spec.work_conserving { QF_NET_WORK_CONSERVING } else { 0 };
    [
        (stream_word!(flags), incarnation << 32 | u64::from(QF_NET_IN_USE | conserving)),
        (stream_word!(start), spec.start.map_or(0, |start| start.get())),
        (stream_word!(period), spec.period.get()),
        (stream_word!(phase), spec.phase.get()),
        (stream_word!(size), u64::from(spec.size)),
        (stream_word!(window), u64::from(spec.window.x()) << 32 | u64::from(spec.window.y())),
        (stream_word!(limit), u64::from(spec.limit)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_takes_its_time_on_the_link() {
        assert_eq!(byte_time(8_000_000) >> 16, 1_000);
        assert_eq!(byte_time(10_000_000_000), 52_429, "0.8 ns, rounded up");
    }

    #[test]
    fn a_tick_is_between_a_tenth_of_a_millisecond_and_ten() {
        assert!((100_000..=10_000_000).contains(&tick().get()), "{:?}", tick());
    }

    #[test]
    fn best_effort_gets_its_share_of_all_bytes() {
        assert_eq!(owed(Share::from_ppm(500_000)), 1 << 16);
        assert_eq!(owed(Share::from_ppm(50_000)), 3_449);
        assert_eq!(owed(Share::ZERO), 0);
    }
}
