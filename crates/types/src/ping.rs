//! What `qfabric channel ping` sends on the channel `ping.HOST`, and what that host answers.
//!
//! Both are one structure: an answer is the ping with its two times filled in. What follows it in an event is padding and
//! comes back as it is.

use crate::Instant;
use crate::channel::{ChannelId, InvalidName, Name};

/// The structure, as the channel's specification says it.
pub const FORMAT: &str = "struct ping { long number; long arrived; long answered; int sink; int spare; };";

/// Whose the sink is that answers.
pub const ANSWERS: &str = "ping-answers";

/// A ping, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Its number among those of who asks.
    pub number: u64,
    /// The sink of who asks: the answer goes there.
    pub sink: u32,
    /// When it arrived and when it was answered, by CLOCK_MONOTONIC of the host that answers; none: a ping.
    pub answer: Option<(Instant, Instant)>,
}

impl Ping {
    /// Bytes of [`FORMAT`].
    pub const SIZE: usize = 32;

    /// The channel on which a host is asked.
    ///
    /// # Errors
    /// The host's name has more than 59 characters.
    pub fn channel(host: &Name) -> Result<ChannelId, InvalidName> {
        format!("ping.{host}").parse()
    }

    /// Reads the beginning of an event; none: it is too short, or its times make no sense.
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

    /// Writes it over the beginning of an event of at least [`Ping::SIZE`] bytes.
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
    fn a_ping_and_its_answer_are_read_as_they_were_written() {
        for answer in [None, Some((Instant::new(5), Instant::new(9)))] {
            let (ping, mut payload) = (Ping { number: 7, sink: 3, answer }, [0xff; 40]);
            ping.write(&mut payload);
            assert_eq!(Ping::read(&payload), Some(ping));
            assert_eq!(payload[32..], [0xff; 8], "the padding stays");
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_ping() {
        let mut payload = [0; Ping::SIZE];
        assert_eq!(Ping::read(&payload[1..]), None);
        payload[8] = 1;
        assert_eq!(Ping::read(&payload), None, "answered before it arrived");
    }

    #[test]
    fn a_host_with_a_very_long_name_has_no_channel_for_it() {
        assert_eq!(Ping::channel(&"left".parse().unwrap()).unwrap().to_string(), "ping.left");
        assert!(Ping::channel(&"x".repeat(60).parse().unwrap()).is_err());
    }
}
