//! Stops one thread of another process with a tracer while the other threads continue: a thread that hangs.
#![allow(unsafe_code)] // ptrace has no safe wrapper

use std::io;

use qfabric_types::ThreadId;

/// A stopped thread; it continues when this is dropped. Bound to the thread that created it.
#[derive(Debug)]
pub struct Frozen {
    thread: ThreadId,
    /// The kernel binds a tracer to one thread.
    _own: std::marker::PhantomData<*const ()>,
}

impl Frozen {
    /// Stops a thread; returns after it has stopped.
    pub fn stop(thread: ThreadId) -> io::Result<Frozen> {
        trace(libc::PTRACE_SEIZE, thread)?;
        let frozen = Frozen { thread, _own: std::marker::PhantomData };
        trace(libc::PTRACE_INTERRUPT, thread)?;
        let mut status = 0;
        // SAFETY: the status lives as long as the call.
        match unsafe { libc::waitpid(thread.0, &raw mut status, libc::__WALL) } {
            waited if waited == thread.0 => Ok(frozen),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Frozen {
    /// True if the thread was killed meanwhile. Its process does not end before its tracer has called this.
    pub fn has_ended(&self) -> bool {
        let mut status = 0;
        // SAFETY: the status lives as long as the call.
        let waited = unsafe { libc::waitpid(self.thread.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
        waited == self.thread.0 && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Fails if the thread was killed meanwhile; then there is nothing to continue.
        let _ = trace(libc::PTRACE_DETACH, self.thread);
    }
}

fn trace(request: libc::c_uint, thread: ThreadId) -> io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests read and write no memory of the tracer.
    match unsafe { libc::ptrace(request, thread.0, nothing, nothing) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
