//! The carriers of a session: attached, replaced and lost while messages flow.

use std::task::{Context, Poll};

use qfabric_metp::{CarrierId, CarrierInfo, CarrierRefusal, CarrierRoles, Session};
use qfabric_types::Instant;

use super::{Attachment, BATCH, Driver, now};
use crate::Error;
use crate::carrier::{Carrier, Path};
use crate::handover::Event;
use crate::quic::QuicDatagrams;
use crate::statistics::CarrierStatistics;

/// A carrier, and what the session knows of it.
pub(super) struct Attached {
    pub(super) id: u32,
    pub(super) carrier: Box<dyn Carrier>,
    pub(super) path: Path,
    is_writable: bool,
    /// When the layer below last took no more datagrams: congestion control limits the rate.
    pub(super) full: Option<Instant>,
    pub(super) is_lost: bool,
}

impl Attached {
    /// Receives up to [`BATCH`] datagrams. Returns whether anything changed.
    pub(super) fn poll(
        &mut self,
        session: &mut Session,
        id: u32,
        now: Instant,
        buffer: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> bool {
        if self.is_lost {
            return false;
        }
        let mut is_changed = !self.is_writable && self.carrier.poll_room(context).is_ready();
        if is_changed {
            self.set_writable(session, now, true);
        }
        for _ in 0..BATCH {
            buffer.clear();
            match self.carrier.poll_receive(context, buffer) {
                Poll::Ready(true) => session.on_datagram(now, CarrierId(id), buffer),
                Poll::Ready(false) => self.is_lost = true,
                Poll::Pending => return is_changed,
            }
            is_changed = true;
            if self.is_lost {
                break;
            }
        }
        is_changed
    }

    fn set_writable(&mut self, session: &mut Session, now: Instant, is_writable: bool) {
        self.is_writable = is_writable;
        // Fails only for a carrier that is not attached.
        let _ = session.set_writable(now, CarrierId(self.id), is_writable);
    }

    pub(super) fn statistics(&self, sending: u32) -> CarrierStatistics {
        CarrierStatistics {
            carrier: self.id,
            is_sending: self.id == sending,
            kind: self.carrier.kind(),
            addresses: self.carrier.addresses(),
            max_datagram: self.path.max_datagram,
            counts: self.carrier.counts(),
        }
    }
}

impl Driver {
    /// Attaches a carrier. The first one carries everything; further ones wait until they are selected.
    pub(crate) fn attach(&mut self, mut carrier: Box<dyn Carrier>) -> Result<u32, Error> {
        let (id, path) = (self.next_carrier, carrier.path());
        let info = CarrierInfo {
            max_datagram: size(path.max_datagram),
            overhead: size(path.overhead),
            min_rtt: path.min_rtt,
            roles: CarrierRoles::Both,
        };
        self.session.attach(now(), CarrierId(id), info).map_err(refused)?;
        self.next_carrier += 1;
        let is_only_one = self.carriers.is_empty();
        if is_only_one {
            self.sending = id;
        }
        self.carriers.insert(id, Attached { id, carrier, path, is_writable: true, full: None, is_lost: false });
        self.handover.report(Event::CarrierAttached { carrier: id });
        if is_only_one {
            // A grant whose path was lost goes on here, or ends because it is for other addresses.
            self.apply_grant();
        }
        Ok(id)
    }

    /// Waits for a connection and attaches it.
    pub(crate) async fn attach_first(&mut self) {
        // Some: this side has a sender, too.
        if let Some(attachment) = self.attachments.recv().await {
            self.attach_connection(attachment);
        }
    }

    pub(crate) fn attach_connection(&mut self, attachment: Attachment) {
        let attached = attachment.path.and_then(|path| self.attach(Box::new(QuicDatagrams::new(path))));
        if let Some(reply) = attachment.reply {
            // The caller's time may be over.
            let _ = reply.try_send(attached);
        }
    }

    pub(super) fn detach(&mut self, id: u32, reason: &str) -> Result<(), Error> {
        self.session.detach(now(), CarrierId(id)).map_err(refused)?;
        self.watch_grant();
        if let Some(mut attached) = self.carriers.remove(&id) {
            attached.carrier.close(reason);
        }
        if self.sending == id {
            self.sending = self.carriers.keys().next().copied().unwrap_or(id);
            self.apply_grant();
        }
        Ok(())
    }

    pub(super) fn select(&mut self, send: u32, receive: u32) -> Result<(), Error> {
        self.session.select(now(), CarrierId(send), CarrierId(receive)).map_err(refused)?;
        self.watch_grant();
        self.sending = send;
        self.apply_grant();
        Ok(())
    }

    /// Carriers whose connection ended leave the session. A session without a carrier waits for another one until its
    /// idle limit.
    pub(super) fn drop_lost(&mut self) {
        let lost: Vec<u32> = self.carriers.values().filter(|attached| attached.is_lost).map(|lost| lost.id).collect();
        for id in lost {
            let why = self.carriers[&id].carrier.close_reason().unwrap_or_else(|| "closed".to_owned());
            tracing::info!(carrier = id, why, "a carrier is lost");
            // It is attached, so this cannot fail.
            let _ = self.detach(id, "");
            self.handover.report(Event::CarrierLost { carrier: id, why });
        }
    }

    pub(super) fn stop_if_full(&mut self, id: u32) {
        let Some(attached) = self.carriers.get_mut(&id) else { return };
        if attached.is_writable && !attached.carrier.has_room() {
            attached.full = Some(now());
            attached.set_writable(&mut self.session, now(), false);
        }
    }

    /// Tells the session when the path of a carrier changed.
    pub(super) fn look_at_path(&mut self, id: u32) {
        let Some(attached) = self.carriers.get_mut(&id) else { return };
        let path = attached.carrier.path();
        let old = std::mem::replace(&mut attached.path, path);
        if path.max_datagram > 0 && (path.max_datagram, path.min_rtt) != (old.max_datagram, old.min_rtt) {
            // Fails only for a carrier that is not attached.
            let _ = self.session.carrier_changed(now(), CarrierId(id), size(path.max_datagram), path.min_rtt);
        }
    }
}

fn size(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

fn refused(error: CarrierRefusal) -> Error {
    Error::Refused(Box::new(error.problem()))
}
