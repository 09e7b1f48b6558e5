//! `disk.*` of /proc/diskstats, and the room on a file system.

use std::path::PathBuf;

use qfabric_types::monitor::Attribute;

use super::text::{Kept, Scratch, lines, number, raw, scaled, words};
use super::{Finder, Meter, attribute, attributes, entries, settle};

const METRICS: [&str; 4] = ["disk.*.read", "disk.*.written", "disk.*.busy", "disk.*.queue"];
/// Unit of diskstats, whatever the disk's own sectors are.
const SECTOR: u64 = 512;
const MS_NS: u64 = 1_000_000;

pub(super) fn find(finder: &mut Finder) {
    finder.found(Room { folder: finder.roots.data.clone() });
    match Kept::open_in_pieces(&finder.proc("diskstats")) {
        Ok(file) => {
            let mut disks = Disks { file, names: Vec::new(), folder: finder.roots.sys.join("block") };
            disks.rescan();
            if disks.names.is_empty() {
                finder.missing("disk.*", format!("{} has no disk", disks.folder.display()));
            }
            finder.found(disks);
        }
        Err(error) => finder.missing("disk.*", error),
    }
}

struct Disks {
    file: Kept,
    /// Each has [`METRICS`] slots; none: it is gone.
    names: Vec<Option<String>>,
    folder: PathBuf,
}

/// Disks in memory and files as disks say nothing of a disk.
fn is_disk(name: &str) -> bool {
    !["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind))
}

impl Meter for Disks {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        let of = |name: &Option<String>| METRICS.map(|metric| attribute(metric, name.as_deref()?));
        self.names.iter().flat_map(of).collect()
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        for line in lines(text) {
            let mut words = words(line).skip(2);
            let Some(name) = words.next() else { continue };
            let is_it = |known: &Option<String>| known.as_ref().is_some_and(|known| known.as_bytes() == name);
            if let Some(at) = self.names.iter().position(is_it) {
                take(words, &mut values[at * METRICS.len()..][..METRICS.len()]);
            }
        }
    }

    fn rescan(&mut self) {
        // The kernel writes `/` in a disk's name as `!` in the folder.
        let here = entries(&self.folder).into_iter().filter(|name| is_disk(name)).map(|name| name.replace('!', "/"));
        let here: Vec<String> = here.collect();
        for name in &mut self.names {
            name.take_if(|name| !here.contains(name));
        }
        for new in here {
            if !self.names.iter().flatten().any(|name| *name == new) {
                settle(&mut self.names, new);
            }
        }
    }
}

/// Reads: completed, merged, sectors, ms; writes: the same; under way; ms with something to do.
fn take<'a>(words: impl Iterator<Item = &'a [u8]>, values: &mut [Option<i64>]) {
    let mut fields = [None; 10];
    for (field, word) in fields.iter_mut().zip(words) {
        *field = number(word);
    }
    let told = [
        fields[2].and_then(|sectors| scaled(sectors, SECTOR)),
        fields[6].and_then(|sectors| scaled(sectors, SECTOR)),
        fields[9].and_then(|ms| scaled(ms, MS_NS)),
        fields[8].and_then(raw),
    ];
    values.copy_from_slice(&told);
}

/// Room on a file system.
struct Room {
    folder: PathBuf,
}

impl Meter for Room {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(&["disk.free"])
    }

    fn look(&mut self, _: &mut Scratch, values: &mut [Option<i64>]) {
        values[0] = rustix::fs::statvfs(&self.folder).ok().and_then(|room| scaled(room.f_bavail, room.f_frsize));
    }
}
