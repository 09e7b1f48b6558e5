//! A stream in the application's language: the content of `stream.toml`.

use std::fmt;

use qfabric_types::channel::Name;
use qfabric_types::{Bytes, Direction, InterfaceName, Nanos};
use serde::{Serialize, Serializer};

use crate::pattern::GopPattern;
use crate::rate::{Fraction, FrameRate, Range};

/// A stream between two hosts, or within one: picture, sound, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    pub name: Name,
    /// Direction of the media, seen from the local host.
    pub direction: Direction,
    /// The peer sends the same media back.
    pub is_duplex: bool,
    pub reliability: Reliability,
    /// t_out: the time that the transport waits for an acknowledgment (§5.1.1).
    pub timeout: Nanos,
    /// E_A: the longest time from the source to the destination.
    pub delay: Option<Nanos>,
    /// J_A: the largest variation of the time between two frames.
    pub jitter: Option<Nanos>,
    /// Sync_A: the largest difference between picture and sound.
    pub skew: Option<Nanos>,
    pub video: Option<Video>,
    pub sound: Option<Sound>,
    pub local: End,
    pub peer: Option<Peer>,
    pub network: Network,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// Each byte is delivered, however late (§5.2.3).
    Total,
    /// Time is more important than completeness.
    Partial,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Video {
    /// R_A.
    pub rate: Range<FrameRate>,
    pub pattern: GopPattern,
    /// M_A^I, M_A^P, M_A^B; the same size three times if the frames have one size.
    pub sizes: [Bytes; 3],
    /// D: the largest part of a GOP's bytes that may be dropped.
    pub degradation: Fraction,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples per second.
    pub sample_rate: Range<u64>,
    /// Bytes of one sample with all its channels.
    pub sample_size: Bytes,
    /// Samples of this length form one APDU; T.
    pub block: Nanos,
}

/// One host's part of the stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    pub interface: Option<InterfaceName>,
    /// Text, data and shared segments of the program (§4), without the buffers of the stream.
    pub memory: Bytes,
    /// C of a video frame.
    pub video: Option<Computation>,
    /// C of a block of sound.
    pub sound: Option<Computation>,
    /// C of the transport tasks (§5.1.2); [`TransportCost::METP`] if it is absent and the stream uses METP.
    pub transport: Option<TransportCost>,
}

/// The CPU time of the transport tasks of one host (§5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportCost {
    /// For each APDU of any size, in both directions of a duplex stream.
    Frame(Nanos),
    /// For each message (APDU) of one direction, and for each 10⁶ of its bytes.
    Message { message: Nanos, megabyte: Nanos },
}

impl TransportCost {
    /// METP on one of two hosts at 5 % loss: 14.3 ms of both hosts for 10⁶ bits in frames of 53 kB on the reference
    /// machine (design page 0041), rounded up. It contains the part of each message at this size.
    pub const METP: TransportCost = TransportCost::Message { message: Nanos::ZERO, megabyte: Nanos::from_millis(60) };

    /// C for an APDU of this size.
    pub(crate) fn of(self, bytes: u64, is_duplex: bool) -> Nanos {
        match self {
            TransportCost::Frame(time) => time,
            TransportCost::Message { message, megabyte } => {
                let of_bytes = (u128::from(megabyte.get()) * u128::from(bytes)).div_ceil(1_000_000);
                let once = message + Nanos::new(u64::try_from(of_bytes).unwrap_or(u64::MAX));
                once.saturating_mul(1 + u64::from(is_duplex))
            }
        }
    }
}

/// The CPU time of one frame or block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Computation {
    Measured(Nanos),
    /// The mean of the profile of this name (§3.4).
    Profile(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    pub host: Name,
    pub end: End,
}

/// The transport between the hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// M_N: bytes of the application in one packet (TPDU).
    pub packet: Bytes,
    /// The measured part that headers add to the bytes; 0.2 in §6.3. `None`: calculated from the headers.
    pub overhead: Option<Fraction>,
    /// E_N: the measured time of one packet to the peer, half of the round trip (§5.1.2).
    pub delay: Option<Nanos>,
    /// Whether METP carries the stream: its tasks and its messages are then part of the amounts.
    pub is_metp: bool,
}

/// A host that takes part in a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// The host whose broker translates; printed as `local`.
    Local,
    Peer(Name),
}

impl Host {
    /// The printed name of [`Host::Local`]; no peer may have it.
    pub const LOCAL: &str = "local";
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Host::Local => Host::LOCAL,
            Host::Peer(name) => name.as_str(),
        })
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Medium {
    Video,
    Sound,
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Medium::Video => "video",
            Medium::Sound => "sound",
        })
    }
}

/// One end of the acceptable region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The worst quality that the application accepts: lowest rates, largest degradation.
    Minimum,
    /// The best quality that it asks for: highest rates, no degradation.
    Wanted,
}

/// A point of the acceptable region: the values of the parameters that may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    /// R_A of the video; `None` without video.
    pub frame_rate: Option<FrameRate>,
    /// D of the video.
    pub degradation: Fraction,
    /// Samples per second of the sound; `None` without sound.
    pub sample_rate: Option<u64>,
}

impl Stream {
    pub fn quality(&self, level: Level) -> Quality {
        let video = self.video.as_ref();
        let sound = self.sound.as_ref();
        match level {
            Level::Minimum => Quality {
                frame_rate: video.map(|video| video.rate.min()),
                degradation: video.map(|video| video.degradation).unwrap_or_default(),
                sample_rate: sound.map(|sound| sound.sample_rate.min()),
            },
            Level::Wanted => Quality {
                frame_rate: video.map(|video| video.rate.max()),
                degradation: Fraction::ZERO,
                sample_rate: sound.map(|sound| sound.sample_rate.max()),
            },
        }
    }

    /// The hosts that take part, each with its end of the stream.
    pub fn ends(&self) -> impl Iterator<Item = (Host, &End)> {
        let peer = self.peer.iter().map(|peer| (Host::Peer(peer.host.clone()), &peer.end));
        [(Host::Local, &self.local)].into_iter().chain(peer)
    }

    /// The names of the profiles that the translation needs.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        let all = self.ends().flat_map(|(_, end)| [&end.video, &end.sound]).flatten();
        all.filter_map(|computation| match computation {
            Computation::Profile(name) => Some(name.as_str()),
            Computation::Measured(_) => None,
        })
    }

    /// The cost of the transport tasks on one of the hosts; `None`: the stream has no peer, or states none.
    pub fn transport(&self, end: &End) -> Option<TransportCost> {
        self.peer.as_ref()?;
        end.transport.or(self.network.is_metp.then_some(TransportCost::METP))
    }

    pub fn media(&self) -> impl Iterator<Item = Medium> {
        let video = self.video.iter().map(|_| Medium::Video);
        video.chain(self.sound.iter().map(|_| Medium::Sound))
    }

    /// The longest period T of a medium in the acceptable region. All delays are calculated with it, so that they hold
    /// at every quality.
    pub(crate) fn longest_period(&self, medium: Medium) -> Nanos {
        let video = || self.video.as_ref().map(|video| video.rate.min().period());
        let sound = || self.sound.as_ref().map(|sound| sound.block);
        match medium {
            Medium::Video => video(),
            Medium::Sound => sound(),
        }
        .unwrap_or_default()
    }
}

impl End {
    pub(crate) fn computation(&self, medium: Medium) -> Option<&Computation> {
        match medium {
            Medium::Video => self.video.as_ref(),
            Medium::Sound => self.sound.as_ref(),
        }
    }
}
