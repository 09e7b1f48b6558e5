//! `disk.*` from /proc/diskstats, and the free space of a file system.

use std::path::PathBuf;

use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, lines, number, raw, scaled, words};
use super::{Finder, Meter, assign_slot, attribute, attributes, entries};

const METRICS: [&str; 4] = ["disk.*.read", "disk.*.written", "disk.*.busy", "disk.*.queue"];
/// Unit of diskstats in bytes, for disks with any sector size.
const SECTOR: u64 = 512;
const MS_NS: u64 = 1_000_000;

pub(super) fn find(finder: &mut Finder) {
    finder.found(FileSystem { folder: finder.roots.data.clone() });
    match OpenFile::open_in_pieces(&finder.proc("diskstats")) {
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
    file: OpenFile,
    /// Each disk has [`METRICS`] slots; `None`: the disk is gone and its slots are free.
    names: Vec<Option<String>>,
    folder: PathBuf,
}

/// Skips RAM disks and loop devices, whose values do not describe a disk.
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
            let matches_name = |known: &Option<String>| known.as_ref().is_some_and(|known| known.as_bytes() == name);
            if let Some(at) = self.names.iter().position(matches_name) {
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
                assign_slot(&mut self.names, new);
            }
        }
    }
}

/// Fields: reads completed, merged, sectors, ms; the same for writes; requests in progress; ms with any request in
/// progress.
fn take<'a>(words: impl Iterator<Item = &'a [u8]>, values: &mut [Option<i64>]) {
    let mut fields = [None; 10];
    for (field, word) in fields.iter_mut().zip(words) {
        *field = number(word);
    }
    let numbers = [
        fields[2].and_then(|sectors| scaled(sectors, SECTOR)),
        fields[6].and_then(|sectors| scaled(sectors, SECTOR)),
        fields[9].and_then(|ms| scaled(ms, MS_NS)),
        fields[8].and_then(raw),
    ];
    values.copy_from_slice(&numbers);
}

/// Free space of a file system.
struct FileSystem {
    folder: PathBuf,
}

impl Meter for FileSystem {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(&["disk.free"])
    }

    fn look(&mut self, _: &mut Scratch, values: &mut [Option<i64>]) {
        values[0] = rustix::fs::statvfs(&self.folder).ok().and_then(|stat| scaled(stat.f_bavail, stat.f_frsize));
    }
}
