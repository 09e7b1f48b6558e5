//! What was asked for becomes a controller, or is refused.

use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{CapacityTerms, HoldRate, RateTerms, Roles, Spread, SpreadRule};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{CodePolicy, HoldPolicy, Policy, RolesPolicy, SpreadPolicy};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{Instant, Nanos};

use super::super::Fabric;
use super::code::Code;
use super::group::GroupHere;
use super::refused;
use super::supervised::Shared;

/// Of a rate that is counted in events between two reports: less is noise where sources are slow.
const TOLERANCE: f64 = 0.92;
/// A period of reports, where this host sends none itself.
const REPORT: Nanos = Nanos::from_millis(500);
/// Beside the period: a report that was sent when the rate changed is on its way for so long at most.
const ON_THE_WAY: Nanos = Nanos::from_millis(100);
/// Events per second that a channel can be meant to carry.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e6;
/// Periods of reports.
const PERIODS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(10)..=Nanos::from_millis(3_600_000);

/// A text that is in a file is read: for the configuration, which is root's. Others would read with the service's rights.
pub(super) fn read(policy: Policy, is_configured: bool) -> Result<Policy, Problem> {
    let Policy::Code(CodePolicy { file: Some(file), .. }) = &policy else { return Ok(policy) };
    if !is_configured {
        return Err(refused::file(format!("file = {file:?} is for the configuration of this host")));
    }
    let unreadable = |error: std::io::Error| refused::file(format!("cannot read {file}: {error}"));
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    match policy {
        Policy::Code(code) => Ok(Policy::Code(CodePolicy { code: text, ..code })),
        other => Ok(other),
    }
}

impl Fabric {
    /// The controller, as if it had been started at `now`.
    pub(super) fn build(&self, policy: &Policy, record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        match policy {
            Policy::Roles(roles) => self.roles(roles, now),
            Policy::Hold(hold) => self.hold(hold),
            Policy::Spread(spread) => self.spread(spread, now),
            Policy::Group(group) => Ok(Box::new(GroupHere::new(group)?)),
            Policy::Code(code) => Ok(Box::new(Code::new(code, record.clone())?)),
        }
    }

    fn report_period(&self) -> Nanos {
        if self.config.report == Nanos::ZERO { REPORT } else { self.config.report }
    }

    fn roles(&self, policy: &RolesPolicy, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let RolesPolicy { channel, event_bits, fade, .. } = policy;
        if !(1..=1 << 40).contains(event_bits) {
            return Err(refused::out_of_range("event_bits", event_bits, "1 to 2^40"));
        }
        let settle = self.report_period() + ON_THE_WAY;
        let terms = CapacityTerms { tolerance: TOLERANCE, settle, ..CapacityTerms::default() };
        let roles = Roles::new(&quality(channel), *event_bits as f64, terms, now);
        Ok(Box::new(if *fade { roles.fading() } else { roles }))
    }

    fn hold(&self, policy: &HoldPolicy) -> Result<Box<dyn Controller>, Problem> {
        let HoldPolicy { channel, rate, .. } = policy;
        if !RATES.contains(rate) {
            return Err(refused::out_of_range("rate", rate, "0.001 to 1000000 events per second"));
        }
        let terms = RateTerms { tolerance: (rate * (1.0 - TOLERANCE)).max(f64::MIN_POSITIVE), ..RateTerms::new(*rate) };
        Ok(Box::new(HoldRate::new(&quality(channel), *rate, terms)))
    }

    fn spread(&self, policy: &SpreadPolicy, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let SpreadPolicy { channel, attribute, period_ns, .. } = policy;
        let period = period_ns.unwrap_or_else(|| self.report_period());
        if !PERIODS.contains(&period) {
            return Err(refused::out_of_range("period_ns", period, "10 ms to 1 h"));
        }
        // Any seed does: it decides who of those in the same slot is asked.
        Ok(Box::new(Spread::new(&quality(channel), attribute, period, SpreadRule::Placed, now.get(), now)))
    }
}

fn quality(channel: &Name) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: channel.clone() }
}
