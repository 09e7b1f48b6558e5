//! The kinds of policies, and how this host turns each of them into a controller. One file per kind, with its limits.

mod adapt;
mod balance;
mod code;
mod cpu;
mod energy;
mod group;
mod hold;
mod integrated;
mod media;
mod roles;
mod spread;
mod sync;
mod tokens;
mod tree;

use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::stream_of;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{Policy, PolicyKind, Resource, TextFile};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::Fabric;
use super::super::settings::Settings;
use super::refused;
use super::supervised::Shared;
use crate::auth::Peer;

/// Part of a decided rate that must arrive. The rate is counted in whole events between two reports: if sources are
/// slow, a smaller loss is noise.
const TOLERANCE: f64 = 0.92;
/// Assumed period of reports, if this host sends none itself.
const REPORT: Nanos = Nanos::from_millis(500);
/// Longest delay that a policy may set before something is shown.
const MOST_DELAY: Nanos = Nanos::from_millis(60_000);

/// A kind of policy as this host runs it; [`PolicyKind`] describes the kind.
pub(super) trait Runs: PolicyKind {
    /// The controller, as if it had been started at `now`. Refuses a value out of its range.
    fn controller(&self, fabric: &Fabric, record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem>;

    /// Resources that it decides: [`PolicyKind::decides`], and those that only this host can find out.
    fn resources(&self) -> Result<Vec<Resource>, Problem> {
        Ok(self.decides())
    }

    /// How rates are kept, for a kind that decides [`Resource::Rates`].
    fn pacing(&self) -> Pacing {
        Pacing::default()
    }

    /// The group whose applications on this host it decides about; they are notified by their names.
    fn members(&self) -> Option<&Name> {
        self.group()
    }

    /// The dimensions of quality whose levels it decides, for a kind that decides [`Resource::Levels`].
    fn dimensions(&self) -> Vec<&Name> {
        Vec::new()
    }

    /// Refuses a user who holds its channels, or is in its group, and still may not start it.
    fn check_rights(&self, _fabric: &Fabric, _peer: Peer) -> Result<(), Problem> {
        Ok(())
    }

    /// Sets up filters and tables beside its controller. `user`: it decides only on the events of this user's sources;
    /// none: on all events. An error refuses the policy.
    fn started(&self, _fabric: &Fabric, _user: Option<u32>) -> Result<(), Problem> {
        Ok(())
    }

    /// Removes everything that [`Runs::started`] has set up.
    fn stopped(&self, _fabric: &Fabric) {}
}

pub(super) struct Pacing {
    /// Rate of a host from its first report on, until the controller decides, in thousandths of an event per second.
    /// `None`: its events are not paced until then.
    pub first_milli: Option<i64>,
    /// Whether reports are corrected by the rate that was sent.
    pub corrects: bool,
    /// Number of the stream to a host, by the channel and the host.
    pub number: fn(&Name, &Name) -> AppId,
}

impl Default for Pacing {
    fn default() -> Pacing {
        Pacing { first_milli: None, corrects: true, number: |_, host| stream_of(host) }
    }
}

macro_rules! define_runs {
    ($($(#[$doc:meta])* $name:literal => $Kind:ident($Structure:ident),)*) => {
        /// A policy as this host runs it.
        pub(super) fn runs(policy: &Policy) -> &dyn Runs {
            match policy {
                $(Policy::$Kind(policy) => policy,)*
            }
        }
    };
}

qfabric_types::policy_kinds!(define_runs);

/// Reads a text from its file, for the configuration only, which belongs to root: other users would read files with the
/// service's rights.
pub(super) fn read_text(policy: &mut Policy, is_configured: bool) -> Result<(), Problem> {
    let Some(TextFile { file: Some(file), text }) = policy.as_kind_mut().text_file() else { return Ok(()) };
    if !is_configured {
        return Err(refused::file(format!("file = {file:?} is for the configuration of this host")));
    }
    let unreadable = |error: std::io::Error| refused::file(format!("cannot read {file}: {error}"));
    *text = std::fs::read_to_string(&*file).map_err(unreadable)?;
    Ok(())
}

impl Settings {
    fn report_period(&self) -> Nanos {
        if self.get().report == Nanos::ZERO { REPORT } else { self.get().report }
    }
}

fn check_bits(event_bits: u64) -> Result<(), Problem> {
    match (1..=1 << 40).contains(&event_bits) {
        true => Ok(()),
        false => Err(refused::out_of_range("event_bits", event_bits, "1 to 2^40")),
    }
}

fn check_time(what: &str, time: Nanos, least: Nanos, most: Nanos) -> Result<(), Problem> {
    match (least..=most).contains(&time) {
        true => Ok(()),
        false => Err(refused::out_of_range(what, time, &format!("{least} to {most}"))),
    }
}

fn quality(channel: &Name) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: channel.clone() }
}
