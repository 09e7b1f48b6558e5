//! One host's side of all channels: applications, the network and the clock call the node, and the node passes each call
//! to the part that handles it.
//!
//! ```text
//!                    ┌──> membership   which hosts are present, and their records: the directory
//! calls ──> Node ────┤        │ each change of a record (follow)
//!   <── outputs      │        v
//!                    ├──> delivery     channels that are open here, their events and books
//!                    └──> requests     commands about filters that other hosts have not answered yet
//! ```
//! Each part owns its fields and does not use the other parts; all parts write their outputs to the one `Exit`.

mod bundle;
mod filters;
mod follow;
mod groups;
mod hold;
mod join;
mod look;
mod private;
mod requests;
mod rules;
mod ship;

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use requests::Requests;

use crate::bundles::Bundles;
use crate::delivery::Delivery;
use crate::exit::Exit;
use crate::membership::{Membership, Presence};
use crate::wire::{self, Kind, Reader, Unreadable};
use crate::{Config, Error, Frame, Lane, Limits, Output, Sent, SinkId, SourceId, Submission, SubmitError, Taken};

/// One host's side of all channels. After every call, call [`Node::poll`] until it returns `None`, and carry out the
/// outputs. Call [`Node::wake`] at [`Node::next_wakeup`], which every call may change.
#[derive(Debug)]
pub struct Node {
    config: Config,
    members: Membership,
    delivery: Delivery,
    requests: Requests,
    /// The last number given to a source, sink, registration or request.
    last_number: u32,
    /// Open channels for which another creation has arrived.
    touched: BTreeSet<ChannelId>,
    exit: Exit,
}

impl Node {
    /// A node that has not seen any other host.
    pub fn new(config: Config, now: Instant) -> Node {
        let host = Arc::new(config.host.clone());
        let bundles = Bundles::new(config.believed_combiner(), config.bundles);
        Node {
            members: Membership::new(host.clone(), config.incarnation, now),
            delivery: Delivery::new(host, config.filter_rate),
            requests: Requests::default(),
            last_number: 0,
            touched: BTreeSet::new(),
            exit: Exit::new(config.incarnation, bundles, config.hears_private),
            config,
        }
    }

    /// The next output of the calls so far; `None`: there are no more.
    pub fn poll(&mut self) -> Option<Output> {
        self.exit.out.poll()
    }

    /// The bytes of a frame that [`Node::poll`] returned, at most 256 KiB. They are valid until the next call of
    /// `poll`.
    pub fn frame(&self, frame: Frame) -> &[u8] {
        self.exit.out.frame(frame)
    }

    /// The memory of a long frame: the engine may keep a clone instead of a copy of the bytes. `None`: the frame is
    /// short. Valid as long as [`Node::frame`] is.
    pub fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        self.exit.out.memory(frame)
    }

    /// The network reports that a host is present.
    pub fn appeared(&mut self, host: &Name, now: Instant) {
        if self.members.appeared(host, now, &mut self.exit) {
            // If this is lost, it is sent again until the host confirms it.
            self.members.send_record(host, now, &mut self.exit);
        }
    }

    /// The network reports that a host is gone.
    pub fn vanished(&mut self, host: &Name, now: Instant) {
        if self.members.vanished(host) {
            self.lose(host, now);
        }
    }

    /// Removes everything known of a host that was present.
    fn lose(&mut self, host: &Name, now: Instant) {
        self.delivery.part(host);
        self.exit.forget_host(host);
        self.forget(host);
        self.settle(now);
    }

    /// Another host took this host for gone and has detected it again. It has lost this host's record, accounts and
    /// filters, so this host begins anew with it, too: each disappearance is one on both sides.
    fn forgotten_by(&mut self, host: &Name, now: Instant) {
        let Some(incarnation) = self.members.incarnation(host) else { return };
        self.lose(host, now);
        self.begin(host, incarnation, now);
        self.members.meet_again(host, now, &mut self.exit);
    }

    /// The network has stopped: all other hosts are gone.
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
        // An event changes no members, unless it is the first frame of a host's new incarnation.
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
            Kind::Full => self.arrived_full(from, wire::Full::read(reader)?, now),
            Kind::Met => {
                let news = members.learn_met(from, &wire::Met::read(reader)?, config, now, exit);
                self.learn(from, news);
            }
            Kind::Ask => members.answer(from, now, exit),
            Kind::Digest => members.learn_digest(from, &wire::Digest::read(reader)?, now, exit),
            Kind::Mark => {
                let mark = wire::Mark::read(reader)?;
                if members.is_meeting(from, mark.meeting) {
                    delivery.marked(from, &mark, config, exit);
                }
            }
            Kind::Report => {
                let report = wire::Report::read(reader)?;
                if members.is_meeting(from, report.meeting) {
                    delivery.reported(from, &report, now, exit);
                }
            }
            Kind::Ping => delivery.pinged(from, wire::Ping::read(reader)?.t0, now, exit),
            Kind::Pong => delivery.answered(from, &wire::Pong::read(reader)?, now, exit),
            Kind::Shipped => self.shipped(from, wire::Shipped::read(reader)?),
            Kind::Answer => requests.answered(from, wire::Answer::read(reader)?, exit),
            Kind::Private => self.heard(from, wire::Private::read(reader)?),
            Kind::Bundle => self.unpack(from, reader, now)?,
        }
        Ok(())
    }

    fn arrived_full(&mut self, from: &Name, part: wire::Full, now: Instant) {
        if self.members.is_forgotten_by(from, &part) {
            self.forgotten_by(from, now);
        }
        if !self.members.learn_meeting(from, &part) {
            return;
        }
        self.delivery.meet(from, part.meeting);
        self.exit.learn_abilities(from, part.abilities);
        if part.part == 0 {
            self.members.confirm(from, now, &mut self.exit);
        }
        let news = self.members.learn_full(from, part, &self.config, now, &mut self.exit);
        self.learn(from, news);
    }

    /// Submits an event: the filters choose among the sinks, and the event goes to each chosen sink, on this host or
    /// others.
    pub fn submit(&mut self, source: SourceId, event: &Submission<'_>, now: Instant) -> Result<Sent, SubmitError> {
        self.delivery.submit(source, event, now, &mut self.exit)
    }

    /// Takes the next event of a queue: by priority, then in the channel's order; late events are skipped. Returns
    /// false if the queue is empty. Pass the same `into` to every call, so that taking allocates no memory.
    pub fn take(&mut self, sink: SinkId, into: &mut Taken, now: Instant) -> Result<bool, Error> {
        self.delivery.take(sink, into, now, &mut self.exit)
    }

    /// Counts `events` events of a source as late instead of delivered: they were taken from a queue in time, but their
    /// deadlines passed before the application read them. Never counts more events than were taken.
    pub fn came_late(&mut self, sink: SinkId, source: (&Name, SourceId), events: u64) -> Result<u64, Error> {
        self.delivery.came_late(sink, source, events, &mut self.exit)
    }

    /// The time at which [`Node::wake`] has to be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        [self.exit.due(), self.members.digest_due(), self.exit.bundles.due()].into_iter().flatten().min()
    }

    /// Does all work that is due.
    pub fn wake(&mut self, now: Instant) {
        self.exit.flush_bundles(Some(now));
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
