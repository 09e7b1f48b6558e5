//! SIGHUP: reads the configuration again and applies the sections that can change while the service runs.
//!
//! | section | effect of SIGHUP |
//! |---|---|
//! | `channels` access list and certificate | applied, as by `qfabric channel reload` |
//! | `limits`, `memory` | applied, all at once; existing guarantees and promises stay, the remaining capacity is divided again |
//! | `joint` | caps hold for new contracts and upgrades; users lose names that are now reserved for others |
//! | `net.links` | links are opened, changed and closed; rates never fall below the promises |
//! | all others | applied at the next start; the log names the sections that differ |
//!
//! A file with an error changes nothing. Limits of the file replace limits that were set through the API. SIGHUP
//! never ends the service.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::Signal;

use crate::channels::Channels;
use crate::config::{Config, InvalidConfig};
use crate::contracts::Contracts;
use crate::control::Requests;
use crate::ending;
use crate::net::Net;
use crate::notify;

/// Reads the configuration from the same place as at the start.
pub(crate) type Read = Box<dyn Fn() -> Result<Config, InvalidConfig> + Send>;

/// What the task that waits for SIGHUP needs.
pub(crate) struct Reload {
    /// `None`: the function panicked and is not called again.
    pub read: Option<Read>,
    /// The configuration in force.
    pub running: Config,
    pub hangups: Signal,
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Reload {
    /// Reloads at every SIGHUP, until dropped.
    pub(crate) async fn run(
        mut self,
        requests: Requests,
        channels: Arc<Channels>,
        net: Arc<Net>,
        contracts: Arc<Contracts>,
    ) -> io::Result<()> {
        while self.hangups.recv().await.is_some() {
            notify::notify(&notify::reloading());
            self.again(&requests, &channels, &net, &contracts).await;
            notify::notify(notify::READY);
        }
        Ok(())
    }

    async fn again(&mut self, requests: &Requests, channels: &Arc<Channels>, net: &Arc<Net>, contracts: &Contracts) {
        let Some(new) = self.read_aside().await else {
            return tracing::error!("SIGHUP: cannot read the configuration any more; restart the service to apply it");
        };
        let new = match new {
            Ok(new) => new,
            Err(error) => return tracing::error!(%error, "SIGHUP: invalid configuration; the old one stays in force"),
        };
        self.limits(&new, requests).await;
        reload_access(channels.clone()).await;
        reload_links(net.clone(), &new).await;
        if let Err(problem) = contracts.configure(new.joint.clone()).await {
            tracing::error!(why = problem.message, next = problem.next_step, "SIGHUP: the old [joint] stays in force");
        }
        for section in self.next_start(&new) {
            tracing::warn!(section, "SIGHUP: this section has changed; restart the service to apply the change");
        }
        tracing::info!("SIGHUP: configuration applied");
    }

    /// Reads in a worker thread, because the file may be on a file system that does not answer.
    async fn read_aside(&mut self) -> Option<Result<Config, InvalidConfig>> {
        let read = self.read.take()?;
        let reading = ending::worker("reload", move || {
            let new = read();
            (read, new)
        });
        let (read, new) = reading.await?;
        self.read = Some(read);
        Some(new)
    }

    /// Applies the limits even if the file is unchanged, because the API may have set others.
    async fn limits(&mut self, new: &Config, requests: &Requests) {
        match requests.set_limits(new.host_limits()).await {
            Ok(_) => (self.running.limits, self.running.memory) = (new.limits.clone(), new.memory.clone()),
            Err(problem) => tracing::error!(
                why = problem.message,
                next = problem.next_step,
                "SIGHUP: the old limits stay in force; correct the sections [limits] and [memory] and send SIGHUP again"
            ),
        }
    }

    /// Sections that differ from the configuration in force.
    fn next_start(&self, new: &Config) -> Vec<&'static str> {
        let now = &self.running;
        let differs = [
            ("api", now.api != new.api),
            ("mechanism", now.mechanism != new.mechanism),
            ("control", now.control != new.control),
            ("contracts", now.contracts != new.contracts),
            ("ecalls", now.ecalls != new.ecalls),
            ("channels", now.channels != new.channels),
            ("energy", now.energy != new.energy),
            ("metrics", now.metrics != new.metrics),
            ("web", now.web != new.web),
            ("log", now.log != new.log),
            ("net.answer", now.net.answer != new.net.answer),
        ];
        differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

/// Does nothing on a host without channels or without an access list.
async fn reload_access(channels: Arc<Channels>) {
    let Some(outcome) = ending::worker("reload", move || channels.reload_access()).await.flatten() else {
        return;
    };
    if let Err(problem) = outcome {
        tracing::error!(why = problem.message, next = problem.next_step, "SIGHUP: the old access list stays in force");
    }
}

/// Applies `[net.links]` even if the section is unchanged, because the API may have set other limits.
async fn reload_links(net: Arc<Net>, new: &Config) {
    let links = new.net.requests();
    let refused = ending::worker("reload", move || net.reload(links)).await.unwrap_or_default();
    for (interface, problem) in refused {
        tracing::error!(
            %interface,
            why = problem.message,
            next = problem.next_step,
            "SIGHUP: the link stays as it is; SIGHUP tries again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sections_that_need_a_restart_are_named() {
        let hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
        let reload = Reload { read: Some(Box::new(|| Ok(Config::default()))), running: Config::default(), hangups };
        let mut new = Config::default();
        assert!(reload.next_start(&new).is_empty());
        (new.api.mode, new.control.jobs_per_look) = (0o600, 7);
        assert_eq!(reload.next_start(&new), ["api", "control"]);
    }
}
