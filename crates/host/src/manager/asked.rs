//! Readings go to who asked for them: a manager says at its sink on a Q-channel which attributes its controllers want, and
//! an OUT-filter at the source leaves out the managers that want no such reading. Sinks that say nothing, which are
//! those of applications, get all. Source: thesis §5.1.1.

use std::collections::BTreeSet;

use qfabric_channel::{Choose, Direction, Key, Spot};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, ReadingEvent};

/// The attribute of a sink that gets only what it asks for.
const ASKED: &str = "asked";

/// Most attributes that a sink asks for; with more it says nothing, and gets all.
const MOST: usize = 48;

/// What a manager's sink says of itself, where its controllers want readings of these.
pub(super) fn said(wanted: &BTreeSet<AttributeId>) -> BTreeSet<Key> {
    let keys = wanted.iter().map(|attribute| key(*attribute)).chain([ASKED.to_owned()]);
    let keys = keys.map(|key| key.parse().expect("a key")).collect();
    if wanted.len() > MOST { BTreeSet::new() } else { keys }
}

/// Where the filter is; the name is the service's own.
pub(super) fn spot(channel: &ChannelId) -> Spot {
    let name = "zz.asked".parse().expect("a name");
    Spot { channel: channel.clone(), direction: Direction::Out, name }
}

/// The filter, for events that are readings.
pub(super) fn filter() -> Choose {
    Box::new(|event, sinks, chosen| {
        let Some(key) = ReadingEvent::attribute_of(event.payload).map(key) else { return };
        for (at, chosen) in chosen.iter_mut().enumerate() {
            *chosen &= sinks.attribute(at, ASKED).is_none() || sinks.attribute(at, &key).is_some();
        }
    })
}

fn key(attribute: AttributeId) -> String {
    format!("reading_{:08x}", attribute.0)
}
