//! SIGHUP: the configuration is read again, and what can change while the service runs is changed.
//!
//! | section | while it runs |
//! |---|---|
//! | `channels` access list and certificate | yes, as `qfabric channel reload` does |
//! | `limits` | yes, all at once; guarantees that were given are kept, the rest is shared out anew |
//! | everything else | at the next start; the log names the sections that differ |
//!
//! A file that cannot be used changes nothing. Limits that were set through the API give way to those of the file. The service never ends by SIGHUP.

use std::fmt;
use std::sync::Arc;

use qfabric_types::api::HostLimits;
use tokio::signal::unix::Signal;

use crate::channels::Channels;
use crate::config::{Config, InvalidConfig};
use crate::control::Requests;
use crate::notify;

/// Reads the configuration as it was read at the start.
pub(crate) type Read = Box<dyn Fn() -> Result<Config, InvalidConfig> + Send>;

/// What is needed to read it again.
pub(crate) struct Reload {
    /// None: it failed, and is not asked again.
    pub read: Option<Read>,
    /// What is in force.
    pub running: Config,
    pub hangups: Signal,
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Reload {
    /// At every SIGHUP, until dropped.
    pub async fn run(mut self, requests: Requests, channels: Arc<Channels>) {
        while self.hangups.recv().await.is_some() {
            notify::notify(&notify::reloading());
            self.again(&requests, &channels).await;
            notify::notify(notify::READY);
        }
    }

    async fn again(&mut self, requests: &Requests, channels: &Arc<Channels>) {
        let Some(new) = self.read_aside().await else {
            return tracing::error!("SIGHUP: the configuration cannot be read again; restart the service to do that");
        };
        let new = match new {
            Ok(new) => new,
            Err(error) => return tracing::error!(%error, "SIGHUP: what was read before stays in force"),
        };
        self.limits(&new.limits, requests).await;
        reload_access(channels.clone()).await;
        for section in self.next_start(&new) {
            tracing::warn!(section, "SIGHUP: this section has changed; that takes effect at the next start");
        }
        tracing::info!("SIGHUP: the configuration was read again");
    }

    /// In a worker thread: a file may be on a file system that does not answer.
    async fn read_aside(&mut self) -> Option<Result<Config, InvalidConfig>> {
        let read = self.read.take()?;
        let reading = tokio::task::spawn_blocking(move || {
            let new = read();
            (read, new)
        });
        let (read, new) = reading.await.ok()?;
        self.read = Some(read);
        Some(new)
    }

    /// Also where the file says the same as before: other ones may have been set through the API.
    async fn limits(&mut self, new: &HostLimits, requests: &Requests) {
        match requests.set_limits(new.clone()).await {
            Ok(limits) => self.running.limits = limits,
            Err(problem) => tracing::error!(why = problem.message, "SIGHUP: limits stay what they were"),
        }
    }

    /// Sections that differ from what is in force.
    fn next_start(&self, new: &Config) -> Vec<&'static str> {
        let now = &self.running;
        let differs = [
            ("api", now.api != new.api),
            ("mechanism", now.mechanism != new.mechanism),
            ("control", now.control != new.control),
            ("contracts", now.contracts != new.contracts),
            ("ecalls", now.ecalls != new.ecalls),
            ("channels", now.channels != new.channels),
            ("log", now.log != new.log),
        ];
        differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

/// Hosts without channels, or without an access list, have nothing to read.
async fn reload_access(channels: Arc<Channels>) {
    let Some(outcome) = tokio::task::spawn_blocking(move || channels.reload_access()).await.ok().flatten() else {
        return;
    };
    if let Err(problem) = outcome {
        tracing::error!(why = problem.message, next = problem.next_step, "SIGHUP: the access list stays what it was");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_section_that_waits_for_the_next_start_is_named() {
        let hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
        let reload = Reload { read: Some(Box::new(|| Ok(Config::default()))), running: Config::default(), hangups };
        let mut new = Config::default();
        assert!(reload.next_start(&new).is_empty());
        (new.api.mode, new.control.jobs_per_look) = (0o600, 7);
        assert_eq!(reload.next_start(&new), ["api", "control"]);
    }
}
