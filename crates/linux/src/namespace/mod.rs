//! Network namespaces without a name: held by descriptors, so they vanish with the last process and descriptor in them.
//!
//! | task | item |
//! |---|---|
//! | a new namespace | [`Namespace::new`] |
//! | run code, or a program, in it | [`Namespace::inside`], [`Namespace::enter_at_exec`] |
//! | the same without root | [`enter_user_namespace`] first |
//! | end every process in them, also after `kill -9` of this process | [`Sweeper`] |
#![allow(unsafe_code)] // unshare, and code between fork and exec

mod sweeper;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::process::getppid;
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

pub use sweeper::Sweeper;

use crate::capability;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// A new namespace whose only interface is a loopback that is up. Needs CAP_SYS_ADMIN; see
    /// [`enter_user_namespace`].
    pub fn new() -> io::Result<Namespace> {
        let made = in_own_thread(|| {
            // SAFETY: a new network namespace affects only sockets that this thread creates later; its descriptors stay.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            crate::net::up(crate::net::index("lo").map_err(io::Error::other)?)?;
            File::open("/proc/thread-self/ns/net")
        })?;
        Ok(Namespace { file: made? })
    }

    /// Runs `body` in a thread of this namespace, and waits for its end.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_own_thread(|| {
            enter(self.file.as_fd())?;
            Ok(body())
        })?
    }

    /// Makes `command` run in this namespace. The program does not start if this process has ended, so that a
    /// [`Sweeper`] misses no process.
    pub fn enter_at_exec(&self, command: &mut Command) -> io::Result<()> {
        let namespace: OwnedFd = self.file.as_fd().try_clone_to_owned()?;
        let parent = rustix::process::getpid();
        let move_in = move || {
            enter(namespace.as_fd())?;
            if getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        };
        // SAFETY: between fork and exec `move_in` makes two system calls with a live descriptor. It allocates nothing and
        // takes no lock.
        unsafe { command.pre_exec(move_in) };
        Ok(())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Moves the calling thread.
fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// A thread that changes its namespaces never runs other code.
fn in_own_thread<T: Send>(body: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("qf-namespace".into()).spawn_scoped(scope, body)?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether this process may make network namespaces.
pub fn may_make() -> bool {
    capability::held(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN)
}

/// Gives this process the capabilities that namespaces need, inside a new user namespace. User and group stay the same;
/// other users of the host appear as «nobody», and programs with the setuid bit gain nothing. Returns `false`, and does
/// nothing, if the process has the capabilities already.
///
/// # Errors
/// `EINVAL` if the process has more than one thread; `EPERM`, `ENOSPC` or `ENOSYS` if this host refuses user
/// namespaces.
pub fn enter_user_namespace() -> io::Result<bool> {
    if may_make() {
        return Ok(false);
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: the only thread of this process moves to a user namespace; no descriptor changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // The kernel lets a process without privileges map its group only after it gave up changing its groups.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::testing::skip;

    /// `None`, with a reason, if this process may not make namespaces.
    fn namespace() -> Option<Namespace> {
        if !may_make() {
            skip("this test needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
            return None;
        }
        Some(Namespace::new().unwrap())
    }

    fn name_of(path: &str) -> String {
        fs::read_link(path).unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn code_and_programs_run_inside_and_the_calling_thread_stays_outside() {
        let Some(namespace) = namespace() else { return };
        let before = name_of("/proc/thread-self/ns/net");
        let inside = namespace.inside(|| name_of("/proc/thread-self/ns/net")).unwrap();
        assert_ne!(inside, before);
        assert_eq!(name_of("/proc/thread-self/ns/net"), before);
        let mut command = Command::new("readlink");
        namespace.enter_at_exec(command.arg("/proc/self/ns/net")).unwrap();
        assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap().trim(), inside);
    }

    #[test]
    fn loopback_works_inside_and_is_not_that_of_the_host() {
        let Some(namespace) = namespace() else { return };
        let (listener, address) = namespace
            .inside(|| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                TcpStream::connect(address).unwrap();
                (listener, address)
            })
            .unwrap();
        assert!(TcpStream::connect(address).is_err());
        drop(listener);
    }

    #[test]
    fn a_panic_inside_reaches_the_caller() {
        let Some(namespace) = namespace() else { return };
        let caught = std::panic::catch_unwind(|| namespace.inside(|| panic!("inside")));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "inside");
    }
}
