//! Carriers: the detachable descriptors of §5.2.3. A session has a set of them. One carries the data that this side
//! sends, another one may carry the acknowledgments of the data that it receives.

use qfabric_types::Nanos;
use qfabric_types::api::Problem;

use crate::wire::{MAX_TPDU, MIN_TPDU};

/// The caller's number of a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CarrierId(pub u32);

/// Directions that a carrier may be chosen for while none is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierRoles {
    /// Data of this side.
    Send,
    /// Data of the peer, and this side's acknowledgments of it.
    Receive,
    Both,
}

/// Properties of a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierInfo {
    /// The largest datagram in bytes, METP's header included. A limit below 256 counts as 256.
    pub max_datagram: u16,
    /// Bytes of the layers below for each datagram. The token bucket pays for them, too.
    pub overhead: u16,
    /// The shortest round-trip time, if it is known; used until the session has measured its own.
    pub min_rtt: Option<Nanos>,
    pub roles: CarrierRoles,
}

/// A carrier cannot be attached or used. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarrierRefusal {
    #[error("carrier {} is not attached", .0.0)]
    NotAttached(CarrierId),
    #[error("carrier {} is already attached", .0.0)]
    Attached(CarrierId),
    #[error("the session has {limit} carriers, of at most {limit}")]
    TooMany { limit: usize },
}

impl CarrierRefusal {
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            CarrierRefusal::NotAttached(_) => ("no_such_carrier", "attach the carrier first"),
            CarrierRefusal::Attached(_) => ("carrier_attached", "detach it first, or use another number"),
            CarrierRefusal::TooMany { .. } => ("too_many_carriers", "detach a carrier that is no longer used"),
        };
        Problem::new(code, self.to_string(), next_step)
    }
}

/// An attached carrier.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    pub(crate) id: CarrierId,
    pub(crate) info: CarrierInfo,
    /// Whether the layer below takes datagrams now.
    pub(crate) is_writable: bool,
}

/// The set of carriers of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carriers {
    attached: Vec<Carrier>,
    send: Option<CarrierId>,
    receive: Option<CarrierId>,
}

impl Carriers {
    /// A bound for the lists; a host has fewer network paths.
    const MOST: usize = 16;

    pub(crate) fn attach(&mut self, id: CarrierId, info: CarrierInfo) -> Result<(), CarrierRefusal> {
        if self.find(id).is_some() {
            return Err(CarrierRefusal::Attached(id));
        }
        if self.attached.len() == Carriers::MOST {
            return Err(CarrierRefusal::TooMany { limit: Carriers::MOST });
        }
        self.attached.push(Carrier { id, info: bounded(info), is_writable: true });
        Ok(())
    }

    pub(crate) fn detach(&mut self, id: CarrierId) -> Result<(), CarrierRefusal> {
        self.find(id).ok_or(CarrierRefusal::NotAttached(id))?;
        self.attached.retain(|carrier| carrier.id != id);
        self.send = self.send.filter(|selected| *selected != id);
        self.receive = self.receive.filter(|selected| *selected != id);
        Ok(())
    }

    pub(crate) fn select(&mut self, send: CarrierId, receive: CarrierId) -> Result<(), CarrierRefusal> {
        for id in [send, receive] {
            self.find(id).ok_or(CarrierRefusal::NotAttached(id))?;
        }
        (self.send, self.receive) = (Some(send), Some(receive));
        Ok(())
    }

    pub(crate) fn change(
        &mut self,
        id: CarrierId,
        max_datagram: u16,
        min_rtt: Option<Nanos>,
    ) -> Result<(), CarrierRefusal> {
        let info = &mut self.get_mut(id)?.info;
        *info = bounded(CarrierInfo { max_datagram, min_rtt: min_rtt.or(info.min_rtt), ..*info });
        Ok(())
    }

    pub(crate) fn set_writable(&mut self, id: CarrierId, is_writable: bool) -> Result<(), CarrierRefusal> {
        self.get_mut(id)?.is_writable = is_writable;
        Ok(())
    }

    fn get_mut(&mut self, id: CarrierId) -> Result<&mut Carrier, CarrierRefusal> {
        self.attached.iter_mut().find(|carrier| carrier.id == id).ok_or(CarrierRefusal::NotAttached(id))
    }

    pub(crate) fn find(&self, id: CarrierId) -> Option<&Carrier> {
        self.attached.iter().find(|carrier| carrier.id == id)
    }

    /// The carrier of the data that this side sends: the selected one, or the first one for this role.
    pub(crate) fn sending(&self) -> Option<&Carrier> {
        self.chosen(self.send, CarrierRoles::Receive)
    }

    /// The carrier of this side's acknowledgments.
    pub(crate) fn receiving(&self) -> Option<&Carrier> {
        self.chosen(self.receive, CarrierRoles::Send)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    fn chosen(&self, selected: Option<CarrierId>, unfit: CarrierRoles) -> Option<&Carrier> {
        selected.and_then(|id| self.find(id)).or_else(|| self.attached.iter().find(|one| one.info.roles != unfit))
    }
}

fn bounded(info: CarrierInfo) -> CarrierInfo {
    CarrierInfo { max_datagram: info.max_datagram.clamp(MIN_TPDU, MAX_TPDU), ..info }
}
