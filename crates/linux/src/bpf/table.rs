//! Reads and writes the maps of an object: entries by key, and memory mapped into this process.
#![allow(unsafe_code)] // records are read and written as bytes

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::mm::ProtFlags;

use super::map::Mapping;
use super::sys::Entries;

/// Records that can be read and written as bytes.
///
/// # Safety
/// The type has no padding and no references, and every bit pattern is a value.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($integer:ty),*) => { $(
        // SAFETY: an integer.
        unsafe impl Plain for $integer {}
    )* };
}
plain!(u8, u16, u32, u64, i32, i64);

// SAFETY: the elements have no gaps between them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

pub(super) fn bytes_of<T: Plain>(record: &T) -> &[u8] {
    // SAFETY: the record is live and has no padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<T>()) }
}

pub fn bytes_of_mut<T: Plain>(record: &mut T) -> &mut [u8] {
    // SAFETY: the record is live and has no padding, and every bit pattern that is written is a value.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(record).cast::<u8>(), size_of::<T>()) }
}

#[derive(Debug)]
pub struct Table {
    entries: Entries,
}

impl Table {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Table> {
        Ok(Table { entries: Entries::of(fd)? })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.entries.fd().as_fd()
    }

    /// The value of `key`; fails with an error of kind `NotFound` if there is none.
    pub fn get<K: Plain, V: Plain>(&self, key: &K) -> io::Result<V> {
        // SAFETY: every bit pattern is a value, including all zeros.
        let mut value: V = unsafe { std::mem::zeroed() };
        self.entries.lookup(bytes_of(key), bytes_of_mut(&mut value))?;
        Ok(value)
    }

    pub fn set<K: Plain, V: Plain>(&self, key: &K, value: &V) -> io::Result<()> {
        self.entries.update(bytes_of(key), bytes_of(value))
    }

    /// Like [`Table::set`], but under the lock inside the value, so that programs that take it see the old value or the
    /// new one.
    pub(crate) fn set_locked<K: Plain, V: Plain>(&self, key: &K, value: &V) -> io::Result<()> {
        self.entries.update_locked(bytes_of(key), bytes_of(value))
    }

    pub fn clear<K: Plain>(&self, key: &K) -> io::Result<()> {
        self.entries.update(bytes_of(key), &vec![0; self.entries.value_bytes()])
    }

    pub fn remove<K: Plain>(&self, key: &K) -> io::Result<()> {
        self.entries.delete(bytes_of(key))
    }

    /// Reads the record at byte `offset` of the first value. Global variables of an object are read this way.
    pub fn variable<V: Plain>(&self, offset: usize) -> io::Result<V> {
        let mut all = vec![0; self.entries.value_bytes()];
        self.entries.lookup(&0u32.to_ne_bytes(), &mut all)?;
        let bytes = all.get(offset..offset + size_of::<V>()).ok_or_else(|| {
            let text =
                format!("the map has {1} bytes, too few for {0} bytes at offset {offset}", size_of::<V>(), all.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        // SAFETY: every bit pattern is a value, including all zeros.
        let mut value: V = unsafe { std::mem::zeroed() };
        bytes_of_mut(&mut value).copy_from_slice(bytes);
        Ok(value)
    }

    /// Maps the memory that is shared with the kernel: of an array with `BPF_F_MMAPABLE`, or of global variables.
    pub fn map(&self, bytes: usize) -> io::Result<Mapping> {
        Mapping::new(self.entries.fd(), bytes, 0, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Takes the right to write from every process, and maps the memory for reading. A store through the mapping ends
    /// this process, so its holder must not give out its words.
    pub(crate) fn freeze(&self, bytes: usize) -> io::Result<Mapping> {
        self.entries.freeze()?;
        Mapping::new(self.entries.fd(), bytes, 0, ProtFlags::READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_into_a_record_are_its_value() {
        let mut record = [0u32; 2];
        bytes_of_mut(&mut record).copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(record, [1, 2]);
        assert_eq!(bytes_of(&record).len(), 8);
    }
}
