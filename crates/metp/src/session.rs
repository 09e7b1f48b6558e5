//! One endpoint of METP: a sending half, a receiving half and the carriers.

mod datagrams;

use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use crate::bucket::TokenBucket;
use crate::carriers::Carriers;
use crate::receive::{Event, Receiver};
use crate::send::Sender;
use crate::wire::{self, Datagram};
use crate::{
    CarrierId, CarrierInfo, CarrierRefusal, Config, EndReason, Holes, InvalidConfig, MessageNumber, Mode, Outgoing,
    Output, SendRefusal, Statistics,
};

/// One endpoint of METP.
///
/// Inputs never produce an output in the middle of a call. After each input, call [`Session::poll`] until it returns
/// `None`, then ask [`Session::next_wakeup`] when to call [`Session::on_timer`]. The time must not run backwards; an
/// earlier time counts as the latest one.
#[derive(Debug)]
pub struct Session {
    tag: u16,
    idle_limit: Nanos,
    now: Instant,
    carriers: Carriers,
    bucket: TokenBucket,
    sender: Sender,
    receiver: Receiver,
    /// The last datagram.
    datagram: Vec<u8>,
    /// When the bucket has the tokens for the next datagram.
    tokens_at: Option<Instant>,
    last_heard: Instant,
    last_sent: Instant,
    /// Bytes of reports and of datagrams that close the session.
    report_bytes: u64,
    end: End,
}

/// The end of the session.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    reason: Option<EndReason>,
    is_reported: bool,
    /// A datagram has to tell the peer.
    must_close: bool,
}

impl Session {
    /// # Errors
    /// The configuration contradicts itself or exceeds a limit.
    pub fn new(config: Config, now: Instant) -> Result<Session, InvalidConfig> {
        config.check()?;
        Ok(Session {
            tag: config.tag,
            idle_limit: config.idle_limit,
            now,
            carriers: Carriers::default(),
            bucket: TokenBucket::new(config.rate, config.bucket, config.lateness, now),
            sender: Sender::new(&config, now),
            receiver: Receiver::new(&config, now),
            datagram: Vec::with_capacity(2_048),
            tokens_at: None,
            last_heard: now,
            last_sent: now,
            report_bytes: 0,
            end: End::default(),
        })
    }

    /// Copies a message and queues it. One that is too large for the peer is dropped at once, as its outcome says.
    ///
    /// # Errors
    /// The message is empty or too large, the queue is full, or the session has ended.
    pub fn send(&mut self, now: Instant, outgoing: Outgoing<'_>) -> Result<MessageNumber, SendRefusal> {
        self.send_waited(now, Nanos::ZERO, outgoing)
    }

    /// As [`Session::send`], for a message that has waited for this call, because the thread of the session had no CPU.
    /// Its deadline counts from the begin of the wait, and the wait costs no tokens up to [`Config::lateness`].
    ///
    /// # Errors
    /// Those of [`Session::send`].
    pub fn send_waited(
        &mut self,
        now: Instant,
        waited: Nanos,
        outgoing: Outgoing<'_>,
    ) -> Result<MessageNumber, SendRefusal> {
        self.advance(now);
        let since = self.now - waited;
        if waited > Nanos::ZERO {
            self.bucket.waited_since(since);
        }
        self.sender.send(self.now, since, outgoing, &self.bucket)
    }

    /// The mode of the messages that are sent from now on. Messages in the queue keep their mode.
    pub fn set_mode(&mut self, now: Instant, mode: Mode) {
        self.advance(now);
        self.sender.set_mode(mode);
    }

    /// The granted rate from now on. [`BitRate::ZERO`] pauses all datagrams.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.advance(now);
        self.bucket.set_rate(self.now, rate);
    }

    /// Proposes another datagram size to the peer. A smaller size takes effect at once, a larger one with the peer's
    /// agreement. The carrier's largest datagram stays a limit.
    ///
    /// # Errors
    /// The size is out of range.
    pub fn set_tpdu_size(&mut self, now: Instant, bytes: u16) -> Result<(), InvalidConfig> {
        self.advance(now);
        self.sender.set_tpdu_size(bytes)
    }

    /// Whether the application takes messages. While it does not, `poll` returns no `Output::Received`: complete
    /// reliable messages stay in the bounded memory and the peer has to wait, others are given up at their deadline.
    pub fn set_receiving(&mut self, now: Instant, is_receiving: bool) {
        self.advance(now);
        self.receiver.set_receiving(is_receiving);
    }

    /// The application sends no more messages. The queued ones are still delivered.
    pub fn finish(&mut self, now: Instant) {
        self.advance(now);
        self.sender.finish();
    }

    /// Ends the session at once, and tells the peer.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        self.end.must_close = true;
        self.end_with(EndReason::Closed);
    }

    /// Whether the datagram that tells the peer of the end waits for its carrier.
    pub fn is_closing(&self) -> bool {
        self.end.must_close && self.carriers.sending().is_some()
    }

    /// # Errors
    /// The number is in use, or the session has too many carriers.
    pub fn attach(&mut self, now: Instant, id: CarrierId, info: CarrierInfo) -> Result<(), CarrierRefusal> {
        self.change_carriers(now, |carriers| carriers.attach(id, info))
    }

    /// Removes a carrier. TPDUs that it has not yet brought are sent again over another one.
    ///
    /// # Errors
    /// The carrier is not attached.
    pub fn detach(&mut self, now: Instant, id: CarrierId) -> Result<(), CarrierRefusal> {
        self.change_carriers(now, |carriers| carriers.detach(id))?;
        self.sender.carrier_lost(id);
        Ok(())
    }

    /// Selects the carrier of the data that this side sends, and the carrier of its acknowledgments. Datagrams of
    /// the peer are accepted from every attached carrier.
    ///
    /// # Errors
    /// A carrier is not attached.
    pub fn select(&mut self, now: Instant, send: CarrierId, receive: CarrierId) -> Result<(), CarrierRefusal> {
        self.change_carriers(now, |carriers| carriers.select(send, receive))
    }

    /// The largest datagram or the shortest round-trip time of a carrier changed. Unacknowledged TPDUs that are too
    /// large for it are cut again.
    ///
    /// # Errors
    /// The carrier is not attached.
    pub fn carrier_changed(
        &mut self,
        now: Instant,
        id: CarrierId,
        max_datagram: u16,
        min_rtt: Option<Nanos>,
    ) -> Result<(), CarrierRefusal> {
        self.advance(now);
        self.carriers.change(id, max_datagram, min_rtt)?;
        let sending = self.carriers.sending().filter(|carrier| carrier.id == id);
        if let Some(limit) = sending.map(|carrier| carrier.info.max_datagram) {
            self.sender.carrier_changed(self.now, limit, min_rtt, false);
        }
        Ok(())
    }

    /// Whether the layer below takes datagrams for this carrier. While it does not, `poll` returns none for it, so the
    /// messages wait in the session, where deadlines apply.
    ///
    /// # Errors
    /// The carrier is not attached.
    pub fn set_writable(&mut self, now: Instant, id: CarrierId, is_writable: bool) -> Result<(), CarrierRefusal> {
        self.advance(now);
        self.carriers.set_writable(id, is_writable)
    }

    /// A datagram arrived. Datagrams that cannot be read or that contradict earlier ones are counted.
    pub fn on_datagram(&mut self, now: Instant, carrier: CarrierId, bytes: &[u8]) {
        self.advance(now);
        let Ok(datagram) = wire::read(bytes, self.tag) else { return self.receiver.count_unreadable() };
        if self.carriers.find(carrier).is_none() {
            return self.receiver.count_refused();
        }
        self.last_heard = self.now;
        let is_possible = match datagram {
            Datagram::Data(data, part) => {
                self.receiver.on_data(self.now, &data, part);
                true
            }
            Datagram::Status(status) => self.receiver.on_status(self.now, &status),
            Datagram::Report(report) => self.sender.on_report(self.now, &report),
            Datagram::Close => {
                self.end_with(EndReason::ClosedByPeer);
                return;
            }
        };
        if !is_possible {
            self.receiver.count_refused();
        }
        // The peer did not see the end: its next datagram is answered with another one.
        self.end.must_close |= matches!(self.end.reason, Some(EndReason::Closed | EndReason::PeerSilent));
    }

    /// The time of [`Session::next_wakeup`] has come.
    pub fn on_timer(&mut self, now: Instant) {
        self.advance(now);
    }

    /// When to call [`Session::on_timer`], if no other input comes first. Call it after `poll` has returned `None`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let sender = self.sender.next_wakeup().filter(|_| self.end.reason.is_none());
        let halves = [sender, self.receiver.next_wakeup(), self.tokens_at];
        let life = [self.idle_at(), self.sign_of_life_at()];
        // What is due and still not done waits for a carrier.
        halves.into_iter().chain(life).flatten().filter(|at| *at > self.now).min()
    }

    /// The next output, at the time of the last input.
    pub fn poll(&mut self) -> Option<Output> {
        if let Some(outcome) = self.sender.next_outcome() {
            return Some(outcome);
        }
        if let Some(carrier) = self.next_full_report() {
            return Some(Output::Datagram { carrier });
        }
        if let Some(event) = self.receiver.next_event(self.now) {
            return Some(output(event));
        }
        if self.end.reason.is_none() && self.sender.is_finished() && self.receiver.is_finished() {
            self.end.reason = Some(EndReason::Finished);
        }
        if let Some(reason) = self.end.reason.filter(|_| !self.end.is_reported) {
            self.end.is_reported = true;
            return Some(Output::Ended(reason));
        }
        let datagram = self.next_datagram();
        datagram.map(|carrier| Output::Datagram { carrier }).or_else(|| self.poll_overdue())
    }

    /// An input may move the time of a timeout to the past, such as a report that makes the timeout shorter.
    fn poll_overdue(&mut self) -> Option<Output> {
        self.sender.next_wakeup().filter(|at| *at <= self.now)?;
        self.sender.on_time(self.now);
        let outcome = self.sender.next_outcome();
        outcome.or_else(|| self.next_datagram().map(|carrier| Output::Datagram { carrier }))
    }

    /// The bytes of the last [`Output::Datagram`].
    pub fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    /// The bytes of the last [`Output::Received`]; holes are zero.
    pub fn message(&self) -> &[u8] {
        self.receiver.lent()
    }

    /// The parts of the last [`Output::Received`] that did not arrive, in ascending order.
    pub fn holes(&self) -> Holes<'_> {
        self.receiver.holes()
    }

    /// Bytes of messages that have no outcome yet.
    pub fn backlog(&self) -> Bytes {
        Bytes::new(self.sender.queued_bytes())
    }

    /// Memory for messages in both directions.
    pub fn memory(&self) -> Bytes {
        self.receiver.memory() + self.sender.memory()
    }

    pub fn statistics(&self) -> Statistics {
        let sent = self.sender.statistics();
        self.receiver.counts(Statistics { sent_bytes: sent.sent_bytes + self.report_bytes, ..sent })
    }

    /// The number of the next message that `send` accepts.
    pub fn next_number(&self) -> MessageNumber {
        self.sender.next_number()
    }

    /// The shortest recent round-trip time of the sending carrier; zero before the first measurement.
    pub fn min_rtt(&self) -> Nanos {
        self.sender.min_rtt()
    }

    /// Carries out what the passing of time brings.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.sender.on_time(self.now);
        self.receiver.on_time(self.now);
        if self.idle_at().is_some_and(|at| at <= self.now) {
            self.end_with(EndReason::PeerSilent);
        }
        if self.sign_of_life_at().is_some_and(|at| at <= self.now) {
            self.sender.ask_for_report();
        }
    }

    fn idle_at(&self) -> Option<Instant> {
        self.end.reason.is_none().then(|| self.last_heard + self.idle_limit)
    }

    fn sign_of_life_at(&self) -> Option<Instant> {
        let is_needed = self.end.reason.is_none() && !self.carriers.is_empty();
        is_needed.then(|| self.last_sent + Nanos::new(self.idle_limit.get() / 4))
    }

    fn end_with(&mut self, reason: EndReason) {
        if self.end.reason.is_none() {
            self.end.reason = Some(reason);
            self.sender.abort();
        }
    }

    fn change_carriers(
        &mut self,
        now: Instant,
        change: impl FnOnce(&mut Carriers) -> Result<(), CarrierRefusal>,
    ) -> Result<(), CarrierRefusal> {
        self.advance(now);
        let before = self.carriers.sending().map(|carrier| carrier.id);
        change(&mut self.carriers)?;
        if let Some(after) = self.carriers.sending().filter(|after| before != Some(after.id)) {
            self.sender.carrier_changed(self.now, after.info.max_datagram, after.info.min_rtt, true);
        }
        // Both sides learn of the change, and of what was lost with it.
        self.sender.ask_for_report();
        self.receiver.ask_for_report();
        Ok(())
    }
}

fn output(event: Event) -> Output {
    match event {
        Event::Received(received) => Output::Received(received),
        Event::Skipped { first, count } => Output::Skipped { first, count },
        Event::ModeChanged { mode, from } => Output::ModeChanged { mode, from },
        Event::Finished => Output::PeerFinished,
    }
}
