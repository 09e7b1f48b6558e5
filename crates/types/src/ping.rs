//! The event that `qfabric channel ping` sends on the channel `ping.HOST`, and the answer of that host.
//!
//! Both have one structure: an answer is the ping with its two times filled in. Further bytes of an event are
//! padding and are returned unchanged.

use crate::Instant;
use crate::channel::{ChannelId, InvalidName, Name};

/// The structure, as in the specification of the channel.
pub const FORMAT: &str = "struct ping { long number; long arrived; long answered; int sink; int spare; };";

/// The name of the sink that answers pings.
pub const ANSWERS: &str = "ping-answers";

/// A ping, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The ping's number among those of its sender.
    pub number: u64,
    /// The sink of the sender, which receives the answer.
    pub sink: u32,
    /// The times of arrival and of answering, by CLOCK_MONOTONIC of the host that answers; `None` in a ping.
    pub answer: Option<(Instant, Instant)>,
}

impl Ping {
    /// Size of [`FORMAT`], in bytes.
    pub const SIZE: usize = 32;

    /// The channel for pings to `host`.
    ///
    /// # Errors
    /// [`InvalidName`] if the host's name has more than 59 characters.
    pub fn channel(host: &Name) -> Result<ChannelId, InvalidName> {
        format!("ping.{host}").parse()
    }

    /// Decodes the first bytes of an event; `None` if it is too short or its times are invalid.
    pub fn read(payload: &[u8]) -> Option<Ping> {
        let payload = payload.get(..Ping::SIZE)?;
        let long = |at: usize| Some(u64::from_le_bytes(payload[at..at + 8].try_into().ok()?));
        let answer = match (long(8)?, long(16)?) {
            (0, 0) => None,
            (arrived, answered) if 0 < arrived && arrived <= answered => {
                Some((Instant::new(arrived), Instant::new(answered)))
            }
            _ => return None,
        };
        let sink = u32::from_le_bytes(payload[24..28].try_into().ok()?);
        Some(Ping { number: long(0)?, sink, answer })
    }

    /// Writes the ping over the first bytes of an event of at least [`Ping::SIZE`] bytes.
    pub fn write(&self, payload: &mut [u8]) {
        let (arrived, answered) = self.answer.unwrap_or((Instant::ZERO, Instant::ZERO));
        payload[..8].copy_from_slice(&self.number.to_le_bytes());
        payload[8..16].copy_from_slice(&arrived.get().to_le_bytes());
        payload[16..24].copy_from_slice(&answered.get().to_le_bytes());
        payload[24..28].copy_from_slice(&self.sink.to_le_bytes());
        payload[28..32].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_ping_and_answer_decode_to_themselves() {
        for answer in [None, Some((Instant::new(5), Instant::new(9)))] {
            let (ping, mut payload) = (Ping { number: 7, sink: 3, answer }, [0xff; 40]);
            ping.write(&mut payload);
            assert_eq!(Ping::read(&payload), Some(ping));
            assert_eq!(payload[32..], [0xff; 8], "the padding is unchanged");
        }
    }

    #[test]
    fn invalid_bytes_are_no_ping() {
        let mut payload = [0; Ping::SIZE];
        assert_eq!(Ping::read(&payload[1..]), None);
        payload[8] = 1;
        assert_eq!(Ping::read(&payload), None, "answered before it arrived");
    }

    #[test]
    fn a_host_name_that_is_too_long_has_no_ping_channel() {
        assert_eq!(Ping::channel(&"left".parse().unwrap()).unwrap().to_string(), "ping.left");
        assert!(Ping::channel(&"x".repeat(60).parse().unwrap()).is_err());
    }
}
