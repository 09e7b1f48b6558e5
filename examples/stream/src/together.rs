//! Both reservations of a stream, with one start: CPU time for its thread, bytes for its packets.

use std::net::SocketAddr;

use anyhow::Result;
use qfabric_linux::ext::{Ext, ExtConfig, ServerId, ServerSpec};
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

/// Both schedulers with the stream's reservations. Dropping it gives everything back.
#[derive(Debug)]
pub struct Together {
    wish: Wish,
    cpu: Option<(Ext, Option<ServerId>)>,
    packets: Option<(Attachment, Option<StreamId>)>,
}

impl Together {
    /// Puts the schedulers that the wish needs in charge. Takes a moment: the kernel verifies them.
    pub fn load(wish: &Wish) -> Result<Together> {
        let cpu = wish.service.map(|_| Ext::load(&ExtConfig::default())).transpose()?;
        let packets = wish.interface.as_ref().map(|(name, rate)| attach(name, *rate)).transpose()?;
        Ok(Together {
            wish: wish.clone(),
            cpu: cpu.map(|ext| (ext, None)),
            packets: packets.map(|attachment| (attachment, None)),
        })
    }

    /// Reserves for `thread`, which sends from `source` to `destination`, from `start` on: CPU periods and packet
    /// periods begin together, the latter Θ later.
    pub fn reserve(
        &mut self,
        shape: &Shape,
        start: Instant,
        thread: ThreadId,
        (source, destination): (SocketAddr, SocketAddr),
    ) -> Result<()> {
        if let (Some((ext, server)), Some(service)) = (&mut self.cpu, self.wish.service) {
            let window = self.wish.window;
            let spec = ServerSpec { window, phase: Some(start), ..ServerSpec::new(shape.period, service) };
            let created = *server.insert(ext.create(&spec)?);
            ext.join(created, thread, false)?;
        }
        if let Some((attachment, stream)) = &mut self.packets {
            let flow = Flow { protocol: Protocol::Udp, source, destination };
            *stream = Some(attachment.begin(&packets(shape, self.wish.window, start, flow))?);
        }
        Ok(())
    }

    /// What the CPU's scheduler counted of the stream's periods.
    pub fn cpu_counts(&self) -> Result<Option<ServerCounts>> {
        let Some((ext, Some(server))) = &self.cpu else { return Ok(None) };
        let seen = ext.statistics(*server)?;
        let (served, missed, violations) = (seen.served, seen.missed, seen.violations);
        Ok(Some(ServerCounts { served, missed, violations, ..ServerCounts::default() }))
    }

    /// What the packet scheduler counted of the stream's periods.
    pub fn packet_counts(&self) -> Option<StreamCounters> {
        let (attachment, stream) = self.packets.as_ref()?;
        Some(attachment.counters((*stream)?))
    }
}

fn attach(interface: &str, rate_bps: u64) -> Result<Attachment> {
    let (mechanism, rate_bps) = (Some(NetMechanism::Dwcs), Some(rate_bps));
    let request = AttachRequest { mechanism, rate_bps, ..AttachRequest::default() };
    Ok(Attachment::attach(interface, &request, &mut Book::open(&std::env::temp_dir()))?)
}

/// The stream's packets: the same period and the same start as its computation, shifted by Θ.
fn packets(shape: &Shape, window: Window, start: Instant, flow: Flow) -> StreamSpec {
    let (pieces, size) = pieces(shape.bytes);
    StreamSpec {
        phase: shape.phase,
        window,
        size,
        limit: (2 * u32::from(pieces)).min(StreamSpec::LIMIT),
        start: Some(start),
        ..StreamSpec::new(Selector::Flow(flow), shape.period)
    }
}
