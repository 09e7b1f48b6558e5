//! SIGHUP: reads the configuration again and applies the sections that can change while the service runs.
//!
//! | section | effect of SIGHUP |
//! |---|---|
//! | `api.mode`, `api.group` | the sockets get the new mode and group; connections in force stay |
//! | `channels` access list and certificate | applied, as by `qfabric channel reload` |
//! | `channels` rules for users, limits, `slack` | applied to new requests; members and filters stay |
//! | `limits`, `memory` | applied, all at once; existing guarantees and promises stay, the remaining capacity is divided again |
//! | `joint` | caps hold for new contracts and upgrades; users lose names that are now reserved for others |
//! | `[[contract]]` | contracts are ended, changed and begun; refusals are logged |
//! | `contracts`, `control.jobs_per_look`, `control.lease_grace` | applied; the rule holds for new contracts |
//! | `ecalls` | applied to new requests, except the sizes of queues and pools |
//! | `metrics` | metrics move to the new address and token |
//! | `web.enabled` | the page is opened or closed |
//! | files of `web.certificate`, `web.key` | read again, for new connections, unless the page is off |
//! | `log.filter` | applied, unless the command line or `QFABRIC_LOG` sets the filter |
//! | `net.links` | links are opened, changed and closed; rates never fall below the promises |
//! | all others | applied at the next start; the log names the keys that differ |
//!
//! A file with an error changes nothing. Limits of the file replace limits that were set through the API. SIGHUP
//! never ends the service.

mod keys;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tokio::sync::mpsc::Sender;

use crate::api::{self, MetricsPlace};
use crate::channels::Channels;
use crate::config::{Config, Control, InvalidConfig};
use crate::configured::Configured;
use crate::contracts::Contracts;
use crate::control::{Bounds, Requests};
use crate::ecalls::Ecalls;
use crate::ending;
use crate::logging;
use crate::net::Net;
use crate::notify;
use crate::web::Web;

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

/// The parts of the running service to which a configuration is applied.
pub(crate) struct Parts {
    /// Folder of the sockets.
    pub folder: PathBuf,
    pub requests: Requests,
    pub channels: Arc<Channels>,
    pub net: Arc<Net>,
    pub contracts: Arc<Contracts>,
    pub configured: Arc<Configured>,
    pub ecalls: Arc<Ecalls>,
    pub web: Arc<Web>,
    /// To the task that serves metrics on TCP.
    pub metrics: Sender<Option<MetricsPlace>>,
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Reload {
    /// Reloads at every SIGHUP, until dropped.
    pub(crate) async fn run(mut self, parts: Parts) -> io::Result<()> {
        while self.hangups.recv().await.is_some() {
            notify::notify(&notify::reloading());
            self.again(&parts).await;
            notify::notify(notify::READY);
        }
        Ok(())
    }

    async fn again(&mut self, parts: &Parts) {
        let Some(new) = self.read_aside().await else {
            return tracing::error!("SIGHUP: cannot read the configuration any more; restart the service to apply it");
        };
        let new = match new {
            Ok(new) => new,
            Err(error) => return tracing::error!(%error, "SIGHUP: invalid configuration; the old one stays in force"),
        };
        let refused = self.apply(&new, parts).await;
        let next_start = self.next_start(&new);
        for key in &next_start {
            tracing::warn!(key, "SIGHUP: this has changed; restart the service to apply the change");
        }
        match (refused.is_empty(), next_start.is_empty()) {
            (true, true) => tracing::info!("{}", outcome(&refused, &next_start)),
            _ => tracing::warn!("{}", outcome(&refused, &next_start)),
        }
    }

    /// Applies what can change while the service runs. Returns what was refused.
    async fn apply(&mut self, new: &Config, parts: &Parts) -> Vec<String> {
        let mut refused = self.limits(new, &parts.requests).await;
        refused.extend(self.sockets(new, &parts.folder).await);
        let (channels, limits) = (parts.channels.clone(), new.channels.clone());
        if let Some(in_force) = ending::worker("reload", move || channels.configure(&limits)).await.flatten() {
            self.running.channels = in_force;
        }
        refused.extend(reload_access(parts.channels.clone()).await);
        refused.extend(reload_links(parts.net.clone(), new).await);
        if let Err(problem) = parts.contracts.configure(new.joint.clone()).await {
            tracing::error!(why = problem.message, next = problem.next_step, "SIGHUP: the old [joint] stays in force");
            refused.push("joint".to_owned());
        }
        parts.configured.replace(new.contract.clone());
        let (ecalls, limits) = (parts.ecalls.clone(), new.ecalls.clone());
        if let Some(in_force) = ending::worker("reload", move || ecalls.configure(&limits)).await {
            self.running.ecalls = in_force;
        }
        refused.extend(self.web(new, parts.web.clone()).await);
        refused.extend(self.metrics(new, &parts.metrics).await);
        refused.extend(self.bounds(new, &parts.requests));
        refused.extend(self.log_filter(new));
        refused
    }

    async fn sockets(&mut self, new: &Config, folder: &Path) -> Option<String> {
        let (api, folder) = (new.api.clone(), folder.to_owned());
        if let Err(error) = ending::worker("reload", move || api::permit(&api, &folder)).await? {
            tracing::error!(%error, "SIGHUP: correct the section [api] and send SIGHUP again");
            return Some("api.mode and api.group".to_owned());
        }
        self.running.api.mode = new.api.mode;
        self.running.api.group.clone_from(&new.api.group);
        None
    }

    /// Opens or closes the page, and reads the certificate of an open one again, which may have been renewed.
    async fn web(&mut self, new: &Config, web: Arc<Web>) -> Option<String> {
        let (enabled, page) = (new.web.enabled, web.clone());
        self.running.web.enabled = enabled;
        let problem = ending::worker("reload", move || page.configure(enabled)).await?.err()?;
        let kept = if web.is_enabled() { "keeps its former certificate" } else { "stays closed" };
        tracing::error!(why = problem.message, next = problem.next_step, "SIGHUP: the web page {kept}");
        Some("web.certificate".to_owned())
    }

    /// Moves the metrics on TCP. The token is read before the former address is closed.
    async fn metrics(&mut self, new: &Config, serving: &Sender<Option<MetricsPlace>>) -> Option<String> {
        let metrics = new.metrics.clone();
        let place = ending::worker("reload", move || metrics.place()).await?;
        match place {
            // The token in an unchanged file may be another one.
            Ok(place) if place.is_some() || new.metrics != self.running.metrics => {
                // Fails if the service is ending.
                let _ = serving.send(place).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "SIGHUP: the old [metrics] stay in force; correct the file and send SIGHUP again");
                return Some("metrics".to_owned());
            }
        }
        self.running.metrics = new.metrics.clone();
        None
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

    /// Applies the limits even if the file is unchanged, because the API may have set others. Returns the sections that
    /// were refused.
    async fn limits(&mut self, new: &Config, requests: &Requests) -> Vec<String> {
        let Err(problem) = requests.set_limits(new.host_limits()).await else {
            (self.running.limits, self.running.memory) = (new.limits.clone(), new.memory.clone());
            return Vec::new();
        };
        tracing::error!(
            why = problem.message,
            next = problem.next_step,
            "SIGHUP: the old limits stay in force; correct the sections [limits] and [memory] and send SIGHUP again"
        );
        vec!["limits".to_owned(), "memory".to_owned()]
    }

    fn bounds(&mut self, new: &Config, requests: &Requests) -> Option<String> {
        if let Err(problem) = requests.set_bounds(Bounds::of(new)) {
            let (why, next) = (problem.message, problem.next_step);
            tracing::error!(why, next, "SIGHUP: [contracts] stays as it is; send SIGHUP again");
            return Some("contracts".to_owned());
        }
        let Control { jobs_per_look, lease_grace, .. } = new.control;
        (self.running.control.jobs_per_look, self.running.control.lease_grace) = (jobs_per_look, lease_grace);
        self.running.contracts = new.contracts.clone();
        None
    }

    fn log_filter(&mut self, new: &Config) -> Option<String> {
        if self.running.log.filter == new.log.filter {
            return None;
        }
        if let Err(why) = logging::set_filter(&new.log) {
            tracing::error!(why, "SIGHUP: the old log filter stays in force; correct log.filter and send SIGHUP again");
            return Some("log.filter".to_owned());
        }
        self.running.log.filter.clone_from(&new.log.filter);
        None
    }

    /// Keys that differ from the configuration in force.
    fn next_start(&self, new: &Config) -> Vec<String> {
        let now = &self.running;
        let differs = [
            ("api", now.api != new.api),
            ("mechanism", now.mechanism != new.mechanism),
            ("control", now.control != new.control),
            ("contracts", now.contracts != new.contracts),
            ("ecalls", now.ecalls != new.ecalls),
            ("channels", now.channels != new.channels),
            ("energy", now.energy != new.energy),
            ("web", now.web != new.web),
            ("log", now.log != new.log),
            ("net.answer", now.net.answer != new.net.answer),
        ];
        let differs = differs.into_iter().filter_map(|(name, differs)| differs.then_some(name));
        differs.flat_map(|section| keys::to_restart(section, &now.source, &new.source)).collect()
    }
}

/// The last message about a reload: everything is applied, or what is not.
fn outcome(refused: &[String], next_start: &[String]) -> String {
    let mut text = "SIGHUP: configuration applied".to_owned();
    if !refused.is_empty() {
        text += &format!(", but not {}, which stays as it was", refused.join(", "));
    }
    if !next_start.is_empty() {
        text += &format!("; at the next start: {}", next_start.join(", "));
    }
    text
}

/// Does nothing on a host without channels or without an access list. Returns the name of a refused access list.
async fn reload_access(channels: Arc<Channels>) -> Option<String> {
    let outcome = ending::worker("reload", move || channels.reload_access()).await.flatten()?;
    let problem = outcome.err()?;
    tracing::error!(why = problem.message, next = problem.next_step, "SIGHUP: the old access list stays in force");
    Some("the access list".to_owned())
}

/// Applies `[net.links]` even if the section is unchanged, because the API may have set other limits. Returns the
/// sections that were refused.
async fn reload_links(net: Arc<Net>, new: &Config) -> Vec<String> {
    let links = new.net.requests();
    let refused = ending::worker("reload", move || net.reload(links)).await.unwrap_or_default();
    for (interface, problem) in &refused {
        tracing::error!(
            %interface,
            why = problem.message,
            next = problem.next_step,
            "SIGHUP: the link stays as it is; SIGHUP tries again"
        );
    }
    refused.into_iter().map(|(interface, _)| format!("net.links.{interface}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_names_everything_that_is_not_applied() {
        assert_eq!(outcome(&[], &[]), "SIGHUP: configuration applied");
        let refused = ["limits".to_owned(), "net.links.eth0".to_owned()];
        assert_eq!(
            outcome(&refused, &["api.mode".to_owned(), "log.format".to_owned()]),
            "SIGHUP: configuration applied, but not limits, net.links.eth0, which stays as it was; at the next start: \
             api.mode, log.format"
        );
    }

    #[tokio::test]
    async fn keys_that_need_a_restart_are_named() {
        let hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
        let reload = Reload { read: Some(Box::new(|| Ok(Config::default()))), running: Config::default(), hangups };
        assert!(reload.next_start(&Config::default()).is_empty());
        let text = "[api]\ntimeout = '9s'\n[control]\nlock_memory = false\njobs_per_look = 9\n";
        let new = Config::parse(text, std::path::Path::new("daemon.toml")).unwrap();
        assert_eq!(reload.next_start(&new), ["api.timeout", "control.lock_memory"]);
        let text = "[channels]\npriority = 2\nmax_leases = 9\n[[channels.rule]]\nchannels = ['a']\nrights = ['join']\n";
        let new = Config::parse(text, std::path::Path::new("daemon.toml")).unwrap();
        assert_eq!(reload.next_start(&new), ["channels.priority"]);
    }
}
