//! The threads between an event and the network.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::{Builder, JoinHandle};

/// Zenoh reads its number of threads from this environment variable, once.
const VARIABLE: &str = "ZENOH_RUNTIME";
const ONE: &str = "(app:(handover:rx),acc:(handover:rx),tx:(handover:rx),net:(handover:rx),rx:(worker_threads:1))";

/// Makes Zenoh do everything in one thread. The round trip is half of that with Zenoh's default of several threads, and
/// one thread can be given a reservation. Call this first in `main`: if the variable is not set yet, the process
/// executes itself again with the same arguments and process id. If that fails, Zenoh has several threads.
pub fn one_receive_thread() {
    if std::env::var_os(VARIABLE).is_none() {
        let mut arguments = std::env::args_os();
        let mut again = Command::new("/proc/self/exe");
        if let Some(name) = arguments.next() {
            again.arg0(name);
        }
        let error = again.args(arguments).env(VARIABLE, ONE).exec();
        tracing::warn!("cannot restart for a single network thread, so zenoh uses several: {error}");
    }
}

/// Whether [`one_receive_thread`] is in force.
pub fn single_receive_thread() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == ONE)
}

/// Starts a thread that the rest of the program depends on. If it panics, `failed` gets its name and the panic's
/// message.
pub(crate) fn spawn(
    name: &'static str,
    failed: impl FnOnce(&'static str, String) + Send + 'static,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || contain(name, failed, body))
}

/// Runs `body` in the calling thread; if it panics, `failed` gets the panic's message.
pub(crate) fn contain(name: &'static str, failed: impl FnOnce(&'static str, String), body: impl FnOnce()) {
    if let Err(message) = qfabric_sync::contain(body) {
        failed(name, message);
    }
}

/// Ids of this process's threads whose name begins with one of these.
pub(crate) fn named(beginnings: &[&str]) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let wanted = |id: &i32| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap_or_default();
        beginnings.iter().any(|beginning| name.starts_with(beginning))
    };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.filter(wanted).collect()
}
