//! `*.pressure` and `memory.stalled`: totals of PSI, which the kernel counts in µs.

use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, assigned, lines, scaled};
use super::{Finder, Meter, attributes};

pub(super) fn find(finder: &mut Finder) {
    let files: [(&str, &'static [&'static str]); 3] = [
        ("pressure/cpu", &["cpu.pressure"]),
        ("pressure/memory", &["memory.pressure", "memory.stalled"]),
        ("pressure/io", &["disk.pressure"]),
    ];
    for (path, metrics) in files {
        match OpenFile::open(&finder.proc(path)) {
            Ok(file) => finder.found(Pressure { file, metrics }),
            Err(error) => finder.missing(metrics[0], format!("{error}; boot with psi=1")),
        }
    }
}

struct Pressure {
    file: OpenFile,
    /// Attribute of the line `some`, and of the line `full` if it is used.
    metrics: &'static [&'static str],
}

impl Meter for Pressure {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(self.metrics)
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        for line in lines(text) {
            let slot = if line.starts_with(b"some ") { 0 } else { 1 };
            if let Some(value) = values.get_mut(slot) {
                *value = assigned(line, b"total").and_then(|us| scaled(us, 1_000));
            }
        }
    }
}
