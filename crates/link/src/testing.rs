//! Parsers of other hosts' input, for tests with hostile input.

use crate::MAX_FRAME;
use crate::plain::wire::{HEADER, Hello, Kind, Reader, channel_of};
use crate::zenoh::keys;

/// Reads a stream of a plain engine in pieces of `step` bytes, as the receive thread does. Returns the number of complete
/// frames, and whether the connection would have been ended.
///
/// # Panics
/// The reader takes more memory than a frame and a read need.
pub fn stream(bytes: &[u8], step: usize) -> (usize, bool) {
    let (mut reader, mut frames) = (Reader::default(), 0);
    for piece in bytes.chunks(step.min(Reader::CHUNK)) {
        reader.space()[..piece.len()].copy_from_slice(piece);
        assert!(reader.held() <= HEADER + MAX_FRAME + Reader::CHUNK, "{} bytes are held", reader.held());
        let read = reader.read(piece.len(), |kind, body| {
            frames += 1;
            is_understood(kind, body)
        });
        if read.is_err() {
            return (frames, true);
        }
    }
    (frames, false)
}

/// Encoding a parsed value gives the same bytes again.
fn is_understood(kind: Kind, body: &[u8]) -> bool {
    match kind {
        Kind::Hello => Hello::decode(body).is_some_and(|hello| hello.encode() == body),
        Kind::Listen | Kind::Ignore => channel_of(body).is_some(),
        Kind::Alive | Kind::Frame => true,
    }
}

/// Reads a key of Zenoh. Returns whether it names a host or an incarnation.
pub fn key(key: &str) -> bool {
    keys::sender(key).is_some() | keys::life(key).is_some()
}
