//! The pinned memory of a stream at one host: Mem_req (QualMan §4).
//!
//! The application states its text, data and shared segments; the buffers of the stream follow from its periods. The
//! paper gives no formula for them; design page 0033 derives this one.

use qfabric_types::{Bytes, Direction, Nanos};

use crate::flow::Flow;
use crate::network::Carriage;
use crate::stream::{Host, Medium, Reliability, Stream};

/// Memory is locked in whole pages.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// One frame is filled while another one is processed or sent.
pub(crate) const WORKING_FRAMES: u64 = 2;

/// Frames of one medium that a host holds at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffers {
    /// [`WORKING_FRAMES`] for each direction.
    pub working: u64,
    /// Frames that wait so that the jitter is at most J_A.
    pub jitter: u64,
    /// Frames that wait for the other medium, so that the skew is at most Sync_A.
    pub skew: u64,
    /// Frames that the sender keeps for t_out, if the reliability is total and METP does not keep them.
    pub unacknowledged: u64,
    /// Messages of METP: the sender keeps each for t_out at most, until it is acknowledged or late, and the receiver
    /// assembles it meanwhile. Another one is in work.
    pub transport: u64,
}

impl Buffers {
    pub(crate) fn frames(self) -> u64 {
        self.working + self.jitter + self.skew + self.unacknowledged + self.transport
    }
}

/// The largest variation of a frame's delay: its sending time, and one period of the host that makes it.
pub(crate) fn variation(stream: &Stream, flow: &Flow, carriage: Option<&Carriage>) -> Nanos {
    let sending = carriage.map(|carriage| carriage.longest_sending).unwrap_or_default();
    let is_processed = stream.ends().any(|(_, end)| end.computation(flow.medium).is_some());
    if is_processed { sending + flow.longest_period } else { sending }
}

/// `other_variation` is the variation of the other medium, if there is one.
pub(crate) fn buffers(
    stream: &Stream,
    host: &Host,
    flow: &Flow,
    variation: Nanos,
    other_variation: Option<Nanos>,
) -> Buffers {
    let (sends, receives) = roles(stream, host);
    let frames = |time: Nanos| time.get().div_ceil(flow.period.get().max(1));
    let beyond = |variation: Nanos, allowed: Option<Nanos>| {
        allowed.map_or(0, |allowed| frames(variation.saturating_sub(allowed)))
    };
    let mut buffers =
        Buffers { working: WORKING_FRAMES * (u64::from(sends) + u64::from(receives)), ..Buffers::default() };
    if receives {
        buffers.jitter = beyond(variation, stream.jitter);
        buffers.skew = other_variation.map_or(0, |other| beyond(other, stream.skew));
    }
    if stream.network.is_metp && stream.peer.is_some() {
        buffers.transport = (1 + frames(stream.timeout)) * (u64::from(sends) + u64::from(receives));
    } else if sends && stream.reliability == Reliability::Total {
        buffers.unacknowledged = frames(stream.timeout);
    }
    buffers
}

/// Whether the host sends and whether it receives the media. A stream within one host is received there.
fn roles(stream: &Stream, host: &Host) -> (bool, bool) {
    if stream.peer.is_none() {
        return (false, true);
    }
    let sends = (*host == Host::Local) == (stream.direction == Direction::Out);
    (sends || stream.is_duplex, !sends || stream.is_duplex)
}

/// Mem_req: the program's memory and the buffers, in whole pages.
pub(crate) fn requested(program: Bytes, buffers: impl Iterator<Item = (Buffers, u64)>) -> Bytes {
    let frames: Bytes = buffers.map(|(buffers, largest)| Bytes::new(buffers.frames().saturating_mul(largest))).sum();
    (program + frames).round_up(PAGE_BYTES)
}

/// The other medium of a stream with two media.
pub(crate) fn other(medium: Medium) -> Medium {
    match medium {
        Medium::Video => Medium::Sound,
        Medium::Sound => Medium::Video,
    }
}
