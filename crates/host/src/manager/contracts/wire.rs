//! The bytes of a message: a control event of the managers ([`QualityEvent`]) with the attribute [`CONTRACT`] and the
//! kind of the lending protocol, followed by a tail. Little endian, no padding.
//!
//! | part of the event | meaning |
//! |---|---|
//! | `kind` | Request, Offer, Refuse, Accept, Confirm, Cancel |
//! | `value` | the version of the tail, [`VERSION`] |
//! | `request` | the number of the contract |
//!
//! ```text
//! tail    := host:text round:u32 body
//! Request := uid:u32 gid:u32 wanted:vector minimum:vector application:text (empty: none) may_grow:u8
//!            hold_ns:u64
//! Offer   := is_upgrade:u8 vector        Accept := step:u32 vector [frees_upgrade:u8]
//! Confirm := step:u32 vector             Cancel :=
//! Refuse  := reason:u8 fields of the reason [holders:u8 { initiator:text amount:u64 } [others:u64]] (of a shortage, at
//!            most 8)
//! vector  := cpu_ppm:u32 memory_bytes:u64 links:u8 { direction:u8 interface:text rate_bps:u64 }
//! text    := length:u8 bytes
//! ```
//! A shortage of an older host has no `holders` or no `others`, and an older host ignores them. An Accept of an older
//! host has no `frees_upgrade`, and an older host ignores it: there a declined upgrade is free
//! when its hold is over.
//!
//! A manager that does not know contracts sees a request for an attribute that it does not have, and does not answer;
//! it cannot read a Refuse, and ignores it. One that knows another version refuses with its version.

mod fields;

use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{Instant, Nanos, Owner};

use super::{Body, ContractMessage, PartRequest};
use fields::{Reader, Writer};

/// Name of the attribute of all messages about contracts.
pub const CONTRACT: &str = "contract";

/// Version of the tail.
pub const VERSION: u8 = 1;

/// Largest number of bytes of a message: the event and two full vectors, with some room.
pub(super) const MAX_MESSAGE: usize = 2_048;

/// A message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReadable {
    /// An event without a tail, or of another attribute.
    #[error("not a message about a contract")]
    Other,
    /// [`super::Participant::not_readable`] answers a request of this kind.
    #[error("version {version} of contracts, and this host speaks {VERSION}; update the older host")]
    Version { number: u64, version: i64 },
    #[error("a message about contract {number:016x} of {size} bytes is not valid")]
    Invalid { number: u64, size: usize },
}

impl ContractMessage {
    /// The bytes of the event; `now` is this host's clock.
    pub fn encode(&self, now: Instant) -> Vec<u8> {
        let contract = AttributeId::of(CONTRACT);
        let event = QualityEvent {
            controller: contract,
            kind: kind(&self.body),
            value: VERSION.into(),
            other: 0,
            request: self.id.number,
            at: now,
            application: HOST,
            attribute: contract,
            subject: QualityText::NONE,
        };
        let mut writer = Writer(event.encode().to_vec());
        writer.text(self.id.host.as_str());
        writer.word(self.round);
        write_body(&mut writer, &self.body);
        writer.0
    }

    /// Reads an event. Bytes after the tail belong to a newer version and are ignored.
    ///
    /// # Errors
    /// The bytes are not a message of this version.
    pub fn decode(bytes: &[u8]) -> Result<ContractMessage, NotReadable> {
        let event = QualityEvent::decode(bytes).map_err(|_| NotReadable::Other)?;
        let tail = bytes.get(QualityEvent::SIZE..).filter(|tail| !tail.is_empty()).ok_or(NotReadable::Other)?;
        if event.attribute != AttributeId::of(CONTRACT) {
            return Err(NotReadable::Other);
        }
        let number = event.request;
        if event.value != i64::from(VERSION) {
            return Err(NotReadable::Version { number, version: event.value });
        }
        let tail = Some(tail).filter(|_| bytes.len() <= MAX_MESSAGE);
        let message = tail.and_then(|tail| read(&mut Reader(tail), event.kind, number));
        message.ok_or(NotReadable::Invalid { number, size: bytes.len() })
    }
}

fn kind(body: &Body) -> QualityKind {
    match body {
        Body::Request(_) => QualityKind::Request,
        Body::Offer { .. } => QualityKind::Offer,
        Body::Refuse(_) => QualityKind::Refuse,
        Body::Accept { .. } => QualityKind::Accept,
        Body::Confirm { .. } => QualityKind::Confirm,
        Body::Cancel => QualityKind::Cancel,
    }
}

fn write_body(writer: &mut Writer, body: &Body) {
    match body {
        Body::Request(part) => {
            writer.word(part.owner.uid);
            writer.word(part.owner.gid);
            writer.vector(&part.wanted);
            writer.vector(&part.minimum);
            writer.text(part.application.as_ref().map_or("", Name::as_str));
            writer.byte(part.may_grow.into());
            writer.long(part.hold.get());
        }
        Body::Offer { granted, is_upgrade } => {
            writer.byte((*is_upgrade).into());
            writer.vector(granted);
        }
        Body::Refuse(reason) => writer.reason(reason),
        Body::Accept { step, granted, frees_upgrade } => {
            writer.word(*step);
            writer.vector(granted);
            writer.byte((*frees_upgrade).into());
        }
        Body::Confirm { step, granted } => {
            writer.word(*step);
            writer.vector(granted);
        }
        Body::Cancel => {}
    }
}

fn read(reader: &mut Reader<'_>, kind: QualityKind, number: u64) -> Option<ContractMessage> {
    let host = reader.name()??;
    let round = reader.word()?;
    let body = match kind {
        QualityKind::Request => Body::Request(read_part(reader)?),
        QualityKind::Offer => Body::Offer { is_upgrade: reader.flag()?, granted: reader.vector()? },
        QualityKind::Refuse => Body::Refuse(reader.reason()?),
        QualityKind::Accept => {
            let (step, granted) = (reader.word()?, reader.vector()?);
            Body::Accept { step, granted, frees_upgrade: reader.optional_flag()? }
        }
        QualityKind::Confirm => Body::Confirm { step: reader.word()?, granted: reader.vector()? },
        QualityKind::Cancel => Body::Cancel,
        _ => return None,
    };
    Some(ContractMessage { id: JointId { host, number }, round, body })
}

/// A request asks for something, and its minimum is part of it.
fn read_part(reader: &mut Reader<'_>) -> Option<PartRequest> {
    let owner = Owner { uid: reader.word()?, gid: reader.word()? };
    let (wanted, minimum) = (reader.vector()?, reader.vector()?);
    let (application, may_grow, hold) = (reader.name()?, reader.flag()?, Nanos::new(reader.long()?));
    let is_valid = !wanted.is_zero() && wanted.covers(&minimum);
    is_valid.then_some(PartRequest { owner, wanted, minimum, application, may_grow, hold })
}

#[cfg(test)]
mod tests;
