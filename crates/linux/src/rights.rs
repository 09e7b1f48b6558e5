//! Makes Unix sockets refuse file descriptors.
#![allow(unsafe_code)] // no safe wrapper supports this option

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_PASSRIGHTS` (`include/uapi/asm-generic/socket.h`, Linux 6.16): whether a Unix socket accepts descriptors. An
/// accepted socket inherits the value of its listener.
const PASS_RIGHTS: libc::c_int = 83;

/// Makes the kernel refuse (`EPERM`) every message to the socket that carries descriptors. Without this, the thread
/// that reads from the socket or closes it must close unwanted descriptors, and that close may wait for their sender.
/// Returns `false` on kernels older than 6.16, which lack the option.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<bool> {
    let off: libc::c_int = 0;
    let size = size_of_val(&off) as libc::socklen_t;
    // SAFETY: the value is an integer of the given size, and lives as long as the call.
    let answer = unsafe {
        let value = (&raw const off).cast();
        libc::setsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, PASS_RIGHTS, value, size)
    };
    match answer {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;
    use crate::testing::skip;

    #[test]
    fn an_accepted_socket_refuses_descriptors_and_accepts_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        if !refuse_descriptors(&listener).unwrap() {
            return skip("no SO_PASSRIGHTS before Linux 6.16");
        }
        let client = UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        let send = |with: bool| {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [client.as_fd()];
            if with {
                assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            }
            sendmsg(&client, &[io::IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)
        };
        assert_eq!((send(true), send(false)), (Err(rustix::io::Errno::PERM), Ok(1)));
        drop(server);
    }
}
