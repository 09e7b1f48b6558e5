//! One endpoint of METP: a sending half, a receiving half and the carriers.

use std::ops::Range;

use qfabric_types::{BitRate, Instant, Nanos};

use crate::{
    CarrierId, CarrierInfo, CarrierRefusal, Config, InvalidConfig, MessageNumber, Mode, Outgoing, Output, SendRefusal,
    Statistics,
};

/// One endpoint of METP.
///
/// Inputs never produce an output in the middle of a call. After each input, call [`Session::poll`] until it returns
/// `None`, then ask [`Session::next_wakeup`] when to call [`Session::on_timer`]. The time must not run backwards; an
/// earlier time counts as the latest one.
#[derive(Debug)]
pub struct Session {
    config: Config,
    now: Instant,
}

impl Session {
    /// # Errors
    /// The configuration contradicts itself or exceeds a limit.
    pub fn new(config: Config, now: Instant) -> Result<Session, InvalidConfig> {
        config.check()?;
        Ok(Session { config, now })
    }

    /// Copies a message and queues it.
    ///
    /// # Errors
    /// The message is empty or too large, or the queue is full.
    pub fn send(&mut self, _now: Instant, _outgoing: Outgoing<'_>) -> Result<MessageNumber, SendRefusal> {
        todo!()
    }

    /// The mode of the messages that are sent from now on. Messages in the queue keep their mode.
    pub fn set_mode(&mut self, _now: Instant, _mode: Mode) {
        todo!()
    }

    /// The granted rate from now on. [`BitRate::ZERO`] pauses the sending of data.
    pub fn set_rate(&mut self, _now: Instant, _rate: BitRate) {
        todo!()
    }

    /// Proposes another datagram size to the peer. A smaller size takes effect at once, a larger one with the peer's
    /// agreement. The carrier's largest datagram stays a limit.
    ///
    /// # Errors
    /// The size is out of range.
    pub fn set_tpdu_size(&mut self, _now: Instant, _bytes: u16) -> Result<(), InvalidConfig> {
        todo!()
    }

    /// Whether the application takes messages. While it does not, `poll` returns no `Output::Received`: complete
    /// reliable messages stay in the bounded memory and the peer has to wait, others are given up at their deadline.
    pub fn set_receiving(&mut self, _now: Instant, _is_receiving: bool) {
        todo!()
    }

    /// The application sends no more messages. The queued ones are still delivered.
    pub fn finish(&mut self, _now: Instant) {
        todo!()
    }

    /// Ends the session at once, and tells the peer.
    pub fn close(&mut self, _now: Instant) {
        todo!()
    }

    /// # Errors
    /// The number is in use, or the session has too many carriers.
    pub fn attach(&mut self, _now: Instant, _id: CarrierId, _info: CarrierInfo) -> Result<(), CarrierRefusal> {
        todo!()
    }

    /// Removes a carrier. TPDUs that it has not yet brought are sent again over another one.
    ///
    /// # Errors
    /// The carrier is not attached.
    pub fn detach(&mut self, _now: Instant, _id: CarrierId) -> Result<(), CarrierRefusal> {
        todo!()
    }

    /// Selects the carrier of the data that this side sends, and the carrier of its acknowledgments. Datagrams of
    /// the peer are accepted from every attached carrier.
    ///
    /// # Errors
    /// A carrier is not attached.
    pub fn select(&mut self, _now: Instant, _send: CarrierId, _receive: CarrierId) -> Result<(), CarrierRefusal> {
        todo!()
    }

    /// The largest datagram or the shortest round-trip time of a carrier changed. Unacknowledged TPDUs that are too
    /// large for it are cut again.
    ///
    /// # Errors
    /// The carrier is not attached.
    pub fn carrier_changed(
        &mut self,
        _now: Instant,
        _id: CarrierId,
        _max_datagram: u16,
        _min_rtt: Option<Nanos>,
    ) -> Result<(), CarrierRefusal> {
        todo!()
    }

    /// Whether the layer below takes datagrams for this carrier. While it does not, `poll` returns none for it, so the
    /// messages wait in the session, where deadlines apply.
    ///
    /// # Errors
    /// The carrier is not attached.
    pub fn set_writable(&mut self, _now: Instant, _id: CarrierId, _is_writable: bool) -> Result<(), CarrierRefusal> {
        todo!()
    }

    /// A datagram arrived. Unreadable and refused datagrams are counted.
    pub fn on_datagram(&mut self, _now: Instant, _carrier: CarrierId, _bytes: &[u8]) {
        todo!()
    }

    /// The time of [`Session::next_wakeup`] has come.
    pub fn on_timer(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// When to call [`Session::on_timer`], if no other input comes first. Call it after `poll` has returned `None`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        todo!()
    }

    /// The next output, at the time of the last input.
    pub fn poll(&mut self) -> Option<Output> {
        todo!()
    }

    /// The bytes of the last [`Output::Datagram`].
    pub fn datagram(&self) -> &[u8] {
        todo!()
    }

    /// The bytes of the last [`Output::Received`]; holes are zero.
    pub fn message(&self) -> &[u8] {
        todo!()
    }

    /// The parts of the last [`Output::Received`] that did not arrive, in ascending order.
    pub fn holes(&self) -> impl Iterator<Item = Range<usize>> {
        std::iter::empty()
    }

    /// Bytes of messages that have no outcome yet.
    pub fn backlog(&self) -> u64 {
        todo!()
    }

    pub fn statistics(&self) -> Statistics {
        let _ = &self.config;
        todo!()
    }
}
