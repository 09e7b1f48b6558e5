//! A thread of another process that hangs: stopped by a tracer, while the others go on.
#![allow(unsafe_code)] // ptrace has no safe wrapper

use std::io;

use qfabric_types::ThreadId;

/// The stopped thread; it goes on when this is dropped. Belongs to the thread that made it.
#[derive(Debug)]
pub struct Frozen {
    thread: ThreadId,
    /// A tracer is a thread.
    _own: std::marker::PhantomData<*const ()>,
}

impl Frozen {
    /// Stops a thread, and returns when it has stopped.
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
    /// Whether it was killed meanwhile. Its process is not over before its tracer has asked this.
    pub fn has_ended(&self) -> bool {
        let mut status = 0;
        // SAFETY: the status lives as long as the call.
        let waited = unsafe { libc::waitpid(self.thread.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
        waited == self.thread.0 && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Killed meanwhile: then it is stopped no more.
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
