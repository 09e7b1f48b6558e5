//! `net.*` from /proc/net/dev, which contains the counters of all interfaces.

use std::path::PathBuf;

use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, lines, number, raw, words};
use super::{Finder, MAX_INSTANCES, Meter, assign_slot, attribute, entries};

const METRICS: [&str; 8] = [
    "net.*.rx_bytes",
    "net.*.tx_bytes",
    "net.*.rx_packets",
    "net.*.tx_packets",
    "net.*.rx_drops",
    "net.*.tx_drops",
    "net.*.rx_bandwidth",
    "net.*.tx_bandwidth",
];

pub(super) fn find(finder: &mut Finder) {
    match OpenFile::open_in_pieces(&finder.proc("net/dev")) {
        Ok(file) => {
            let mut interfaces =
                Interfaces { file, names: Vec::new(), folder: finder.roots.sys.join("class/net"), saw_unknown: false };
            interfaces.rescan();
            if interfaces.names.is_empty() {
                finder.missing("net.*", format!("{} has no interface", interfaces.folder.display()));
            }
            finder.found(interfaces);
        }
        Err(error) => finder.missing("net.*", error),
    }
}

struct Interfaces {
    file: OpenFile,
    /// Each interface keeps its [`METRICS`] slots; `None`: the interface is gone and its slots are free.
    names: Vec<Option<String>>,
    folder: PathBuf,
    /// A look has found an interface that is not in `names`.
    saw_unknown: bool,
}

impl Meter for Interfaces {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        let of = |name: &Option<String>| METRICS.map(|metric| attribute(metric, name.as_deref()?));
        self.names.iter().flat_map(of).collect()
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        let mut next = 0;
        for line in lines(text).skip(2) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = line[..colon].trim_ascii();
            match self.find(name, next) {
                Some(at) => {
                    take(&line[colon + 1..], &mut values[at * METRICS.len()..][..METRICS.len()]);
                    next = at + 1;
                }
                None => self.saw_unknown |= self.names.iter().flatten().count() < MAX_INSTANCES,
            }
        }
    }

    fn rescan(&mut self) {
        let here = entries(&self.folder);
        self.saw_unknown = false;
        for name in &mut self.names {
            name.take_if(|name| !here.contains(name));
        }
        for new in here {
            if !self.names.iter().flatten().any(|name| *name == new) {
                assign_slot(&mut self.names, new);
            }
        }
    }

    fn is_stale(&self) -> bool {
        self.saw_unknown
    }
}

impl Interfaces {
    /// Index of an interface. The lines of the file are usually in the order of `names`, so the search begins at
    /// `next`.
    fn find(&self, name: &[u8], next: usize) -> Option<usize> {
        let matches_name = |at: &usize| self.names[*at].as_ref().is_some_and(|known| known.as_bytes() == name);
        (next..self.names.len()).chain(0..next.min(self.names.len())).find(matches_name)
    }
}

/// Received: bytes packets errs drop fifo frame compressed multicast; sent: bytes packets errs drop fifo colls carrier
/// compressed. An error counts as a drop, because the packet did not arrive.
fn take(line: &[u8], values: &mut [Option<i64>]) {
    let mut fields = [0; 16];
    let mut count_of_fields = 0;
    for (field, word) in fields.iter_mut().zip(words(line)) {
        let Some(count) = number(word) else { return };
        *field = count;
        count_of_fields += 1;
    }
    if count_of_fields < 16 {
        return;
    }
    let lost = |errors: usize| raw(fields[errors].saturating_add(fields[errors + 1]));
    let (rx, tx) = (raw(fields[0]), raw(fields[8]));
    values.copy_from_slice(&[rx, tx, raw(fields[1]), raw(fields[9]), lost(2), lost(10), rx, tx]);
}
