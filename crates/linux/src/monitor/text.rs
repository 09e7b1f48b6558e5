//! Reads text files of the kernel repeatedly and parses them without allocating.
//!
//! The parsers treat a text as hostile: it may be truncated anywhere, and numbers may have any value.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use qfabric_sync::assert_may_block;

/// Largest text that is read: /proc/stat of a host with 1,000 CPUs. The rest of a larger text is ignored.
const MOST: usize = 128 << 10;

/// Memory that all meters share for their looks.
pub(super) struct Scratch {
    bytes: Box<[u8]>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { bytes: vec![0; MOST].into() }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A file that stays open.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    /// True if the kernel returns the whole file in one read.
    at_once: bool,
}

impl OpenFile {
    /// Opens a file that the kernel returns in one read, and tests a read.
    pub(super) fn open(path: &Path) -> io::Result<OpenFile> {
        OpenFile::tried(path, true)
    }

    /// Opens a file that the kernel returns in several reads.
    pub(super) fn open_in_pieces(path: &Path) -> io::Result<OpenFile> {
        OpenFile::tried(path, false)
    }

    fn tried(path: &Path, at_once: bool) -> io::Result<OpenFile> {
        assert_may_block("opening a file of the monitor");
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = OpenFile { file: File::open(path).map_err(named)?, at_once };
        file.file.read_at(&mut [0; 64], 0).map_err(named)?;
        Ok(file)
    }

    /// The present text, cut to whole lines if it is too long.
    pub(super) fn read<'s>(&self, scratch: &'s mut Scratch) -> Option<&'s [u8]> {
        assert_may_block("reading a file of the monitor");
        let mut length = 0;
        while length < MOST {
            match self.file.read_at(&mut scratch.bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            }
            if self.at_once && length < MOST {
                break;
            }
        }
        let text = &scratch.bytes[..length];
        if length < MOST { Some(text) } else { text.iter().rposition(|byte| *byte == b'\n').map(|end| &text[..=end]) }
    }

    /// The number in a file that contains only one.
    pub(super) fn number(&self, scratch: &mut Scratch) -> Option<u64> {
        words(self.read(scratch)?).next().and_then(number)
    }

    /// As [`OpenFile::number`], without its sign.
    pub(super) fn magnitude(&self, scratch: &mut Scratch) -> Option<u64> {
        words(self.read(scratch)?).next().and_then(magnitude)
    }
}

/// The number without its sign. Some drivers report currents and powers of discharge as negative numbers.
pub(super) fn magnitude(word: &[u8]) -> Option<u64> {
    number(word.strip_prefix(b"-").unwrap_or(word))
}

/// The lines of a text that are not empty.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// A decimal number. A number of more than 64 bits becomes the largest one.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let digit = |number: Option<u64>, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number?.saturating_mul(10).saturating_add(digit))
    };
    if word.is_empty() { None } else { word.iter().fold(Some(0), digit) }
}

/// The number after `name=`.
pub(super) fn assigned(line: &[u8], name: &[u8]) -> Option<u64> {
    words(line).find_map(|word| number(word.strip_prefix(name)?.strip_prefix(b"=")?))
}

/// A counter as a raw number, which is at most `i64::MAX`.
pub(super) fn raw(count: u64) -> Option<i64> {
    Some(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A counter of units as a raw number; `unit` is in ns, bytes or µJ.
pub(super) fn scaled(count: u64, unit: u64) -> Option<i64> {
    raw(count.saturating_mul(unit))
}

/// Calls `found` with the index and number of each line `NAME …: 12` or `NAME 12` whose name is in `names`.
pub(super) fn by_name(text: &[u8], names: &[&str], mut found: impl FnMut(usize, u64)) {
    for line in lines(text) {
        let mut words = words(line);
        let Some(name) = words.next().map(|name| name.strip_suffix(b":").unwrap_or(name)) else { continue };
        if let Some(slot) = names.iter().position(|known| known.as_bytes() == name)
            && let Some(number) = words.next().and_then(number)
        {
            found(slot, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn numbers_are_digits_only_and_never_overflow() {
        assert_eq!(number(b"0042"), Some(42));
        assert_eq!(number(b"99999999999999999999999"), Some(u64::MAX));
        for nonsense in [&b""[..], b"-1", b"1.5", b"0x10", b" 1", b"\xff"] {
            assert_eq!(number(nonsense), None);
        }
    }

    #[test]
    fn each_read_returns_the_present_text_cut_to_whole_lines() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "old").unwrap();
        let (open, mut scratch) = (OpenFile::open_in_pieces(file.path()).unwrap(), Scratch::new());
        assert_eq!(open.read(&mut scratch), Some(&b"old"[..]));
        std::fs::write(file.path(), "new text").unwrap();
        assert_eq!(open.read(&mut scratch), Some(&b"new text"[..]));
        std::fs::write(file.path(), "a line of text\n".repeat(MOST / 10)).unwrap();
        let long = open.read(&mut scratch).unwrap();
        assert!(long.len() <= MOST && long.ends_with(b"text\n"));
    }

    #[test]
    fn the_error_of_open_names_the_file() {
        let error = OpenFile::open(Path::new("/nowhere/file")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/file"), "{error}");
    }
}
