//! Sends the files that commands wrote into [`OUT`] to the host.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use qfabric_vm_init::{Frame, OUT};

use crate::Host;

/// Sends all files below [`OUT`].
pub(crate) fn send(host: &Host) {
    let mut folders = vec![PathBuf::from(OUT)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => send_file(host, &entry.path()),
                _ => {}
            }
        }
    }
}

fn send_file(host: &Host, path: &Path) {
    let name = path.strip_prefix(OUT).unwrap_or(path).to_string_lossy().into_owned();
    host.send(&Frame::File(name.clone()));
    if let Err(e) = send_content(host, path) {
        host.send(&Frame::Trouble(format!("{name}: {e}")));
    }
}

fn send_content(host: &Host, path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            length => host.send(&Frame::Content(buffer[..length].to_vec())),
        }
    }
}
