//! Messages of applications on `channels.sock`. All input is hostile: it is bounded and checked, and then answered or
//! counted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qfabric_channel::{SinkId, SourceId, Submission, SubmitError, Target};
use qfabric_linux::clock;
use qfabric_shm::{Duplex, fds, is_nudge};
use qfabric_types::Instant;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::Name;
use qfabric_types::channel_wire::{
    Destination, FromClient, FromDaemon, LateReport, MAX_ATTRIBUTES, MAX_CREDIT, ReassemblyOutcome, Refused, Sent,
    SubmitRequest, VERSION,
};
use qfabric_types::message_ring::TakeOutcome;
use rustix::event::epoll::EventFlags;

use super::habit::Looks;
use super::registry::{Lease, Locked, Registry};
use super::settings::Settings;
use super::{Fabric, count, problems};
use crate::auth::{Peer, places_for};
use crate::closer::Foreign;

/// The result of a submission. An error has the time until which a slow sink may hold the channel up, or 0, and why.
pub(super) type Submitted = Result<qfabric_channel::Sent, (u64, String)>;

/// Largest number of messages read from one connection per turn.
const MESSAGES_PER_TURN: usize = 64;
/// Largest number of their bytes: the network can take in this amount while its own thread is busy with a turn.
const BYTES_PER_TURN: usize = 128 << 10;

/// Number of wake-ups of a connection whose packets stay in its socket: an eighth of the packets that fit into it.
const WAKES_KEPT: u8 = 32;
/// Largest number of packets read from one connection per turn.
const PACKETS_PER_TURN: usize = 256;

/// The result of reading a packet from a connection's socket.
enum PacketOutcome {
    Read,
    None,
    Ended,
}

/// While a connection's messages are read, answers do not wake it; it is woken once at the end, also if a panic ends the
/// turn.
pub(super) struct ReadTurn<'a> {
    pub registry: &'a mut Registry,
    id: LeaseId,
}

impl<'a> ReadTurn<'a> {
    pub(super) fn begin(registry: &'a mut Registry, id: LeaseId) -> ReadTurn<'a> {
        registry.leases.get_mut(&id).into_iter().for_each(|lease| lease.set_read(true));
        ReadTurn { registry, id }
    }
}

impl Drop for ReadTurn<'_> {
    fn drop(&mut self) {
        self.registry.leases.get_mut(&self.id).into_iter().for_each(|lease| lease.set_read(false));
    }
}

impl Fabric {
    /// Adds a connection. This thread does not wait for the program at the other end.
    pub(super) fn take_in(&self, socket: OwnedFd) {
        let peer = Peer::of(&socket);
        let uid = peer.as_ref().map_or(u32::MAX, |peer| peer.owner.uid);
        let socket = Arc::new(Foreign::new(socket, uid, &self.closer));
        let Ok(peer) = peer else { return };
        let mut registry = self.registry();
        if let Some(why) = self.settings.no_place(&registry, peer) {
            let mut message = Vec::new();
            FromDaemon::Refused(Refused { tag: 0, source: 0, blocked_until_ns: 0, why: &why }).encode(&mut message);
            // The connection is closed even if the client does not read the reason.
            let _ = fds::send_now(&*socket, &[io::IoSlice::new(&message)]);
            return;
        }
        let id = registry.add(peer, socket);
        // Before the lock is released: then the thread that reads the connection finds it complete.
        let watched = registry.leases.get_mut(&id).map(|lease| self.watch(lease, id));
        drop(registry);
        if watched.is_some_and(|watched| watched.is_err()) {
            self.mailbox.over(id);
        }
    }

    /// A connection has woken this service, sent its hello, or ended. Reads its messages.
    ///
    /// The packets that only wake this service stay in the socket for a while: reading each one would delay the message
    /// that it announces. Each further packet is an event again.
    pub(super) fn serve_lease(&self, id: LeaseId, event: EventFlags, buffer: &mut Vec<u8>, looks: Option<&mut Looks>) {
        let mut registry = self.registry();
        let Some(lease) = registry.leases.get_mut(&id) else { return };
        if lease.habit.woke(clock::now()) {
            self.move_to(lease, id);
        }
        lease.wakes = lease.wakes.saturating_add(1);
        let is_over = event.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR);
        if lease.duplex.is_some() && lease.wakes < WAKES_KEPT && !is_over {
            return self.read_locked(registry, id, buffer, looks);
        }
        drop(registry);
        // The packets first: then the messages that they announce are there.
        let is_over = !self.read_packets(id, buffer) || is_over;
        self.read_messages(id, buffer, looks);
        if is_over {
            self.leave(id);
        }
    }

    /// Reads the packets on a connection's socket. Returns false if the connection has ended.
    fn read_packets(&self, id: LeaseId, buffer: &mut [u8]) -> bool {
        for _ in 0..PACKETS_PER_TURN {
            match self.read_packet(id, buffer) {
                PacketOutcome::Read => {}
                PacketOutcome::None => return true,
                PacketOutcome::Ended => return false,
            }
        }
        // The next packet is the reason to read the rest.
        self.registry().leases.get_mut(&id).into_iter().for_each(|lease| lease.wakes = WAKES_KEPT);
        true
    }

    fn read_packet(&self, id: LeaseId, buffer: &mut [u8]) -> PacketOutcome {
        let mut registry = self.registry();
        let Some(lease) = registry.leases.get_mut(&id) else { return PacketOutcome::Ended };
        let uid = lease.peer.owner.uid;
        let got = match fds::recv_all_now(&*lease.socket, buffer) {
            Ok(got) if got.length > 0 || got.is_cut => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                lease.wakes = 0;
                return PacketOutcome::None;
            }
            over => {
                // This may start a thread, which takes longer than other threads should wait for the registry.
                drop(registry);
                self.closer.close(uid, over);
                return PacketOutcome::Ended;
            }
        };
        // The message was longer than any valid one: its rest is lost, but the connection stays usable.
        let said = &buffer[..if got.is_cut { 0 } else { got.length }];
        match FromClient::decode(said) {
            Some(FromClient::Hello { version }) if lease.duplex.is_none() => self.greet(lease, id, version),
            _ if is_nudge(said) => {}
            _ => count(&self.totals.nonsense),
        }
        drop(registry);
        if !got.fds.is_empty() {
            self.closer.close(uid, got.fds);
            if self.closer.is_full(uid) {
                return PacketOutcome::Ended;
            }
        }
        PacketOutcome::Read
    }

    /// A connection has ended. The socket's thread removes everything that was opened under it, since that may take
    /// time.
    fn leave(&self, id: LeaseId) {
        let mut registry = self.registry();
        let Some(lease) = registry.leases.get_mut(&id) else { return };
        self.sockets.unwatch(lease);
        drop(registry);
        self.mailbox.over(id);
    }

    /// From now on the connection's messages go through shared memory.
    fn greet(&self, lease: &mut Lease, id: LeaseId, version: u8) {
        let mut message = Vec::new();
        let made = match version {
            VERSION => Duplex::create()
                .map_err(|error| format!("the shared memory cannot be created: {error}; try again later")),
            _ => Err(format!(
                "this daemon speaks version {VERSION} of channels.sock, the client {version}; install the same version of both"
            )),
        };
        let file = match made {
            Ok((duplex, file)) => {
                FromDaemon::Welcome { lease: id, host: self.network.host.as_str() }.encode(&mut message);
                lease.duplex = Some(duplex);
                Some(file)
            }
            Err(why) => {
                FromDaemon::Refused(Refused { tag: 0, source: 0, blocked_until_ns: 0, why: &why }).encode(&mut message);
                None
            }
        };
        // A client that does not read this message has ended.
        let _ = fds::send_fds_now(&*lease.socket, &message, file.as_ref().map(AsFd::as_fd).as_slice());
    }

    /// Reads a connection's messages, as long as it takes its answers. The connection wakes this service for the next
    /// one, unless the thread has `looks` and the connection is busy.
    pub(super) fn read_messages(&self, id: LeaseId, buffer: &mut Vec<u8>, looks: Option<&mut Looks>) {
        self.read_locked(self.registry(), id, buffer, looks);
    }

    /// Like [`Fabric::read_messages`], for a caller that has the registry's lock, which is released at the end.
    fn read_locked(&self, mut registry: Locked<'_>, id: LeaseId, buffer: &mut Vec<u8>, looks: Option<&mut Looks>) {
        self.flush(&mut registry, id);
        let turn = ReadTurn::begin(&mut registry, id);
        let is_cut = self.read_turn(turn.registry, id, buffer, looks);
        drop(turn);
        drop(registry);
        if is_cut {
            self.mailbox.unread(id);
        }
    }

    /// Returns whether the turn ended at one of its bounds.
    fn read_turn(
        &self,
        registry: &mut Registry,
        id: LeaseId,
        buffer: &mut Vec<u8>,
        mut looks: Option<&mut Looks>,
    ) -> bool {
        let mut bytes = 0;
        for read in 0..MESSAGES_PER_TURN {
            if bytes >= BYTES_PER_TURN {
                break;
            }
            let is_open = |lease: &&mut Lease| lease.outbox.is_empty() && !lease.held.is_full();
            let Some(lease) = registry.leases.get_mut(&id).filter(is_open) else { return false };
            let Some(duplex) = lease.duplex.as_mut() else { return false };
            // If the client has ended, its socket shows it.
            match duplex.take(&*lease.socket, buffer).unwrap_or(TakeOutcome::Nothing) {
                TakeOutcome::Message(length) => {
                    bytes += length;
                    self.read_piece(registry, id, buffer, length);
                }
                TakeOutcome::Nonsense => count(&self.totals.nonsense),
                TakeOutcome::Nothing => {
                    let habit = &mut lease.habit;
                    let looks_again = looks.as_mut().is_some_and(|looks| looks.again(id, habit, read, clock::now()));
                    if looks_again || duplex.may_sleep() {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Reads a message of `length` bytes, or a part of one; carries out the message once it is complete. An event that
    /// this service keeps may keep the memory of `buffer`.
    fn read_piece(&self, registry: &mut Registry, id: LeaseId, buffer: &mut Vec<u8>, length: usize) {
        let Some(lease) = registry.leases.get_mut(&id) else { return };
        let mut reassembler = std::mem::take(&mut lease.reassembler);
        let piece = &buffer[..length];
        let kept = match reassembler.add(piece) {
            ReassemblyOutcome::Message(message) => {
                let source = self.read_message(registry, id, message);
                // A message that came in parts is not in the buffer.
                source.map(|source| (source, (!std::ptr::eq(message, piece)).then(|| message.to_vec())))
            }
            ReassemblyOutcome::More => {
                registry.leases.get_mut(&id).into_iter().for_each(|lease| lease.habit.sent_part());
                None
            }
            ReassemblyOutcome::Nonsense => {
                count(&self.totals.nonsense);
                None
            }
        };
        let Registry { leases, spare, .. } = registry;
        let Some(lease) = leases.get_mut(&id) else { return };
        lease.reassembler = reassembler;
        if let Some((source, message)) = kept {
            lease.held.push(source, message.unwrap_or_else(|| spare.keep(buffer, length)));
        }
    }

    /// Carries out a message. Returns the source of an event that has to be kept.
    fn read_message(&self, registry: &mut Registry, id: LeaseId, message: &[u8]) -> Option<SourceId> {
        match FromClient::decode(message) {
            // A second hello is invalid.
            Some(FromClient::Hello { .. }) | None => count(&self.totals.nonsense),
            Some(FromClient::Submit(submit)) => return self.submit(registry, id, &submit),
            Some(FromClient::More { sink, events }) => self.more(registry, id, SinkId(sink), events),
            Some(FromClient::Report(report)) => self.report_of(registry, id, &report),
            Some(FromClient::Late(late)) => self.late(registry, id, late),
        }
        None
    }

    fn more(&self, registry: &mut Registry, id: LeaseId, sink: SinkId, events: u32) {
        let lease = registry.leases.get_mut(&id);
        match lease.and_then(|lease| lease.sinks.get_mut(&sink)) {
            Some(credit) => {
                credit.events = credit.events.saturating_add(events).min(MAX_CREDIT);
                self.pump(registry, sink);
            }
            // The member may have ended meanwhile.
            None => count(&self.totals.nonsense),
        }
    }

    /// Only for a sink of this connection.
    fn late(&self, registry: &Registry, id: LeaseId, LateReport { sink, host, source, events }: LateReport<'_>) {
        let sink = SinkId(sink);
        let own = registry.leases.get(&id).is_some_and(|lease| lease.sinks.contains_key(&sink));
        let (true, Ok(host)) = (own, host.parse::<Name>()) else { return count(&self.totals.nonsense) };
        let late = self.network.with(|node, _| {
            let late = node.came_late(sink, (&host, SourceId(source)), events.into()).ok()?;
            let channel = node.channel_of_sink(sink)?.clone();
            let all = registry.sinks.keys().chain(registry.ends.sinks()).copied();
            let readers = all.filter(|other| node.channel_of_sink(*other) == Some(&channel)).collect::<Vec<_>>();
            Some((channel, late, readers))
        });
        // The sink may have ended meanwhile.
        if let Some((channel, late, readers)) = late {
            self.reports.late(&channel, sink, late, &readers);
        }
    }

    /// Returns the source if the event has to be kept.
    fn submit(&self, registry: &mut Registry, id: LeaseId, submit: &SubmitRequest<'_>) -> Option<SourceId> {
        let source = SourceId(submit.source);
        let waits = registry.leases.get_mut(&id).is_some_and(|lease| {
            lease.habit.submitted(submit);
            // Events of one source stay in order.
            lease.held.has(source)
        });
        let done = if waits { None } else { Some(self.try_submit(registry, id, submit)) };
        match done.filter(|done| !is_kept(submit, done)) {
            Some(done) => {
                self.confirm(registry, id, submit, done);
                None
            }
            None => Some(source),
        }
    }

    /// Sends the result of a submission to its connection.
    pub(super) fn confirm(&self, registry: &mut Registry, id: LeaseId, submit: &SubmitRequest<'_>, done: Submitted) {
        let SubmitRequest { source, tag, confirm, .. } = *submit;
        match done {
            Ok(sent) => {
                count(&self.totals.submitted);
                if let Some(lease) = registry.leases.get(&id) {
                    let bytes = submit.payload.len();
                    self.record_submitted(lease.peer, SourceId(source), sent.number, bytes, clock::now());
                }
                if confirm {
                    let qfabric_channel::Sent { number, remote, local, filtered, dropped } = sent;
                    let sent = Sent { tag, number, remote, local, filtered, dropped };
                    self.tell(registry, id, &FromDaemon::Sent(sent));
                }
            }
            Err((blocked_until_ns, why)) => {
                count(&self.totals.refused);
                self.tell(registry, id, &FromDaemon::Refused(Refused { tag, source, blocked_until_ns, why: &why }));
            }
        }
    }

    pub(super) fn try_submit(&self, registry: &Registry, id: LeaseId, submit: &SubmitRequest<'_>) -> Submitted {
        let source = SourceId(submit.source);
        let own = registry.leases.get(&id).is_some_and(|lease| lease.sources.contains(&source));
        if !own {
            return Err((0, SubmitError::Gone(source.0).to_string()));
        }
        let (host, mut attributes) = (named(submit.to)?, [("", 0); MAX_ATTRIBUTES]);
        let count = submit.attributes.iter().zip(&mut attributes).map(|(from, to)| *to = from).count();
        let event = Submission {
            event_type: submit.event_type,
            priority: submit.priority,
            deadline: (submit.deadline_ns != 0).then(|| Instant::new(submit.deadline_ns)),
            target: match (submit.to, &host) {
                (Destination::Sink(_, sink), Some(host)) => Target::Sink(host, sink),
                (_, Some(host)) => Target::Host(host),
                (_, None) => Target::All,
            },
            attributes: &attributes[..count],
            payload: submit.payload,
            ..Submission::default()
        };
        let said = self.network.with(|node, now| node.submit(source, &event, now));
        said.map_err(|error| match error {
            SubmitError::WouldBlock { until } => (until.get().max(1), error.to_string()),
            _ => (0, error.to_string()),
        })
    }
}

impl Settings {
    /// Why a further connection of the peer is refused.
    fn no_place(&self, registry: &Registry, peer: Peer) -> Option<String> {
        let own = registry.of_user(peer.owner.uid).count();
        let all = places_for(peer.owner.uid, self.get().max_leases);
        let each = self.get().max_leases_per_user;
        let problem = match (registry.leases.len() >= all, peer.owner.uid != 0 && own >= each) {
            (true, _) => problems::limit("too many connections for channels", all, "channels.max_leases"),
            (_, true) => problems::limit("too many connections of one user", each, "channels.max_leases_per_user"),
            _ => return None,
        };
        Some(problem.to_string())
    }
}

/// Whether the daemon keeps the event, because a slow sink holds the channel up.
pub(super) fn is_kept(submit: &SubmitRequest<'_>, done: &Submitted) -> bool {
    submit.keep && done.as_ref().is_err_and(|(until, _)| *until != 0)
}

/// The host that an event is addressed to, if any.
fn named(to: Destination<'_>) -> Result<Option<Name>, (u64, String)> {
    match to {
        Destination::All => Ok(None),
        Destination::Host(host) | Destination::Sink(host, _) => {
            host.parse().map(Some).map_err(|error| (0, format!("{error}")))
        }
    }
}
