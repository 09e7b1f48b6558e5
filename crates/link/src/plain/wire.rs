//! The protocol of the plain engine: frames of a length (4 bytes, little-endian, of the rest), a kind and a body.

use qfabric_channel::{Incarnation, Lane};
use qfabric_types::channel::{ChannelId, Name, Plane};

use crate::MAX_FRAME;

/// Bytes before the body.
pub(crate) const HEADER: usize = 5;
/// A peer with another version is refused.
const VERSION: u8 = 1;
const MAGIC: &[u8; 4] = b"QFL\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 0,
    Alive = 1,
    Listen = 2,
    Ignore = 3,
    Frame = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Hello, Kind::Alive, Kind::Listen, Kind::Ignore, Kind::Frame].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The bytes before a body.
pub(crate) fn header(kind: Kind, body: usize) -> [u8; HEADER] {
    let length = u32::try_from(body + 1).expect("no body is longer than MAX_FRAME").to_le_bytes();
    [length[0], length[1], length[2], length[3], kind as u8]
}

/// The first frame of each side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub lane: Lane,
    pub incarnation: Incarnation,
    pub realm: Name,
    pub host: Name,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::from(&MAGIC[..]);
        body.extend([VERSION, self.lane as u8]);
        body.extend(self.incarnation.0.to_le_bytes());
        for name in [&self.realm, &self.host] {
            body.push(name.as_str().len() as u8);
            body.extend(name.as_str().as_bytes());
        }
        body
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Hello> {
        let body = body.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
        let (&[lane], body) = body.split_first_chunk()?;
        let (incarnation, body) = body.split_first_chunk()?;
        let (realm, body) = name(body)?;
        let (host, rest) = name(body)?;
        let lane = [Lane::Control, Lane::Data].into_iter().find(|known| *known as u8 == lane)?;
        rest.is_empty().then(|| Hello { lane, incarnation: Incarnation(u64::from_le_bytes(*incarnation)), realm, host })
    }
}

fn name(body: &[u8]) -> Option<(Name, &[u8])> {
    let (&[length], body) = body.split_first_chunk()?;
    let (text, rest) = body.split_at_checked(usize::from(length))?;
    Some((std::str::from_utf8(text).ok()?.parse().ok()?, rest))
}

/// A channel as the body of [`Kind::Listen`] and [`Kind::Ignore`].
pub(crate) fn channel_body(channel: &ChannelId) -> Vec<u8> {
    [&[channel.plane as u8], channel.name.as_str().as_bytes()].concat()
}

pub(crate) fn channel_of(body: &[u8]) -> Option<ChannelId> {
    let (&plane, name) = body.split_first()?;
    let plane = [Plane::Data, Plane::Quality].into_iter().find(|known| *known as u8 == plane)?;
    Some(ChannelId { plane, name: std::str::from_utf8(name).ok()?.parse().ok()? })
}

/// Cuts a stream into frames. Holds at most one frame and the bytes of one read.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    filled: usize,
}

/// The stream is not of a plain engine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Reader {
    /// Largest number of bytes of one read.
    pub(crate) const CHUNK: usize = 64 << 10;

    /// The memory in use, in bytes.
    #[cfg(feature = "testing")]
    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
    }

    /// The place for the next bytes; pass their number to [`Reader::read`].
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.buffer.len() < self.filled + Self::CHUNK {
            self.buffer.resize(self.filled + Self::CHUNK, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// `count` bytes have been written to the space: calls `each` with every complete frame.
    pub(crate) fn read(&mut self, count: usize, mut each: impl FnMut(Kind, &[u8]) -> bool) -> Result<(), Malformed> {
        self.filled += count;
        let mut at = 0;
        while let Some((kind, body)) = next(&self.buffer[at..self.filled])? {
            at += HEADER + body.len();
            if !each(kind, body) {
                return Err(Malformed);
            }
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

fn next(bytes: &[u8]) -> Result<Option<(Kind, &[u8])>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || length > MAX_FRAME + 1 {
        return Err(Malformed);
    }
    let Some(frame) = rest.get(..length) else { return Ok(None) };
    let kind = Kind::of(frame[0]).ok_or(Malformed)?;
    Ok(Some((kind, &frame[1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
        [&header(kind, body.len())[..], body].concat()
    }

    fn feed(reader: &mut Reader, bytes: &[u8], into: &mut Vec<(Kind, Vec<u8>)>) -> Result<(), Malformed> {
        reader.space()[..bytes.len()].copy_from_slice(bytes);
        reader.read(bytes.len(), |kind, body| {
            into.push((kind, body.to_vec()));
            true
        })
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let stream = [frame(Kind::Frame, b"one"), frame(Kind::Alive, b""), frame(Kind::Frame, &[7; 3000])].concat();
        for step in [1, 2, 7, 500, stream.len()] {
            let (mut reader, mut frames) = (Reader::default(), Vec::new());
            for bytes in stream.chunks(step) {
                feed(&mut reader, bytes, &mut frames).unwrap();
            }
            let lengths: Vec<_> = frames.iter().map(|(kind, body)| (*kind, body.len())).collect();
            assert_eq!(lengths, [(Kind::Frame, 3), (Kind::Alive, 0), (Kind::Frame, 3000)]);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_takes_memory() {
        for bytes in [&[0, 0, 0, 0][..], &u32::MAX.to_le_bytes(), &[1, 0, 0, 0, 99]] {
            assert_eq!(feed(&mut Reader::default(), bytes, &mut Vec::new()), Err(Malformed));
        }
    }

    #[test]
    fn a_greeting_reads_back_and_another_version_does_not() {
        let hello = Hello {
            lane: Lane::Data,
            incarnation: Incarnation(7),
            realm: "r".parse().unwrap(),
            host: "host-1".parse().unwrap(),
        };
        let mut bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for end in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..end]), None);
        }
        bytes[4] += 1;
        assert_eq!(Hello::decode(&bytes), None);
    }

    #[test]
    fn a_channel_reads_back() {
        let channel = ChannelId { plane: Plane::Quality, name: "video".parse().unwrap() };
        assert_eq!(channel_of(&channel_body(&channel)), Some(channel));
        assert_eq!(channel_of(&[9, b'x']), None);
        assert_eq!(channel_of(&[]), None);
    }
}
