//! The shared areas' owner side: BPF arrays that are mapped here and, through their descriptors, by applications.

use std::io;
use std::os::fd::BorrowedFd;

use qfabric_types::memory::{Down, Geometry, Stamp, Up};

/// A memory_up. Its descriptors go to the application.
#[derive(Debug)]
pub struct UpMemory {
    geometry: Geometry,
}

impl UpMemory {
    /// Fresh memory.
    pub fn new(geometry: Geometry) -> io::Result<UpMemory> {
        let _ = geometry;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its sizes.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The area: to be mapped shared for reading and writing, `geometry.total_bytes()` from offset 0.
    pub fn fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// The wake descriptor (a BPF ring buffer of one page): readable after an event that found the reader asleep.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// Puts an event in from user space, as kernel handlers do (`raise_event` by the daemon). `position`: the slot
    /// of the layout with bits; none: the next free one. `false`: no room, or it was being written to for too
    /// long; dropped and counted. `data` longer than an event is cut, shorter is filled with zeros.
    pub fn put(&self, data: &[u8], stamp: Stamp, position: Option<u32>) -> bool {
        let _ = (data, stamp, position);
        false
    }

    /// A view to read it in this process.
    pub fn reader(&self) -> Up<'_> {
        unimplemented!()
    }
}

/// An application session's memory_down. Its descriptor goes to the application.
#[derive(Debug)]
pub struct DownMemory {}

impl DownMemory {
    /// Fresh memory.
    pub fn new() -> io::Result<DownMemory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The area: to be mapped shared for reading and writing, [`size_of::<Down>()`] from offset 0.
    pub fn fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// The attributes, mapped in this process.
    pub fn down(&self) -> &Down {
        unimplemented!()
    }
}
