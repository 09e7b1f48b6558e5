//! Helpers of the scheduler's tests. Loading takes seconds in an emulated machine, so the tests of a file share one
//! scheduler.
#![allow(dead_code, reason = "each file of tests needs some of it")]

pub(crate) mod loads;

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use qfabric_linux::ext::{Ext, ExtConfig, ExtError, ServerId, ServerSpec, ServerStatistics};
use qfabric_linux::testing::{self, Worker};
use qfabric_types::{Nanos, Window};

/// The shared scheduler; `None` if the kernel has no sched_ext (a failure in the test machine).
pub(crate) fn loaded() -> Option<MutexGuard<'static, Ext>> {
    static SHARED: OnceLock<Option<Mutex<Ext>>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| load().map(Mutex::new)).as_ref()?;
    let ext = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert_eq!(ext.exit_reason(), None);
    Some(ext)
}

/// Loads a scheduler for the caller alone.
pub(crate) fn load() -> Option<Ext> {
    load_lingering(0)
}

/// Loads a scheduler that waits `rounds` rounds between a verdict and the insertion that it orders.
pub(crate) fn load_lingering(rounds: u16) -> Option<Ext> {
    match Ext::load_lingering(&ExtConfig::default(), rounds) {
        Ok(ext) => Some(ext),
        Err(error @ ExtError::Unsupported { .. }) => {
            testing::skip(&error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A server on CPU 0.
pub(crate) fn server(period_ms: u64, service_ms: u64) -> ServerSpec {
    ServerSpec { cpu: Some(0), ..ServerSpec::new(ms(period_ms), ms(service_ms)) }
}

pub(crate) fn window(x: u64, y: u64) -> Window {
    Window::new(x, y).unwrap()
}

/// Servers that are destroyed when the test ends, for whatever reason.
pub(crate) struct Servers<'a> {
    pub ext: &'a mut Ext,
    ids: Vec<ServerId>,
}

impl<'a> Servers<'a> {
    pub(crate) fn of(ext: &'a mut Ext) -> Servers<'a> {
        Servers { ext, ids: Vec::new() }
    }

    pub(crate) fn create(&mut self, spec: &ServerSpec) -> ServerId {
        let id = self.ext.create(spec).unwrap();
        self.ids.push(id);
        id
    }

    /// A new server with a thread that uses all the time it gets.
    pub(crate) fn hog(&mut self, spec: &ServerSpec) -> (ServerId, Worker) {
        let (id, worker) = (self.create(spec), Worker::burning());
        self.ext.join(id, worker.thread, false).unwrap();
        (id, worker)
    }

    pub(crate) fn stats(&self, id: ServerId) -> ServerStatistics {
        self.ext.statistics(id).unwrap()
    }

    /// CPU time of a server within and beyond its budget during the next `length` ms, as shares.
    pub(crate) fn share_over(&self, id: ServerId, length: u64) -> (f64, f64) {
        let (at, before) = testing::at_one_moment(|| self.stats(id));
        sleep_ms(length);
        let (end, after) = testing::at_one_moment(|| self.stats(id));
        let took = end.since(at).as_f64();
        ((after.used - before.used).as_f64() / took, (after.extra - before.extra).as_f64() / took)
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            let _ = self.ext.destroy(id);
        }
    }
}

/// `count` threads that use all the time they get.
pub(crate) fn hogs(count: usize) -> Vec<Worker> {
    (0..count).map(|_| Worker::burning()).collect()
}

pub(crate) fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Fails unless `got` differs from `expected` by at most the relative error `by`.
#[track_caller]
pub(crate) fn about(got: f64, expected: f64, by: f64) {
    assert!((got / expected - 1.0).abs() <= by, "got {got}, expected {expected} within {:.1} %", by * 100.0);
}
