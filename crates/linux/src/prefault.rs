//! Fetches pages of another process before it needs them, so that its next access does not wait for a disk.
//!
//! For another process, `process_madvise` accepts only advice that changes no contents: of it, `MADV_WILLNEED` starts to
//! read pages that are swapped out, and pages of mapped files that are not in the page cache. `MADV_POPULATE_READ` and
//! `MADV_POPULATE_WRITE`, which would also fill the page table, are `EINVAL` for another process (Linux 6.18), so the
//! first access to a fetched page is still a minor fault. Nobody can lock the memory of another process. Needs
//! CAP_SYS_NICE and the right to read `/proc/PID/smaps`. Source: process_madvise(2), madvise(2).

use std::io;
use std::os::fd::OwnedFd;

use qfabric_sync::assert_may_block;
use qfabric_types::Bytes;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::program_text::is_on_local_file_system;
use crate::{files, sys};

/// Most parts of the memory of one process that are advised.
const MOST_PARTS: usize = 4_096;

/// The order in which parts are fetched: first the pages that every job may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Text,
    Swapped,
    File,
}

/// A part of the memory of a process, of which pages are absent. Addresses and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    kind: Kind,
    start: u64,
    length: u64,
    absent: u64,
}

/// Starts to fetch absent pages of a process, `most` at most: program text first, then pages that are swapped out, then
/// other parts of files. Files on file systems that may not answer (FUSE, network) are left out. Returns the amount.
/// The pages arrive later; the kernel does not report when.
///
/// # Errors
/// The process has ended, or this process lacks a right.
pub fn prefault(pid: i32, most: Bytes) -> io::Result<Bytes> {
    assert_may_block("reading the mappings of a process");
    let id = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(id, PidfdFlags::empty())?;
    let (maps, mounts) = (files::text(format!("/proc/{pid}/smaps"))?, files::text("/proc/self/mountinfo")?);
    // The text is of the process of the descriptor only if that has not ended since.
    sys::is_alive(&process)?;
    advise(&process, parts(&maps, &mounts), most)
}

fn advise(process: &OwnedFd, mut parts: Vec<Part>, most: Bytes) -> io::Result<Bytes> {
    parts.sort_by_key(|part| part.kind);
    let mut left = most.get();
    for part in parts.into_iter().take(MOST_PARTS) {
        if left == 0 {
            break;
        }
        // Absent pages may be anywhere in the part, so a part that exceeds the rest is cut at the rest.
        let length = if part.absent <= left { part.length } else { left };
        match sys::will_need(process, part.start, length) {
            Ok(()) => left -= part.absent.min(left),
            // The mapping has vanished, or is a device.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL | libc::EBADF)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Bytes::new(most.get() - left))
}

/// The parts with absent pages in the text of a `smaps` file.
fn parts(maps: &str, mounts: &str) -> Vec<Part> {
    let mut found = Vec::new();
    let mut header = None;
    let (mut resident, mut swapped) = (0, 0);
    let kib = |text: &str| text.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10;
    for line in maps.lines() {
        match line.split_once(':') {
            Some(("Rss", amount)) => resident = kib(amount),
            Some(("Swap", amount)) => swapped = kib(amount),
            // The last line of each mapping.
            Some(("VmFlags", _)) => {
                found.extend(header.take().and_then(|header| part(header, mounts, resident, swapped)));
                (resident, swapped) = (0, 0);
            }
            // The names of amounts begin with a capital letter.
            _ if matches!(line.as_bytes().first(), Some(b'0'..=b'9' | b'a'..=b'f')) => header = Some(line),
            _ => {}
        }
    }
    found
}

/// A mapping of which pages are absent: `START-END PERM OFFSET MAJOR:MINOR INODE PATH`.
fn part(header: &str, mounts: &str, resident: u64, swapped: u64) -> Option<Part> {
    let words: Vec<&str> = header.split_ascii_whitespace().take(5).collect();
    let [range, rights, _, device, inode] = words[..] else { return None };
    let (start, end) = range.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let start = hex(start)?;
    let length = hex(end)?.checked_sub(start)?;
    let is_file = inode != "0";
    if !rights.starts_with('r') || (is_file && !is_on_local_file_system(device, mounts)) {
        return None;
    }
    let (kind, absent) = match (is_file, rights.contains('x')) {
        (false, _) => (Kind::Swapped, swapped),
        (true, true) => (Kind::Text, length.saturating_sub(resident)),
        (true, false) => (Kind::File, length.saturating_sub(resident)),
    };
    (absent > 0).then_some(Part { kind, start, length, absent })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const MAPS: &str = "\
        400000-402000 r--p 00000000 08:01 77 /usr/bin/player\nSize: 8 kB\nRss: 4 kB\nSwap: 0 kB\nVmFlags: rd\n\
        402000-409000 r-xp 00002000 08:01 77 /usr/bin/player\nRss: 8 kB\nSwap: 0 kB\nVmFlags: rd ex\n\
        500000-600000 rw-p 00000000 00:00 0 [heap]\nRss: 100 kB\nAnonymous: 100 kB\nSwap: 64 kB\nSwapPss: 32 kB\nVmFlags: rd wr\n\
        600000-700000 rw-p 00000000 00:00 0 \nRss: 0 kB\nSwap: 0 kB\nVmFlags: rd wr\n\
        700000-800000 r--s 00000000 00:2f 5 /home/me/fuse/film\nRss: 0 kB\nSwap: 0 kB\nVmFlags: rd\n\
        800000-900000 ---p 00000000 00:00 0 \nRss: 0 kB\nSwap: 4 kB\nVmFlags: \n\
        garbage\n";
    const MOUNTS: &str = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n60 25 0:47 / /home/me/fuse rw - fuse.x x rw\n";

    #[test]
    fn absent_pages_of_text_swap_and_local_files_are_found() {
        let kinds: Vec<_> = parts(MAPS, MOUNTS).iter().map(|part| (part.kind, part.absent)).collect();
        assert_eq!(kinds, [(Kind::File, 0x1000), (Kind::Text, 0x5000), (Kind::Swapped, 0x10000)]);
    }

    #[test]
    fn a_process_that_has_ended_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        assert!(prefault(pid, Bytes::from_mib(1)).is_err() && prefault(-1, Bytes::from_mib(1)).is_err());
    }

    #[test]
    fn the_amount_is_bounded() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let fetched = prefault(child.id() as i32, Bytes::new(8192));
        child.kill().unwrap();
        child.wait().unwrap();
        match fetched {
            Ok(fetched) => assert!(fetched <= Bytes::new(8192)),
            // Without CAP_SYS_NICE.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
    }
}
