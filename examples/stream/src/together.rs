//! Both reservations of a stream with one start: CPU time for its thread, and packet time for its packets.

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

/// The reservations that a stream requests. If there is no CPU time or no interface, that reservation is not made.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRequest {
    /// C: CPU time for each frame.
    pub service: Option<Nanos>,
    /// The interface through which the packets leave, and the rate of the link in bits per second.
    pub interface: Option<(String, u64)>,
    /// x/y: at most x of every y frames may be lost.
    pub window: Window,
}

/// Both schedulers with the reservations of the stream. Dropping the value releases the reservations and the
/// schedulers.
#[derive(Debug)]
pub struct Together {
    request: StreamRequest,
    cpu: Option<(Ext, Option<ServerId>)>,
    packets: Option<(Attachment, Option<StreamId>)>,
}

impl Together {
    /// Loads the schedulers that the request needs. The kernel verifies them, which takes a while.
    pub fn load(request: &StreamRequest) -> Result<Together> {
        let cpu = request.service.map(|_| Ext::load(&ExtConfig::default())).transpose()?;
        let packets = request.interface.as_ref().map(|(name, rate)| attach(name, *rate)).transpose()?;
        Ok(Together {
            request: request.clone(),
            cpu: cpu.map(|ext| (ext, None)),
            packets: packets.map(|attachment| (attachment, None)),
        })
    }

    /// Makes the reservations for `thread`, which sends from `source` to `destination`. CPU periods begin at
    /// `start`, and packet periods Θ later.
    pub fn reserve(
        &mut self,
        shape: &Shape,
        start: Instant,
        thread: ThreadId,
        (source, destination): (SocketAddr, SocketAddr),
    ) -> Result<()> {
        if let (Some((ext, server)), Some(service)) = (&mut self.cpu, self.request.service) {
            let window = self.request.window;
            let spec = ServerSpec { window, phase: Some(start), ..ServerSpec::new(shape.period, service) };
            let created = *server.insert(ext.create(&spec)?);
            ext.join(created, thread, false)?;
        }
        if let Some((attachment, stream)) = &mut self.packets {
            let flow = Flow { protocol: Protocol::Udp, source, destination };
            *stream = Some(attachment.begin(&packets(shape, self.request.window, start, flow))?);
        }
        Ok(())
    }

    /// The CPU scheduler's counters for the stream.
    pub fn cpu_counts(&self) -> Result<Option<ServerCounts>> {
        let Some((ext, Some(server))) = &self.cpu else { return Ok(None) };
        let seen = ext.statistics(*server)?;
        let (served, missed, violations) = (seen.served, seen.missed, seen.violations);
        Ok(Some(ServerCounts { served, missed, violations, ..ServerCounts::default() }))
    }

    /// The packet scheduler's counters for the stream.
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

/// The packets of the stream: same period and start as the computation, shifted by Θ.
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
