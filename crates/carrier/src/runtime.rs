//! The thread of connections: one runtime, in which all tasks of one client or server run.

use std::future::Future;
use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::Error;

/// Starts a thread that first runs `begin`, whose result is returned, and then what `begin` made of it.
pub(crate) fn start<T, F, R>(begin: impl FnOnce() -> F + Send + 'static) -> Result<(T, JoinHandle<()>), Error>
where
    T: Send + 'static,
    F: Future<Output = Result<(T, R), Error>> + 'static,
    R: Future<Output = ()> + 'static,
{
    let (report, begun) = sync_channel(1);
    let failed = || Error::io("cannot start the thread of the connection");
    let thread = thread::Builder::new().name("metp".to_owned()).spawn(move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(report.send(Err(failed()(error)))),
        };
        let local = LocalSet::new();
        local.block_on(&runtime, async move {
            match begin().await {
                Ok((begun, run)) => {
                    let _ = report.send(Ok(begun));
                    run.await;
                }
                Err(error) => drop(report.send(Err(error))),
            }
        });
    });
    let thread = thread.map_err(failed())?;
    let lost = || failed()(io::ErrorKind::BrokenPipe.into());
    let begun = begun.recv().map_err(|_| lost())??;
    Ok((begun, thread))
}
