//! The symbols of Table 1 from the system's terms to the application's: closed forms, rounded down.
//!
//! | granted | allows | function |
//! |---|---|---|
//! | U, T | C | [`computation_within`] |
//! | T | R_A | [`rate_of_period`] |
//! | U, C | R_A | [`rate_within`] |
//! | R_N, M_A, M_N | R_A | [`rate_of_packets`] |
//! | R_N, M_N, R_A | M_A | [`largest_sample`] |
//! | B_N, G, T | M'_G | [`largest_group`] |
//! | M'_G, M_G | D | [`degradation_of`] |
//! | Mem_req, M_A | frames in buffers | [`samples_in_memory`] |
//! | frames in buffers, T | J_A or Sync_A | [`jitter_within`] |
//! | E_N, sending time, T | E_A | [`delay_of`] |
//!
//! [`crate::offer()`] combines all resources of all hosts.

use qfabric_types::{BitRate, Bytes, Nanos, Share};

use crate::network::HEADER_BYTES;
use crate::rate::{Fraction, FrameRate};
use crate::stream::Network;

/// C = U·T: the CPU time in each cycle.
pub fn computation_within(utilization: Share, cycle: Nanos) -> Nanos {
    utilization.budget_in(cycle)
}

/// R_A = 1/T.
pub fn rate_of_period(cycle: Nanos) -> FrameRate {
    FrameRate::with_period(cycle)
}

/// R_A = U/C: the highest rate that `utilization` carries; `None` if it is below [`FrameRate::MIN`].
pub fn rate_within(utilization: Share, computation: Nanos) -> Option<FrameRate> {
    let needed = computation.get() as u128 * 1_000_000;
    let shortest = needed.div_ceil(utilization.ppm().max(1) as u128);
    let longest = FrameRate::MIN.period().get() as u128;
    (utilization > Share::ZERO && shortest <= longest).then(|| FrameRate::with_period(Nanos::new(shortest as u64)))
}

/// R_A = R_N / ceil(M_A / M_N), with R_N in millionths of a packet per second; `None` outside the allowed rates.
pub fn rate_of_packets(micro_packets: u64, sample: Bytes, packet: Bytes) -> Option<FrameRate> {
    let packets = crate::network::packets_of(sample.get(), packet).max(1);
    FrameRate::from_micro(micro_packets / packets)
}

/// M_A = floor(R_N / R_A)·M_N: the largest sample that fits in the packets of one cycle.
pub fn largest_sample(micro_packets: u64, rate: FrameRate, packet: Bytes) -> Bytes {
    Bytes::new((micro_packets / rate.micro()).saturating_mul(packet.get()))
}

/// M'_G: the largest group that `bandwidth` carries in `group_time` (G·T) with its headers.
pub fn largest_group(bandwidth: BitRate, group_time: Nanos, frames: u64, network: &Network) -> Bytes {
    let wire = bandwidth.get() as u128 * group_time.get() as u128 / 8_000_000_000;
    let wire = u64::try_from(wire).unwrap_or(u64::MAX);
    match network.overhead {
        Some(overhead) => {
            // Each frame is rounded up to a whole byte.
            let payload = wire.saturating_sub(frames) as u128 * 1_000_000;
            Bytes::new((payload / (1_000_000 + overhead.millionths()) as u128) as u64)
        }
        None => {
            // Each frame may end with a packet that is not full.
            let payload = wire.saturating_sub(frames * HEADER_BYTES) as u128 * network.packet.get() as u128;
            Bytes::new((payload / (network.packet.get() + HEADER_BYTES) as u128) as u64)
        }
    }
}

/// D = 1 − M'_G/M_G.
pub fn degradation_of(processing: Bytes, original: Bytes) -> Fraction {
    Fraction::of(original.saturating_sub(processing).get(), original.get())
}

/// The frames that fit into a reserve beside the program's own memory.
pub fn samples_in_memory(reserve: Bytes, program: Bytes, largest: Bytes) -> u64 {
    reserve.saturating_sub(program).get() / largest.get().max(1)
}

/// The smallest jitter or skew that `frames` buffers keep when the delay varies by `variation`.
pub fn jitter_within(variation: Nanos, frames: u64, cycle: Nanos) -> Nanos {
    variation.saturating_sub(cycle.saturating_mul(frames))
}

/// E_A = E_N + sending + T for each of the `hosts` that process the frame: the delay that a packet delay allows.
pub fn delay_of(packet_delay: Nanos, sending: Nanos, cycle: Nanos, hosts: u64) -> Nanos {
    packet_delay + sending + cycle.saturating_mul(hosts)
}
