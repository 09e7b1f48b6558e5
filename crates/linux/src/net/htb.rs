//! The alternative for kernels without queueing disciplines in BPF: a hierarchical token bucket with a class for each
//! stream.
//!
//! ```text
//! 5146:  htb ── 5146:1  the link ──┬── 5146:2     best effort: its share, up to the link, last
//!                                  ├── 5146:10    stream 0: C in every T, first
//!                                  └── 5146:11 …  stream 1 …
//! ```
//!
//! A class has rate C/T and may send C at once; a work-conserving stream may send up to the rate of the link. HTB has
//! no deadlines, windows or phases, and drops no late packets. The choice of a packet's stream, admission and detaching
//! are the same as in [`super::dwcs`].

use std::collections::BTreeMap;
use std::io;

use qfabric_types::api::net::{BestEffortCounters, Selector, StreamCounters, StreamSpec};

use super::config::Link;
use super::error::NetError;
use super::former::{self, HANDLE, TCA_KIND, TCA_OPTIONS};
use super::keys::Key;
use super::netlink::{
    self, Message, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Object, RTM_DELTCLASS, RTM_GETTCLASS, RTM_NEWQDISC,
    RTM_NEWTCLASS, RTM_NEWTFILTER, attributes, push,
};
use super::selectors::Selectors;
use crate::bpf::{OpenObject, objects};

const LINK: u32 = HANDLE | 1;
const BEST_EFFORT: u32 = HANDLE | 2;
const FIRST_STREAM: u32 = HANDLE | 0x10;

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
/// The number of packets in 64 bits, if it is too large for the basic counters.
const TCA_STATS_PKT64: u16 = 8;

/// Length of the kernel's tick of packet scheduling, in ns.
const TICK_NS: u64 = 64;
/// Rates are stored as 32-bit numbers of bytes per second; a higher rate needs a separate attribute.
const RATE_32: u64 = u32::MAX as u64;
const LINK_LAYER_ETHERNET: u8 = 1;
/// Ethernet's number for all protocols in network byte order; the upper half is the priority of the filter.
const FILTER_INFO: u32 = 1 << 16 | (3u16.to_be() as u32);
/// Least number of bytes that a class may send at once: two of the largest packets.
const BURST_MIN: u64 = 2 * StreamSpec::LARGEST_PACKET as u64;

/// HTB classes on one interface.
#[derive(Debug)]
pub(super) struct Htb {
    ifindex: u32,
    link: Link,
    selectors: Selectors,
    /// The loaded classifier; the kernel keeps it as long as the discipline exists.
    _object: crate::bpf::Object,
}

/// Parameters of a class; rates in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    rate: u64,
    ceil: u64,
    burst: u64,
    priority: u32,
}

impl Htb {
    /// Loads the classifier. Does not attach it yet.
    pub(super) fn load(ifindex: u32, link: &Link) -> Result<Htb, NetError> {
        let open = OpenObject::open("the packet classifier", objects::PACKET_HTB)?;
        let object = open.constant(".rodata.classes", &FIRST_STREAM)?.load()?;
        let selectors = Selectors::of(&object)?;
        Ok(Htb { ifindex, link: *link, selectors, _object: object })
    }

    /// Installs discipline, classes and classifier at the root. After an error the caller must put the former
    /// discipline back.
    pub(super) fn put(&self) -> Result<(), NetError> {
        let needs = |what, module| move |error: io::Error| self.lacks(what, module, error);
        former::replace(self.ifindex, HANDLE, "htb", Some(&init())).map_err(needs("HTB", "sch_htb"))?;
        let (rate, share) = (self.link.rate_bps / 8, self.link.best_effort.as_f64());
        let whole = Class { rate, ceil: rate, burst: burst_of(rate), priority: 0 };
        self.class(HANDLE, LINK, whole).map_err(needs("HTB", "sch_htb"))?;
        let guaranteed = ((rate as f64 * share) as u64).max(1);
        let best = Class { rate: guaranteed, ceil: rate, burst: burst_of(guaranteed), priority: 7 };
        self.class(LINK, BEST_EFFORT, best).map_err(needs("HTB", "sch_htb"))?;
        self.filter().map_err(needs("BPF classifier", "cls_bpf"))
    }

    fn lacks(&self, what: &'static str, module: &'static str, source: io::Error) -> NetError {
        match source.raw_os_error() {
            Some(libc::ENOENT) => NetError::NoHtb { what, module },
            Some(libc::EPERM) => NetError::NotPermitted { what: "changing an interface's queueing" },
            _ => NetError::Kernel { interface: format!("interface {}", self.ifindex), what: "setting up HTB", source },
        }
    }

    fn filter(&self) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let mut options = Vec::new();
        let entry = self._object.entry("qf_class").map_err(io::Error::other)?;
        push(&mut options, TCA_BPF_FD, &(entry.fd().as_raw_fd() as u32).to_ne_bytes());
        push(&mut options, TCA_BPF_NAME, b"qfabric\0");
        let object = Object { ifindex: self.ifindex, handle: 1, parent: HANDLE, info: FILTER_INFO };
        let message = Message::new(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, object).name(TCA_KIND, "bpf");
        netlink::act(message.attribute(TCA_OPTIONS, &options))
    }

    fn class(&self, parent: u32, handle: u32, class: Class) -> io::Result<()> {
        let object = Object { ifindex: self.ifindex, handle, parent, info: 0 };
        let message = Message::new(RTM_NEWTCLASS, NLM_F_CREATE | NLM_F_REPLACE, object).name(TCA_KIND, "htb");
        netlink::act(message.attribute(TCA_OPTIONS, &class.options()))
    }

    fn set(&self, slot: u32, spec: &StreamSpec) -> io::Result<()> {
        let class = Class::of(spec, self.link.rate_bps / 8);
        self.class(LINK, FIRST_STREAM + slot, class)?;
        let object = Object { ifindex: self.ifindex, handle: 0, parent: FIRST_STREAM + slot, info: 0 };
        let message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, object).name(TCA_KIND, "pfifo");
        netlink::act(message.attribute(TCA_OPTIONS, &spec.limit.to_ne_bytes()))
    }

    /// Begins a stream: first its class is created, then its packets are directed to it.
    pub(super) fn begin(&mut self, slot: u32, spec: &StreamSpec, key: &Key) -> io::Result<()> {
        self.set(slot, spec)?;
        self.selectors.add(key, slot)
    }

    /// Changes a stream. Packets that wait in its class stay there.
    pub(super) fn change(&self, slot: u32, spec: &StreamSpec) -> io::Result<()> {
        self.set(slot, spec)
    }

    /// Ends a stream. Packets that wait in its class are dropped.
    pub(super) fn end(&mut self, slot: u32, key: &Key) -> io::Result<()> {
        self.selectors.remove(key)?;
        let object = Object { ifindex: self.ifindex, handle: FIRST_STREAM + slot, ..Object::default() };
        match netlink::act(Message::new(RTM_DELTCLASS, 0, object)) {
            // The interface has vanished, or another program has replaced the discipline: its classes went with it.
            // `EINVAL`: the discipline that now has the handle has no classes.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)) => Ok(()),
            ended => ended,
        }
    }

    /// Sets the kinds of selectors that are in use.
    pub(super) fn use_kinds<'a>(&self, selectors: impl Iterator<Item = &'a Selector>) {
        self.selectors.use_kinds(selectors);
    }

    /// Reads the counters of all classes.
    pub(super) fn counters(&self) -> io::Result<Counts> {
        let object = Object { ifindex: self.ifindex, ..Object::default() };
        let classes = netlink::list(Message::new(RTM_GETTCLASS, 0, object))?;
        let counted =
            classes.iter().filter_map(|class| Some((class.object.handle, Count::of(class.attribute(TCA_STATS2)?))));
        Ok(Counts(counted.collect()))
    }
}

/// Counters of all classes, by handle.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<u32, Count>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    bytes: u64,
    packets: u64,
    waiting: u64,
    drops: u64,
}

impl Counts {
    pub(super) fn stream(&self, slot: u32) -> StreamCounters {
        let count = self.0.get(&(FIRST_STREAM + slot)).copied().unwrap_or_default();
        StreamCounters {
            packets: count.packets + count.waiting,
            sent: count.packets,
            sent_bytes: count.bytes,
            overflow: count.drops,
            waiting: count.waiting,
            ..StreamCounters::default()
        }
    }

    pub(super) fn best_effort(&self) -> BestEffortCounters {
        let count = self.0.get(&BEST_EFFORT).copied().unwrap_or_default();
        BestEffortCounters {
            packets: count.packets + count.waiting,
            sent: count.packets,
            sent_bytes: count.bytes,
            overflow: count.drops,
            waiting: count.waiting,
            ..BestEffortCounters::default()
        }
    }
}

impl Count {
    fn of(stats: &[u8]) -> Count {
        let mut count = Count::default();
        let word = |value: &[u8], at: usize| {
            value.get(at..at + 4).map_or(0, |word| u64::from(u32::from_ne_bytes(word.try_into().expect("four bytes"))))
        };
        for (kind, value) in attributes(stats) {
            match kind {
                TCA_STATS_BASIC => {
                    let bytes = value.get(..8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight bytes")));
                    (count.bytes, count.packets) = (bytes, word(value, 8));
                }
                TCA_STATS_PKT64 if value.len() >= 8 => {
                    count.packets = u64::from_ne_bytes(value[..8].try_into().expect("eight bytes"));
                }
                TCA_STATS_QUEUE => (count.waiting, count.drops) = (word(value, 0), word(value, 8)),
                _ => {}
            }
        }
        count
    }
}

/// Options of the discipline: version 3; packets without a class go to best effort.
fn init() -> Vec<u8> {
    let words: [u32; 5] = [3, 10, BEST_EFFORT & 0xffff, 0, 0];
    let mut options = Vec::new();
    push(&mut options, TCA_HTB_INIT, &words.map(u32::to_ne_bytes).concat());
    options
}

/// Burst of a class: the bytes of one millisecond, but at least [`BURST_MIN`].
fn burst_of(rate: u64) -> u64 {
    (rate / 1_000).max(BURST_MIN)
}

impl Class {
    fn of(spec: &StreamSpec, link: u64) -> Class {
        let rate = (u128::from(spec.size) * 1_000_000_000).div_ceil(u128::from(spec.period.get())) as u64;
        let burst = u64::from(spec.size).max(u64::from(StreamSpec::LARGEST_PACKET));
        Class { rate, ceil: if spec.work_conserving { link } else { rate }, burst, priority: 0 }
    }

    fn options(self) -> Vec<u8> {
        let mut parameters = rate_spec(self.rate);
        parameters.extend(rate_spec(self.ceil));
        let (buffer, ceil_buffer) = (ticks(self.burst, self.rate), ticks(self.burst, self.ceil));
        for word in [buffer, ceil_buffer, StreamSpec::LARGEST_PACKET, 0, self.priority] {
            parameters.extend(word.to_ne_bytes());
        }
        let mut options = Vec::new();
        push(&mut options, TCA_HTB_PARMS, &parameters);
        for (kind, rate) in [(TCA_HTB_RATE64, self.rate), (TCA_HTB_CEIL64, self.ceil)] {
            if rate > RATE_32 {
                push(&mut options, kind, &rate.to_ne_bytes());
            }
        }
        options
    }
}

/// `struct tc_ratespec` with link layer and rate; its tables are not needed since Linux 3.8.
fn rate_spec(rate: u64) -> Vec<u8> {
    let mut spec = vec![0, LINK_LAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    spec.extend((rate.min(RATE_32) as u32).to_ne_bytes());
    spec
}

/// Number of ticks in which `bytes` are sent at `rate`.
fn ticks(bytes: u64, rate: u64) -> u32 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    (ns / u128::from(TICK_NS)).min(u128::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Nanos;

    #[test]
    fn a_class_carries_c_in_every_t() {
        let mut spec = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(10));
        spec.size = 10_000;
        let class = Class::of(&spec, 12_500_000);
        assert_eq!(class, Class { rate: 1_000_000, ceil: 1_000_000, burst: 10_000, priority: 0 });
        spec.work_conserving = true;
        assert_eq!(Class::of(&spec, 12_500_000).ceil, 12_500_000);
    }

    #[test]
    fn rates_beyond_32_bits_have_separate_attributes() {
        let fast = Class { rate: 5_000_000_000, ceil: 5_000_000_000, burst: 1_000, priority: 0 };
        let kinds: Vec<_> = attributes(&fast.options()).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64]);
    }

    #[test]
    fn counters_are_read_from_the_kernels_attributes() {
        let mut stats = Vec::new();
        push(&mut stats, TCA_STATS_BASIC, &[&9u64.to_ne_bytes()[..], &3u32.to_ne_bytes(), &[0; 4]].concat());
        push(&mut stats, TCA_STATS_QUEUE, &[2u32, 7, 1, 0, 0].map(u32::to_ne_bytes).concat());
        assert_eq!(Count::of(&stats), Count { bytes: 9, packets: 3, waiting: 2, drops: 1 });
        let many = u64::from(u32::MAX) + 4;
        push(&mut stats, TCA_STATS_PKT64, &many.to_ne_bytes());
        assert_eq!(Count::of(&stats).packets, many);
    }
}
