//! The experiments of §7 as values: streams, reservations, figures.

#[cfg(feature = "hosts")]
use qfabric_types::BitRate;
use qfabric_types::{Nanos, Share};
use serde::Serialize;

/// What is reserved for the streams of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reserved {
    Nothing,
    Cpu,
    CpuMemory,
    /// CPU, memory and network on both hosts.
    Everything,
}

impl Reserved {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Reserved::Nothing => "nothing",
            Reserved::Cpu => "CPU",
            Reserved::CpuMemory => "CPU and memory",
            Reserved::Everything => "everything",
        }
    }
}

/// One experiment of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Experiment {
    Rates,
    #[serde(rename = "cpu-1")]
    Cpu1,
    #[serde(rename = "cpu-2")]
    Cpu2,
    #[serde(rename = "mpeg-1")]
    Mpeg1,
    #[serde(rename = "mpeg-2")]
    Mpeg2,
    #[serde(rename = "comm-1")]
    Comm1,
    #[serde(rename = "comm-2")]
    Comm2,
    Lip,
}

/// One stream of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StreamPlan {
    pub name: &'static str,
    pub frames_per_second: f64,
    /// CPU share that its player, or its receiver, reserves in every period.
    pub share: f64,
    /// The same for its sender on another host.
    pub sender_share: f64,
    /// CPU share of the decoder of compressed frames behind the receiver; zero: frames are not compressed.
    pub decoder_share: f64,
    /// Bytes of a frame between hosts; of the largest one if they are compressed.
    pub bytes: u32,
    /// Time from when a frame is due until it is shown; zero: it is shown when it comes.
    pub play_out: Nanos,
    /// The rate to reserve, over that of the frames' bytes.
    pub overhead: f64,
}

impl StreamPlan {
    const fn new(name: &'static str, frames_per_second: f64, share: f64) -> StreamPlan {
        let (sender_share, decoder_share, bytes, play_out) = (0.0, 0.0, 0, Nanos::ZERO);
        StreamPlan {
            name,
            frames_per_second,
            share,
            sender_share,
            decoder_share,
            bytes,
            play_out,
            overhead: WITH_PEAKS,
        }
    }

    const fn sent(self, sender_share: f64, bytes: u32) -> StreamPlan {
        StreamPlan { sender_share, bytes, ..self }
    }

    const fn decoded(self, decoder_share: f64) -> StreamPlan {
        StreamPlan { decoder_share, ..self }
    }

    const fn shown_after(self, play_out: Nanos) -> StreamPlan {
        StreamPlan { play_out, ..self }
    }

    /// Frames of this many bytes, 25 a second, with the paper's overhead.
    const fn asked(name: &'static str, bytes: u32) -> StreamPlan {
        let plan = StreamPlan::new(name, 25.0, 0.4).sent(0.4, bytes);
        StreamPlan { overhead: OF_MEAN, ..plan }
    }

    /// What the application asks for: the bytes of its frames, in Mbit/s.
    pub(crate) fn asked_mbps(&self) -> f64 {
        8.0 * f64::from(self.bytes) * self.frames_per_second / 1e6
    }

    pub(crate) fn period(&self) -> Nanos {
        Nanos::from_f64(1e9 / self.frames_per_second)
    }

    pub(crate) fn share(&self) -> Share {
        Share::from_f64(self.share)
    }

    pub(crate) fn title(&self) -> String {
        self.name.to_owned()
    }
}

/// Bytes of the largest compressed frame that is sent, with its stamp; those of the clip have at most 65 kB.
const MOST_COMPRESSED: u32 = 70_000;

/// The paper adds a fifth to the mean for all headers, and more for peaks (§6.3).
const OF_MEAN: f64 = 1.2;
const WITH_PEAKS: f64 = 1.5;

#[cfg(feature = "hosts")]
impl StreamPlan {
    pub(crate) fn sender_share(&self) -> Share {
        Share::from_f64(self.sender_share)
    }

    pub(crate) fn decoder_share(&self) -> Share {
        Share::from_f64(self.decoder_share)
    }

    /// The rate to reserve, with all headers.
    pub(crate) fn rate(&self) -> BitRate {
        BitRate::new((1e6 * self.asked_mbps() * self.overhead) as u64)
    }
}

impl Experiment {
    pub(crate) const ALL: [Experiment; 8] = [
        Experiment::Rates,
        Experiment::Cpu1,
        Experiment::Cpu2,
        Experiment::Mpeg1,
        Experiment::Mpeg2,
        Experiment::Comm1,
        Experiment::Comm2,
        Experiment::Lip,
    ];

    /// The word of `--only`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Experiment::Rates => "rates",
            Experiment::Cpu1 => "cpu-1",
            Experiment::Cpu2 => "cpu-2",
            Experiment::Mpeg1 => "mpeg-1",
            Experiment::Mpeg2 => "mpeg-2",
            Experiment::Comm1 => "comm-1",
            Experiment::Comm2 => "comm-2",
            Experiment::Lip => "lip",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Experiment::Rates => {
                "Asked against achieved bandwidth of METP on a flooded link of 20 Mbit/s, two hosts (Figure 10)"
            }
            Experiment::Cpu1 => "CPU-1 and CPU-MEM-1: one player (Figure 12 a/b, Table 6)",
            Experiment::Cpu2 => "CPU-2 and CPU-MEM-2: two players (Figure 12 c/d, Table 6)",
            Experiment::Mpeg1 => {
                "CPU-MEM-COMM-1: compressed frames over METP into a decoder, two hosts (Figure 13 a/b, Table 6)"
            }
            Experiment::Mpeg2 => "CPU-MEM-COMM-2: two such streams, two hosts (Figure 13 c/d, Table 6)",
            Experiment::Comm1 => "CPU-COMM-1: frames of 200 kB over METP, two hosts (Figure 14 a/b)",
            Experiment::Comm2 => "CPU-COMM-2: two streams of 200 kB over METP, two hosts (Figure 14 c/d)",
            Experiment::Lip => "Lip synchronization: sound and picture over METP, two hosts (Figure 15)",
        }
    }

    /// Whether its streams run one after the other, each beside a flood of the link; otherwise together, beside the
    /// background programs.
    pub(crate) fn is_in_turn(self) -> bool {
        self == Experiment::Rates
    }

    /// The streams that run together.
    #[cfg(feature = "hosts")]
    pub(crate) fn parts(self) -> std::slice::Chunks<'static, StreamPlan> {
        self.streams().chunks(if self.is_in_turn() { 1 } else { self.streams().len() })
    }

    /// The rate of the link between the hosts: larger than all streams together, as the paper's ATM link was; for the
    /// asked rates, one that a flood fills.
    #[cfg(feature = "hosts")]
    pub(crate) fn link(self) -> BitRate {
        BitRate::new(if self.is_in_turn() { 20_000_000 } else { 100_000_000 })
    }

    /// Whether it needs two hosts.
    pub(crate) fn is_of_two_hosts(self) -> bool {
        !matches!(self, Experiment::Cpu1 | Experiment::Cpu2)
    }

    /// Whether its frames are compressed and decoded behind the link.
    #[cfg(feature = "hosts")]
    pub(crate) fn is_decoded(self) -> bool {
        self.streams().iter().any(|plan| plan.decoder_share > 0.0)
    }

    /// Rates and CPU shares are those of the paper; the two streams of lip synchronization are picture, then sound.
    pub(crate) fn streams(self) -> &'static [StreamPlan] {
        const PLAY_OUT: Nanos = Nanos::from_millis(200);
        const RATES: [StreamPlan; 7] = [
            StreamPlan::asked("2 Mbit/s", 10_000),
            StreamPlan::asked("4 Mbit/s", 20_000),
            StreamPlan::asked("6 Mbit/s", 30_000),
            StreamPlan::asked("8 Mbit/s", 40_000),
            StreamPlan::asked("10 Mbit/s", 50_000),
            StreamPlan::asked("12 Mbit/s", 60_000),
            StreamPlan::asked("14 Mbit/s", 70_000),
        ];
        const CPU_1: [StreamPlan; 1] = [StreamPlan::new("10 fps", 10.0, 0.7)];
        const CPU_2: [StreamPlan; 2] = [StreamPlan::new("8 fps", 8.0, 0.6), StreamPlan::new("4 fps", 4.0, 0.3)];
        // Of the paper's share of the client (80 %, 60 % and 30 %), 10 % are the receiver's and the rest the decoder's.
        const MPEG_1: [StreamPlan; 1] = [StreamPlan::new("10 fps", 10.0, 0.1).sent(0.4, MOST_COMPRESSED).decoded(0.7)];
        const MPEG_2: [StreamPlan; 2] = [
            StreamPlan::new("6 fps", 6.0, 0.1).sent(0.24, MOST_COMPRESSED).decoded(0.5),
            StreamPlan::new("3 fps", 3.0, 0.1).sent(0.12, MOST_COMPRESSED).decoded(0.2),
        ];
        const COMM_1: [StreamPlan; 1] = [StreamPlan::new("10 fps", 10.0, 0.4).sent(0.3, 200_000)];
        const COMM_2: [StreamPlan; 2] = [COMM_1[0], StreamPlan::new("5 fps", 5.0, 0.2).sent(0.15, 200_000)];
        const LIP: [StreamPlan; 2] = [
            StreamPlan::new("picture, 7 fps", 7.0, 0.2).sent(0.2, 20_000).shown_after(PLAY_OUT),
            StreamPlan::new("sound, 20 blocks/s", 20.0, 0.2).sent(0.2, 2_000).shown_after(PLAY_OUT),
        ];
        match self {
            Experiment::Rates => &RATES,
            Experiment::Cpu1 => &CPU_1,
            Experiment::Cpu2 => &CPU_2,
            Experiment::Mpeg1 => &MPEG_1,
            Experiment::Mpeg2 => &MPEG_2,
            Experiment::Comm1 => &COMM_1,
            Experiment::Comm2 => &COMM_2,
            Experiment::Lip => &LIP,
        }
    }

    pub(crate) fn reservations(self) -> &'static [Reserved] {
        match self.is_of_two_hosts() {
            true => &[Reserved::Nothing, Reserved::Everything],
            false => &[Reserved::Nothing, Reserved::Cpu, Reserved::CpuMemory],
        }
    }

    /// The paper's average jitter in ms, by stream; empty where it names none. For uncompressed frames it is that of
    /// Table 6 with everything reserved, which was measured with compressed frames.
    pub(crate) fn paper_ms(self, reserved: Reserved) -> &'static [f64] {
        match (self, reserved) {
            (Experiment::Cpu1, Reserved::Nothing) => &[93.85],
            (Experiment::Cpu1, Reserved::Cpu) => &[4.46],
            (Experiment::Cpu1, Reserved::CpuMemory) => &[3.94],
            (Experiment::Cpu2, Reserved::Nothing) => &[136.41, 72.32],
            (Experiment::Cpu2, Reserved::Cpu) => &[19.30, 5.49],
            (Experiment::Cpu2, Reserved::CpuMemory) => &[8.42, 2.40],
            (Experiment::Mpeg1 | Experiment::Comm1, Reserved::Everything) => &[6.06],
            (Experiment::Mpeg2, Reserved::Everything) => &[13.57, 20.01],
            _ => &[],
        }
    }

    /// Seconds of the streams that run together, with this number of frames of the fastest stream.
    pub(crate) fn seconds(self, frames: u32) -> f64 {
        let fastest = self.streams().iter().map(|stream| stream.frames_per_second).fold(1.0, f64::max);
        f64::from(frames) / fastest
    }

    /// Seconds of a whole run.
    pub(crate) fn run_seconds(self, frames: u32) -> f64 {
        self.seconds(frames) * if self.is_in_turn() { self.streams().len() as f64 } else { 1.0 }
    }
}
