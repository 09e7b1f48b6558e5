//! Messages to applications on `channels.sock`: events, as far as there is credit, answers, and notices that a member
//! ended.
//!
//! A slow reader delays no other reader. Its events stay in the node's queue, which is bounded and drops events by the
//! channel's back-pressure rule; messages that do not fit into the ring wait in the connection's outbox.

use std::collections::VecDeque;

use qfabric_channel::{Action, Event, Notice, Payer, SinkId, SourceId, Taken};
use qfabric_shm::{Duplex, nudge};
use qfabric_types::Instant;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::ChannelId;
use qfabric_types::channel_wire::{self as wire, Attributes, FromDaemon, MAX_ATTRIBUTES, MAX_MESSAGE, Member, parts};
use qfabric_types::message_ring::WriteOutcome;

use super::mailbox::Noted;
use super::registry::{Lease, Registry};
use super::{Fabric, count};

/// Largest number of events sent to one sink per turn.
const EVENTS_PER_TURN: u32 = 64;
/// The memory of a longer message is not kept for the next one, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// Memory for the events that are sent to applications, used again for the next ones.
#[derive(Default)]
pub(super) struct Buffers {
    taken: Taken,
    message: Vec<u8>,
    part: Vec<u8>,
}

impl Fabric {
    /// Carries out the recorded outputs of the node.
    pub(super) fn carry_out(&self, noted: &mut Noted) {
        let mut registry = self.registry();
        noted.ready.drain(..).for_each(|sink| self.is_ready(&mut registry, sink));
        for SourceId(source) in noted.writable.drain(..) {
            if self.submit_held(&mut registry, SourceId(source)) {
                continue;
            }
            if let Some(id) = registry.sources.get(&SourceId(source)).copied() {
                self.tell(&mut registry, id, &FromDaemon::Writable(source));
            }
        }
        for (application, attribute, amount) in noted.applied.drain(..) {
            count(&self.totals.decisions);
            self.tell_applied(&mut registry, application, attribute, amount);
        }
        noted.told.drain(..).for_each(|told| self.tell_decided(&mut registry, &told));
        noted.contracts.drain(..).for_each(|order| self.change_contracts(&registry, order));
        noted.delayed.drain(..).for_each(|delayed| self.delay_report(&mut registry, delayed));
        noted.notices.drain(..).for_each(|notice| self.handle_notice(&mut registry, notice));
        drop(registry);
        noted.lent.drain(..).for_each(|lent| self.lend(lent));
        self.take_control_words();
    }

    /// In the receive thread: delivers the events of a frame at once if the registry's lock is free. Otherwise the
    /// socket's thread delivers them soon.
    pub(super) fn hand_over(&self, arrived: &mut Vec<SinkId>) {
        if arrived.is_empty() {
            return;
        }
        let Some(mut registry) = self.registry.try_lock() else {
            return arrived.drain(..).for_each(|sink| self.mailbox.ready(sink));
        };
        arrived.drain(..).for_each(|sink| self.is_ready(&mut registry, sink));
    }

    fn is_ready(&self, registry: &mut Registry, sink: SinkId) {
        if registry.ends.ring(sink) {
            return;
        }
        let lease = registry.sinks.get(&sink).copied().and_then(|id| registry.leases.get_mut(&id));
        if let Some(credit) = lease.and_then(|lease| lease.sinks.get_mut(&sink)) {
            credit.ready = true;
            self.pump(registry, sink);
        }
    }

    /// Sends events to a sink while there are events, credit and room. Takes as many as possible under one lock of the
    /// node.
    pub(super) fn pump(&self, registry: &mut Registry, sink: SinkId) {
        let Registry { leases, sinks, buffers, .. } = registry;
        let id = sinks.get(&sink).copied();
        let Some(lease) = id.and_then(|id| leases.get_mut(&id)) else { return };
        let Lease { peer, sinks, duplex: Some(duplex), outbox, .. } = lease else { return };
        let Some(credit) = sinks.get_mut(&sink).filter(|credit| credit.ready && credit.events > 0) else { return };
        if !outbox.is_empty() {
            return;
        }
        let Buffers { taken, message, part } = buffers;
        let mut wakes = false;
        self.network.with(|node, now| {
            for _ in 0..credit.events.min(EVENTS_PER_TURN) {
                let got = node.take(sink, taken, now);
                let Some(event) = got.unwrap_or(false).then(|| taken.event()).flatten() else {
                    credit.ready = false;
                    return;
                };
                credit.events -= 1;
                encode_head(sink, &event, message);
                count(&self.totals.delivered);
                self.record_received(*peer, &event, now);
                self.reports.handed(&event, now);
                wakes |= write(duplex, outbox, (message, event.payload), part);
                if !outbox.is_empty() {
                    return;
                }
            }
        });
        message.clear();
        message.shrink_to(KEPT_BYTES);
        let goes_on = credit.ready && credit.events > 0 && outbox.is_empty();
        if wakes {
            lease.wake();
        }
        if goes_on {
            // Other sinks come first; the rest follows with the next look into the mailbox.
            self.mailbox.ready(sink);
        }
    }

    pub(super) fn tell(&self, registry: &mut Registry, id: LeaseId, message: &FromDaemon<'_>) {
        let Registry { leases, buffers, .. } = registry;
        let Some(lease) = leases.get_mut(&id) else { return };
        // Short: no event, and texts are cut.
        message.encode(&mut buffers.message);
        lease.send(&buffers.message);
    }

    /// Sends waiting messages if there is room again.
    pub(super) fn flush(&self, registry: &mut Registry, id: LeaseId) {
        let Some(lease) = registry.leases.get_mut(&id).filter(|lease| !lease.outbox.is_empty()) else { return };
        let waiting = std::mem::take(&mut lease.outbox);
        waiting.into_iter().for_each(|message| lease.send(&message));
        if lease.outbox.is_empty() {
            let sinks: Vec<_> = lease.sinks.keys().copied().collect();
            sinks.into_iter().for_each(|sink| self.pump(registry, sink));
        }
    }

    fn handle_notice(&self, registry: &mut Registry, notice: Notice) {
        self.follow(&notice);
        self.manage(&notice);
        self.listen_for_pings(&notice);
        match notice {
            Notice::Answered { request, host, result } => self.asked.answered(request, host, result.err()),
            Notice::DuplicateName { channel, stands } => {
                let why = format!(
                    "{} created `{}` before this host did, with other events; open that one",
                    stands.creator, channel.name
                );
                self.lost(registry, &channel, &why);
            }
            Notice::HostAppeared(host, incarnation) => tracing::info!(%host, %incarnation, "a host is there"),
            Notice::HostVanished(host) => {
                self.lending.lender_gone(&host);
                if let Some(contracts) = self.mailbox.contracts() {
                    contracts.gone(host.clone());
                }
                self.mailbox.ecalls().into_iter().for_each(|inbox| inbox.gone(&host));
                tracing::info!(%host, "a host is gone");
            }
            Notice::OtherVersion { host, theirs, ours } => {
                tracing::warn!(%host, theirs, ours, "a host speaks another version; bring both up to date");
            }
            Notice::Forbidden { host, action, channel, why } => {
                tracing::warn!(%host, action = action.name(), %channel, why, "a host requested an action that it may not do");
            }
            Notice::Revoked { channel, action } => {
                let may = match action {
                    Action::Create => "its creator may not create it any more",
                    Action::Join => "this host may not join it any more",
                    Action::Send | Action::Install => "this host may not send on it any more",
                };
                let why = format!("`{}`: {may}, says the access list", channel.name);
                tracing::warn!(%channel, why, "members were removed");
                self.lost(registry, &channel, &why);
            }
            Notice::FilterChanged { id, author } => {
                tracing::info!(%author, filter = %id.name, channel = %id.channel, "another host changed a filter");
            }
            Notice::FilterFaulted { id, fault } => {
                tracing::warn!(filter = %id.name, channel = %id.channel, fault, "a filter faulted");
            }
            Notice::FiltersSuspended { payer, lasts } => {
                let whose = match payer {
                    Payer::User(uid) => format!("user {uid}"),
                    Payer::Host(host) => format!("the host {host}"),
                };
                let limit = self.config().max_filter_instructions_per_second;
                tracing::warn!(
                    whose, %lasts, limit,
                    "filters execute more instructions than channels.max_filter_instructions_per_second: they drop the \
                     events of the busiest senders"
                );
            }
            _ => {}
        }
    }

    /// Notifies the applications whose channel was closed here, or whose members were removed.
    fn lost(&self, registry: &mut Registry, channel: &ChannelId, why: &str) {
        let ended = |id: &u32| self.network.look(|node| node.source_counts(SourceId(*id)).is_err());
        let gone = |id: &u32| self.network.look(|node| node.sink_counts(SinkId(*id)).is_err());
        let is_open = self.network.look(|node| node.is_open(channel));
        if !is_open {
            registry.ends.forget(channel);
        }
        registry.ends.ring_all();
        let leases: Vec<_> = registry.leases.keys().copied().collect();
        for id in leases {
            let Some(lease) = registry.leases.get_mut(&id) else { continue };
            lease.opened.retain(|opened| is_open || opened != channel);
            let sources: Vec<u32> = lease.sources.iter().map(|source| source.0).filter(ended).collect();
            let sinks: Vec<u32> = lease.sinks.keys().map(|sink| sink.0).filter(gone).collect();
            for number in sources {
                registry.forget_source(id, SourceId(number));
                self.mailbox.unread(id);
                self.tell(registry, id, &FromDaemon::Ended { member: Member::Source, number, why });
            }
            for number in sinks {
                registry.forget_sink(id, SinkId(number));
                self.tell(registry, id, &FromDaemon::Ended { member: Member::Sink, number, why });
            }
        }
    }
}

impl Lease {
    /// Sends the message now, or when there is room. A connection that has ended is noticed when it is read. A
    /// connection that has not sent its hello receives nothing.
    fn send(&mut self, message: &[u8]) {
        let Lease { duplex: Some(duplex), outbox, .. } = self else { return };
        match outbox.is_empty().then(|| duplex.write(message)) {
            Some(WriteOutcome::Quiet) => {}
            Some(WriteOutcome::Wake) => self.wake(),
            Some(WriteOutcome::Full) | None => outbox.push_back(message.to_vec()),
        }
    }

    fn wake(&mut self) {
        if self.is_read {
            self.owes_wake = true;
        } else {
            // The connection may have ended, which is noticed when it is read.
            let _ = nudge(&*self.socket);
        }
    }

    /// The connection's messages are read from now on, or no longer.
    pub(super) fn set_read(&mut self, is_read: bool) {
        self.is_read = is_read;
        if !is_read && std::mem::take(&mut self.owes_wake) {
            self.wake();
        }
    }
}

/// Writes an event, in parts if it is large; parts that do not fit wait. `message` is all of it but the payload. Returns
/// whether the reader must be woken.
fn write(
    duplex: &mut Duplex,
    outbox: &mut VecDeque<Vec<u8>>,
    (message, payload): (&mut Vec<u8>, &[u8]),
    part: &mut Vec<u8>,
) -> bool {
    let mut wakes = false;
    let mut put = |head: &[u8], body: &[u8]| match outbox.is_empty().then(|| duplex.write_joined(head, body)) {
        Some(WriteOutcome::Full) | None => outbox.push_back([head, body].concat()),
        Some(written) => wakes |= written == WriteOutcome::Wake,
    };
    if message.len() + payload.len() <= MAX_MESSAGE {
        put(message, payload);
    } else {
        message.extend_from_slice(payload);
        let mut parts = parts(message);
        while parts.next(part) {
            put(part, &[]);
        }
    }
    wakes
}

/// Writes all of an event's message but the payload.
fn encode_head(sink: SinkId, event: &Event<'_>, message: &mut Vec<u8>) {
    let mut attributes = [("", 0); MAX_ATTRIBUTES];
    let count = event.attributes.iter().zip(&mut attributes).map(|(from, to)| *to = from).count();
    let event = wire::Event {
        sink: sink.0,
        host: event.host.as_str(),
        source: event.source.0,
        number: event.number,
        event_type: event.event_type,
        priority: event.priority,
        sent_ns: event.sent.get(),
        deadline_ns: event.deadline.map_or(0, Instant::get),
        attributes: Attributes::Listed(&attributes[..count]),
        payload: &[],
    };
    FromDaemon::Event(event).encode_head(message);
}
