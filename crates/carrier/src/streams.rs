//! The second engine: a QUIC stream for each message, reset at the message's deadline. QUIC repairs losses; this engine
//! drops late messages at the sender, and gives out at the deadline what has come. METP is measured against it.
//!
//! ```text
//!   Handover --> StreamDriver --spawns--> sending::send     (one task per message)  --Done--> StreamDriver
//!   Handover <-- Order <------- receiving::receive          (one task per stream)   --Done--> StreamDriver
//! ```

mod order;
mod receiving;
mod sending;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use qfabric_metp::{DelaySummary, FrameKind, Mode, Outcome, Statistics};
use qfabric_types::{BitRate, Nanos};
use tokio::sync::mpsc;

use crate::carrier::{Carrier, Path};
use crate::driver::grants::Grants;
use crate::handover::{Command, Event, Handover, Message, Reply};
use crate::options::Options;
use crate::quic::{Authenticated, QuicDatagrams, open_streams};
use crate::statistics::{CarrierStatistics, ConnectionStatistics};
use crate::{End, Error};
use order::Order;
use receiving::Arrived;
#[cfg(feature = "testing")]
pub(crate) use wire::{HEADER, Header};

/// How often the path and the rate are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Results of tasks that wait; a task waits when there are more.
const MOST_DONE: usize = 64;
/// How long this side waits for the other side's last bytes after its own.
const LINGER: Duration = Duration::from_millis(400);

/// What a task has done.
enum Done {
    Sent {
        number: u64,
        kind: FrameKind,
        bytes: u64,
        outcome: Outcome,
    },
    Arrived(Arrived),
    /// A message that is too large; nothing of it came.
    TooLarge(Arrived),
    /// The stream gave nothing that can be used.
    Nothing {
        is_refused: bool,
    },
    /// The other side sends no more: it sent this many messages.
    PeerFinished {
        total: u64,
    },
    /// The other side knows that this one sends no more.
    FinishKnown,
}

pub(crate) struct StreamDriver {
    /// Its datagrams are not used; its path, its counts and its address are.
    carrier: QuicDatagrams,
    path: Path,
    options: Options,
    handover: Arc<Handover>,
    mode: Mode,
    wanted_rate: BitRate,
    grants: Grants,
    done: mpsc::Sender<Done>,
    results: mpsc::Receiver<Done>,
    // Sending.
    next_number: u64,
    in_flight: u16,
    bytes_in_flight: u64,
    /// Messages before the next one that were dropped, one after the other.
    dropped_before: u32,
    is_finishing: bool,
    is_finish_known: bool,
    // Receiving.
    order: Order,
    receiving: u16,
    peer_mode: Option<Mode>,
    peer_total: Option<u64>,
    is_peer_finished: bool,
    delays: Histogram<u64>,
    counts: Statistics,
    end: Option<(End, Instant)>,
}

impl StreamDriver {
    /// Must be called in a `LocalSet`.
    pub(crate) fn new(options: &Options, handover: Arc<Handover>, path: Authenticated) -> StreamDriver {
        let (done, results) = mpsc::channel(MOST_DONE);
        open_streams(&path.connection, options);
        let mut carrier = QuicDatagrams::new(path);
        handover.report(Event::CarrierAttached { carrier: 0 });
        StreamDriver {
            path: carrier.path(),
            carrier,
            options: options.clone(),
            handover,
            mode: options.mode,
            wanted_rate: options.rate,
            grants: Grants::default(),
            done,
            results,
            next_number: 0,
            in_flight: 0,
            bytes_in_flight: 0,
            dropped_before: 0,
            is_finishing: false,
            is_finish_known: false,
            order: Order::new(options.order),
            receiving: 0,
            peer_mode: None,
            peer_total: None,
            is_peer_finished: false,
            delays: Histogram::new_with_bounds(1_000, 3_600_000_000_000, 2).expect("valid bounds"),
            counts: Statistics::default(),
            end: None,
        }
    }

    /// Runs until the session has ended. Must run in a `LocalSet`.
    pub(crate) async fn run(mut self) {
        let connection = self.carrier.path.connection.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_over() {
            self.serve_application();
            self.deliver();
            // Without room, the application's next call is what releases a message.
            let release = self.order.next_release().filter(|_| self.handover.has_room());
            let release = release.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            // After the end, a connection that the other side closed would fail here again and again.
            let (handover, has_room) = (self.handover.clone(), self.has_room() && self.end.is_none());
            tokio::select! {
                _ = tick.tick() => self.tick(),
                () = handover.woken() => {}
                () = tokio::time::sleep_until(release.into()) => {}
                Some(done) = self.results.recv() => self.note(done),
                stream = connection.accept_uni(), if has_room => match stream {
                    Ok(stream) => self.receive(stream),
                    Err(error) => self.lost(&error),
                },
            }
        }
        let end = self.end.take().map_or(End::Closed, |(end, _)| end);
        let statistics = self.statistics();
        self.carrier.close("the session has ended");
        self.grants.release().await;
        self.handover.end(end, statistics);
    }

    fn is_over(&self) -> bool {
        self.end.as_ref().is_some_and(|(end, at)| *end != End::Finished || at.elapsed() >= LINGER)
    }

    fn serve_application(&mut self) {
        while let Some(command) = self.handover.take_command() {
            self.obey(command);
        }
        while self.submit() {}
        self.finish_when_done();
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Mode(mode) => self.mode = mode,
            Command::Rate(rate) => self.wanted_rate = rate,
            Command::Grant(grant) => {
                self.grants.replace(grant);
                self.grants.apply(self.carrier.governor(), true);
            }
            Command::Rebind { local, reply, .. } => {
                let done = self.carrier.rebind(local);
                self.watch_grant();
                answer(&reply, done);
            }
            Command::Statistics(reply) => {
                let statistics = self.statistics();
                answer(&reply, Ok(statistics));
            }
            Command::Finish => self.is_finishing = true,
            Command::Close => self.end_with(End::Closed),
            Command::Attach { reply, .. } => answer(&reply, Err(only_metp("attach"))),
            Command::Detach(_, reply) => answer(&reply, Err(only_metp("detach"))),
            Command::Select { reply, .. } => answer(&reply, Err(only_metp("select"))),
            Command::Record(_, reply) => answer(&reply, Err(only_metp("record_delays"))),
            Command::TpduSize(_, reply) => answer(&reply, Err(only_metp("tpdu_size"))),
        }
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Sent { number, kind, bytes, outcome } => {
                self.in_flight -= 1;
                self.bytes_in_flight -= bytes;
                self.outcome(number, kind, bytes, outcome);
            }
            Done::Arrived(arrived) => {
                self.receiving -= 1;
                self.counts.late_tpdus += u64::from(!self.order.push(arrived));
            }
            Done::TooLarge(nothing) => {
                self.receiving -= 1;
                self.counts.refused += 1;
                // Later ones do not wait for it.
                self.order.push(nothing);
            }
            Done::Nothing { is_refused } => {
                self.receiving -= 1;
                self.counts.refused += u64::from(is_refused);
            }
            Done::PeerFinished { total } => {
                self.receiving -= 1;
                self.peer_total = Some(total);
            }
            Done::FinishKnown => self.is_finish_known = true,
        }
        if self.receiving == 0 && self.peer_total.is_some() {
            self.order.release_all();
        }
    }

    /// Gives out messages in their order while the application takes them.
    fn deliver(&mut self) {
        while self.handover.has_room() {
            let Some((skipped, arrived)) = self.order.pop(Instant::now()) else { break };
            if let Some((first, count)) = skipped {
                self.counts.skipped += count;
                self.handover.report(Event::Skipped { first, count });
            }
            self.note_mode(&arrived);
            self.count(&arrived);
            if let Some(message) = arrived.into_message() {
                self.handover.deliver(message);
            }
        }
        let is_done = self.peer_total.is_some_and(|_| self.receiving == 0 && self.order.is_empty());
        if is_done && !self.is_peer_finished {
            self.is_peer_finished = true;
            self.handover.report(Event::PeerFinished);
        }
        if self.is_peer_finished && self.is_finish_known {
            self.end_with(End::Finished);
        }
    }

    fn note_mode(&mut self, arrived: &Arrived) {
        let old = self.peer_mode.replace(arrived.mode);
        if old.is_some_and(|old| old != arrived.mode) {
            self.handover.report(Event::ModeChanged { mode: arrived.mode, from: arrived.number });
        }
    }

    fn count(&mut self, arrived: &Arrived) {
        let counts = &mut self.counts;
        if arrived.data.is_empty() {
            counts.skipped += 1;
            return;
        }
        counts.received += 1;
        counts.received_bytes += arrived.data.len() as u64;
        if arrived.is_complete() {
            counts.in_time += u64::from(arrived.late_by() == Nanos::ZERO);
            // Saturates at an hour.
            self.delays.saturating_record(arrived.delay.as_nanos() as u64);
        } else {
            counts.with_holes += 1;
        }
    }

    fn tick(&mut self) {
        self.path = self.carrier.path();
        self.watch_grant();
        if let Some(why) = self.carrier.close_reason() {
            self.end_with(End::Failed(why));
        }
    }

    fn watch_grant(&mut self) {
        if let Some(why) = self.grants.watch(&self.carrier) {
            self.handover.report(Event::Revoked(why));
        }
    }

    fn rate(&self) -> BitRate {
        let granted = self.carrier.governor().and_then(|governor| governor.granted());
        // Without a backlog, the window says nothing about the path.
        let window = self.path.rate.filter(|_| self.bytes_in_flight > 0).unwrap_or(self.wanted_rate);
        granted.unwrap_or_else(|| window.min(self.wanted_rate))
    }

    fn end_with(&mut self, end: End) {
        self.end.get_or_insert((end, Instant::now()));
    }

    fn lost(&mut self, error: &quinn::ConnectionError) {
        let end = match error {
            quinn::ConnectionError::ApplicationClosed(_) => End::ClosedByPeer,
            quinn::ConnectionError::TimedOut | quinn::ConnectionError::Reset => End::PeerSilent,
            other => End::Failed(other.to_string()),
        };
        self.end_with(end);
    }

    fn statistics(&mut self) -> ConnectionStatistics {
        let stats = self.carrier.path.connection.stats();
        let at = |quantile| Nanos::new(self.delays.value_at_quantile(quantile));
        let delay =
            DelaySummary { count: self.delays.len(), p50: at(0.5), p99: at(0.99), max: Nanos::new(self.delays.max()) };
        let session = Statistics {
            sent_bytes: stats.udp_tx.bytes,
            tpdus: stats.udp_tx.datagrams,
            retransmissions: stats.path.lost_packets,
            rtt: Nanos::new(stats.path.rtt.as_nanos() as u64),
            min_rtt: self.path.min_rtt.unwrap_or_default(),
            delay,
            ..self.counts
        };
        ConnectionStatistics {
            session,
            carriers: vec![CarrierStatistics {
                carrier: 0,
                is_sending: true,
                kind: crate::CarrierKind::QuicStreams,
                addresses: self.carrier.addresses(),
                max_datagram: self.path.max_datagram,
                counts: self.carrier.counts(),
            }],
            rate: self.rate(),
            granted: self.carrier.governor().and_then(|governor| governor.granted()),
            revocations: self.grants.revocations(),
            dropped_events: 0,
            renewals: 0,
            renewal_failure: None,
        }
    }
}

fn only_metp(option: &'static str) -> Error {
    Error::Option { option, value: "with the engine streams".to_owned(), allowed: "connections with the engine metp" }
}

fn answer<T>(reply: &Reply<T>, result: Result<T, Error>) {
    // The caller's time may be over.
    let _ = reply.try_send(result);
}
