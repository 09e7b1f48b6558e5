//! Binding a socket to the I/O module: one system call of the application.
#![allow(unsafe_code)] // a system call without a safe wrapper

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::memfd::refused;

const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_MAP_TYPE_SK_STORAGE: u32 = 24;

/// `bpf_attr` of an update.
#[repr(C)]
struct Update {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `bpf_attr` of a question about a map.
#[repr(C)]
struct Question {
    map: u32,
    length: u32,
    answer: u64,
}

/// The beginning of `bpf_map_info`.
#[repr(C)]
#[derive(Debug, Default, PartialEq)]
struct Info {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
}

/// The socket storage of the I/O module.
#[derive(Debug)]
pub struct Binder {
    map: OwnedFd,
}

impl Binder {
    /// Of a descriptor that came through a socket. Refused unless it is a map that keeps 4 bytes with a socket: the kernel
    /// reads as many as the map says. Also refused where the host keeps BPF from users.
    pub fn of(map: OwnedFd) -> io::Result<Binder> {
        let mut info = Info::default();
        let (length, answer) = (size_of::<Info>() as u32, (&raw mut info) as u64);
        let question = Question { map: map.as_raw_fd() as u32, length, answer };
        // SAFETY: the attributes of this command; the kernel writes no more than `length` bytes into `info`, which is live.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &question) }?;
        match info {
            Info { kind: BPF_MAP_TYPE_SK_STORAGE, key_bytes: 4, value_bytes: 4, .. } => Ok(Binder { map }),
            other => Err(refused(&format!("this descriptor is no map of sockets but {other:?}"))),
        }
    }

    /// Binds `socket` to its own descriptor number. Refused where the host keeps BPF from users: ask the daemon then.
    pub fn bind(&self, socket: impl AsFd) -> io::Result<()> {
        let key = socket.as_fd().as_raw_fd();
        let value = key as u32;
        let (at, what) = ((&raw const key) as u64, (&raw const value) as u64);
        let update = Update { map: self.map.as_raw_fd() as u32, _pad: 0, key: at, value: what, flags: 0 };
        // SAFETY: the attributes of this command; the kernel reads 4 bytes each (`of`) of key and value, which are live.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &update) }.map(drop)
    }
}

/// # Safety
/// `attributes` are those of the command, and what they point to is live and as long as the kernel takes it to be.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are live and as long as is said; the rest is the caller's promise.
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

    /// `bpf_attr` of a new map.
    #[repr(C)]
    struct New {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    }

    #[test]
    fn what_is_no_map_of_sockets_binds_nothing() {
        assert!(Binder::of(eventfd(0, EventfdFlags::CLOEXEC).unwrap()).is_err());
        let array = New { kind: 2, key_bytes: 4, value_bytes: 4096, entries: 1 };
        // SAFETY: the attributes of BPF_MAP_CREATE, without pointers.
        let made = match unsafe { bpf(0, &array) } {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
            made => made.unwrap(),
        };
        // SAFETY: just made, and owned by nobody else.
        let array = unsafe { OwnedFd::from_raw_fd(made as i32) };
        match Binder::of(array) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            binder => assert!(binder.unwrap_err().to_string().contains("value_bytes: 4096")),
        }
    }
}
