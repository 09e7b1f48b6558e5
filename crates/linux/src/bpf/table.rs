//! The maps of an object: entries by key, and memory mapped into this process.
#![allow(unsafe_code)] // records are read and written as bytes

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::map::{Map, Mapping};
use super::sys;

/// Records that are what their bytes are.
///
/// # Safety
/// No padding, no references, every bit pattern is a value.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($integer:ty),*) => { $(
        // SAFETY: an integer.
        unsafe impl Plain for $integer {}
    )* };
}
plain!(u8, u16, u32, u64, i32, i64);

// SAFETY: elements follow each other without gaps.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The bytes of a record.
pub fn bytes_of<T: Plain>(record: &T) -> &[u8] {
    // SAFETY: the record is live, and has no byte without a value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<T>()) }
}

/// The bytes of a record, to be written.
pub fn bytes_of_mut<T: Plain>(record: &mut T) -> &mut [u8] {
    // SAFETY: as above, and whatever is written is a value.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(record).cast::<u8>(), size_of::<T>()) }
}

/// A map of a loaded object.
#[derive(Debug)]
pub struct Table {
    map: Map,
    key_bytes: usize,
    value_bytes: usize,
}

impl Table {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Table> {
        let (key, value) = sys::map_sizes(fd.as_fd())?;
        Ok(Table { map: Map::from_fd(fd), key_bytes: key as usize, value_bytes: value as usize })
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// The value of `key`; an error of kind `NotFound` where there is none.
    pub fn get<K: Plain, V: Plain>(&self, key: &K) -> io::Result<V> {
        self.check::<K, V>()?;
        // SAFETY: all bit patterns are values, zeros too.
        let mut value: V = unsafe { std::mem::zeroed() };
        sys::map_lookup(self.fd(), bytes_of(key), bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Sets `key` to `value`.
    pub fn set<K: Plain, V: Plain>(&self, key: &K, value: &V) -> io::Result<()> {
        self.check::<K, V>()?;
        sys::map_update(self.fd(), bytes_of(key), bytes_of(value), 0)
    }

    /// Sets the value of `key` to zeros.
    pub fn clear<K: Plain>(&self, key: &K) -> io::Result<()> {
        same("key", size_of::<K>(), self.key_bytes)?;
        sys::map_update(self.fd(), bytes_of(key), &vec![0; self.value_bytes], 0)
    }

    /// Removes `key`.
    pub fn remove<K: Plain>(&self, key: &K) -> io::Result<()> {
        same("key", size_of::<K>(), self.key_bytes)?;
        sys::map_delete(self.fd(), bytes_of(key))
    }

    /// Reads the record at byte `offset` of the first value: how a global variable of an object is read.
    pub fn variable<V: Plain>(&self, offset: usize) -> io::Result<V> {
        let mut all = vec![0; self.value_bytes];
        sys::map_lookup(self.fd(), &0u32.to_ne_bytes(), &mut all)?;
        let bytes = all.get(offset..offset + size_of::<V>()).ok_or_else(|| {
            let text = format!("{} bytes at {offset} of a map's {}", size_of::<V>(), self.value_bytes);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        // SAFETY: all bit patterns are values, zeros too.
        let mut value: V = unsafe { std::mem::zeroed() };
        bytes_of_mut(&mut value).copy_from_slice(bytes);
        Ok(value)
    }

    /// Its memory, mapped here, shared with the kernel: of an array with `BPF_F_MMAPABLE`, or of global variables.
    pub fn map(&self, bytes: usize) -> io::Result<Mapping> {
        self.map.map(bytes)
    }

    fn check<K, V>(&self) -> io::Result<()> {
        same("key", size_of::<K>(), self.key_bytes)?;
        same("value", size_of::<V>(), self.value_bytes)
    }
}

fn same(what: &str, asked: usize, has: usize) -> io::Result<()> {
    if asked == has {
        return Ok(());
    }
    let text = format!("a {what} of {asked} bytes for a map whose {what}s have {has}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
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
