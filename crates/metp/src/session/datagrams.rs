//! Which datagram a session sends next: the end, a report, the status, data.

use super::Session;
use crate::CarrierId;
use crate::bucket::TokenBucket;
use crate::send::{Step, Way};
use crate::wire;

impl Session {
    /// Writes the next datagram.
    pub(super) fn next_datagram(&mut self) -> Option<CarrierId> {
        self.tokens_at = None;
        let datagram = self.next_control();
        if self.tokens_at.is_some() {
            return None;
        }
        let sent = datagram.or_else(|| self.next_data());
        if sent.is_some() {
            self.last_sent = self.now;
        }
        sent
    }

    fn next_control(&mut self) -> Option<CarrierId> {
        self.next_close().or_else(|| self.next_report()).or_else(|| self.next_status())
    }

    fn next_close(&mut self) -> Option<CarrierId> {
        let id = self.carriers.sending().filter(|carrier| self.end.must_close && carrier.is_writable)?.id;
        self.end.must_close = false;
        wire::write_close(self.tag, &mut self.datagram);
        self.report_bytes += self.datagram.len() as u64;
        Some(id)
    }

    /// A report that goes out before another message is delivered, because it has no place for the fate of more.
    pub(super) fn next_full_report(&mut self) -> Option<CarrierId> {
        if !self.receiver.is_report_full() {
            return None;
        }
        let sent = self.next_report();
        if sent.is_some() {
            self.last_sent = self.now;
        }
        sent
    }

    fn next_report(&mut self) -> Option<CarrierId> {
        self.receiver.check_window();
        let carrier = self.carriers.receiving().filter(|carrier| carrier.is_writable)?;
        let (id, overhead) = (carrier.id, carrier.info.overhead);
        if !self.receiver.is_report_due(self.now) {
            return None;
        }
        self.receiver.report(self.now).write(self.tag, &mut self.datagram);
        self.pay(overhead)?;
        self.receiver.report_sent(self.now);
        self.report_bytes += self.datagram.len() as u64;
        Some(id)
    }

    fn next_status(&mut self) -> Option<CarrierId> {
        let carrier = self.carriers.sending().filter(|carrier| carrier.is_writable && self.end.reason.is_none())?;
        let (id, overhead) = (carrier.id, carrier.info.overhead);
        self.sender.due_status(self.now)?.write(self.tag, &mut self.datagram);
        self.pay(overhead)?;
        self.sender.status_sent(self.now, self.datagram.len() as u64);
        Some(id)
    }

    /// Takes tokens for a control datagram, in advance if need be.
    fn pay(&mut self, overhead: u16) -> Option<()> {
        let bytes = self.datagram.len() as u64 + u64::from(overhead);
        let paid = self.bucket.take_with_debt(self.now, bytes, TokenBucket::DEBT);
        self.tokens_at = paid.err().flatten();
        paid.ok()
    }

    fn next_data(&mut self) -> Option<CarrierId> {
        let carrier = self.carriers.sending().filter(|carrier| carrier.is_writable)?;
        let (id, way) = (carrier.id, Way::of(carrier));
        match self.sender.transmit(self.now, way, &mut self.bucket, &mut self.datagram) {
            Step::Sent => Some(id),
            Step::Wait(at) => {
                self.tokens_at = at;
                None
            }
            Step::Idle => {
                self.bucket.rest();
                None
            }
        }
    }
}
