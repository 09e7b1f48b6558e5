//! Messages of applications to the daemon and back, and the bytes between two hosts.

use std::fmt::Debug;

use qfabric_types::channel_wire::{Heard, Whole};
use qfabric_types::{channel_wire, ecalls_wire};

/// A message of `channels.sock` or `ecalls.sock`, from either side: what is understood is written the same way again,
/// and nothing in it is longer than the limits say.
pub fn local_message(bytes: &[u8]) {
    parts(bytes);
    if let Some(message) = channel_wire::FromClient::decode(bytes) {
        same(bytes, |out| message.encode(out), &message);
        if let channel_wire::FromClient::Submit(submit) = message {
            assert!(submit.payload.len() <= channel_wire::MAX_PAYLOAD);
            assert!(submit.attributes.iter().count() <= channel_wire::MAX_ATTRIBUTES);
        }
    }
    if let Some(message) = channel_wire::FromDaemon::decode(bytes) {
        same(bytes, |out| message.encode(out), &message);
    }
    if let Some(message) = ecalls_wire::FromClient::decode(bytes) {
        same(bytes, |out| message.encode(out), &message);
    }
    if let Some(message) = ecalls_wire::FromDaemon::decode(bytes) {
        same(bytes, |out| message.encode(out), &message);
    }
}

/// As one piece and as pieces of 16 bytes: no more is put together than a message may have.
fn parts(bytes: &[u8]) {
    let mut whole = Whole::default();
    for piece in bytes.chunks(16).chain([bytes]) {
        if let Heard::Message(message) = whole.hear(piece) {
            assert!(message.len() <= channel_wire::MAX_WHOLE.max(piece.len()));
        }
    }
}

fn same(bytes: &[u8], encode: impl FnOnce(&mut Vec<u8>), message: &impl Debug) {
    let mut again = Vec::new();
    encode(&mut again);
    assert_eq!(again, bytes, "{message:?}");
}

/// What another host sends by plain sockets, in reads of so many bytes as the first byte says; and, as text, addresses of
/// Zenoh: frames come out whole, whatever the reads were, and no more memory is taken than a frame and a read need.
pub fn host_stream(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else { return };
    let at_once = qfabric_link::testing::stream(stream, stream.len().max(1));
    assert_eq!(qfabric_link::testing::stream(stream, usize::from(*step).max(1)), at_once);
    if let Ok(key) = std::str::from_utf8(stream) {
        qfabric_link::testing::key(key);
    }
}
