//! Collects the outputs of a node's parts, its counters, and the time of the next call.

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use crate::bundles::Bundles;
use crate::output::{Destination, LONG, Outputs};
use crate::wire::{self, Kind, Writer};
use crate::{Action, Incarnation, Lane, NodeCounts, Notice};

/// Every part of a node gets a mutable reference to it for the duration of a call.
#[derive(Debug)]
pub(crate) struct Exit {
    incarnation: Incarnation,
    pub out: Outputs,
    pub counts: NodeCounts,
    /// Frames that wait to go in one with others.
    pub bundles: Bundles,
    /// Whether this host takes private messages.
    pub hears_private: bool,
    /// The hosts that are present and take private messages.
    pub confidants: BTreeSet<Name>,
    /// The earliest time at which some part has work.
    due: Option<Instant>,
}

impl Exit {
    pub(crate) fn new(incarnation: Incarnation, bundles: Bundles, hears_private: bool) -> Exit {
        let (out, counts, confidants) = Default::default();
        Exit { incarnation, out, counts, bundles, hears_private, confidants, due: None }
    }

    /// The incarnation of this host that its frames carry.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.0
    }

    /// Writes a frame and sends it.
    pub(crate) fn send(&mut self, to: Destination, lane: Lane, kind: Kind, write: impl FnOnce(&mut Writer<'_>)) {
        let incarnation = self.incarnation.0;
        self.out.send(to, lane, |frames| write(&mut wire::begin(frames, kind, incarnation)));
        self.counts.frames_out += 1;
    }

    /// Sends a frame that is written already.
    pub(crate) fn send_raw(&mut self, to: Destination, lane: Lane, frame: &[u8]) {
        self.send_written(to, lane, |frames| frames.extend_from_slice(frame));
    }

    /// Sends the frame that `write` appends; returns its length.
    pub(crate) fn send_written(&mut self, to: Destination, lane: Lane, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.counts.frames_out += 1;
        self.out.send(to, lane, write)
    }

    /// Like [`Exit::send_written`], for a frame with a payload of `bytes` bytes.
    pub(crate) fn send_sized(
        &mut self,
        to: Destination,
        lane: Lane,
        bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        if bytes < LONG {
            return self.send_written(to, lane, write);
        }
        let frame = self.out.written(write);
        self.send_long(to, lane, frame)
    }

    /// Sends a frame in memory of its own; returns its length.
    pub(crate) fn send_long(&mut self, to: Destination, lane: Lane, frame: Arc<Vec<u8>>) -> usize {
        self.counts.frames_out += 1;
        self.out.send_long(to, lane, frame)
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.out.notice(notice);
    }

    /// Counts and reports a request of another host that the policy denies.
    pub(crate) fn forbidden(&mut self, host: &Name, action: Action, channel: &ChannelId, why: String) {
        self.counts.forbidden += 1;
        self.notice(Notice::Forbidden { host: host.clone(), action, channel: channel.clone(), why });
    }

    /// [`crate::Node::wake`] has to be called at `at` or before.
    pub(crate) fn wake_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the due time has come; if so, clears it.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }
}
