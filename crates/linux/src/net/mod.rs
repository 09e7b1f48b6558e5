//! Packets with deadlines: an interface's root queueing discipline replaced by ours, streams told to it, what was
//! there before put back.
//!
//! ```text
//! Attachment::attach ── begin / change / end streams, counters ──> detach, or dropped: what was there is back
//!        └─ noted in the run folder before (Book); after a crash `restore` puts it back
//! ```
//!
//! | question | file |
//! |---|---|
//! | the discipline in BPF (`bpf/packet/dwcs.bpf.c`), its configuration and counts | `dwcs.rs`, `config.rs`, `stats.rs` |
//! | classes on older kernels (`bpf/packet/htb.bpf.c`) | `htb.rs` |
//! | whose packet | `keys.rs`, `selectors.rs` |
//! | what was there, on disk | `former.rs`, `book.rs` |
//! | asking the kernel | `netlink.rs` |
//! | refusals | `error.rs` |
//! | links and packets of tests; the queue without packets | [`testing`], [`trial`] |
//!
//! Admission is not decided here: `linux` carries out. Decisions: docs/design/0014-packets.md.

mod book;
mod config;
mod dwcs;
mod error;
mod former;
mod htb;
mod keys;
mod netlink;
mod selectors;
mod speed;
mod stats;
pub mod testing;
pub mod trial;

use std::collections::BTreeMap;
use std::io;

pub use book::{Book, NetRestored, restore};
pub use error::{BEST_EFFORT_MAX, NetError, PERIOD_MAX, PERIOD_MIN, check};
pub use former::Former;
use qfabric_types::api::net::{
    AttachRequest, BestEffortCounters, InterfaceInfo, NetMechanism, StreamCounters, StreamId, StreamInfo, StreamSpec,
};
use qfabric_types::{Nanos, Share, Window};
use rustix::thread::CapabilitySet;

use crate::abi::QF_NET_STREAMS;
use crate::capability;
use config::Link;
use dwcs::Dwcs;
use former::Root;
use htb::Htb;
use keys::Key;

/// Streams that an interface may have.
pub const STREAMS_MAX: u32 = QF_NET_STREAMS;
/// What best effort is sure of where nothing else is asked for.
pub const BEST_EFFORT: Share = Share::from_ppm(50_000);

/// An interface under our packet scheduling; what was there before is put back when dropped.
#[derive(Debug)]
pub struct Attachment {
    interface: String,
    ifindex: u32,
    former: Former,
    link: Link,
    instead: Option<String>,
    carrier: Carrier,
    streams: BTreeMap<StreamId, Stream>,
    is_attached: bool,
}

#[derive(Debug)]
struct Stream {
    spec: StreamSpec,
    key: Key,
}

#[derive(Debug)]
enum Carrier {
    Dwcs(Dwcs),
    Htb(Htb),
}

/// Whether this kernel takes queueing disciplines in BPF; the refusal says what to use instead.
pub fn supported() -> Result<(), NetError> {
    dwcs::supported()
}

/// What was decided of a request before anything is touched.
struct Decided {
    ifindex: u32,
    former: Former,
    link: Link,
    mechanism: NetMechanism,
    instead: Option<String>,
}

fn decide(interface: &str, request: &AttachRequest) -> Result<Decided, NetError> {
    let ifindex = index(interface)?;
    if !capability::held(CapabilitySet::NET_ADMIN) {
        return Err(NetError::NotPermitted { what: "changing an interface's queueing" });
    }
    let former = former(interface, ifindex)?;
    let link = link(interface, request)?;
    let (mechanism, instead) = match (request.mechanism, supported()) {
        (Some(NetMechanism::Dwcs), Err(refusal)) => return Err(refusal),
        (Some(mechanism), _) => (mechanism, None),
        (None, Ok(())) => (NetMechanism::Dwcs, None),
        (None, Err(NetError::NoDwcs { why })) => (NetMechanism::Htb, Some(why)),
        (None, Err(refusal)) => (NetMechanism::Htb, Some(refusal.to_string())),
    };
    Ok(Decided { ifindex, former, link, mechanism, instead })
}

fn former(interface: &str, ifindex: u32) -> Result<Former, NetError> {
    let interface = interface.to_owned();
    match former::root(ifindex) {
        Ok(Root::Former(former)) => Ok(former),
        Ok(Root::Own { kind }) => Err(NetError::Attached { interface, kind }),
        Ok(Root::Classful { kind }) => Err(NetError::Classful { interface, kind }),
        Err(source) => Err(NetError::Kernel { interface, what: "reading its queueing", source }),
    }
}

fn link(interface: &str, request: &AttachRequest) -> Result<Link, NetError> {
    let known = request.rate_bps.or_else(|| speed::of(interface));
    let rate_bps = known.ok_or_else(|| NetError::NoRate { interface: interface.to_owned() })?;
    let best_effort = request.best_effort.unwrap_or(BEST_EFFORT);
    error::check_settings(rate_bps, best_effort, request.hold)?;
    Ok(Link { rate_bps, paced: request.rate_bps.is_some(), best_effort, hold: request.hold })
}

/// The number of an interface of this network namespace.
pub fn index(interface: &str) -> Result<u32, NetError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.and_then(|socket| netdevice::name_to_index(socket, interface)).map_err(|_| {
        let there = crate::interfaces::present().unwrap_or_default().into_iter().map(|found| found.name);
        NetError::NoInterface { name: interface.to_owned(), there: there.collect::<Vec<_>>().join(", ") }
    })
}

impl Attachment {
    /// Puts an interface under packet scheduling. On an error nothing is different from before.
    pub fn attach(interface: &str, request: &AttachRequest, book: &mut Book) -> Result<Attachment, NetError> {
        let Decided { ifindex, former, link, mechanism, instead } = decide(interface, request)?;
        let (carrier, kind) = match mechanism {
            NetMechanism::Dwcs => Dwcs::load(ifindex, &link).map(|(dwcs, kind)| (Carrier::Dwcs(dwcs), kind))?,
            NetMechanism::Htb => (Carrier::Htb(Htb::load(ifindex, &link)?), "htb".to_owned()),
        };
        book.note(interface, ifindex, &former)?;
        let (interface, streams) = (interface.to_owned(), BTreeMap::new());
        let attachment = Attachment { interface, ifindex, former, link, instead, carrier, streams, is_attached: true };
        let put = match &attachment.carrier {
            Carrier::Dwcs(dwcs) => dwcs.put(ifindex, &kind).map_err(|error| attachment.failed("attaching", error)),
            Carrier::Htb(htb) => htb.put(),
        };
        match put {
            Ok(()) => Ok(attachment),
            Err(refusal) => {
                drop(attachment);
                book.forget(ifindex)?;
                Err(refusal)
            }
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> NetError {
        if source.kind() == io::ErrorKind::PermissionDenied {
            return NetError::NotPermitted { what: "changing an interface's queueing" };
        }
        NetError::Kernel { interface: self.interface.clone(), what, source }
    }

    /// What of a stream is kept: by HTB classes its rate alone. Packets are neither dropped late nor held until a phase
    /// begins, so that nothing is saved by a window and C is needed in every T.
    pub fn kept(&self, spec: &StreamSpec) -> StreamSpec {
        match self.carrier {
            Carrier::Dwcs(_) => spec.clone(),
            Carrier::Htb(_) => StreamSpec { window: Window::NONE, phase: Nanos::ZERO, start: None, ..spec.clone() },
        }
    }

    /// Begins a stream, with what is [kept](Attachment::kept) of it.
    pub fn begin(&mut self, spec: &StreamSpec) -> Result<StreamId, NetError> {
        error::check(spec)?;
        let spec = &self.kept(spec);
        let key = Key::of(&spec.selector)?;
        if let Some((id, _)) = self.streams.iter().find(|(_, stream)| stream.key == key) {
            let (interface, selector, id) = (self.interface.clone(), spec.selector.clone(), *id);
            return Err(NetError::Taken { interface, selector, id });
        }
        let free = (0..STREAMS_MAX).find(|id| !self.streams.contains_key(id));
        let full = || NetError::Full { interface: self.interface.clone(), most: STREAMS_MAX };
        let id = free.ok_or_else(full)?;
        let begun = match &mut self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.begin(id, spec, &key),
            Carrier::Htb(htb) => htb.begin(id, spec, &key),
        };
        begun.map_err(|error| self.failed("beginning a stream", error))?;
        self.streams.insert(id, Stream { spec: spec.clone(), key });
        self.use_kinds();
        Ok(id)
    }

    /// Gives a stream other attributes, at once: what waits is sent by the new ones.
    pub fn change(&mut self, id: StreamId, spec: &StreamSpec) -> Result<(), NetError> {
        error::check(spec)?;
        let spec = &self.kept(spec);
        let key = self.stream(id)?.key;
        let changed = match &self.carrier {
            Carrier::Dwcs(dwcs) => {
                dwcs.change(id, spec);
                Ok(())
            }
            Carrier::Htb(htb) => htb.change(id, spec),
        };
        changed.map_err(|error| self.failed("changing a stream", error))?;
        self.streams.insert(id, Stream { spec: spec.clone(), key });
        Ok(())
    }

    /// Ends a stream: its packets are best effort from now on.
    pub fn end(&mut self, id: StreamId) -> Result<(), NetError> {
        let key = self.stream(id)?.key;
        let ended = match &mut self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.end(&key),
            Carrier::Htb(htb) => htb.end(id, &key),
        };
        ended.map_err(|error| self.failed("ending a stream", error))?;
        self.streams.remove(&id);
        self.use_kinds();
        Ok(())
    }

    fn use_kinds(&self) {
        let selectors = self.streams.values().map(|stream| &stream.spec.selector);
        match &self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.use_kinds(selectors),
            Carrier::Htb(htb) => htb.use_kinds(selectors),
        }
    }

    fn stream(&self, id: StreamId) -> Result<&Stream, NetError> {
        self.streams.get(&id).ok_or_else(|| NetError::NoStream { interface: self.interface.clone(), id })
    }

    /// What a stream asked for.
    pub fn spec(&self, id: StreamId) -> Result<&StreamSpec, NetError> {
        Ok(&self.stream(id)?.spec)
    }

    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamSpec)> {
        self.streams.iter().map(|(id, stream)| (*id, &stream.spec))
    }

    /// Bits per second for which streams are admitted.
    pub fn rate_bps(&self) -> u64 {
        self.link.rate_bps
    }

    /// The part of the link that best effort is sure of.
    pub fn best_effort(&self) -> Share {
        self.link.best_effort
    }

    /// What became of a stream's packets.
    pub fn counters(&self, id: StreamId) -> StreamCounters {
        match &self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.stats().stream(id),
            Carrier::Htb(htb) => htb.counters().unwrap_or_default().stream(id),
        }
    }

    /// What became of packets of no stream.
    pub fn best_effort_counters(&self) -> BestEffortCounters {
        match &self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.stats().best_effort(),
            Carrier::Htb(htb) => htb.counters().unwrap_or_default().best_effort(),
        }
    }

    /// The interface as it stands.
    pub fn info(&self) -> InterfaceInfo {
        let (mechanism, bursts) = match &self.carrier {
            Carrier::Dwcs(dwcs) => (NetMechanism::Dwcs, dwcs.stats().bursts()),
            Carrier::Htb(_) => (NetMechanism::Htb, 0),
        };
        let streams: Vec<_> = self.streams.iter().map(|(id, stream)| self.stream_info(*id, &stream.spec)).collect();
        InterfaceInfo {
            interface: self.interface.clone(),
            mechanism,
            instead: self.instead.clone(),
            rate_bps: self.link.rate_bps,
            paced: self.link.paced || mechanism == NetMechanism::Htb,
            best_effort: self.link.best_effort,
            hold: self.link.hold,
            former: self.former.to_string(),
            utilization: streams.iter().map(|stream| stream.utilization).sum(),
            streams,
            best_effort_counters: self.best_effort_counters(),
            bursts,
        }
    }

    fn stream_info(&self, id: StreamId, spec: &StreamSpec) -> StreamInfo {
        let utilization = spec.utilization(self.link.rate_bps);
        StreamInfo { id, spec: spec.clone(), utilization, follows: None, counters: self.counters(id) }
    }

    /// Puts back what was there before.
    pub fn detach(mut self, book: &mut Book) -> Result<(), NetError> {
        self.put_back().map_err(|error| self.failed("putting back what was there", error))?;
        book.forget(self.ifindex)
    }

    fn put_back(&mut self) -> io::Result<()> {
        // An interface whose number has gone has nothing to be put back.
        self.former.put_back(self.ifindex)?;
        self.is_attached = false;
        Ok(())
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.is_attached
            && let Err(error) = self.put_back()
        {
            tracing::warn!(interface = self.interface, %error, "what was there before is not put back");
        }
    }
}

/// Longest time that a packet of the largest size blocks the link: what is being sent is not interrupted.
pub fn blocking(rate_bps: u64) -> Nanos {
    StreamSpec {
        size: StreamSpec::LARGEST_PACKET,
        ..StreamSpec::new(qfabric_types::api::net::Selector::Mark(1), PERIOD_MAX)
    }
    .service(rate_bps)
}
