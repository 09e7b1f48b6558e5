//! QualMan's programming interface to memory (§6.4): reserve, lock the text, allocate, free, free the reserve.
//!
//! ```no_run
//! use qfabric_client::{Client, Mem};
//!
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let mem = Mem::connect(&Client::connect()?)?;
//! let reserve = mem.reserve(500_000)?; // bytes
//! mem.lock_text(reserve)?;
//! let frame = mem.alloc(reserve, 76_800)?;
//! frame.write(0, &[0; 76_800]);
//! frame.free()?;
//! mem.free_reserve(reserve)
//! # }
//! ```
//!
//! Allocations lie in segments that the daemon locks, so an access to them never waits for a disk, and the program needs
//! no right to lock memory. Other processes of the same user can [`Mem::join`] a reserve and [`Mem::open`] its
//! allocations: data passes between processes without a copy. When the connection closes, because of a crash too, the
//! daemon frees everything that was made through it. A call may block for at most the client's patience.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use qfabric_shm::fds::{self, Received};
use qfabric_shm::{Process, SharedSegment};
use qfabric_types::Bytes;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::{AllocationId, AllocationPlace, MemoryAnswer, MemoryRequest, PageKind, ReserveId};

use crate::client::Client;
use crate::error::ClientError;
use crate::sync::{Mutex, lock};

/// A connection to the memory of the daemon. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Mem(Arc<Inner>);

struct Connection {
    socket: OwnedFd,
    /// Answers that are still to come. The daemon answers in the order of the requests, also after the caller has given up.
    owed: usize,
}

struct Inner {
    /// One exchange at a time.
    connection: Mutex<Connection>,
    path: std::path::PathBuf,
    process: Process,
    /// Mappings in use, by reserve and segment.
    segments: Mutex<HashMap<(ReserveId, u64), Weak<SharedSegment>>>,
}

impl fmt::Debug for Mem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mem").field(&self.0.path).finish()
    }
}

impl Mem {
    /// Connects to the `memory.sock` beside the client's socket.
    pub fn connect(client: &Client) -> Result<Mem, ClientError> {
        let path = client.socket().with_file_name("memory.sock");
        let connection = fds::connect(&path, client.patience());
        let connection = connection.map_err(|why| ClientError::Mem { path: path.clone(), why: why.to_string() })?;
        let process = Process::current().map_err(ClientError::unnumbered)?;
        let segments = Mutex::new(HashMap::new());
        let connection = Mutex::new(Connection { socket: connection, owed: 0 });
        Ok(Mem(Arc::new(Inner { connection, path, process, segments })))
    }

    /// Reserves memory that stays resident; rounded up to whole pages. Fails with [`ClientError::Refused`] if it does
    /// not fit beside the reserves of others; the problem names the free amount and the holders.
    pub fn reserve(&self, bytes: u64) -> Result<ReserveId, ClientError> {
        self.made(&MemoryRequest::Reserve(Bytes::new(bytes)))
    }

    /// Like [`Mem::reserve`], from the memory of a joint contract, on any of its hosts. The part beyond the contract comes
    /// from the free memory. Freed memory returns to the contract; when the contract ends, the reserve stays.
    pub fn reserve_from(&self, contract: &JointId, bytes: u64) -> Result<ReserveId, ClientError> {
        self.made(&MemoryRequest::ReserveFrom { contract: contract.clone(), bytes: Bytes::new(bytes) })
    }

    /// Like [`Mem::reserve`], in whole huge pages where the host has free ones: fewer entries of the page table for large
    /// buffers. Allocations below a huge page share one.
    pub fn reserve_huge(&self, bytes: u64) -> Result<HugeReserve, ClientError> {
        self.made_huge(&MemoryRequest::ReserveHuge(Bytes::new(bytes)))
    }

    /// Like [`Mem::reserve_from`], in whole huge pages where the host has free ones.
    pub fn reserve_huge_from(&self, contract: &JointId, bytes: u64) -> Result<HugeReserve, ClientError> {
        self.made_huge(&MemoryRequest::ReserveHugeFrom { contract: contract.clone(), bytes: Bytes::new(bytes) })
    }

    fn made_huge(&self, request: &MemoryRequest) -> Result<HugeReserve, ClientError> {
        match self.0.call(request)?.0 {
            MemoryAnswer::HugeReserved { reserve, bytes, missing } => {
                Ok(HugeReserve { reserve, bytes: bytes.get(), missing })
            }
            other => Err(self.0.unexpected(&other)),
        }
    }

    /// Takes part in a reserve that another process of the same user made. Returns its size in bytes.
    pub fn join(&self, reserve: ReserveId) -> Result<u64, ClientError> {
        self.reserved(&MemoryRequest::Join(reserve))
    }

    /// Lets a reserve grow or shrink. Returns its new size in bytes. A reserve cannot be smaller than its part in use.
    pub fn resize(&self, reserve: ReserveId, bytes: u64) -> Result<u64, ClientError> {
        self.reserved(&MemoryRequest::Resize { reserve, bytes: Bytes::new(bytes) })
    }

    /// Locks the program text of this process, with its libraries, and counts it against the reserve. Call it after all
    /// libraries are loaded; a second call replaces the first. Returns the locked number of bytes.
    pub fn lock_text(&self, reserve: ReserveId) -> Result<u64, ClientError> {
        match self.0.call(&MemoryRequest::LockText(reserve))?.0 {
            MemoryAnswer::TextLocked { bytes, .. } => Ok(bytes.get()),
            other => Err(self.0.unexpected(&other)),
        }
    }

    /// Allocates zeroed or formerly used bytes of the reserve. Allocations below a page share pages and begin at a
    /// multiple of 16; others begin at a page.
    pub fn alloc(&self, reserve: ReserveId, bytes: u64) -> Result<Allocation, ClientError> {
        self.placed(reserve, &MemoryRequest::Allocate { reserve, bytes: Bytes::new(bytes) }, true)
    }

    /// Opens an allocation of another member of the reserve: the same memory, without a copy.
    pub fn open(&self, reserve: ReserveId, allocation: AllocationId) -> Result<Allocation, ClientError> {
        self.placed(reserve, &MemoryRequest::Open { reserve, allocation }, false)
    }

    /// Leaves a reserve and frees the allocations of this connection in it; a mapping of a freed page reads zeros. The
    /// last member ends the reserve.
    pub fn free_reserve(&self, reserve: ReserveId) -> Result<(), ClientError> {
        self.0.call(&MemoryRequest::FreeReserve(reserve)).map(drop)
    }

    fn made(&self, request: &MemoryRequest) -> Result<ReserveId, ClientError> {
        match self.0.call(request)?.0 {
            MemoryAnswer::Reserved { reserve, .. } => Ok(reserve),
            other => Err(self.0.unexpected(&other)),
        }
    }

    fn reserved(&self, request: &MemoryRequest) -> Result<u64, ClientError> {
        match self.0.call(request)?.0 {
            MemoryAnswer::Reserved { bytes, .. } => Ok(bytes.get()),
            other => Err(self.0.unexpected(&other)),
        }
    }

    fn placed(&self, reserve: ReserveId, request: &MemoryRequest, is_own: bool) -> Result<Allocation, ClientError> {
        let (place, file) = match self.0.call(request)? {
            (MemoryAnswer::Placed(place), Some(file)) => (place, file),
            (other, _) => return Err(self.0.unexpected(&other)),
        };
        let mut allocation = Allocation { mem: self.0.clone(), reserve, place, segment: None, is_own };
        allocation.segment = Some(self.0.segment(reserve, place, &file)?);
        Ok(allocation)
    }
}

impl Connection {
    fn exchange(&mut self, request: &[u8], buffer: &mut [u8]) -> io::Result<Received> {
        fds::send(&self.socket, request, &[])?;
        self.owed += 1;
        loop {
            let received = fds::recv(&self.socket, buffer);
            let is_late = received.as_ref().is_err_and(|why| why.kind() == ErrorKind::WouldBlock);
            self.owed -= usize::from(!is_late);
            if self.owed == 0 || received.as_ref().map_or(true, |received| received.length == 0) {
                return received;
            }
        }
    }
}

impl Inner {
    /// Sends a request and waits for its answer.
    fn call(&self, request: &MemoryRequest) -> Result<(MemoryAnswer, Option<OwnedFd>), ClientError> {
        if !self.process.is_current() {
            return Err(ClientError::Forked { what: "the connection for memory" });
        }
        let text = serde_json::to_vec(request).expect("requests are plain values");
        let mut buffer = vec![0; MemoryRequest::MAX_BYTES];
        let exchanged = lock(&self.connection).exchange(&text, &mut buffer);
        let mut received = exchanged.map_err(|why| match why.kind() {
            ErrorKind::WouldBlock => self.failed("the daemon did not answer in time".to_owned()),
            _ => self.failed(why.to_string()),
        })?;
        if received.length == 0 {
            return Err(self.failed("the daemon closed the connection".to_owned()));
        }
        let answer = serde_json::from_slice(&buffer[..received.length]);
        match answer.map_err(|error| self.failed(format!("the answer does not parse: {error}")))? {
            MemoryAnswer::Refused(problem) => Err(ClientError::Refused(*problem)),
            answer => Ok((answer, received.fds.pop())),
        }
    }

    /// The mapping of a segment; small allocations share it.
    fn segment(
        &self,
        reserve: ReserveId,
        place: AllocationPlace,
        file: &OwnedFd,
    ) -> Result<Arc<SharedSegment>, ClientError> {
        let end = place.offset.checked_add(place.bytes);
        if end.is_none_or(|end| end > place.segment_bytes) {
            return Err(self.failed("an allocation lies outside its segment".to_owned()));
        }
        let mut segments = lock(&self.segments);
        if let Some(mapped) = segments.get(&(reserve, place.segment)).and_then(Weak::upgrade) {
            return Ok(mapped);
        }
        segments.retain(|_, mapped| mapped.strong_count() > 0);
        let failed = |error: std::io::Error| ClientError::Memory { what: "a segment", why: error.to_string() };
        let mapped = Arc::new(SharedSegment::map(file, place.segment_bytes as usize).map_err(failed)?);
        segments.insert((reserve, place.segment), Arc::downgrade(&mapped));
        Ok(mapped)
    }

    fn failed(&self, why: String) -> ClientError {
        ClientError::Mem { path: self.path.clone(), why }
    }

    fn unexpected(&self, answer: &MemoryAnswer) -> ClientError {
        self.failed(format!("the answer {answer:?} does not belong to the request"))
    }
}

/// A reserve in huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugeReserve {
    /// Its number.
    pub reserve: ReserveId,
    /// In whole huge pages.
    pub bytes: u64,
    /// What the host lacks to have all of it in huge pages, and the next step. The kind of pages of an allocation:
    /// [`Allocation::pages`].
    pub missing: Option<String>,
}

/// Memory of a reserve. Freed when dropped, unless another member made it.
pub struct Allocation {
    mem: Arc<Inner>,
    reserve: ReserveId,
    place: AllocationPlace,
    /// Present after construction.
    segment: Option<Arc<SharedSegment>>,
    is_own: bool,
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("reserve", &self.reserve).field("place", &self.place).finish_non_exhaustive()
    }
}

impl Allocation {
    /// Its number, for [`Mem::open`] in another process.
    pub fn id(&self) -> AllocationId {
        self.place.allocation
    }

    /// The kind of its pages.
    pub fn pages(&self) -> PageKind {
        self.place.pages
    }

    /// Number of bytes as allocated.
    #[expect(clippy::len_without_is_empty, reason = "an allocation has at least one byte")]
    pub fn len(&self) -> usize {
        self.place.bytes as usize
    }

    /// The bytes. Other members may write at any time.
    pub fn bytes(&self) -> &[AtomicU8] {
        let all = self.segment.as_ref().map_or(&[][..], |segment| segment.bytes());
        &all[self.place.offset as usize..][..self.len()]
    }

    /// The first byte, for code in other languages. Valid while this value exists.
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes().as_ptr().cast_mut().cast()
    }

    /// Copies `data` to `offset`.
    ///
    /// # Panics
    /// The data reach beyond the end.
    pub fn write(&self, offset: usize, data: &[u8]) {
        self.bytes()[offset..][..data.len()].iter().zip(data).for_each(|(byte, new)| byte.store(*new, Relaxed));
    }

    /// Copies the bytes from `offset` on into `data`.
    ///
    /// # Panics
    /// The range reaches beyond the end.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        let length = data.len();
        self.bytes()[offset..][..length].iter().zip(data).for_each(|(byte, copy)| *copy = byte.load(Relaxed));
    }

    /// Frees the allocation and reports a failure, which dropping it does not.
    pub fn free(mut self) -> Result<(), ClientError> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), ClientError> {
        match std::mem::take(&mut self.is_own) {
            true => {
                let (reserve, allocation) = (self.reserve, self.place.allocation);
                self.mem.call(&MemoryRequest::Free { reserve, allocation }).map(drop)
            }
            false => Ok(()),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Fails if the reserve or the connection has ended, and then the allocation is free already.
        let _ = self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_that_comes_too_late_is_not_that_of_the_next_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        let listener = fds::listen(&path, 1).unwrap();
        let mut connection = Connection { socket: fds::connect(&path, Duration::from_millis(10)).unwrap(), owed: 0 };
        let daemon = rustix::net::accept(&listener).unwrap();
        let mut buffer = [0; 16];
        let late = connection.exchange(b"first", &mut buffer).unwrap_err();
        assert_eq!((late.kind(), connection.owed), (ErrorKind::WouldBlock, 1));
        fds::send(&daemon, b"one", &[]).unwrap();
        fds::send(&daemon, b"two", &[]).unwrap();
        let received = connection.exchange(b"second", &mut buffer).unwrap();
        assert_eq!((&buffer[..received.length], connection.owed), (&b"two"[..], 0));
    }
}
