//! One host's side of all channels: applications, the network and the clock come in here, and each is given on to the
//! part that it is for.
//!
//! ```text
//!                    ┌──> membership   who is there, and what each has told of itself: the directory
//! calls ──> Node ────┤        │ each change of a record (follow)
//!   <── outputs      │        v
//!                    ├──> delivery     channels that are open here, their events and books
//!                    └──> requests     filters that other hosts were asked to install
//! ```
//! Each part owns its fields and knows none of the others; all say what they want done to the one `Exit`.

mod filters;
mod follow;
mod groups;
mod hold;
mod join;
mod look;
mod requests;
mod rules;
mod ship;

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use requests::Requests;

use crate::delivery::Delivery;
use crate::exit::Exit;
use crate::membership::{Membership, Presence};
use crate::wire::{self, Kind, Reader, Unreadable};
use crate::{
    Config, Error, Frame, Lane, Limits, Notice, Output, Sent, SinkId, SourceId, Submission, SubmitError, Taken,
};

/// One host's side of all channels. After every call, ask [`Node::poll`] for what it wants done until there is nothing
/// more, and call [`Node::wake`] at [`Node::next_wakeup`], which every call may change.
#[derive(Debug)]
pub struct Node {
    config: Config,
    members: Membership,
    delivery: Delivery,
    requests: Requests,
    /// Last number given to a source, sink, registration or request.
    last_number: u32,
    /// Open channels of which another creation has become known.
    touched: BTreeSet<ChannelId>,
    exit: Exit,
}

impl Node {
    /// A host that knows of no other.
    pub fn new(config: Config, now: Instant) -> Node {
        let host = Arc::new(config.host.clone());
        Node {
            members: Membership::new(host.clone(), config.incarnation, now),
            delivery: Delivery::new(host),
            requests: Requests::default(),
            last_number: 0,
            touched: BTreeSet::new(),
            exit: Exit::new(config.incarnation),
            config,
        }
    }

    /// The next thing that the calls before want done; none: nothing more.
    pub fn poll(&mut self) -> Option<Output> {
        self.exit.out.poll()
    }

    /// The bytes of a frame that [`Node::poll`] gave, at most 256 KiB, until it is called again.
    pub fn frame(&self, frame: Frame) -> &[u8] {
        self.exit.out.frame(frame)
    }

    /// The network says that a host is there.
    pub fn appeared(&mut self, host: &Name, now: Instant) {
        self.members.appeared(host, now, &mut self.exit);
    }

    /// The network says that a host is gone.
    pub fn vanished(&mut self, host: &Name, now: Instant) {
        if !self.members.vanished(host) {
            return;
        }
        self.delivery.part(host);
        self.forget(host);
        self.exit.notice(Notice::HostVanished(host.clone()));
        self.settle(now);
    }

    /// There is no network any more: all other hosts are gone.
    pub fn cut_off(&mut self, now: Instant) {
        for host in self.members.others() {
            self.vanished(&host, now);
        }
    }

    /// A frame of a host that the network has authenticated.
    pub fn arrive(&mut self, from: &Name, _lane: Lane, frame: &[u8], now: Instant) {
        self.exit.counts.frames_in += 1;
        let mut reader = Reader(frame);
        let prefix = match wire::read_prefix(&mut reader) {
            _ if frame.len() > Limits::FRAME => return self.exit.counts.malformed += 1,
            Ok(prefix) => prefix,
            Err(Unreadable::OtherVersion(theirs)) => return self.members.other_version(from, theirs, &mut self.exit),
            Err(Unreadable::Malformed) => return self.exit.counts.malformed += 1,
        };
        match self.members.presence(from, prefix.incarnation) {
            Presence::Known => {}
            Presence::NewStart => self.begin(from, prefix.incarnation, now),
            Presence::Stranger => return self.exit.counts.stranger += 1,
        }
        if self.handle(from, prefix.kind, reader, now).is_err() {
            self.exit.counts.malformed += 1;
        }
        // An event changes no members, unless it is the first word of a host's new start.
        if !matches!(prefix.kind, Kind::Event | Kind::Fragment) || self.delivery.is_stale() {
            self.settle(now);
        }
    }

    fn handle(&mut self, from: &Name, kind: Kind, mut reader: Reader<'_>, now: Instant) -> Result<(), wire::Malformed> {
        let (reader, Node { config, members, delivery, requests, exit, .. }) = (&mut reader, &mut *self);
        match kind {
            Kind::Event => delivery.receive(from, &wire::EventFrame::read(reader)?, now, exit),
            Kind::Fragment => delivery.gather(from, &wire::Fragment::read(reader)?, now, exit)?,
            Kind::Changes => {
                let news = members.learn_changes(from, wire::Changes::read(reader)?, now, exit);
                self.learn(from, news);
            }
            Kind::Full => {
                let news = members.learn_full(from, wire::Full::read(reader)?, config, exit);
                self.learn(from, news);
            }
            Kind::Ask => members.asked(from, now, exit),
            Kind::Digest => members.learn_digest(from, &wire::Digest::read(reader)?, now, exit),
            Kind::Mark => delivery.marked(from, &wire::Mark::read(reader)?, config, exit),
            Kind::Report => delivery.reported(from, &wire::Report::read(reader)?, now, exit),
            Kind::Ping => delivery.pinged(from, wire::Ping::read(reader)?.t0, now, exit),
            Kind::Pong => delivery.answered(from, &wire::Pong::read(reader)?, now, exit),
            Kind::Shipped => self.shipped(from, wire::Shipped::read(reader)?),
            Kind::Answer => requests.answered(from, wire::Answer::read(reader)?, exit),
        }
        Ok(())
    }

    /// Submits an event: filters choose among the sinks, and each chosen one is sent it, or given it where it is here.
    pub fn submit(&mut self, source: SourceId, event: &Submission<'_>, now: Instant) -> Result<Sent, SubmitError> {
        self.delivery.submit(source, event, now, &mut self.exit)
    }

    /// Takes the next event of a queue: by priority, then in the channel's order; late ones are passed over. False:
    /// there is none. `into` is used again and again, so that taking needs no memory.
    pub fn take(&mut self, sink: SinkId, into: &mut Taken, now: Instant) -> Result<bool, Error> {
        self.delivery.take(sink, into, now, &mut self.exit)
    }

    /// Of the events of a source that were taken from a queue, so many were of no use any more when their reader came to
    /// them: they were late, not delivered. More than were taken are not believed.
    pub fn came_late(&mut self, sink: SinkId, source: (&Name, SourceId), events: u64) -> Result<(), Error> {
        self.delivery.came_late(sink, source, events, &mut self.exit)
    }

    /// When [`Node::wake`] is to be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        [self.exit.due(), self.members.digest_due()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant) {
        self.members.digest(now, &mut self.exit);
        if self.exit.take_due(now) {
            self.members.wake(now, &mut self.exit);
            self.delivery.wake(now, &mut self.exit);
            self.requests.wake(now, &mut self.exit);
        }
    }

    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }
}
