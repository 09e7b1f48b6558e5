//! `memory.*` from /proc/meminfo and /proc/vmstat.

use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, by_name, raw, scaled};
use super::{Finder, Meter, attributes};

const INFO: [&str; 3] = ["memory.free", "memory.available", "memory.dirty"];
const INFO_LINES: [&str; 3] = ["MemFree", "MemAvailable", "Dirty"];
const EVENTS: [&str; 4] = ["memory.faults", "memory.major_faults", "memory.swapped", "memory.killed"];
const EVENT_LINES: [&str; 5] = ["pgfault", "pgmajfault", "pswpin", "pswpout", "oom_kill"];

pub(super) fn find(finder: &mut Finder) {
    match OpenFile::open(&finder.proc("meminfo")) {
        Ok(file) => finder.found(Info { file }),
        Err(error) => finder.missing("memory.free", error),
    }
    match OpenFile::open_in_pieces(&finder.proc("vmstat")) {
        Ok(file) => finder.found(Events { file }),
        Err(error) => finder.missing("memory.faults", error),
    }
}

struct Info {
    file: OpenFile,
}

impl Meter for Info {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(&INFO)
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        by_name(text, &INFO_LINES, |slot, kib| values[slot] = scaled(kib, 1_024));
    }
}

struct Events {
    file: OpenFile,
}

impl Meter for Events {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(&EVENTS)
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        let mut counts = [None; EVENT_LINES.len()];
        by_name(text, &EVENT_LINES, |slot, count| counts[slot] = Some(count));
        let [faults, major, swapped_in, swapped_out, killed] = counts;
        values[0] = faults.and_then(raw);
        values[1] = major.and_then(raw);
        // A kernel without swap lacks both lines.
        values[2] = raw(swapped_in.unwrap_or(0).saturating_add(swapped_out.unwrap_or(0)));
        values[3] = killed.and_then(raw);
    }
}
