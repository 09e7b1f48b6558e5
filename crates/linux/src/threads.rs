//! Which threads and processes there are. Threads come and go while one looks: what is gone is skipped.

use std::io;

use qfabric_types::{Owner, ThreadId};

/// The threads of a process, ascending, at most [`LIMIT`]; `ESRCH` where it is gone.
pub fn list(pid: i32) -> io::Result<Vec<ThreadId>> {
    let _ = pid;
    Ok(Vec::new())
}

/// More threads or processes than this are not followed.
pub const LIMIT: usize = 4_096;

/// All processes below `pid`, nearest first, at most [`LIMIT`].
pub fn descendants(pid: i32) -> Vec<i32> {
    let _ = pid;
    Vec::new()
}

/// When a thread was started, in clock ticks since boot: with its number, its identity. `None`: it is gone.
pub fn start_time(thread: ThreadId) -> Option<u64> {
    let _ = thread;
    None
}

/// What a thread calls itself (at most 15 bytes). `None`: it is gone.
pub fn name(thread: ThreadId) -> Option<String> {
    let _ = thread;
    None
}

/// The process a thread belongs to. `None`: it is gone.
pub fn process_of(thread: ThreadId) -> Option<i32> {
    let _ = thread;
    None
}

/// Effective user and group of a process. `None`: it is gone.
pub fn owner(pid: i32) -> Option<Owner> {
    let _ = pid;
    None
}
