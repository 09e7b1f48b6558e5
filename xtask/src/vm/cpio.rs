//! Writes the archive that the kernel unpacks as its first file system: cpio, format «newc»
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Writes the entries one after the other.
pub(super) struct Archive<W: Write> {
    to: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub(super) fn new(to: W) -> Archive<W> {
        Archive { to, entries: 0 }
    }

    /// A folder; its parent must have been written before.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.head(path, FOLDER, 0, (0, 0))
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.whole(path, LINK, to.as_bytes())
    }

    /// A file with this content.
    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.whole(path, FILE | mode, content)
    }

    /// A copy of a file of the host; links are followed.
    pub(super) fn copy(&mut self, path: &str, mode: u32, from: &Path) -> io::Result<()> {
        let file = File::open(from)?;
        let length = file.metadata()?.len();
        let size = u32::try_from(length)
            .map_err(|_| io::Error::other(format!("the file has {length} B; the archive takes at most 4 GiB")))?;
        self.head(path, FILE | mode, size, (0, 0))?;
        let copied = io::copy(&mut file.take(length), &mut self.to)?;
        if copied != length {
            return Err(io::Error::other(format!("{} shrank while it was copied", from.display())));
        }
        self.pad(length)
    }

    /// The console device, which the kernel opens for the first process before any file system is mounted.
    pub(super) fn console(&mut self) -> io::Result<()> {
        self.head("dev/console", CHARACTER_DEVICE, 0, (5, 1))
    }

    /// Writes the end mark.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.head("TRAILER!!!", 0, 0, (0, 0))?;
        self.to.flush()
    }

    fn whole(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        self.head(path, mode, size, (0, 0))?;
        self.to.write_all(content)?;
        self.pad(content.len() as u64)
    }

    fn head(&mut self, path: &str, mode: u32, size: u32, device: (u32, u32)) -> io::Result<()> {
        self.entries += 1;
        let name = u32::try_from(path.len() + 1).map_err(io::Error::other)?;
        // inode, mode, user, group, links, time, size, the file's device, the node's device, name, check sum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name, 0];
        let fields: String = fields.iter().map(|field| format!("{field:08X}")).collect();
        write!(self.to, "070701{fields}{path}\0")?;
        self.pad(6 + 13 * 8 + u64::from(name))
    }

    fn pad(&mut self, length: u64) -> io::Result<()> {
        let missing = (4 - length % 4) % 4;
        self.to.write_all(&[0; 4][..missing as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_begins_at_a_multiple_of_four() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.folder("a").unwrap();
        archive.file("a/bc", 0o755, b"12345").unwrap();
        archive.link("l", "a/bc").unwrap();
        archive.finish().unwrap();
        let starts: Vec<_> = bytes.windows(6).enumerate().filter(|(_, w)| *w == b"070701").map(|(i, _)| i).collect();
        assert_eq!(starts.len(), 4);
        assert!(starts.iter().all(|start| start % 4 == 0) && bytes.len() % 4 == 0);
    }

    #[test]
    fn the_systems_own_cpio_reads_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cpio");
        let mut archive = Archive::new(File::create(&file).unwrap());
        archive.folder("x").unwrap();
        archive.copy("x/self", 0o644, Path::new("/proc/self/exe")).unwrap();
        archive.finish().unwrap();
        let listed = std::process::Command::new("cpio").arg("-it").stdin(File::open(&file).unwrap()).output();
        let Ok(listed) = listed else { return qfabric_linux::testing::skip("no cpio here") };
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "x\nx/self\n");
    }
}
