//! Printing: a reader that goes away (`| head`) is no fault, and JSON looks the same everywhere.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use comfy_table::{ContentArrangement, Row, Table, presets};
use serde::Serialize;

use crate::exit::Failure;

/// A table without lines, as wide as what is in it.
pub fn new_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table
}

/// Prints `text` to stdout.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints `value` to stdout as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&json(value)?)
}

/// Writes `value` as JSON to `path`; `-` is stdout.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return print_json(value);
    }
    fs::write(path, json(value)?).map_err(|error| Failure::fault(format!("cannot write {}: {error}", path.display())))
}

/// Fails where `path` could not be written, before what it is to hold has cost an hour. Its content stays, and where
/// there was no file there is none: whoever is interrupted leaves nothing behind.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let fresh = fs::symlink_metadata(path).is_err();
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))?;
    if fresh {
        // It was made just now; that it cannot be removed harms nobody.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(Failure::fault)
}
