//! Prints text, tables and JSON. A closed pipe (`| head`) is no error. All commands print JSON in the same layout.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use comfy_table::{ContentArrangement, Row, Table, presets};
use serde::Serialize;

use crate::exit::Failure;

/// A table without lines; each column is as wide as its widest cell.
pub(crate) fn new_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table
}

/// Prints `text` to stdout. A closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints `value` to stdout as JSON with indentation.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&json(value)?)
}

/// Writes `value` as JSON to `path`; `-` is stdout.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return print_json(value);
    }
    fs::write(path, json(value)?).map_err(|error| Failure::fault(format!("cannot write {}: {error}", path.display())))
}

/// Fails if `path` cannot be written, so that a long measurement does not end without its result. The content of an
/// existing file stays; a missing file stays missing, so that an interrupted command leaves no empty file.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let fresh = fs::symlink_metadata(path).is_err();
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))?;
    if fresh {
        // The file was created by the line above and is empty: if it cannot be removed, nothing is lost.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(Failure::fault)
}
