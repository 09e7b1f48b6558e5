//! The event `net.offer`: a link offers a freed rate to a partly granted stream (QualMan §5.1.4).

use super::StreamId;
use crate::Nanos;

/// Name of the service.
pub const OFFER_SERVICE: &str = "net.offer";

/// Format of the event, as C. Bytes are C, the bytes of one period.
pub const OFFER_FORMAT: &str = "\
struct offer {
    long pid;
    unsigned long interface;
    unsigned long stream;
    unsigned long granted_bytes;
    unsigned long offered_bytes;
    unsigned long wanted_bytes;
    unsigned long period_ns;
};";

/// An offer to the process that asked for a stream or holds it. It reserves nothing: a change of the stream with the
/// wanted size accepts what is still free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOffer {
    pub pid: i32,
    /// The index of the interface.
    pub interface: u32,
    pub stream: StreamId,
    /// The present C.
    pub granted: u32,
    /// The C that the link would grant.
    pub offered: u32,
    /// The wanted C.
    pub wanted: u32,
    /// T.
    pub period: Nanos,
}

impl RateOffer {
    /// Size of [`OFFER_FORMAT`].
    pub const SIZE: usize = 56;

    /// The event in the layout of [`OFFER_FORMAT`].
    pub fn bytes(&self) -> [u8; RateOffer::SIZE] {
        let RateOffer { pid, interface, stream, granted, offered, wanted, period } = *self;
        let small = [interface, stream, granted, offered, wanted].map(u64::from);
        let words = std::iter::once(i64::from(pid) as u64).chain(small).chain([period.get()]);
        let mut bytes = [0; RateOffer::SIZE];
        bytes.chunks_mut(8).zip(words).for_each(|(part, word)| part.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Decodes an event; `None` if it is not an offer.
    pub fn read(event: &[u8]) -> Option<RateOffer> {
        let event: &[u8; RateOffer::SIZE] = event.try_into().ok()?;
        let (words, _) = event.as_chunks::<8>();
        let [pid, interface, stream, granted, offered, wanted, period] =
            std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let small = |word: u64| u32::try_from(word).ok();
        Some(RateOffer {
            pid: i32::try_from(pid.cast_signed()).ok()?,
            interface: small(interface)?,
            stream: small(stream)?,
            granted: small(granted)?,
            offered: small(offered)?,
            wanted: small(wanted)?,
            period: Nanos::new(period),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_travels_as_an_event() {
        let period = Nanos::from_millis(40);
        let offer = RateOffer { pid: -1, interface: 2, stream: 3, granted: 400, offered: 500, wanted: 600, period };
        assert_eq!(RateOffer::read(&offer.bytes()), Some(offer));
        assert_eq!((RateOffer::read(&offer.bytes()[1..]), RateOffer::read(&[0xff; RateOffer::SIZE])), (None, None));
    }
}
