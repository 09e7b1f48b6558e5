//! What the tests of the scheduler share. Loading takes seconds in an emulated machine: the tests of a file share one.
#![allow(dead_code, reason = "each file of tests needs some of it")]

pub mod loads;

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use qfabric_linux::ext::{Ext, ExtConfig, ExtError, ServerId, ServerSpec, ServerStatistics};
use qfabric_linux::testing::{self, Worker};
use qfabric_types::{Nanos, Window};

/// The loaded scheduler; `None` where the kernel has none (in the test machine that is a failure).
pub fn loaded() -> Option<MutexGuard<'static, Ext>> {
    static SHARED: OnceLock<Option<Mutex<Ext>>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| load().map(Mutex::new)).as_ref()?;
    let ext = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert_eq!(ext.exit_reason(), None);
    Some(ext)
}

/// One of the caller's own.
pub fn load() -> Option<Ext> {
    load_lingering(0)
}

/// One that waits so many rounds between a verdict and the insertion it orders.
pub fn load_lingering(rounds: u16) -> Option<Ext> {
    match Ext::load_lingering(&ExtConfig::default(), rounds) {
        Ok(ext) => Some(ext),
        Err(error @ ExtError::Unsupported { .. }) => {
            testing::skip(&error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Any whole number of milliseconds, on CPU 0.
pub fn server(period_ms: u64, service_ms: u64) -> ServerSpec {
    ServerSpec { cpu: Some(0), ..ServerSpec::new(ms(period_ms), ms(service_ms)) }
}

pub fn window(x: u64, y: u64) -> Window {
    Window::new(x, y).unwrap()
}

/// Servers that go when the test ends, whatever its end.
pub struct Servers<'a> {
    pub ext: &'a mut Ext,
    ids: Vec<ServerId>,
}

impl<'a> Servers<'a> {
    pub fn of(ext: &'a mut Ext) -> Servers<'a> {
        Servers { ext, ids: Vec::new() }
    }

    pub fn create(&mut self, spec: &ServerSpec) -> ServerId {
        let id = self.ext.create(spec).unwrap();
        self.ids.push(id);
        id
    }

    /// A thread that wants all it can get, in a new server.
    pub fn hog(&mut self, spec: &ServerSpec) -> (ServerId, Worker) {
        let (id, worker) = (self.create(spec), Worker::burning());
        self.ext.join(id, worker.thread, false).unwrap();
        (id, worker)
    }

    pub fn did(&self, id: ServerId) -> ServerStatistics {
        self.ext.statistics(id).unwrap()
    }

    /// CPU time within and beyond the budget of a server over the next `length`, as shares.
    pub fn share_over(&self, id: ServerId, length: u64) -> (f64, f64) {
        let (at, before) = testing::at_one_moment(|| self.did(id));
        rest(length);
        let (end, after) = testing::at_one_moment(|| self.did(id));
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

/// `count` threads that want all the time they can get.
pub fn hogs(count: usize) -> Vec<Worker> {
    (0..count).map(|_| Worker::burning()).collect()
}

pub fn rest(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Equal within `by`, as a part of the expected.
#[track_caller]
pub fn about(got: f64, expected: f64, by: f64) {
    assert!((got / expected - 1.0).abs() <= by, "got {got}, expected {expected} within {:.1} %", by * 100.0);
}
