//! Which whole messages are dropped before their first byte (§5.2.4, sender-side discard of late data).
//!
//! A message is late if `backlog/rate + size/rate + E_N > deadline`. To bring a late message back in time, B frames in
//! front of it are dropped first, then P frames at the end of a group of pictures, which no other frame needs. I frames
//! are never dropped: the rest of their group needs them.

use qfabric_types::Nanos;

use crate::{DropReason, FrameKind};

/// A message that waits for its first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) kind: FrameKind,
    /// Bytes with all headers.
    pub(super) bytes: u64,
    /// Time to the deadline; `None` for a message that is never late and never dropped.
    pub(super) left: Option<Nanos>,
}

/// The next message to drop: its index and the reason. `arrives_after` is the time after which a message arrives that
/// has this number of bytes in front of it, its own included; `backlog` is what is in front of the first message.
pub(super) fn next_drop(
    waiting: impl Iterator<Item = Waiting> + Clone,
    backlog: u64,
    arrives_after: impl Fn(u64) -> Nanos,
) -> Option<(usize, DropReason)> {
    let mut bytes = backlog;
    for (index, message) in waiting.clone().enumerate() {
        bytes += message.bytes;
        let Some(left) = message.left else { continue };
        if arrives_after(bytes) <= left {
            continue;
        }
        let is_hopeless = arrives_after(backlog + message.bytes) > left;
        let found = match (is_hopeless, message.kind) {
            (true, kind) if kind != FrameKind::I => Some(index),
            _ => victim(waiting.clone().take(index + 1)),
        };
        if let Some(found) = found {
            return Some((found, if found == index { DropReason::WouldBeLate } else { DropReason::MadeRoom }));
        }
    }
    None
}

/// The message to drop so that the last one of `waiting` comes earlier.
fn victim(waiting: impl Iterator<Item = Waiting>) -> Option<usize> {
    let (mut last_b, mut last_p, mut tail_p, mut last) = (None, None, None, None);
    for (index, message) in waiting.enumerate() {
        last = Some((index, message.kind));
        match message.kind {
            _ if message.left.is_none() => {}
            FrameKind::B => last_b = Some(index),
            FrameKind::P => last_p = Some(index),
            // The P frames in front of an I frame are the tail of a group.
            FrameKind::I => tail_p = last_p,
            FrameKind::Audio | FrameKind::Other => {}
        }
    }
    let itself = last.filter(|(_, kind)| *kind != FrameKind::I).map(|(index, _)| index);
    last_b.or(tail_p).or(itself)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds with the time to each deadline in ms; every message takes 10 ms. Returns the indices in the order of
    /// their drop, as positions in the first list.
    fn drops(text: &str, left: &[u64], backlog: u64) -> Vec<(usize, DropReason)> {
        let kind = |letter: char| FrameKind::ALL["IPBAO".find(letter).unwrap()];
        let mut all: Vec<(usize, Waiting)> = (text.chars().map(kind).zip(left))
            .map(|(kind, left)| Waiting { kind, bytes: 10, left: Some(Nanos::from_millis(*left)) })
            .enumerate()
            .collect();
        let mut dropped = Vec::new();
        while let Some((index, reason)) = next_drop(all.iter().map(|one| one.1), backlog, Nanos::from_millis) {
            dropped.push((all.remove(index).0, reason));
        }
        dropped
    }

    use DropReason::{MadeRoom, WouldBeLate};

    #[test]
    fn nothing_is_dropped_while_all_arrive_in_time() {
        assert_eq!(drops("IBBP", &[10, 20, 30, 40], 0), []);
    }

    #[test]
    fn b_frames_go_first_then_the_tail_of_a_group_and_never_an_i_frame() {
        assert_eq!(drops("PBPBI", &[90, 90, 90, 90, 30], 0), [(3, MadeRoom), (1, MadeRoom)]);
        assert_eq!(drops("PPI", &[90, 90, 20], 0), [(1, MadeRoom)]);
        assert_eq!(drops("PPI", &[90, 90, 5], 0), [(1, MadeRoom), (0, MadeRoom)], "the I frame itself stays");
    }

    #[test]
    fn a_late_frame_that_nothing_can_save_is_dropped_alone() {
        assert_eq!(drops("BBPP", &[90, 90, 15, 90], 20), [(2, WouldBeLate)]);
        assert_eq!(drops("AO", &[50, 5], 0), [(1, WouldBeLate)]);
    }

    #[test]
    fn a_late_p_frame_without_b_frames_goes_unless_an_earlier_group_has_a_tail() {
        assert_eq!(drops("IPP", &[90, 90, 25], 0), [(2, WouldBeLate)]);
        assert_eq!(drops("PIP", &[90, 90, 25], 0), [(0, MadeRoom)]);
    }
}
