//! Packets with deadlines: replaces the root queueing discipline of an interface by ours, configures its streams, and
//! puts the former discipline back.
//!
//! ```text
//! Attachment::attach ── begin / change / end streams, counters ──> detach, or dropped: the former discipline is back
//!        └─ recorded in the run folder before (Book); after a crash `restore` puts it back
//! ```
//!
//! | task | file |
//! |---|---|
//! | the discipline in BPF (`bpf/packet/dwcs.bpf.c`), its configuration and counters | `dwcs.rs`, `config.rs`, `stats.rs` |
//! | classes on older kernels (`bpf/packet/htb.bpf.c`) | `htb.rs` |
//! | the code points of packets (`bpf/packet/dscp.bpf.c`) | `marker.rs` |
//! | finding the stream of a packet | `keys.rs`, `selectors.rs` |
//! | the former discipline, on disk | `former.rs`, `book.rs` |
//! | the network namespaces that exist | `existing.rs` |
//! | the users whose sockets send the packets of a selector | `ownership.rs` |
//! | requests to the kernel | `netlink.rs` |
//! | the admission of streams to a link | `admission.rs` |
//! | address, size of packets and state of an interface | `device.rs` |
//! | errors | `error.rs` |
//! | packets with departure times, for `fq` | `txtime.rs` |
//! | links and packets for tests; the queue without packets | [`testing`], [`trial`] |
//!
//! Admission is not decided here; this room only applies decisions. Design: docs/design/0014-packets.md.

mod admission;
mod book;
mod config;
mod device;
mod dwcs;
mod error;
mod existing;
mod former;
mod htb;
mod keys;
mod marker;
mod netlink;
mod ownership;
mod selectors;
mod speed;
mod stats;
pub mod testing;
pub mod trial;
mod txtime;

use std::collections::BTreeMap;
use std::io;

pub use admission::{admit, capacity};
pub use book::{Book, NetRestored, restore};
pub(crate) use device::{add_address, configure, up};
pub use error::{BEST_EFFORT_MAX, NetError, PERIOD_MAX, PERIOD_MIN, check};
pub use former::Former;
pub use ownership::{cgroup_user, flow_users, is_own_address};
use qfabric_types::api::net::{
    AttachRequest, BestEffortCounters, InterfaceInfo, NetMechanism, StreamCounters, StreamId, StreamInfo,
    StreamPromise, StreamSpec,
};
use qfabric_types::{Nanos, Share, Window};
use rustix::thread::CapabilitySet;
pub use txtime::TimedSocket;

use crate::abi::QF_NET_STREAMS;
use crate::capability;
use config::Link;
use dwcs::Dwcs;
use former::Root;
use htb::Htb;
use keys::Key;
use marker::Marker;

/// Largest number of streams of an interface.
pub const STREAMS_MAX: u32 = QF_NET_STREAMS;
/// Default share of the link that is guaranteed to best effort.
pub const BEST_EFFORT: Share = Share::from_ppm(50_000);

/// An interface under our packet scheduling. Dropping it puts the former discipline back.
#[derive(Debug)]
pub struct Attachment {
    interface: String,
    ifindex: u32,
    former: Former,
    link: Link,
    instead: Option<String>,
    carrier: Carrier,
    streams: BTreeMap<StreamId, Stream>,
    /// Only while a stream has a code point.
    marker: Option<Marker>,
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

/// Fails if this kernel does not support queueing disciplines in BPF; the error names an alternative.
pub fn supported() -> Result<(), NetError> {
    dwcs::supported()
}

/// The decisions about a request, made before anything is changed.
struct Decision {
    ifindex: u32,
    former: Former,
    link: Link,
    mechanism: NetMechanism,
    instead: Option<String>,
}

fn decide(interface: &str, request: &AttachRequest) -> Result<Decision, NetError> {
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
    Ok(Decision { ifindex, former, link, mechanism, instead })
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

/// Index of an interface of this network namespace.
pub fn index(interface: &str) -> Result<u32, NetError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.and_then(|socket| netdevice::name_to_index(socket, interface)).map_err(|_| {
        let there = crate::interfaces::present().unwrap_or_default().into_iter().map(|found| found.name);
        NetError::NoInterface { name: interface.to_owned(), there: there.collect::<Vec<_>>().join(", ") }
    })
}

impl Attachment {
    /// Puts an interface under packet scheduling. After an error the interface is as before.
    pub fn attach(interface: &str, request: &AttachRequest, book: &mut Book) -> Result<Attachment, NetError> {
        let Decision { ifindex, former, link, mechanism, instead } = decide(interface, request)?;
        let (carrier, kind) = match mechanism {
            NetMechanism::Dwcs => Dwcs::load(ifindex, &link).map(|(dwcs, kind)| (Carrier::Dwcs(dwcs), kind))?,
            NetMechanism::Htb => (Carrier::Htb(Htb::load(ifindex, &link)?), "htb".to_owned()),
        };
        book.record(interface, ifindex, &former)?;
        let (interface, streams) = (interface.to_owned(), BTreeMap::new());
        let (marker, is_attached) = (None, true);
        let mut attachment =
            Attachment { interface, ifindex, former, link, instead, carrier, streams, marker, is_attached };
        let put = match &attachment.carrier {
            Carrier::Dwcs(dwcs) => dwcs.put(ifindex, &kind).map_err(|error| attachment.failed("attaching", error)),
            Carrier::Htb(htb) => htb.put(),
        };
        match put {
            Ok(()) => Ok(attachment),
            Err(refusal) => {
                // What cannot be put back stays in the record.
                if attachment.put_back().is_ok() {
                    book.forget(ifindex)?;
                }
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

    /// The part of a stream's attributes that the mechanism supports. HTB classes support only the rate: packets are
    /// neither dropped when late nor held until a phase begins, so a window saves nothing and C is needed in every T.
    pub fn kept(&self, spec: &StreamSpec) -> StreamSpec {
        match self.carrier {
            Carrier::Dwcs(_) => spec.clone(),
            Carrier::Htb(_) => StreamSpec { window: Window::NONE, phase: Nanos::ZERO, start: None, ..spec.clone() },
        }
    }

    /// The number of the next stream that [begins](Attachment::begin).
    pub fn free_stream(&self) -> Result<StreamId, NetError> {
        let free = (0..STREAMS_MAX).find(|id| !self.streams.contains_key(id));
        free.ok_or_else(|| NetError::Full { interface: self.interface.clone(), most: STREAMS_MAX })
    }

    pub fn mechanism(&self) -> NetMechanism {
        match self.carrier {
            Carrier::Dwcs(_) => NetMechanism::Dwcs,
            Carrier::Htb(_) => NetMechanism::Htb,
        }
    }

    /// Begins a stream with the [supported part](Attachment::kept) of its attributes.
    pub fn begin(&mut self, spec: &StreamSpec) -> Result<StreamId, NetError> {
        error::check(spec)?;
        let spec = &self.kept(spec);
        let key = Key::of(&spec.selector)?;
        if let Some((id, _)) = self.streams.iter().find(|(_, stream)| stream.key == key) {
            let (interface, selector, id) = (self.interface.clone(), spec.selector.clone(), *id);
            return Err(NetError::Taken { interface, selector, id });
        }
        let id = self.free_stream()?;
        self.load_marker(spec)?;
        let begun = match &mut self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.begin(id, spec, &key),
            Carrier::Htb(htb) => htb.begin(id, spec, &key),
        };
        begun.map_err(|error| self.failed("beginning a stream", error))?;
        self.streams.insert(id, Stream { spec: spec.clone(), key });
        self.use_kinds();
        self.mark()?;
        Ok(id)
    }

    /// Changes a stream at once; its waiting packets are also sent by the new attributes.
    pub fn change(&mut self, id: StreamId, spec: &StreamSpec) -> Result<(), NetError> {
        error::check(spec)?;
        let spec = &self.kept(spec);
        let key = self.stream(id)?.key;
        self.load_marker(spec)?;
        let changed = match &self.carrier {
            Carrier::Dwcs(dwcs) => {
                dwcs.change(id, spec);
                Ok(())
            }
            Carrier::Htb(htb) => htb.change(id, spec),
        };
        changed.map_err(|error| self.failed("changing a stream", error))?;
        self.streams.insert(id, Stream { spec: spec.clone(), key });
        self.mark()
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
        self.mark()
    }

    /// Before a stream with a code point begins: a kernel without the program refuses it.
    fn load_marker(&mut self, spec: &StreamSpec) -> Result<(), NetError> {
        if spec.dscp.is_some() && self.marker.is_none() {
            self.marker = Some(Marker::load(self.ifindex)?);
        }
        Ok(())
    }

    /// After a change of the streams.
    fn mark(&mut self) -> Result<(), NetError> {
        if self.streams.values().all(|stream| stream.spec.dscp.is_none()) {
            self.marker = None;
        }
        let streams = self.streams.iter().map(|(id, stream)| (*id, &stream.key, &stream.spec));
        let marked = self.marker.as_mut().map_or(Ok(()), |marker| marker.follow(streams));
        marked.map_err(|error| self.failed("setting the code points of packets", error))
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

    pub fn spec(&self, id: StreamId) -> Result<&StreamSpec, NetError> {
        Ok(&self.stream(id)?.spec)
    }

    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamSpec)> {
        self.streams.iter().map(|(id, stream)| (*id, &stream.spec))
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Rate in bits per second that admission uses.
    pub fn rate_bps(&self) -> u64 {
        self.link.rate_bps
    }

    /// Share of the link that is guaranteed to best effort.
    pub fn best_effort(&self) -> Share {
        self.link.best_effort
    }

    pub fn counters(&self, id: StreamId) -> StreamCounters {
        match &self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.stats().stream(id),
            Carrier::Htb(htb) => htb.counters().unwrap_or_default().stream(id),
        }
    }

    /// Counters of all streams, by one request to the kernel. Counters that cannot be read are 0.
    pub fn all_counters(&self) -> Vec<(StreamId, StreamCounters)> {
        let ids = self.streams.keys().copied();
        if ids.len() == 0 {
            return Vec::new();
        }
        match &self.carrier {
            Carrier::Dwcs(dwcs) => ids.map(|id| (id, dwcs.stats().stream(id))).collect(),
            Carrier::Htb(htb) => {
                let counts = htb.counters().unwrap_or_default();
                ids.map(|id| (id, counts.stream(id))).collect()
            }
        }
    }

    /// Counters of the packets that belong to no stream.
    pub fn best_effort_counters(&self) -> BestEffortCounters {
        match &self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.stats().best_effort(),
            Carrier::Htb(htb) => htb.counters().unwrap_or_default().best_effort(),
        }
    }

    pub fn info(&self) -> InterfaceInfo {
        let mechanism = self.mechanism();
        let bursts = match &self.carrier {
            Carrier::Dwcs(dwcs) => dwcs.stats().bursts(),
            Carrier::Htb(_) => 0,
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
            link: None,
        }
    }

    fn stream_info(&self, id: StreamId, spec: &StreamSpec) -> StreamInfo {
        let utilization = spec.utilization(self.link.rate_bps);
        let promise = StreamPromise { rate_bps: spec.rate(), ..StreamPromise::default() };
        StreamInfo { id, spec: spec.clone(), utilization, follows: None, promise, counters: self.counters(id) }
    }

    /// Puts the former discipline back.
    pub fn detach(mut self, book: &mut Book) -> Result<(), NetError> {
        self.give_back(book)
    }

    /// Like [`Attachment::detach`]; after an error the caller may try again.
    pub fn give_back(&mut self, book: &mut Book) -> Result<(), NetError> {
        self.put_back().map_err(|error| self.failed("putting the former discipline back", error))?;
        book.forget(self.ifindex)
    }

    /// Whether the interface still exists in this network namespace, under whatever name.
    pub fn is_there(&self) -> bool {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let name = socket.and_then(|socket| netdevice::index_to_name(socket, self.ifindex));
        // Another error says nothing about the interface.
        !matches!(name, Err(rustix::io::Errno::NODEV))
    }

    /// Whether our discipline is still at the root. Another program may have replaced it; then no stream gets its rate.
    pub fn is_in_force(&self) -> bool {
        // A root that cannot be read says nothing. A list that changes while it is read may lack it once.
        let is_replaced = || matches!(former::root(self.ifindex), Ok(Root::Former(_) | Root::Classful { .. }));
        self.is_there() && !(0..2).all(|_| is_replaced())
    }

    fn put_back(&mut self) -> io::Result<()> {
        // An interface that no longer exists has no discipline to put back.
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
            tracing::warn!(interface = self.interface, %error, "the former discipline was not put back; run `qfabric restore`");
        }
    }
}
