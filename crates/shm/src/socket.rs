//! Binding a socket to the I/O module: one system call of the application.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;

/// `bpf_attr` of an update.
#[repr(C)]
struct Update {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Binds `socket` to its own descriptor number, in the socket storage behind `binder`. Refused without CAP_BPF
/// where the host keeps BPF from users: ask the daemon then.
#[allow(unsafe_code)] // a system call without a safe wrapper
pub fn bind_socket(binder: impl AsFd, socket: impl AsFd) -> io::Result<()> {
    let key = socket.as_fd().as_raw_fd();
    let value = key as u32;
    let update = Update {
        map: binder.as_fd().as_raw_fd() as u32,
        _pad: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: `update` is a whole `bpf_attr` of this command; key and value outlive the call, which reads an i32
    // and the map's value size of 4 bytes.
    let done = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, &raw const update, size_of::<Update>()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
