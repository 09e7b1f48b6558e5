//! Answers `qfabric channel ping`. The daemon acts as an application with its own connection to `channels.sock`, so
//! that a ping takes the same path as any other event. One thread answers all pings; it runs while the channel
//! `ping.THIS-HOST` has another source.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_channel::Notice;
use qfabric_linux::clock;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_shm::{Duplex, fds};
use qfabric_types::ThreadId;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{LeaseId, SinkRequest, SourceRequest};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::channel_wire::{
    Destination, FromClient, FromDaemon, MAX_MESSAGE, Reassembler, ReassemblyOutcome, SubmitRequest, VERSION,
};
use qfabric_types::format::Format;
use qfabric_types::ping::{ANSWERS, Ping};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{Fabric, Network};
use crate::auth::Peer;

/// Capacity of the sink for pings; when it is full, the oldest ping is dropped.
const WAITING: u32 = 64;
/// Interval at which the thread checks whether a source of pings is left.
const LOOK: Duration = Duration::from_secs(1);

/// `asked`: a source of pings has joined since the last check; `runs`: the answering thread runs.
#[derive(Debug, Default)]
pub(super) struct Answering {
    asked: AtomicBool,
    runs: AtomicBool,
}

impl Fabric {
    /// Requests the answering thread if another application's source has joined the ping channel of this host.
    pub(super) fn listen_for_pings(&self, notice: &Notice) {
        if let Notice::SourceJoined(channel, _, source) = notice
            && source.application.as_ref().is_none_or(|name| name.as_str() != ANSWERS)
            && Ping::channel(&self.network.host).as_ref() == Ok(channel)
        {
            self.answering.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Starts the answering thread if it is requested and does not run.
    pub(super) fn answer_pings(self: &Arc<Fabric>) {
        let Answering { asked, runs } = &self.answering;
        if !asked.swap(false, Ordering::Relaxed) || runs.swap(true, Ordering::AcqRel) {
            return;
        }
        let fabric = self.clone();
        if let Err(error) = self.mailbox.ending().spawn("qf-ping", move || fabric.answer_while_asked()) {
            tracing::warn!(%error, "cannot start the thread that answers pings; pings to this host get no answer");
            runs.store(false, Ordering::Release);
        }
    }

    /// Continues if a source joined while the thread was ending.
    fn answer_while_asked(&self) {
        // The thread inherits a real-time policy that is meant for threads that carry events.
        let _ = SchedAttr::fair(0).give(ThreadId(0));
        loop {
            if let Err(why) = self.answer() {
                tracing::warn!(why, "cannot answer pings");
            }
            self.answering.runs.store(false, Ordering::Release);
            let again = self.answering.asked.swap(false, Ordering::Relaxed) && !self.stopping.load(Ordering::Acquire);
            if !again || self.answering.runs.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    fn answer(&self) -> Result<(), String> {
        let channel = Ping::channel(&self.network.host).map_err(|error| error.to_string())?;
        let mut talk = Talk::begin(self).map_err(|error| error.to_string())?;
        let refused = |problem: Problem| problem.to_string();
        talk.join(self, &channel).map_err(refused)?;
        talk.more(WAITING).map_err(|error| error.to_string())?;
        while !self.stopping.load(Ordering::Acquire) {
            match talk.answer_next() {
                Ok(true) => {}
                Ok(false) if !self.network.is_asked(&channel) => break,
                Ok(false) => {}
                // The service ends.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

impl Network {
    /// Whether the channel has a source besides the daemon's own.
    fn is_asked(&self, channel: &ChannelId) -> bool {
        self.look(|node| node.channel(channel).is_some_and(|view| view.sources > 1))
    }
}

/// The daemon's own connection, with its source and its sink.
struct Talk {
    socket: OwnedFd,
    duplex: Duplex,
    peer: Peer,
    lease: LeaseId,
    source: u32,
    sink: u32,
    answered: u32,
    buffer: Vec<u8>,
    reassembler: Reassembler,
    payload: Vec<u8>,
    out: Vec<u8>,
}

impl Talk {
    fn begin(fabric: &Fabric) -> io::Result<Talk> {
        let (socket, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(LOOK))?;
        let peer = Peer::of(&socket)?;
        fabric.take_in(far);
        let (mut buffer, mut out) = (vec![0; MAX_MESSAGE], Vec::new());
        FromClient::Hello { version: VERSION }.encode(&mut out);
        fds::send(&socket, &out, &[])?;
        let got = fds::recv(&socket, &mut buffer)?;
        let lease = match FromDaemon::decode(&buffer[..got.length]) {
            Some(FromDaemon::Welcome { lease, .. }) => lease,
            Some(FromDaemon::Refused(refused)) => return Err(io::Error::other(refused.why.to_owned())),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let duplex = Duplex::map(got.fds.first().ok_or(io::ErrorKind::InvalidData)?)?;
        Ok(Talk {
            socket,
            duplex,
            peer,
            lease,
            source: 0,
            sink: 0,
            answered: 0,
            buffer,
            reassembler: Reassembler::default(),
            payload: Vec::new(),
            out,
        })
    }

    /// Joins as a source first: an application that sees the sink may send a ping at once.
    fn join(&mut self, fabric: &Fabric, channel: &ChannelId) -> Result<(), Problem> {
        let application: Option<Name> = ANSWERS.parse().ok();
        fabric.open(self.peer, channel, self.lease)?;
        let source = SourceRequest { lease: self.lease, application: application.clone(), attributes: BTreeMap::new() };
        self.source = fabric.source(self.peer, channel, source)?.number;
        let sink = SinkRequest {
            lease: self.lease,
            application,
            types: Vec::new(),
            formats: String::new(),
            attributes: BTreeMap::new(),
            capacity: WAITING,
        };
        self.sink = fabric.sink(self.peer, channel, sink)?.number;
        Ok(())
    }

    fn say(&mut self, message: &FromClient<'_>) -> io::Result<()> {
        message.encode(&mut self.out);
        self.send()
    }

    /// A message that does not fit is dropped: an application that sends more pings than fit loses some of the
    /// answers.
    fn send(&mut self) -> io::Result<()> {
        self.duplex.send(&self.socket, &self.out).map(drop)
    }

    fn more(&mut self, events: u32) -> io::Result<()> {
        self.say(&FromClient::More { sink: self.sink, events })
    }

    /// Length of the next message; none if no message arrives within [`LOOK`].
    fn receive(&mut self) -> io::Result<Option<usize>> {
        let patience = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
        if let Some(length) = self.duplex.next(&self.socket, &mut self.buffer)? {
            return Ok(Some(length));
        }
        match poll(&mut [PollFd::new(&self.socket.as_fd(), PollFlags::IN)], Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            ready => ready?,
        };
        self.duplex.next(&self.socket, &mut self.buffer)
    }

    /// Answers one ping; false if no message arrived.
    fn answer_next(&mut self) -> io::Result<bool> {
        let Some(length) = self.receive()? else { return Ok(false) };
        let arrived = clock::now();
        let ReassemblyOutcome::Message(message) = self.reassembler.add(&self.buffer[..length]) else { return Ok(true) };
        let Some(FromDaemon::Event(event)) = FromDaemon::decode(message) else { return Ok(true) };
        self.answered += 1;
        let is_short = event.payload.len() <= Format::MAX_SIZE as usize;
        if let Some(ping) = Ping::read(event.payload).filter(|ping| ping.answer.is_none() && is_short) {
            self.payload.clear();
            self.payload.extend_from_slice(event.payload);
            Ping { answer: Some((arrived, clock::now())), ..ping }.write(&mut self.payload);
            let (to, payload) = (Destination::Sink(event.host, ping.sink), &self.payload[..]);
            let answer = SubmitRequest { source: self.source, tag: 1, to, payload, ..SubmitRequest::default() };
            FromClient::Submit(answer).encode(&mut self.out);
            self.duplex.send(&self.socket, &self.out)?;
        }
        if self.answered == WAITING / 2 {
            self.answered = 0;
            self.more(WAITING / 2)?;
        }
        Ok(true)
    }
}
