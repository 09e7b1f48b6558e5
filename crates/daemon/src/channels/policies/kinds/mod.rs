//! The kinds of policies: what each becomes when it is started here. One file per kind, with its limits.

mod balance;
mod code;
mod group;
mod hold;
mod media;
mod roles;
mod spread;
mod sync;
mod tree;

use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::stream_of;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{Policy, PolicyKind, Resource, TextFile};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::Fabric;
use super::refused;
use super::supervised::Shared;
use crate::auth::Peer;

/// Of a rate that is counted in events between two reports: less is noise where sources are slow.
const TOLERANCE: f64 = 0.92;
/// A period of reports, where this host sends none itself.
const REPORT: Nanos = Nanos::from_millis(500);
/// Longest time by which anything can be meant to be shown later.
const MOST_DELAY: Nanos = Nanos::from_millis(60_000);

/// A kind of policy as this host runs it. What it says about itself is [`PolicyKind`]'s.
pub(super) trait Runs: PolicyKind {
    /// The controller, as if it had been started at `now`. A value out of its range is refused.
    fn controller(&self, fabric: &Fabric, record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem>;

    /// What it decides: [`PolicyKind::decides`], and what only this host finds out.
    fn resources(&self) -> Result<Vec<Resource>, Problem> {
        Ok(self.decides())
    }

    /// How rates are kept, for a kind that decides [`Resource::Rates`].
    fn pacing(&self) -> Pacing {
        Pacing::default()
    }

    /// The group whose applications on this host it decides about: they are told by their names.
    fn members(&self) -> Option<&Name> {
        self.group()
    }

    /// Whether a user who holds its channels, or is in its group, may start it.
    fn check_rights(&self, _fabric: &Fabric, _peer: Peer) -> Result<(), Problem> {
        Ok(())
    }

    /// Puts in place what it needs beside its controller. `user`: on the events of whose sources alone it decides; none:
    /// on all. An error refuses the policy.
    fn started(&self, _fabric: &Fabric, _user: Option<u32>) -> Result<(), Problem> {
        Ok(())
    }

    /// Removes what [`Runs::started`] has put in place.
    fn stopped(&self, _fabric: &Fabric) {}
}

/// How a channel's rates are kept.
pub(super) struct Pacing {
    /// The rate of a host that nothing was decided for yet, when it reports first, in thousandths of an event per second.
    pub first_milli: Option<i64>,
    /// Whether reports are put in relation to what was sent.
    pub corrects: bool,
    /// The number of the stream that goes to a host, by the channel and the host.
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

/// A text that is in a file is read: for the configuration, which is root's. Others would read with the service's rights.
pub(super) fn read_text(policy: &mut Policy, is_configured: bool) -> Result<(), Problem> {
    let Some(TextFile { file: Some(file), text }) = policy.as_kind_mut().text_file() else { return Ok(()) };
    if !is_configured {
        return Err(refused::file(format!("file = {file:?} is for the configuration of this host")));
    }
    let unreadable = |error: std::io::Error| refused::file(format!("cannot read {file}: {error}"));
    *text = std::fs::read_to_string(&*file).map_err(unreadable)?;
    Ok(())
}

impl Fabric {
    fn report_period(&self) -> Nanos {
        if self.config.report == Nanos::ZERO { REPORT } else { self.config.report }
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
