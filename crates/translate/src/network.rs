//! The network's part of a flow: packets, headers, bandwidth and delay (QualMan §5.1, §6.3).

use qfabric_types::{BitRate, Bytes, Nanos};

use crate::flow::Flow;
use crate::stream::{Medium, Network, Stream};
use crate::translate::Untranslatable;

/// Bytes that headers add to each packet: transport 24 (§5.2.1), UDP 8, IPv6 40, Ethernet 18, and 20 for the preamble
/// and the gap between two frames.
pub(crate) const HEADER_BYTES: u64 = 24 + 8 + 40 + 18 + 20;

/// The reverse connection for acknowledgments has one fifth of the forward bandwidth (§6.3).
pub(crate) const ACKNOWLEDGMENT_DIVISOR: u64 = 5;

/// A flow on its way through the network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Carriage {
    /// Packets of one group.
    pub packets: u64,
    /// Bytes of each frame on the link, headers included.
    pub wire: Vec<u64>,
    /// Bandwidth of the mean frame.
    pub mean: BitRate,
    /// Bandwidth if every frame were as large as the largest (§6.3, note 11).
    pub peak: BitRate,
    /// The time that a frame may take to leave the source.
    pub sending: Nanos,
    /// The longest `sending` of the acceptable region.
    pub longest_sending: Nanos,
    /// E_N: measured, or the longest that E_A leaves; `None` if the stream has no delay.
    pub packet_delay: Option<Nanos>,
    /// B_N.
    pub bandwidth: BitRate,
}

impl Carriage {
    pub(crate) fn of(stream: &Stream, flow: &Flow) -> Result<Carriage, Untranslatable> {
        let network = &stream.network;
        let wire: Vec<u64> = flow.kept.iter().map(|size| wire_bytes(*size, network)).collect();
        let packets = flow.kept.iter().map(|size| packets_of(*size, network.packet)).sum();
        let (sending, longest_sending, packet_delay) = delays(stream, flow)?;
        let mean = BitRate::of(Bytes::new(wire.iter().sum()), flow.group_time());
        let largest = wire.iter().copied().max().unwrap_or(0);
        let peak = BitRate::of(Bytes::new(largest), flow.period);
        let bandwidth = mean.max(sending_rate(&wire, flow.period, sending));
        if bandwidth > BitRate::MAX {
            return Err(Untranslatable::TooMuchBandwidth { medium: flow.medium, asked: bandwidth });
        }
        Ok(Carriage { packets, wire, mean, peak, sending, longest_sending, packet_delay, bandwidth })
    }

    /// Bandwidth of the reverse connection, rounded up.
    pub(crate) fn acknowledgments(&self) -> BitRate {
        BitRate::new(self.bandwidth.get().div_ceil(ACKNOWLEDGMENT_DIVISOR))
    }
}

pub(crate) fn packets_of(size: u64, packet: Bytes) -> u64 {
    size.div_ceil(packet.get().max(1))
}

/// Bytes of a frame on the link: with the measured overhead if it is known, else with the headers of each packet.
fn wire_bytes(size: u64, network: &Network) -> u64 {
    match network.overhead {
        Some(overhead) => overhead.added_to(size),
        None => size + HEADER_BYTES * packets_of(size, network.packet),
    }
}

/// The lowest rate at which every frame leaves within `sending` after its release.
///
/// Frames wait for the frames before them, so each window of successive frames must fit: frames i to i+k, released
/// within k·T, must have left k·T + `sending` after the first release. Windows of a group and more follow from the
/// mean rate.
fn sending_rate(wire: &[u64], period: Nanos, sending: Nanos) -> BitRate {
    let mut highest = BitRate::ZERO;
    for first in 0..wire.len() {
        let mut sum = 0;
        for length in 0..wire.len() {
            sum += wire[(first + length) % wire.len()];
            let time = period.saturating_mul(length as u64) + sending;
            highest = highest.max(BitRate::of(Bytes::new(sum), time));
        }
    }
    highest
}

/// The number of hosts that process the medium within one period T each.
pub(crate) fn processing_hosts(stream: &Stream, medium: Medium) -> u64 {
    let processes = |end: &crate::End| end.computation(medium).is_some() || stream.transport(end).is_some();
    stream.ends().filter(|(_, end)| processes(end)).count() as u64
}

/// `sending` at this quality, its longest value, and E_N, from E_A = E_N + sending + T for each processing host.
fn delays(stream: &Stream, flow: &Flow) -> Result<(Nanos, Nanos, Option<Nanos>), Untranslatable> {
    let longest = flow.longest_period;
    let processing = longest.saturating_mul(processing_hosts(stream, flow.medium));
    let too_short = |least: Nanos| Untranslatable::DelayTooShort { medium: flow.medium, least };
    match (stream.delay, stream.network.delay) {
        (Some(delay), Some(measured)) => {
            let sending = delay.saturating_sub(processing + measured);
            let enough = sending > Nanos::ZERO;
            enough.then_some((sending, sending, Some(measured))).ok_or(too_short(processing + measured))
        }
        (Some(delay), None) => {
            let packet_delay = delay.saturating_sub(processing + longest);
            let enough = packet_delay > Nanos::ZERO;
            enough.then_some((flow.period, longest, Some(packet_delay))).ok_or(too_short(processing + longest))
        }
        (None, measured) => Ok((flow.period, longest, measured)),
    }
}
