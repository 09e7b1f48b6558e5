//! Properties of messages between applications and the daemon, and of the byte stream between two hosts.

use std::fmt::Debug;

use qfabric_types::channel_wire::{Reassembler, ReassemblyOutcome};
use qfabric_types::{channel_wire, ecalls_wire};

/// A message of `channels.sock` or `ecalls.sock`, in either direction: a message that is decoded is encoded to the
/// assert_same_encoding bytes, and no part of it exceeds its limit.
pub fn local_message(bytes: &[u8]) {
    assemble(bytes);
    if let Some(message) = channel_wire::FromClient::decode(bytes) {
        assert_same_encoding(bytes, |out| message.encode(out), &message);
        if let channel_wire::FromClient::Submit(submit) = message {
            assert!(submit.payload.len() <= channel_wire::MAX_PAYLOAD);
            assert!(submit.attributes.iter().count() <= channel_wire::MAX_ATTRIBUTES);
        }
    }
    if let Some(message) = channel_wire::FromDaemon::decode(bytes) {
        assert_same_encoding(bytes, |out| message.encode(out), &message);
    }
    if let Some(message) = ecalls_wire::FromClient::decode(bytes) {
        assert_same_encoding(bytes, |out| message.encode(out), &message);
    }
    if let Some(message) = ecalls_wire::FromDaemon::decode(bytes) {
        assert_same_encoding(bytes, |out| message.encode(out), &message);
    }
}

/// Assembles the message from one piece and from pieces of 16 bytes: the result is never longer than a message may
/// be.
fn assemble(bytes: &[u8]) {
    let mut reassembler = Reassembler::default();
    for piece in bytes.chunks(16).chain([bytes]) {
        if let ReassemblyOutcome::Message(message) = reassembler.add(piece) {
            assert!(message.len() <= channel_wire::MAX_WHOLE.max(piece.len()));
        }
    }
}

fn assert_same_encoding(bytes: &[u8], encode: impl FnOnce(&mut Vec<u8>), message: &impl Debug) {
    let mut again = Vec::new();
    encode(&mut again);
    assert_eq!(again, bytes, "{message:?}");
}

/// The stream of another host over plain sockets, read in steps whose size is the first byte, and also as text:
/// keys of Zenoh. The frames do not depend on the size of the reads, and the memory in use is bounded by a frame
/// and a read.
pub fn host_stream(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else { return };
    let at_once = qfabric_link::testing::stream(stream, stream.len().max(1));
    assert_eq!(qfabric_link::testing::stream(stream, usize::from(*step).max(1)), at_once);
    if let Ok(key) = std::str::from_utf8(stream) {
        qfabric_link::testing::key(key);
    }
}
