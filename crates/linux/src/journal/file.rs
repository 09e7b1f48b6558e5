//! The file of a journal: opened, locked, checked and read as one that decides what a privileged process writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use qfabric_sync::assert_may_block;
use rustix::fs::{FlockOperation, flock};

use super::{JournalError, MAX_BYTES, Record, io_error};

/// Number of tries to open a journal that a running service replaces meanwhile.
const TRIES: usize = 8;

/// Reads the opened file, not the path: a running service may have replaced the file at the path.
pub(super) fn whole_text(mut file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

pub(crate) fn check_file(file: &File) -> Result<(), String> {
    check_file_of(file, rustix::process::geteuid().as_raw())
}

pub(super) fn check_file_of(file: &File, uid: u32) -> Result<(), String> {
    let meta = file.metadata().map_err(|e| e.to_string())?;
    match () {
        () if !meta.is_file() => Err("it is not a regular file".into()),
        () if meta.uid() != uid => Err(format!("it belongs to user {}, not to user {uid}", meta.uid())),
        () if meta.mode() & 0o022 != 0 => Err(format!("other users may write it (mode {:o})", meta.mode() & 0o777)),
        () if meta.nlink() != 1 => Err(format!("it has {} hard links", meta.nlink())),
        () if meta.len() > MAX_BYTES => Err(format!("it has {} bytes, more than the limit of {MAX_BYTES}", meta.len())),
        () => Ok(()),
    }
}

pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Opens and locks the file; `None` if it is missing and `make` is false.
pub(super) fn open_held(path: &Path, make: bool) -> Result<Option<File>, JournalError> {
    for _ in 0..TRIES {
        let file = match options().create(make).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && !make => return Ok(None),
            other => other.map_err(|e| io_error(path, e))?,
        };
        if let Some(file) = hold(path, file)? {
            return Ok(Some(file));
        }
    }
    Err(JournalError::Held { path: path.to_owned() }) // a service replaces it again and again
}

/// Locks the opened file. `None` if it is no longer the file at `path`: a running service replaced it in between, and
/// released the lock of the old file.
pub(super) fn hold(path: &Path, file: File) -> Result<Option<File>, JournalError> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(JournalError::Held { path: path.to_owned() }),
        Err(e) => return Err(io_error(path, e.into())),
    }
    let held = file.metadata().map_err(|e| io_error(path, e))?;
    let present = fs::symlink_metadata(path).ok();
    let is_same = present.is_some_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino()));
    Ok(is_same.then_some(file))
}

pub(super) fn write_line(file: &mut File, line: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    assert_may_block("writing the journal");
    line.clear();
    serde_json::to_writer(&mut *line, record)?;
    line.push(b'\n');
    file.write_all(line)
}
