//! Finds the program text of a process: the executable parts of files in its memory.
//!
//! A file of another user's file system (FUSE) can keep its reader waiting for ever. So only files of file systems are
//! opened that are mounted in this process's own namespace with one of the types in `LOCAL`; the mount table names
//! the type without a request to the file system.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use crate::files;

/// Types of file systems that the kernel serves itself.
const LOCAL: [&str; 11] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "overlay", "tmpfs", "squashfs", "erofs"];

/// Most executable parts of one process that are considered.
pub const MOST_PARTS: usize = 1_024;

/// An executable part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart {
    start: u64,
    end: u64,
    /// First byte in the file.
    pub offset: u64,
    major: u32,
    minor: u32,
    inode: u64,
}

impl TextPart {
    /// Length in bytes: whole pages.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Opens the file. Needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN. `NotFound`: the process has mapped another file
    /// there.
    pub fn open(&self, pid: i32) -> io::Result<File> {
        let path = format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end);
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        let found = file.metadata()?;
        match found.is_file() && found.ino() == self.inode {
            true => Ok(file),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// The executable parts of files of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramText {
    pub parts: Vec<TextPart>,
    /// Bytes of parts on file systems that are not used, or beyond [`MOST_PARTS`].
    pub skipped: u64,
}

impl ProgramText {
    /// Reads the program text of a process.
    pub fn of(pid: i32) -> io::Result<ProgramText> {
        let maps = files::text(format!("/proc/{pid}/maps"))?;
        Ok(ProgramText::parse(&maps, &files::text("/proc/self/mountinfo")?))
    }

    fn parse(maps: &str, mounts: &str) -> ProgramText {
        let mut text = ProgramText::default();
        for part in maps.lines().filter_map(part) {
            let is_local = mounts.lines().any(|mount| is_local(mount, part.major, part.minor));
            if is_local && text.parts.len() < MOST_PARTS {
                text.parts.push(part);
            } else {
                text.skipped += part.bytes();
            }
        }
        text
    }

    /// The sum of all parts in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(TextPart::bytes).sum()
    }
}

/// An executable part of a file in a line of a `maps` file: `START-END PERM OFFSET MAJOR:MINOR INODE PATH`.
fn part(line: &str) -> Option<TextPart> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights, offset, device, inode) =
        (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (start, end, inode) = (hex(start)?, hex(end)?, inode.parse().ok()?);
    let (major, minor) = device.split_once(':')?;
    let device = |text: &str| u32::from_str_radix(text, 16).ok();
    let is_text = rights.contains('x') && inode > 0 && end > start;
    is_text.then_some(TextPart {
        start,
        end,
        offset: hex(offset)?,
        major: device(major)?,
        minor: device(minor)?,
        inode,
    })
}

/// Whether a device, `MAJOR:MINOR` in hexadecimal as in a `maps` file, has a local file system in a `mountinfo` file.
pub(crate) fn is_on_local_file_system(device: &str, mounts: &str) -> bool {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let numbers = device.split_once(':').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    numbers.is_some_and(|(major, minor)| mounts.lines().any(|mount| is_local(mount, major, minor)))
}

/// Whether a line of a `mountinfo` file names this device, with a local type.
fn is_local(mount: &str, major: u32, minor: u32) -> bool {
    let Some((before, after)) = mount.split_once(" - ") else { return false };
    let is_device = before.split(' ').nth(2) == Some(format!("{major}:{minor}").as_str());
    is_device && after.split(' ').next().is_some_and(|kind| LOCAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        400000-402000 r--p 00000000 08:01 77 /usr/bin/player\n\
        402000-409000 r-xp 00002000 08:01 77 /usr/bin/player\n\
        500000-501000 r-xp 00000000 00:2f 5 /home/me/fuse/lib.so\n\
        7ffe000-7fff000 r-xp 00000000 00:00 0 [vdso]\n\
        garbage\n";
    const MOUNTS: &str = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n60 25 0:47 / /home/me/fuse rw - fuse.x x rw\n";

    #[test]
    fn only_executable_parts_of_local_files_are_text() {
        let text = ProgramText::parse(MAPS, MOUNTS);
        assert_eq!((text.parts.len(), text.bytes(), text.skipped), (1, 0x7000, 0x1000));
        assert_eq!((text.parts[0].offset, text.parts[0].inode), (0x2000, 77));
    }

    #[test]
    fn the_text_of_this_process_is_found() {
        let own = std::process::id() as i32;
        let text = ProgramText::of(own).unwrap();
        assert!(text.bytes() + text.skipped > 0);
        let opened = text.parts.iter().map(|part| part.open(own));
        for error in opened.filter_map(Result::err) {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        }
    }
}
