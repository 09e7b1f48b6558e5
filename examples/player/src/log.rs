//! The log of jobs. The lines are kept in memory while the jobs run, and written after the last job.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use qfabric_types::{JobRecord, Nanos};
use serde::Serialize;

/// One line of the log.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobLine {
    /// k, release, finish and cost. The field `next` of the record is never set; `bytes` below holds the same
    /// value.
    #[serde(flatten)]
    pub job: JobRecord,
    /// Size in bytes of the packet that the job decoded.
    pub bytes: usize,
    /// `I`, `P`, `B`, or `?` if the codec is not MPEG-2.
    pub kind: char,
    /// Budget in force when the job began; 0 without a reservation of Q-Fabric.
    pub budget_ns: Nanos,
    /// Server period in force when the job began.
    pub server_period_ns: Nanos,
    /// Whether the frame was skipped. `finish_ns` is then the time of that decision.
    pub skipped: bool,
}

/// Writes one JSON object per line to a file with the extension `part`, then renames it. A reader never sees half
/// a log.
pub(crate) fn write(path: &Path, lines: &[JobLine]) -> Result<()> {
    let unfinished = path.with_extension("part");
    let named = || format!("cannot write {}", unfinished.display());
    let mut out = BufWriter::new(std::fs::File::create(&unfinished).with_context(named)?);
    for line in lines {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n").with_context(named)?;
    }
    out.into_inner().with_context(named)?;
    std::fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
}
