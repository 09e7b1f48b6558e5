//! The BPF system calls of an application: binds a socket to the I/O module, and calls a program of the kernel.
#![allow(unsafe_code)] // a system call without a safe wrapper

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use qfabric_types::memory::{CALL_VALUES, CallRecord, CallVerdict};

use crate::memfd::refused;

const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_MAP_TYPE_SK_STORAGE: u32 = 24;

/// `bpf_attr` of `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct Update {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `bpf_attr` of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoRequest {
    map: u32,
    length: u32,
    answer: u64,
}

/// The first fields of `bpf_map_info`.
#[repr(C)]
#[derive(Debug, Default, PartialEq)]
struct Info {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
}

/// `bpf_attr` of `BPF_PROG_RUN`.
#[repr(C)]
#[derive(Default)]
struct Run {
    program: u32,
    /// Written by the kernel.
    result: Cell<u32>,
    data_bytes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_bytes: [u32; 2],
    context: [u64; 2],
    flags: u32,
    cpu: u32,
    batch: u32,
    _pad: u32,
}

const _: () = assert!(size_of::<Run>() == 80);

/// A program in the kernel that this process calls.
#[derive(Debug)]
pub struct Caller {
    program: OwnedFd,
}

impl Caller {
    /// Takes the descriptor of a program, which came through a socket.
    pub fn new(program: OwnedFd) -> Caller {
        Caller { program }
    }

    /// Calls the program and returns its verdict: one system call. Any thread may call.
    ///
    /// # Errors
    /// The descriptor is no such program, or the host denies `bpf(2)` to users: Linux before 5.19 does if
    /// `kernel.unprivileged_bpf_disabled` is set, and so do filters of system calls, as in containers.
    pub fn call(&self, values: [i64; CALL_VALUES]) -> io::Result<CallVerdict> {
        let mut record = CallRecord::new(values).to_bytes();
        let run = Run {
            program: self.program.as_raw_fd() as u32,
            context_bytes: [record.len() as u32, 0],
            context: [record.as_mut_ptr() as u64, 0],
            ..Run::default()
        };
        // SAFETY: the attributes of this command; the kernel reads and writes as many bytes of the context as they say,
        // which are live, and writes the result, which is a cell.
        unsafe { bpf(BPF_PROG_RUN, &run) }?;
        Ok(CallRecord::verdict_in(&record))
    }
}

/// The socket storage of the I/O module.
#[derive(Debug)]
pub struct Binder {
    map: OwnedFd,
}

impl Binder {
    /// Checks a descriptor that came through a socket. Refused unless it is a socket-storage map with values of 4
    /// bytes: on an update the kernel reads as many bytes as the map says. Also refused if the host denies `bpf(2)`
    /// to users.
    pub fn of(map: OwnedFd) -> io::Result<Binder> {
        let mut info = Info::default();
        let (length, answer) = (size_of::<Info>() as u32, (&raw mut info) as u64);
        let request = InfoRequest { map: map.as_raw_fd() as u32, length, answer };
        // SAFETY: the attributes of this command; the kernel writes no more than `length` bytes into `info`, which is live.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &request) }?;
        match info {
            Info { kind: BPF_MAP_TYPE_SK_STORAGE, key_bytes: 4, value_bytes: 4, .. } => Ok(Binder { map }),
            other => Err(refused(&format!("expected a socket-storage map with 4-byte values, got {other:?}"))),
        }
    }

    /// Binds `socket` to its own descriptor number. Refused if the host denies `bpf(2)` to users; ask the daemon in
    /// that case.
    pub fn bind(&self, socket: impl AsFd) -> io::Result<()> {
        let key = socket.as_fd().as_raw_fd();
        let value = key as u32;
        let (at, what) = ((&raw const key) as u64, (&raw const value) as u64);
        let update = Update { map: self.map.as_raw_fd() as u32, _pad: 0, key: at, value: what, flags: 0 };
        // SAFETY: the attributes of this command; the kernel reads 4 bytes each (checked in `of`) of key and value,
        // which are live.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &update) }.map(drop)
    }
}

/// # Safety
/// `attributes` are those of the command. Their pointers are live, and point to as many bytes as the kernel reads
/// or writes.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are live and have the stated size; the caller guarantees the rest.
    match unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    /// `bpf_attr` of `BPF_MAP_CREATE`.
    #[repr(C)]
    struct New {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    }

    #[test]
    fn a_descriptor_that_is_no_program_is_not_called() {
        let caller = Caller::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        assert!(caller.call([0; CALL_VALUES]).is_err());
    }

    #[test]
    fn a_descriptor_that_is_no_socket_map_is_refused() {
        assert!(Binder::of(eventfd(0, EventfdFlags::CLOEXEC).unwrap()).is_err());
        let array = New { kind: 2, key_bytes: 4, value_bytes: 4096, entries: 1 };
        // SAFETY: the attributes of BPF_MAP_CREATE, without pointers.
        let made = match unsafe { bpf(0, &array) } {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
            made => made.unwrap(),
        };
        // SAFETY: just created, and it has no other owner.
        let array = unsafe { OwnedFd::from_raw_fd(made as i32) };
        match Binder::of(array) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            binder => assert!(binder.unwrap_err().to_string().contains("value_bytes: 4096")),
        }
    }
}
