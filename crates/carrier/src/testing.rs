//! What this side reads from its peer before METP, for checks with arbitrary bytes.

use crate::hello::{Answer, Hello, MOST_BYTES, SessionKey, decode, encode};
use crate::streams::Header;

/// Reads the first message of a connection as both sides do. Returns whether one of them accepts it.
///
/// # Panics
/// An accepted message does not read back as it was written, or a refusal does not say the next step.
pub fn read_hello(text: &[u8]) -> bool {
    let text = &text[..text.len().min(MOST_BYTES)];
    let (hello, answer) = (decode::<Hello>(text), decode::<Answer>(text));
    for problem in [hello.as_ref().err(), answer.as_ref().err()].into_iter().flatten() {
        assert!(!problem.message.is_empty() && !problem.next_step.is_empty());
    }
    if let Ok(hello) = &hello {
        let written = encode(hello);
        assert!(written.len() - 2 == MOST_BYTES || decode::<Hello>(&written[2..]).as_ref() == Ok(hello));
        if let Hello::Attach { session } = hello {
            // Takes any text.
            SessionKey::tag(session);
        }
    }
    if let Ok(answer) = &answer {
        let written = encode(answer);
        assert!(written.len() - 2 == MOST_BYTES || decode::<Answer>(&written[2..]).as_ref() == Ok(answer));
    }
    hello.is_ok() || answer.is_ok()
}

/// Bytes of the header of a stream.
pub const STREAM_HEADER: usize = crate::streams::HEADER;

/// Reads the header of a stream. Returns the size of its message: none if it is refused or ends the session.
///
/// # Panics
/// An accepted header does not read back as it was written.
pub fn read_stream_header(bytes: &[u8; STREAM_HEADER], largest: u64) -> Option<u32> {
    let header = Header::decode(bytes, largest)?;
    assert_eq!(Header::decode(&header.encode(), largest), Some(header));
    match header {
        Header::Message(message) => Some(message.size),
        Header::Finish { .. } => None,
    }
}
