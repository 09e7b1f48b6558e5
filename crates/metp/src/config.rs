//! Configuration of a session.

use qfabric_types::api::Problem;
use qfabric_types::{BitRate, Bytes, Nanos};

use crate::blocks::{BLOCK, MOST_MESSAGE};
use crate::send::INITIAL_WINDOW;
use crate::wire::{MAX_TPDU, MIN_TPDU};
use crate::{Mode, TPDU_SIZES};

/// The order in which messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryOrder {
    /// By number. A complete message waits for an earlier incomplete one, at most until the earlier one's deadline.
    #[default]
    InOrder,
    /// Each message as soon as it is complete.
    WhenComplete,
}

/// Configuration of one endpoint. `largest_message` and the memory are the admitted amounts of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Distinguishes sessions that use one carrier after another. Both sides use the same number.
    pub tag: u16,
    /// `M_A`: the largest message in either direction; less than 16 MiB.
    pub largest_message: Bytes,
    /// The largest number of messages without an outcome, and of messages that are being received.
    pub messages_in_flight: u16,
    /// Memory for messages that this side sends.
    pub send_memory: Bytes,
    /// Memory for messages that this side receives; zero if it receives none.
    pub receive_memory: Bytes,
    /// The granted rate of all datagrams of this side, retransmissions and acknowledgments included.
    pub rate: BitRate,
    /// Size of the token bucket; at least two of the largest datagrams.
    pub bucket: Bytes,
    /// The longest late wake-up that costs no rate: data that waits for tokens or for the CPU keeps the tokens of this
    /// time. A burst after it has up to `bucket` + `lateness` · `rate`, which the link's queue has to hold.
    pub lateness: Nanos,
    pub mode: Mode,
    /// The datagram size that this side proposes, header included. The peer and the carrier may lower it.
    pub tpdu_size: u16,
    /// The largest datagram that this side accepts.
    pub accepted_tpdu: u16,
    /// The maximum time for a send: the deadline of a message that states none, in partially reliable mode.
    pub send_time: Option<Nanos>,
    /// The maximum time for a receive, from the first TPDU of a message that arrives, in partially reliable mode.
    pub receive_time: Option<Nanos>,
    pub order: DeliveryOrder,
    /// The session ends if the peer is silent for this time.
    pub idle_limit: Nanos,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            tag: 0,
            largest_message: Bytes::from_mib(1),
            messages_in_flight: 64,
            send_memory: Bytes::from_mib(4),
            receive_memory: Bytes::from_mib(4),
            rate: BitRate::new(10_000_000),
            bucket: Bytes::new(8 * 1024),
            lateness: Config::USUAL_LATENESS,
            mode: Mode::TotallyReliable,
            tpdu_size: 1_414,
            accepted_tpdu: MAX_TPDU,
            send_time: None,
            receive_time: None,
            order: DeliveryOrder::InOrder,
            idle_limit: Nanos::from_millis(30_000),
        }
    }
}

/// The configuration contradicts itself or exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    #[error("the largest message has {} bytes; allowed are 1 to {} bytes", size.get(), limit.get())]
    LargestMessage { size: Bytes, limit: Bytes },
    #[error("the {half} memory has {} bytes; it needs {} bytes", memory.get(), least.get())]
    TooLittleMemory { half: &'static str, memory: Bytes, least: Bytes },
    #[error("the {half} memory has {} bytes, of at most {} bytes", memory.get(), limit.get())]
    TooMuchMemory { half: &'static str, memory: Bytes, limit: Bytes },
    #[error("{messages} messages may be in flight; allowed are 1 to {limit}")]
    MessagesInFlight { messages: u16, limit: u16 },
    #[error("the TPDU size is {size} bytes; allowed are {MIN_TPDU} to {MAX_TPDU} bytes")]
    TpduSize { size: u16 },
    #[error("the token bucket has {} bytes; two datagrams need {} bytes", bucket.get(), least.get())]
    BucketTooSmall { bucket: Bytes, least: Bytes },
    #[error("late wake-ups of {lateness} keep their tokens; allowed are at most {}", Config::MOST_LATENESS)]
    Lateness { lateness: Nanos },
    #[error("the rate is {rate}; allowed are 1 kbit/s to {limit}")]
    Rate { rate: BitRate, limit: BitRate },
    #[error("the idle limit is {limit}; allowed are {} to {}", Config::IDLE_LIMITS.0, Config::IDLE_LIMITS.1)]
    IdleLimit { limit: Nanos },
}

impl InvalidConfig {
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            InvalidConfig::LargestMessage { .. } => ("invalid_message_size", "state the size of the largest APDU"),
            InvalidConfig::TooLittleMemory { .. } => ("too_little_memory", "reserve memory for at least one message"),
            InvalidConfig::TooMuchMemory { .. } => ("too_much_memory", "reserve memory for fewer messages"),
            InvalidConfig::MessagesInFlight { .. } => ("invalid_messages_in_flight", "state a number in this range"),
            InvalidConfig::TpduSize { .. } => ("invalid_tpdu_size", "state a size in this range"),
            InvalidConfig::BucketTooSmall { .. } => ("bucket_too_small", "state a larger bucket, or a smaller TPDU"),
            InvalidConfig::Lateness { .. } => ("invalid_lateness", "state a time in this range"),
            InvalidConfig::Rate { .. } => ("invalid_rate", "state a rate in this range"),
            InvalidConfig::IdleLimit { .. } => ("invalid_idle_limit", "state a time in this range"),
        };
        Problem::new(code, self.to_string(), next_step)
    }
}

impl Config {
    /// Positions in the sequence space travel as 32 bits; half of their range is 16 GiB. The smaller limit keeps
    /// mistakes away from the memory.
    const MOST_MEMORY: Bytes = Bytes::from_mib(1024);
    /// A report tells the fate of 32 messages; the lists are searched one by one.
    const MOST_IN_FLIGHT: u16 = 1_024;
    /// A peer may send this much before it has heard of the memory.
    const LEAST_RECEIVE_MEMORY: Bytes = Bytes::new(INITIAL_WINDOW * BLOCK as u64);
    const RATES: (BitRate, BitRate) = (BitRate::new(1_000), BitRate::new(1_000_000_000_000));
    /// A frame period at 25 frames per second, and less than half of the queue that a link usually has.
    pub const USUAL_LATENESS: Nanos = Nanos::from_millis(40);
    const MOST_LATENESS: Nanos = Nanos::from_millis(1_000);
    const IDLE_LIMITS: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_millis(3_600_000));

    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        self.check_sizes()?;
        if self.send_memory < self.largest_message {
            return Err(too_little("send", self.send_memory, self.largest_message));
        }
        let least = self.largest_message.max(Config::LEAST_RECEIVE_MEMORY);
        if self.receive_memory > Bytes::ZERO && self.receive_memory < least {
            return Err(too_little("receive", self.receive_memory, least));
        }
        for (half, memory) in [("send", self.send_memory), ("receive", self.receive_memory)] {
            if memory > Config::MOST_MEMORY {
                return Err(InvalidConfig::TooMuchMemory { half, memory, limit: Config::MOST_MEMORY });
            }
        }
        self.check_rate()
    }

    fn check_sizes(&self) -> Result<(), InvalidConfig> {
        let (size, limit) = (self.largest_message, Bytes::new(u64::from(MOST_MESSAGE)));
        if size == Bytes::ZERO || size > limit {
            return Err(InvalidConfig::LargestMessage { size, limit });
        }
        if !(1..=Config::MOST_IN_FLIGHT).contains(&self.messages_in_flight) {
            let (messages, limit) = (self.messages_in_flight, Config::MOST_IN_FLIGHT);
            return Err(InvalidConfig::MessagesInFlight { messages, limit });
        }
        let sizes = [self.tpdu_size, self.accepted_tpdu];
        sizes
            .iter()
            .find(|size| !TPDU_SIZES.contains(size))
            .map_or(Ok(()), |size| Err(InvalidConfig::TpduSize { size: *size }))
    }

    fn check_rate(&self) -> Result<(), InvalidConfig> {
        let (bucket, least) = (self.bucket, Bytes::new(2 * u64::from(self.tpdu_size)));
        if bucket < least {
            return Err(InvalidConfig::BucketTooSmall { bucket, least });
        }
        if self.lateness > Config::MOST_LATENESS {
            return Err(InvalidConfig::Lateness { lateness: self.lateness });
        }
        if !(Config::RATES.0..=Config::RATES.1).contains(&self.rate) {
            return Err(InvalidConfig::Rate { rate: self.rate, limit: Config::RATES.1 });
        }
        if !(Config::IDLE_LIMITS.0..=Config::IDLE_LIMITS.1).contains(&self.idle_limit) {
            return Err(InvalidConfig::IdleLimit { limit: self.idle_limit });
        }
        Ok(())
    }
}

fn too_little(half: &'static str, memory: Bytes, least: Bytes) -> InvalidConfig {
    InvalidConfig::TooLittleMemory { half, memory, least }
}
