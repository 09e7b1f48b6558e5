//! A flood of changes that the kernel path must refuse, of four kinds in equal numbers:
//!
//! | kind | what is sent | counted as |
//! |---|---|---|
//! | invented | peer, epoch and channel of a right change, with random value, sequence number and tag | `forged` |
//! | altered | a right change that has not arrived yet, with one wrong bit | `forged` |
//! | replayed | changes with the right tag, up to the last accepted one itself | `replayed` |
//! | foreign | changes of another epoch or peer, with a tag under the same key | `unknown` |

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use qfabric_linux::kernel_path::{KernelPath, PathCounts};
use qfabric_types::kernel_path::{CHANGE_BYTES, ParameterChange, PathKey};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Changes in one datagram: they fit into an Ethernet frame, and each kind has the same number.
const TOGETHER: usize = 28;
/// Different changes that are replayed.
const REPLAYS: u64 = 64;
/// The first byte of a change after the magic number, peer and epoch, which say under which key the tag is checked.
const AFTER_EPOCH: usize = 12;
/// The first byte after channel and parameter.
const AFTER_PARAMETER: usize = 16;
/// Wrong changes that are sent at most for each one that must arrive: only ends a flood of which nothing arrives.
const MOST_SENT: u64 = 1_000;
/// Attempts to send the right change at the end, 1 ms apart.
const ATTEMPTS: u32 = 60_000;

/// Sends wrong changes until the receiver has counted `tried` of them, then a right one, which must be accepted.
/// `accepted` is the change with the last sequence number of its peer. Returns the counts of the wrong ones.
///
/// # Errors
/// If a wrong change was accepted, or the right one was not; and errors of the socket.
pub(crate) fn flood(
    path: &KernelPath,
    socket: &UdpSocket,
    key: &PathKey,
    accepted: ParameterChange,
    tried: u64,
    seed: u64,
) -> io::Result<PathCounts> {
    let word = || path.word(accepted.channel, accepted.parameter);
    let (before, former) = (path.counts(), word());
    let next = ParameterChange {
        value: accepted.value.wrapping_add(1),
        sequence: accepted.sequence.saturating_add(1),
        ..accepted
    };
    let (mut wrong, mut sent) = (WrongChanges::new(key, accepted, next, seed), 0);
    while sum(&since(&before, &path.counts())) < tried {
        if sent / MOST_SENT >= tried {
            return Err(io::Error::other(format!("{sent} changes were sent, but these arrived: {:?}", path.counts())));
        }
        socket.send(wrong.datagram())?;
        sent += TOGETHER as u64;
    }
    if word() != former {
        return Err(io::Error::other(format!("a wrong change was applied: {:?} after {former:?}", word())));
    }
    // The kernel counts a change after it has stored it.
    let is_counted = (0..ATTEMPTS).map_while(|_| socket.send(&next.encode(key)).ok()).any(|_| {
        let is_counted = since(&before, &path.counts()).accepted > 0;
        if !is_counted {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_counted
    });
    let is_applied = word().is_some_and(|word| word.value == next.value && word.sequence == next.sequence);
    let counts = since(&before, &path.counts());
    match is_counted && is_applied && counts.accepted == 1 {
        true => Ok(PathCounts { accepted: 0, ..counts }),
        false => Err(io::Error::other(format!("only the last change is right, but these are the counts: {counts:?}"))),
    }
}

/// Makes datagrams of wrong changes.
struct WrongChanges {
    /// The right change that has not arrived.
    next: [u8; CHANGE_BYTES],
    replayed: Vec<[u8; CHANGE_BYTES]>,
    foreign: [[u8; CHANGE_BYTES]; 2],
    payload: Vec<u8>,
    random: ChaCha8Rng,
}

impl WrongChanges {
    fn new(key: &PathKey, accepted: ParameterChange, next: ParameterChange, seed: u64) -> WrongChanges {
        let older =
            |age: u64| ParameterChange { sequence: accepted.sequence.saturating_sub(age), ..accepted }.encode(key);
        let foreign = [
            ParameterChange { epoch: next.epoch + 1, ..next }.encode(key),
            ParameterChange { peer: next.peer + 1, ..next }.encode(key),
        ];
        WrongChanges {
            next: next.encode(key),
            replayed: (0..REPLAYS).map(older).collect(),
            foreign,
            payload: vec![0; TOGETHER * CHANGE_BYTES],
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// The payload of the next datagram.
    fn datagram(&mut self) -> &[u8] {
        for (number, change) in self.payload.chunks_exact_mut(CHANGE_BYTES).enumerate() {
            change.copy_from_slice(match number % 4 {
                0 | 1 => &self.next,
                2 => &self.replayed[self.random.random_range(0..self.replayed.len())],
                _ => &self.foreign[self.random.random_range(0..self.foreign.len())],
            });
            match number % 4 {
                0 => self.random.fill_bytes(&mut change[AFTER_PARAMETER..]),
                1 => {
                    let bit = self.random.random_range(8 * AFTER_EPOCH..8 * CHANGE_BYTES);
                    change[bit / 8] ^= 1u8 << (bit % 8);
                }
                _ => {}
            }
        }
        &self.payload
    }
}

/// What was counted between two readings.
fn since(before: &PathCounts, after: &PathCounts) -> PathCounts {
    PathCounts {
        accepted: after.accepted - before.accepted,
        malformed: after.malformed - before.malformed,
        unknown: after.unknown - before.unknown,
        forged: after.forged - before.forged,
        denied: after.denied - before.denied,
        replayed: after.replayed - before.replayed,
        too_many: after.too_many - before.too_many,
    }
}

fn sum(counts: &PathCounts) -> u64 {
    let PathCounts { accepted, malformed, unknown, forged, denied, replayed, too_many } = *counts;
    accepted + malformed + unknown + forged + denied + replayed + too_many
}
