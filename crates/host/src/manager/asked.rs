//! Sends readings only to managers that want them. A manager marks its sink on a Q-channel with the attributes that
//! its controllers want, and an OUT-filter at the source skips managers that do not want a reading. Sinks without
//! marks, which belong to applications, receive the readings of hosts, but those of applications (`app.*`) only if they
//! mark the attribute: such a reading is one user's, and an event goes to all Q-channels. Source: thesis §5.1.1.

use std::collections::BTreeSet;

use qfabric_channel::{Choose, Direction, FilterId, Key};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, ReadingEvent};

/// The Q-attribute of a sink that receives only the readings that it marks.
const ASKED: &str = "asked";

/// The Q-attribute of a manager's sink that receives all readings.
const ALL: &str = "asked_all";

/// Largest number of attributes that a sink marks; with more it receives all readings.
const MAX_MARKS: usize = 48;

/// The marks of a manager's sink whose controllers want readings of these attributes.
pub(super) fn marks(wanted: &BTreeSet<AttributeId>) -> BTreeSet<Key> {
    let keys: Vec<String> = match wanted.len() > MAX_MARKS {
        true => vec![ALL.to_owned()],
        false => wanted.iter().map(|attribute| attribute.key()).chain([ASKED.to_owned()]).collect(),
    };
    keys.iter().map(|key| key.parse().expect("a key")).collect()
}

/// The place of the filter; its name is reserved for the service.
pub(super) fn filter_id(channel: &ChannelId) -> FilterId {
    let name = "zz.asked".parse().expect("a name");
    FilterId { channel: channel.clone(), direction: Direction::Out, name }
}

/// The filter for events that are readings.
pub(super) fn filter() -> Choose {
    Box::new(|event, sinks, chosen| {
        let Some(key) = ReadingEvent::attribute_of(event.payload).map(AttributeId::key) else { return };
        let is_private = ReadingEvent::is_applications(event.payload);
        // A report for one host looks at that host's marks only.
        for (at, chosen) in chosen.iter_mut().enumerate().filter(|(_, chosen)| **chosen) {
            let has = |mark: &str| sinks.attribute(at, mark).is_some();
            *chosen = has(&key) || has(ALL) || !is_private && !has(ASKED);
        }
    })
}
