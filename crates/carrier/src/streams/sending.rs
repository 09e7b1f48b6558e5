//! The sending half: which messages are dropped, and one task for each of the others.

use std::time::{Duration, Instant};

use qfabric_metp::{DropReason, FrameKind, Mode, Outcome};
use qfabric_types::Nanos;
use quinn::{Connection, SendStream, VarInt};

use super::wire::{Header, MessageHeader, TOO_LARGE};
use super::{Done, StreamDriver};
use crate::handover::{Event, Submitted};

/// Earlier messages first: quinn sends streams of a higher priority first.
fn priority(number: u64) -> i32 {
    i32::MAX - (number % (1 << 30)) as i32
}

impl StreamDriver {
    /// Takes one message from the application, if there is one and it has room.
    pub(super) fn submit(&mut self) -> bool {
        let most = self.options.memory().get();
        if self.in_flight >= self.options.messages_in_flight || self.bytes_in_flight >= most {
            return false;
        }
        let Some(message) = self.handover.take_message() else { return false };
        let mode_behind = message.mode_behind;
        self.begin(message);
        self.mode = mode_behind.unwrap_or(self.mode);
        true
    }

    fn begin(&mut self, message: Submitted) {
        let number = self.next_number;
        self.next_number += 1;
        self.counts.messages += 1;
        let deadline = self.deadline(&message);
        if self.would_be_late(&message, deadline) {
            self.dropped_before += 1;
            let reason = Outcome::Dropped(DropReason::WouldBeLate);
            return self.outcome(number, message.kind, message.data.len() as u64, reason);
        }
        self.in_flight += 1;
        let (kind, bytes) = (message.kind, message.data.len() as u64);
        self.bytes_in_flight += bytes;
        let dropped_before = std::mem::take(&mut self.dropped_before);
        let header =
            MessageHeader { number, kind, mode: self.mode, size: bytes as u32, dropped_before, deadline: None };
        let (connection, done) = (self.carrier.path.connection.clone(), self.done.clone());
        tokio::task::spawn_local(async move {
            let outcome = send(&connection, header, &message.data, deadline).await;
            // Fails only after the end of the driver.
            let _ = done.send(Done::Sent { number, kind, bytes, outcome }).await;
        });
    }

    fn deadline(&self, message: &Submitted) -> Option<Instant> {
        let general = || self.options.send_time.map(|time| Instant::now() + time);
        message.deadline.or_else(|| general().filter(|_| self.mode == Mode::PartiallyReliable))
    }

    /// The backlog, the message's own time and the way exceed the deadline (research rule: whole frames, never I).
    fn would_be_late(&self, message: &Submitted, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else { return false };
        if self.mode == Mode::TotallyReliable || message.kind == FrameKind::I {
            return false;
        }
        let bits = (self.bytes_in_flight + message.data.len() as u64) * 8;
        let sending = Duration::from_secs_f64(bits as f64 / self.rate().as_f64().max(1.0));
        let way = Duration::from_nanos(self.path.min_rtt.map_or(0, Nanos::get) / 2);
        Instant::now() + sending + way > deadline
    }

    pub(super) fn outcome(&mut self, number: u64, kind: FrameKind, bytes: u64, outcome: Outcome) {
        let counts = &mut self.counts;
        match outcome {
            Outcome::Delivered => {
                counts.delivered += 1;
                counts.acknowledged_bytes += bytes;
            }
            Outcome::Dropped(reason) => {
                counts.dropped[kind as usize] += 1;
                counts.dropped_late += u64::from(reason == DropReason::WouldBeLate);
                counts.dropped_too_large += u64::from(reason == DropReason::TooLargeForPeer);
            }
            Outcome::Expired => counts.expired += 1,
            Outcome::Partly { .. } | Outcome::Unknown => counts.partly += 1,
        }
        self.handover.report(Event::Outcome { number, kind, outcome });
    }

    /// Tells the other side when everything has an outcome and the application has finished.
    pub(super) fn finish_when_done(&mut self) {
        if !self.is_finishing || self.in_flight > 0 || !self.handover.is_drained() {
            return;
        }
        self.is_finishing = false;
        let (connection, done, total) = (self.carrier.path.connection.clone(), self.done.clone(), self.next_number);
        tokio::task::spawn_local(async move {
            let Ok(mut stream) = connection.open_uni().await else { return };
            // An error means that the connection is lost, which the driver notices.
            if stream.write_all(&Header::Finish { total }.encode()).await.is_ok() && stream.finish().is_ok() {
                let _ = stream.stopped().await;
                let _ = done.send(Done::FinishKnown).await;
            }
        });
    }
}

/// Sends a message; resets its stream at the deadline if the message is partially reliable.
async fn send(connection: &Connection, header: MessageHeader, data: &[u8], deadline: Option<Instant>) -> Outcome {
    let until = deadline.filter(|_| header.mode == Mode::PartiallyReliable);
    let Some(until) = until else {
        let Ok(mut stream) = connection.open_uni().await else { return Outcome::Unknown };
        return write(&mut stream, header, data, deadline).await.unwrap_or(Outcome::Unknown);
    };
    let mut stream = match tokio::time::timeout_at(until.into(), connection.open_uni()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) => return Outcome::Unknown,
        Err(_) => return Outcome::Expired,
    };
    match tokio::time::timeout_at(until.into(), write(&mut stream, header, data, deadline)).await {
        Ok(outcome) => outcome.unwrap_or(Outcome::Unknown),
        Err(_) => {
            // Fails only if everything has been acknowledged meanwhile.
            let _ = stream.reset(0u32.into());
            Outcome::Expired
        }
    }
}

/// `None`: the connection is lost.
async fn write(
    stream: &mut SendStream,
    header: MessageHeader,
    data: &[u8],
    deadline: Option<Instant>,
) -> Option<Outcome> {
    stream.set_priority(priority(header.number)).ok()?;
    let deadline = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    stream.write_all(&Header::Message(MessageHeader { deadline, ..header }).encode()).await.ok()?;
    if let Err(quinn::WriteError::Stopped(code)) = stream.write_all(data).await {
        return Some(stopped_with(code));
    }
    stream.finish().ok()?;
    let stopped = stream.stopped().await.ok()?;
    Some(stopped.map_or(Outcome::Delivered, stopped_with))
}

/// The other side stops a stream that is late for it, or whose message is too large.
fn stopped_with(code: VarInt) -> Outcome {
    let is_too_large = code == VarInt::from_u32(TOO_LARGE);
    if is_too_large { Outcome::Dropped(DropReason::TooLargeForPeer) } else { Outcome::Expired }
}
