//! Rewrites the code point (DSCP, RFC 2474) of the packets of streams, before they are queued (`bpf/packet/dscp.bpf.c`).
//! Loaded only while a stream has a code point, so that it costs nothing otherwise.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;

use qfabric_types::api::net::{StreamId, StreamSpec};

use super::error::NetError;
use super::keys::Key;
use super::selectors::{Selectors, mapped};
use crate::abi::QF_NET_STREAMS;
use crate::bpf::{Link, Mapping, Object, OpenObject, SkbSide, objects};

/// The program on one interface; the kernel removes it with this value.
#[derive(Debug)]
pub(super) struct Marker {
    selectors: Selectors,
    /// A word for each stream: 0, or 1 + its code point.
    points: Mapping,
    known: BTreeMap<StreamId, Key>,
    _link: Link,
    _object: Object,
}

impl Marker {
    /// Attaches the program; it changes no packet yet.
    pub(super) fn load(ifindex: u32) -> Result<Marker, NetError> {
        let object = OpenObject::open("the marker of packets", objects::PACKET_DSCP)?.load()?;
        let selectors = Selectors::of(&object)?;
        let points = mapped(&object, ".data.points", size_of::<u64>() * QF_NET_STREAMS as usize)?;
        let attached = object.entry("qf_dscp")?.attach_packets(ifindex, SkbSide::Egress);
        let link = attached.map_err(|error| NetError::no_marker(ifindex, error))?;
        Ok(Marker { selectors, points, known: BTreeMap::new(), _link: link, _object: object })
    }

    /// Changes the packets of exactly these streams from now on. Streams without a code point are among them, because a
    /// packet that two selectors match belongs to one stream only.
    pub(super) fn follow<'a>(
        &mut self,
        streams: impl Iterator<Item = (StreamId, &'a Key, &'a StreamSpec)> + Clone,
    ) -> io::Result<()> {
        let present: BTreeMap<StreamId, Key> = streams.clone().map(|(id, key, _)| (id, *key)).collect();
        for (id, key) in std::mem::take(&mut self.known) {
            if present.get(&id) != Some(&key) {
                self.selectors.remove(&key)?;
            } else {
                self.known.insert(id, key);
            }
        }
        for (id, key, spec) in streams.clone() {
            let word = spec.dscp.map_or(0, |dscp| 1 + u64::from(dscp));
            self.points.words(0)[id as usize].store(word, Ordering::Relaxed);
            if self.known.insert(id, *key).is_none() {
                self.selectors.add(key, id)?;
            }
        }
        self.selectors.use_kinds(streams.map(|(.., spec)| &spec.selector));
        Ok(())
    }
}
