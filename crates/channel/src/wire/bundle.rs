//! Bundles: several frames in one.
//!
//! ```text
//! n × item, up to the end of the frame
//! item:  flags u8 (1 origin, 2 onward) | name of the origin, if 1
//!        | slack u32, hops u8, n u8, n × name, if 2 | length u16 | frame
//! ```
//! The *origin* is the host that wrote the item's frame; without one it is the sender of the bundle. An item that goes
//! *onward* is for the named hosts; any other item is for the receiver. `slack` is the time in microseconds for which the
//! item may still wait, `hops` the number of combiners that have had it, its next one included.

use qfabric_types::Nanos;
use qfabric_types::channel::Name;

use super::{Malformed, Reader, Writer};
use crate::Limits;

const ORIGIN: u8 = 1;
const ONWARD: u8 = 2;

/// A frame in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    pub origin: Option<Name>,
    pub onward: Option<Onward>,
    pub frame: &'a [u8],
}

/// The hosts to which a combiner passes an item on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Onward {
    pub slack: Nanos,
    pub hops: u8,
    pub to: Vec<Name>,
}

/// Appends an item. The frame has at most 64 KiB, and the list at most [`Limits::BUNDLE_HOSTS`] hosts.
pub(crate) fn write_item<'n>(
    into: &mut Vec<u8>,
    origin: Option<&Name>,
    onward: Option<(Nanos, u8, impl ExactSizeIterator<Item = &'n Name>)>,
    frame: &[u8],
) {
    let mut writer = Writer(into);
    let flag = |set, bit| if set { bit } else { 0 };
    writer.u8(flag(origin.is_some(), ORIGIN) | flag(onward.is_some(), ONWARD));
    if let Some(origin) = origin {
        writer.short(origin.as_str());
    }
    if let Some((slack, hops, to)) = onward {
        debug_assert!(to.len() <= Limits::BUNDLE_HOSTS);
        writer.u32(u32::try_from(slack.get() / 1_000).unwrap_or(u32::MAX));
        writer.u8(hops);
        writer.u8(to.len() as u8);
        to.for_each(|host| writer.short(host.as_str()));
    }
    writer.blob(frame);
}

impl<'a> Item<'a> {
    /// The next item; `None` at the end of the bundle.
    pub(crate) fn next(reader: &mut Reader<'a>) -> Result<Option<Item<'a>>, Malformed> {
        if reader.0.is_empty() {
            return Ok(None);
        }
        let flags = reader.u8()?;
        if flags > (ORIGIN | ONWARD) {
            return Err(Malformed);
        }
        let origin = if flags & ORIGIN != 0 { Some(reader.name()?) } else { None };
        let onward = if flags & ONWARD != 0 { Some(Onward::read(reader)?) } else { None };
        Ok(Some(Item { origin, onward, frame: reader.blob()? }))
    }
}

impl Onward {
    fn read(reader: &mut Reader<'_>) -> Result<Onward, Malformed> {
        let (slack, hops, count) = (reader.u32()?, reader.u8()?, usize::from(reader.u8()?));
        if !(1..=Limits::BUNDLE_HOSTS).contains(&count) {
            return Err(Malformed);
        }
        let slack = Nanos::from_micros(u64::from(slack)).min(Limits::SLACK);
        let to = (0..count).map(|_| reader.name()).collect::<Result<_, _>>()?;
        Ok(Onward { slack, hops, to })
    }
}
