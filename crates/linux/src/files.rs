//! Reads and writes small files, of the kernel and of this program, as a whole.
//!
//! Each function may wait: for a lock in the kernel, for a disk, or for the owner of a file system. In debug builds a
//! function panics if the calling thread holds a lock that the event path waits for ([`assert_may_block`]). The calls
//! of `bpf/sys.rs` and `net/netlink.rs` do the same.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::{fs, io};

use qfabric_sync::assert_may_block;

/// Fits most files of `/proc` that describe one thread.
const USUAL: usize = 4096;

/// The whole file. A file of `/proc` reports the size 0, with which the standard library would begin with reads of 32
/// bytes. Into a buffer of [`USUAL`] bytes, two reads suffice.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    assert_may_block("reading a file");
    let mut text = String::with_capacity(USUAL);
    fs::File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// At most the first `most` bytes, as text; bytes that are no UTF-8 are replaced.
pub(crate) fn short_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    assert_may_block("reading a file");
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text without surrounding white space; `None` if the file cannot be read.
pub(crate) fn trimmed(path: impl AsRef<Path>) -> Option<String> {
    Some(text(path).ok()?.trim().to_owned())
}

/// The number in the file; `None` if the file cannot be read or contains anything else.
pub(crate) fn number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path).ok()?.trim().parse().ok()
}

pub(crate) fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    assert_may_block("reading a file");
    fs::read(path)
}

pub(crate) fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    assert_may_block("writing a file");
    fs::write(path, contents)
}

/// Replaces the file atomically: a reader finds the former file or the new one as a whole, also if this process is
/// killed meanwhile. Only this user can read the new file.
pub(crate) fn replace(path: impl AsRef<Path>, contents: &[u8]) -> io::Result<()> {
    assert_may_block("writing a file");
    let path = path.as_ref();
    let aside = path.with_extension("new");
    let _ = fs::remove_file(&aside); // of a process that was killed before the file had its name
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    file.write_all(contents)?;
    fs::rename(&aside, path)
}

pub(crate) fn folder(path: impl AsRef<Path>) -> io::Result<fs::ReadDir> {
    assert_may_block("reading a folder");
    fs::read_dir(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use qfabric_sync::{Lock, rank};
    use qfabric_types::ThreadId;

    use super::*;
    use crate::bpf::OpenObject;
    use crate::bpf::objects::TEST_SMOKE;
    use crate::{interfaces, monitor, threads};

    /// True if `act` panics with a lock of the event path held, and works without it.
    fn is_asserted(act: impl Fn()) -> bool {
        let lock = Lock::<(), { rank::ECALLS_REGISTRY }>::default();
        act();
        let held = lock.lock();
        let refused = catch_unwind(AssertUnwindSafe(&act)).is_err();
        drop(held);
        refused
    }

    #[test]
    fn a_replaced_file_is_whole_and_of_this_user_alone_also_beside_one_that_was_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        write(&path, "former").unwrap();
        write(folder.path().join("record.new"), "unfinished").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(text(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(self::folder(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn calls_that_may_wait_panic_if_a_lock_of_the_event_path_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let own = ThreadId(0);
        let asserted = [
            is_asserted(|| replace(&path, b"text").unwrap()),
            is_asserted(|| write(&path, "text").unwrap()),
            is_asserted(|| assert_eq!(text(&path).unwrap(), "text")),
            is_asserted(|| assert_eq!(bytes(&path).unwrap(), b"text")),
            is_asserted(|| drop(self::folder(folder.path()).unwrap())),
            is_asserted(|| assert!(threads::switches(own).is_some())),
            is_asserted(|| drop(interfaces::present())),
            is_asserted(|| drop(monitor::Meters::open())),
            is_asserted(|| drop(OpenObject::open("smoke", TEST_SMOKE).unwrap().load())),
        ];
        assert_eq!(asserted, [cfg!(debug_assertions); 9]);
    }
}
