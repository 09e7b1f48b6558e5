//! Prints text, tables and JSON. A closed pipe (`| head`) is no error. All commands print JSON in the same layout.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use comfy_table::{ContentArrangement, Row, Table, presets};
/// Prints a line to stderr, also if the terminal is closed.
pub(crate) use qfabric_demo::progress::line as note;
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
    print_next(text).map(drop)
}

/// Prints the next part of an output without an end to stdout. Returns false if nobody reads any more (`| head`): then
/// the command ends.
pub(crate) fn print_next(text: &str) -> Result<bool, Failure> {
    write_next(&mut io::stdout().lock(), text)
}

fn write_next(out: &mut impl Write, text: &str) -> Result<bool, Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
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

/// `value` as JSON, as all commands print it.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(Failure::fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose every write fails.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_ends_an_output_without_an_end_and_is_no_error() {
        let mut text = Vec::new();
        assert_eq!(write_next(&mut text, "line\n"), Ok(true));
        assert_eq!(text, b"line\n");
        assert_eq!(write_next(&mut Failing(ErrorKind::BrokenPipe), "line\n"), Ok(false));
        assert!(write_next(&mut Failing(ErrorKind::StorageFull), "line\n").is_err());
    }
}
