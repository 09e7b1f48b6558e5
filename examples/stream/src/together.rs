//! Both reservations of a stream, with one start: CPU time for its thread, bytes for its packets.

use std::net::SocketAddr;

use anyhow::Result;
use qfabric_linux::ext::{Ext, ExtConfig, ServerSpec};
use qfabric_linux::net::{Attachment, Book};
use qfabric_types::api::net::{
    AttachRequest, Flow, NetMechanism, Protocol, Selector, StreamCounters, StreamId, StreamSpec,
};
use qfabric_types::{Instant, Nanos, ServerCounts, ThreadId, Window};

use crate::pace::Shape;
use crate::packet::pieces;

/// What a stream asks for beyond its shape. Without CPU time, or without an interface, that half is left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// C: CPU time for a frame.
    pub service: Option<Nanos>,
    /// Where its packets leave, and the link's rate in bits per second.
    pub interface: Option<(String, u64)>,
    /// x/y: how many frames may be lost.
    pub window: Window,
}

/// The reservations, held. Dropping it gives both back.
#[derive(Debug)]
pub struct Together {
    cpu: Option<(Ext, qfabric_linux::ext::ServerId)>,
    packets: Option<(Attachment, StreamId)>,
}

impl Together {
    /// Reserves for `thread`, which sends from `source` to `destination`, from `start` on. What is refused leaves
    /// nothing behind.
    pub fn reserve(
        wish: &Wish,
        shape: &Shape,
        start: Instant,
        thread: ThreadId,
        (source, destination): (SocketAddr, SocketAddr),
    ) -> Result<Together> {
        let flow = Flow { protocol: Protocol::Udp, source, destination };
        let cpu = wish.service.map(|service| cpu(wish, shape, service, start, thread)).transpose()?;
        let interface = wish.interface.as_ref();
        let packets = interface.map(|(name, rate)| packets(wish, shape, (name, *rate), start, flow)).transpose()?;
        Ok(Together { cpu, packets })
    }

    /// What the CPU's scheduler counted of the stream's periods.
    pub fn cpu_counts(&self) -> Result<Option<ServerCounts>> {
        let Some((ext, server)) = &self.cpu else { return Ok(None) };
        let seen = ext.statistics(*server)?;
        let (served, missed, violations) = (seen.served, seen.missed, seen.violations);
        Ok(Some(ServerCounts { served, missed, violations, ..ServerCounts::default() }))
    }

    /// What the packet scheduler counted of the stream's periods.
    pub fn packet_counts(&self) -> Option<StreamCounters> {
        self.packets.as_ref().map(|(attachment, stream)| attachment.counters(*stream))
    }
}

fn cpu(
    wish: &Wish,
    shape: &Shape,
    service: Nanos,
    start: Instant,
    thread: ThreadId,
) -> Result<(Ext, qfabric_linux::ext::ServerId)> {
    let mut ext = Ext::load(&ExtConfig::default())?;
    let spec = ServerSpec { window: wish.window, phase: Some(start), ..ServerSpec::new(shape.period, service) };
    let server = ext.create(&spec)?;
    ext.join(server, thread, false)?;
    Ok((ext, server))
}

/// The same period and the same start, shifted by Θ.
fn packets(
    wish: &Wish,
    shape: &Shape,
    link: (&str, u64),
    start: Instant,
    flow: Flow,
) -> Result<(Attachment, StreamId)> {
    let (interface, rate) = link;
    let request =
        AttachRequest { mechanism: Some(NetMechanism::Dwcs), rate_bps: Some(rate), ..AttachRequest::default() };
    let mut book = Book::open(&std::env::temp_dir());
    let mut attachment = Attachment::attach(interface, &request, &mut book)?;
    let (pieces, size) = pieces(shape.bytes);
    let stream = attachment.begin(&StreamSpec {
        phase: shape.phase,
        window: wish.window,
        size,
        limit: (2 * u32::from(pieces)).min(StreamSpec::LIMIT),
        start: Some(start),
        ..StreamSpec::new(Selector::Flow(flow), shape.period)
    })?;
    Ok((attachment, stream))
}
