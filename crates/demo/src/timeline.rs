//! The last round under Q-Fabric as a trace for Perfetto.

use std::path::Path;

use anyhow::{Context, Result};
use qfabric_client::Client;
use qfabric_linux::clock;
use qfabric_timeline::{ClockReading, TraceWriter};
use qfabric_types::Instant;

use crate::clips::write_whole;

/// The file in the folder of the report.
pub(crate) const FILE: &str = "demo.pftrace";

/// Writes everything that the daemon at `socket` still knows into `file`.
pub(crate) fn write(socket: &Path, file: &Path) -> Result<()> {
    let client = Client::connect_to(socket).context("cannot connect to the daemon to read its timeline")?;
    let mut writer = TraceWriter::new("demo", ClockReading::from(clock::readings()));
    let mut next = 0;
    loop {
        let page = client.timeline(next, Instant::ZERO).context("cannot read the daemon's timeline")?;
        next = page.next;
        writer.add(&page);
        if !page.more {
            break;
        }
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    write_whole(file, &writer.take())
}
