//! Makes Unix sockets refuse file descriptors, and reads the groups of their peers.
#![allow(unsafe_code)] // no safe wrapper supports these options

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

/// `SO_PEERGROUPS` (`include/uapi/asm-generic/socket.h`, Linux 4.13): the supplementary groups of the peer.
const PEER_GROUPS: libc::c_int = 59;

/// The supplementary groups that the process at the other end of a Unix socket had when it connected.
///
/// # Errors
/// Those of the kernel, for example if the socket is not connected.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 32];
    loop {
        let mut size = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes into the buffer, which has this size, and the size that is
        // needed into `size`; both live as long as the call.
        let answer = unsafe {
            let (value, size) = (groups.as_mut_ptr().cast(), &raw mut size);
            libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, PEER_GROUPS, value, size)
        };
        let count = size as usize / size_of::<u32>();
        if answer == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        match io::Error::last_os_error() {
            // The buffer is too short.
            error if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => groups.resize(count, 0),
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;
    use crate::testing::skip;

    #[test]
    fn the_groups_of_a_peer_are_those_of_its_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut own: Vec<u32> = line.split_whitespace().map(|group| group.parse().unwrap()).collect();
        let mut groups = peer_groups(&one).unwrap();
        own.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, own);
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(peer_groups(&file).is_err(), "no socket");
    }

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
