//! Machine code: made by `rbpf` in memory of our own, which is writable first and executable afterwards, never both.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use qfabric_ecode::bpf::Code;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

use crate::host::{DELIVER, aligned_deliver};

/// A compiled program.
#[derive(Debug)]
pub struct Machine {
    at: NonNull<c_void>,
    bytes: usize,
}

/// As `rbpf` makes functions: metadata and its length, the memory and its length, two offsets, all but the memory
/// unused in what we compile.
type Entry = unsafe extern "sysv64" fn(*mut u8, usize, *mut u64, usize, usize, usize) -> u64;

/// The most that `rbpf` makes of one instruction is 51 bytes (a division by a register).
const MOST_BYTES: usize = 64;

/// `rbpf` takes no less, and its pages are of this size on every machine; the kernel's may be larger.
const LEAST: usize = 4096;

/// Bytes of memory for the code of so many instructions, in whole pages of the kernel's.
fn room(insns: usize, page: usize) -> usize {
    (MOST_BYTES * (insns + 16)).next_multiple_of(page.max(LEAST))
}

#[allow(unsafe_code)] // a mapping is not tied to the thread that made it
// SAFETY: the memory belongs to this value alone, and is not written once it exists.
unsafe impl Send for Machine {}

impl Machine {
    /// Compiles code that ends by `exit`, calls [`aligned_deliver`] alone and runs with the frame's address in r1.
    pub fn compile(code: &Code) -> io::Result<Machine> {
        let mut machine = Machine::writable(room(code.insns.len(), page_size()))?;
        translate(&code.to_bytes(), machine.contents())?;
        machine.make_executable()?;
        Ok(machine)
    }

    #[allow(unsafe_code)] // memory from the kernel
    fn writable(bytes: usize) -> io::Result<Machine> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice disturbs nobody.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let at = NonNull::new(at).ok_or_else(|| io::Error::other("memory at address 0"))?;
        Ok(Machine { at, bytes })
    }

    #[allow(unsafe_code)] // memory from the kernel
    fn contents(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has these bytes, is still writable, all zeros, and borrowed through `self` only.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast().as_ptr(), self.bytes) }
    }

    #[allow(unsafe_code)] // memory from the kernel
    fn make_executable(&mut self) -> io::Result<()> {
        // SAFETY: nobody holds a reference into the mapping, which belongs to `self`.
        unsafe { mprotect(self.at.as_ptr(), self.bytes, MprotectFlags::READ | MprotectFlags::EXEC) }?;
        Ok(())
    }

    /// Runs it.
    ///
    /// # Safety
    /// The frame has the size and the contents that the code was generated for: its layout's, with valid addresses
    /// of statics, attributes and delivery in the host's words, that nobody else uses meanwhile.
    #[allow(unsafe_code)] // machine code
    pub unsafe fn run(&self, frame: &mut [u64]) -> u64 {
        // SAFETY: `compile` put a function of this type at the beginning of the mapping, whole and executable; the
        // caller vouches for what it works on.
        unsafe {
            let entry: Entry = std::mem::transmute(self.at.as_ptr());
            entry(std::ptr::null_mut(), 0, frame.as_mut_ptr(), 8 * frame.len(), 0, 0)
        }
    }
}

impl Drop for Machine {
    #[allow(unsafe_code)] // memory from the kernel
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no code runs in it: `run` borrows it.
        let _ = unsafe { munmap(self.at.as_ptr(), self.bytes) };
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // a helper's address
fn translate(program: &[u8], memory: &mut [u8]) -> io::Result<()> {
    // SAFETY: `rbpf` takes but the address, and its code calls there as System V functions are called; as a Rust
    // function it is never called.
    let deliver = unsafe { std::mem::transmute::<unsafe extern "sysv64" fn(), rbpf::Helper>(aligned_deliver) };
    let mut compile = || {
        let mut vm = rbpf::EbpfVmRaw::new(Some(program))?;
        vm.register_helper(DELIVER, deliver)?;
        vm.set_jit_exec_memory(memory)?;
        vm.jit_compile()
    };
    compile().map_err(|error: rbpf::lib::Error| io::Error::other(format!("rbpf: {error:?}")))
}

#[cfg(not(target_arch = "x86_64"))]
fn translate(_: &[u8], _: &mut [u8]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "rbpf compiles for x86-64 alone; use the interpreter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_whole_pages_of_whatever_size_the_kernel_has() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for insns in [0, 1, 48, 49, 1_000, 60_000] {
                let bytes = room(insns, page);
                assert!(
                    bytes.is_multiple_of(page) && bytes.is_multiple_of(LEAST) && bytes >= MOST_BYTES * insns,
                    "{insns} by {page}"
                );
            }
        }
        assert_eq!((room(1, 64 << 10), room(1, 4 << 10)), (64 << 10, 4 << 10));
    }

    #[test]
    fn what_is_mapped_is_the_kernels_pages() {
        if cfg!(target_arch = "x86_64") {
            let exit = qfabric_ecode::bpf::Insn { code: 0x95, ..Default::default() };
            let machine = Machine::compile(&Code { insns: vec![exit], relocations: Vec::new() }).unwrap();
            assert_eq!(machine.bytes % page_size(), 0);
        }
    }
}
