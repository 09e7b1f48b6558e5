//! Ends the service on SIGTERM and SIGINT. The thread waits for nothing else, so it works whatever other threads do.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::ending::{Ending, OTHER_THREADS, PUT_BACK};
use crate::notify;

/// The running thread. Dropping this value, at the end of the service, ends the thread.
#[derive(Debug)]
pub(crate) struct Signals {
    _over: oneshot::Sender<()>,
}

impl Signals {
    /// From here on the signals do not end the process by themselves.
    pub(crate) fn start(ending: &Ending) -> io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        drop(entered);
        let (over, ended) = oneshot::channel();
        let own = ending.clone();
        ending.spawn("qf-signals", move || runtime.block_on(watch(&own, signals, ended)))?;
        Ok(Signals { _over: over })
    }
}

async fn watch(ending: &Ending, [mut terminate, mut interrupt]: [Signal; 2], mut over: oneshot::Receiver<()>) {
    tokio::select! {
        _ = terminate.recv() => ending.ask(),
        _ = interrupt.recv() => ending.ask(),
        _ = ending.begun() => {}
        _ = &mut over => return,
    }
    notify::notify(notify::STOPPING);
    // A receive error means that the sender was dropped: the service is over.
    let is_over = tokio::time::timeout(PUT_BACK, &mut over).await.is_ok();
    if !is_over && (!ending.is_all_back() || tokio::time::timeout(OTHER_THREADS, over).await.is_err()) {
        ending.force();
    }
}
