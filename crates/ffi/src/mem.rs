//! The memory interface of QualMan (§6.4): reserve, lock the text, allocate, free, free the reserve.

use std::ffi::{c_char, c_void};

use qfabric_client::{Allocation, AllocationId, Bytes, Client, Mem, PageKind, ReserveId};

use crate::ecalls::{give, take_back};
use crate::joint::identity;
use crate::status::{Failure, borrow, not_null, put, qf_status, settle};

/// A connection to the memory of the daemon. Any thread may use it.
pub struct qf_mem(Mem);

/// Memory of a reserve. Any thread may use it.
pub struct qf_allocation(Allocation);

/// Kind of pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_pages {
    /// Pages of the smallest size.
    QF_PAGES_BASE = 0,
    /// Pages of the smallest size that the kernel may combine to huge ones.
    QF_PAGES_ADVISED = 1,
    /// Huge pages of the host.
    QF_PAGES_HUGE = 2,
}

/// Memory that is promised to a whole program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct qf_memory {
    /// The promise.
    pub promised_bytes: u64,
    /// The resident memory of the process.
    pub used_bytes: u64,
    /// Notices that programs of the group waited for memory, because they use more than the promise.
    pub pressure_notices: u64,
    /// A larger promise that the host can keep now; 0 if there is none, or the promise is large enough.
    pub offered_bytes: u64,
}

/// Runs `act` on the handle's value and writes its result to `to`. Without a place for the result it changes nothing:
/// the program could not free a reserve whose number it does not know.
///
/// # Safety
/// `mem` is null or a live handle, `to` is null or points to writable memory.
unsafe fn ask<T>(
    mem: *const qf_mem,
    what: &str,
    to: *mut T,
    act: impl FnOnce(&Mem) -> Result<T, Failure>,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let answer = not_null(what, to).and_then(|()| unsafe { borrow(mem) }).and_then(|mem| act(&mem.0));
    // SAFETY: the caller guarantees it.
    settle(answer.and_then(|value| unsafe { put(what, to, value) }))
}

/// Connects to the daemon of this host: at $QFABRIC_SOCKET, or at the default sockets. Free `*mem` with qf_mem_free.
///
/// # Safety
/// `mem` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_connect(mem: *mut *mut qf_mem) -> qf_status {
    let made = Client::connect().and_then(|client| Mem::connect(&client)).map_err(Failure::from);
    // SAFETY: the caller guarantees it.
    settle(made.and_then(|made| unsafe { give(mem, qf_mem(made)) }))
}

/// Reserves memory that stays resident, rounded up to whole pages; `*reserve` is the number of the reserve. A refusal
/// names the free amount and the holders.
///
/// # Safety
/// `mem` is a live handle, `reserve` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_reserve(mem: *const qf_mem, bytes: u64, reserve: *mut u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(mem, "the reserve", reserve, |mem| Ok(mem.reserve(bytes)?.0)) }
}

/// Like qf_mem_reserve, in whole huge pages where the host has free ones; elsewhere in ordinary pages. The kind of pages
/// of an allocation: qf_allocation_pages.
///
/// # Safety
/// `mem` is a live handle, `reserve` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_reserve_huge(mem: *const qf_mem, bytes: u64, reserve: *mut u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(mem, "the reserve", reserve, |mem| Ok(mem.reserve_huge(bytes)?.reserve.0)) }
}

/// Like qf_mem_reserve, from the memory of a joint contract: `contract` is its identity, on any of its hosts. The part
/// beyond the contract comes from the free memory. Freed memory returns to the contract; when the contract ends, the reserve
/// stays.
///
/// # Safety
/// `mem` is a live handle, `contract` a zero-terminated string, `reserve` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_reserve_from(
    mem: *const qf_mem,
    contract: *const c_char,
    bytes: u64,
    reserve: *mut u64,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let make = |mem: &Mem| Ok(mem.reserve_from(&unsafe { identity(contract) }?, bytes)?.0);
    // SAFETY: the caller guarantees it.
    unsafe { ask(mem, "the reserve", reserve, make) }
}

/// Like qf_mem_reserve_from, in whole huge pages where the host has free ones; elsewhere in ordinary pages.
///
/// # Safety
/// `mem` is a live handle, `contract` a zero-terminated string, `reserve` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_reserve_huge_from(
    mem: *const qf_mem,
    contract: *const c_char,
    bytes: u64,
    reserve: *mut u64,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let make = |mem: &Mem| Ok(mem.reserve_huge_from(&unsafe { identity(contract) }?, bytes)?.reserve.0);
    // SAFETY: the caller guarantees it.
    unsafe { ask(mem, "the reserve", reserve, make) }
}

/// Reads the memory that is promised to the calling process, by `qfabric run --memory` or another contract for the whole
/// program. All fields are 0 without a promise.
///
/// # Safety
/// `memory` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_own_memory(memory: *mut qf_memory) -> qf_status {
    let read = || {
        let own = Client::connect()?.own_memory()?;
        let found = own.map_or(qf_memory::default(), |own| qf_memory {
            promised_bytes: own.promised.get(),
            used_bytes: own.used.get(),
            pressure_notices: own.pressure.map_or(0, |pressure| pressure.notices),
            offered_bytes: own.pressure.and_then(|pressure| pressure.offered).map_or(0, Bytes::get),
        });
        // SAFETY: the caller guarantees it.
        unsafe { put("the memory", memory, found) }
    };
    settle(read())
}

/// Takes part in a reserve that another process of the same user made; `*bytes` is its size.
///
/// # Safety
/// `mem` is a live handle, `bytes` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_join(mem: *const qf_mem, reserve: u64, bytes: *mut u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(mem, "the size", bytes, |mem| Ok(mem.join(ReserveId(reserve))?)) }
}

/// Lets a reserve grow or shrink to `bytes`, rounded up to whole pages.
///
/// # Safety
/// `mem` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_resize(mem: *const qf_mem, reserve: u64, bytes: u64) -> qf_status {
    let mut granted = 0;
    // SAFETY: the caller guarantees it; the result is a local variable.
    unsafe { ask(mem, "the size", &raw mut granted, |mem| Ok(mem.resize(ReserveId(reserve), bytes)?)) }
}

/// Locks the program text of this process, with its libraries; `*locked` is the number of locked bytes, which count
/// against the reserve.
///
/// # Safety
/// `mem` is a live handle, `locked` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_lock_text(mem: *const qf_mem, reserve: u64, locked: *mut u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(mem, "the length", locked, |mem| Ok(mem.lock_text(ReserveId(reserve))?)) }
}

/// Allocates memory of a reserve. Free `*allocation` with qf_allocation_free.
///
/// # Safety
/// `mem` is a live handle, `allocation` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_alloc(
    mem: *const qf_mem,
    reserve: u64,
    bytes: u64,
    allocation: *mut *mut qf_allocation,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let made = unsafe { borrow(mem) }.and_then(|mem| Ok(mem.0.alloc(ReserveId(reserve), bytes)?));
    // SAFETY: the caller guarantees it.
    settle(made.and_then(|made| unsafe { give(allocation, qf_allocation(made)) }))
}

/// Opens the allocation `id` of another member of the reserve: the same memory, without a copy. Free `*allocation`
/// with qf_allocation_free; the memory stays allocated until its maker frees it.
///
/// # Safety
/// `mem` is a live handle, `allocation` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_open(
    mem: *const qf_mem,
    reserve: u64,
    id: u64,
    allocation: *mut *mut qf_allocation,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let found = unsafe { borrow(mem) }.and_then(|mem| Ok(mem.0.open(ReserveId(reserve), AllocationId(id))?));
    // SAFETY: the caller guarantees it.
    settle(found.and_then(|found| unsafe { give(allocation, qf_allocation(found)) }))
}

/// The first byte of an allocation; null for a null pointer. Valid until the allocation is freed.
///
/// # Safety
/// `allocation` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_allocation_data(allocation: *const qf_allocation) -> *mut c_void {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(allocation) }.map_or(std::ptr::null_mut(), |found| found.0.as_ptr().cast())
}

/// The number of an allocation, for qf_mem_open in another process; 0 for a null pointer.
///
/// # Safety
/// `allocation` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_allocation_id(allocation: *const qf_allocation) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(allocation) }.map_or(0, |found| found.0.id().0)
}

/// The kind of pages of an allocation, a qf_pages; QF_PAGES_BASE for a null pointer.
///
/// # Safety
/// `allocation` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_allocation_pages(allocation: *const qf_allocation) -> qf_pages {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(allocation) }.map_or(qf_pages::QF_PAGES_BASE, |found| match found.0.pages() {
        PageKind::Base => qf_pages::QF_PAGES_BASE,
        PageKind::Advised => qf_pages::QF_PAGES_ADVISED,
        PageKind::Huge => qf_pages::QF_PAGES_HUGE,
    })
}

/// Frees an allocation; its memory must not be used afterwards. Null is allowed.
///
/// # Safety
/// `allocation` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_allocation_free(allocation: *mut qf_allocation) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(allocation) });
}

/// Leaves a reserve; the last member ends it. Allocations of this connection are free.
///
/// # Safety
/// `mem` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_free_reserve(mem: *const qf_mem, reserve: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(mem) }.and_then(|mem| Ok(mem.0.free_reserve(ReserveId(reserve))?)))
}

/// Frees the handle. The connection closes after its last allocation is freed. Null is allowed.
///
/// # Safety
/// `mem` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_mem_free(mem: *mut qf_mem) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(mem) });
}
