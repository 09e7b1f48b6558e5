//! SIGTERM and SIGINT, in a thread that waits for nothing else: they end the service whatever its other threads do.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::ending::{Ending, OTHERS, PUT_BACK};
use crate::notify;

/// The running thread; it ends with the service, when this is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    _over: oneshot::Sender<()>,
}

impl Signals {
    /// From here on the signals do not end the process by themselves.
    pub fn start(ending: &Ending) -> io::Result<Signals> {
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
    // An error of its own says that the other end was dropped: the service is over.
    let is_over = tokio::time::timeout(PUT_BACK, &mut over).await.is_ok();
    if !is_over && (!ending.is_all_back() || tokio::time::timeout(OTHERS, over).await.is_err()) {
        ending.force();
    }
}
