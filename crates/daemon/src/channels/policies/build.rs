//! What was asked for becomes a controller, or is refused.

use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{
    Balance, CapacityTerms, HoldRate, Link, MediaSync, MediaTerms, RateTerms, Roles, SinkSync, Spread, SpreadRule,
    Stream, SyncTerms, TreeShare,
};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{
    BalancePolicy, CodePolicy, HoldPolicy, MediaPolicy, Policy, RolesPolicy, SpreadPolicy, SyncPolicy, TreeLink,
    TreePolicy, TreeStream,
};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, HOST};
use qfabric_types::{Instant, Nanos};

use super::super::Fabric;
use super::code::Code;
use super::group::{GroupHere, number_of};
use super::least::MOST_COPIES;
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
/// Longest time by which anything can be meant to be shown later.
const MOST_DELAY: Nanos = Nanos::from_millis(60_000);
/// Requests that are remembered of a server.
const MOST_WAITING: usize = 10_000;
/// Streams of a tree.
const MOST_STREAMS: usize = 64;
/// Parts of a tree's streams.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.001..=1e3;
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
            Policy::Sync(sync) => show_together(sync, now),
            Policy::Media(media) => keep_in_step(media),
            Policy::Balance(balance) => balanced(balance),
            Policy::Tree(tree) => divided(tree),
        }
    }

    fn report_period(&self) -> Nanos {
        if self.config.report == Nanos::ZERO { REPORT } else { self.config.report }
    }

    fn roles(&self, policy: &RolesPolicy, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let RolesPolicy { channel, event_bits, fade, .. } = policy;
        check_bits(*event_bits)?;
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

fn show_together(policy: &SyncPolicy, now: Instant) -> Result<Box<dyn Controller>, Problem> {
    let SyncPolicy { channel, margin_ns, bound_ns, .. } = policy;
    check_time("bound_ns", *bound_ns, Nanos::from_millis(1), MOST_DELAY)?;
    check_time("margin_ns", *margin_ns, Nanos::ZERO, *bound_ns)?;
    let terms = SyncTerms { margin: *margin_ns, bound: *bound_ns, ..SyncTerms::default() };
    Ok(Box::new(SinkSync::new(&quality(channel), terms, now)))
}

fn keep_in_step(policy: &MediaPolicy) -> Result<Box<dyn Controller>, Problem> {
    let MediaPolicy { group, leader, follower, tolerance_ns, jump_ns, .. } = policy;
    if leader == follower {
        return Err(refused::alone(leader));
    }
    check_time("jump_ns", *jump_ns, Nanos::from_millis(1), MOST_DELAY)?;
    check_time("tolerance_ns", *tolerance_ns, Nanos::from_millis(1), *jump_ns)?;
    let terms = MediaTerms { tolerance: *tolerance_ns, jump: *jump_ns, ..MediaTerms::default() };
    Ok(Box::new(MediaSync::new(number_of(group, leader), number_of(group, follower), terms)))
}

fn balanced(policy: &BalancePolicy) -> Result<Box<dyn Controller>, Problem> {
    let BalancePolicy { channel, patience_ns, copies, cancel, .. } = policy;
    if !(1..=MOST_COPIES).contains(copies) {
        return Err(refused::out_of_range("copies", copies, &format!("1 to {MOST_COPIES}")));
    }
    check_time("patience_ns", *patience_ns, Nanos::from_millis(1), Nanos::from_millis(3_600_000))?;
    let balance = Balance::new(&quality(channel), *patience_ns, MOST_WAITING);
    Ok(Box::new(if *cancel { balance.cancelling() } else { balance }))
}

fn divided(policy: &TreePolicy) -> Result<Box<dyn Controller>, Problem> {
    let TreePolicy { capacity, streams, links, .. } = policy;
    let is_first = |(at, stream): (usize, &TreeStream)| streams[..at].iter().all(|one| one.channel != stream.channel);
    if streams.is_empty() || !streams.iter().enumerate().all(is_first) {
        return Err(refused::no_streams());
    }
    if streams.len() > MOST_STREAMS {
        return Err(refused::out_of_range("the number of streams", streams.len(), "1 to 64"));
    }
    if !(1..=1 << 50).contains(capacity) {
        return Err(refused::out_of_range("capacity", capacity, "1 to 2^50 bit/s"));
    }
    let loose = |channel: &&Name| streams.iter().all(|stream| stream.channel != **channel);
    if let Some(channel) = links.iter().flat_map(|link| &link.channels).find(loose) {
        return Err(refused::loose_link(channel));
    }
    let streams = streams.iter().map(stream).collect::<Result<Vec<_>, _>>()?;
    let resource = AttributeId::of("net.bandwidth");
    let tree = TreeShare::new(HOST, resource, streams, links.iter().map(link).collect());
    Ok(Box::new(tree.with_grant(*capacity as f64)))
}

fn stream(stream: &TreeStream) -> Result<Stream, Problem> {
    let TreeStream { channel, event_bits, weight } = stream;
    check_bits(*event_bits)?;
    if !WEIGHTS.contains(weight) {
        return Err(refused::out_of_range("weight", weight, "0.001 to 1000"));
    }
    Ok(Stream { channel: quality(channel), bits: *event_bits as f64, weight: *weight })
}

fn link(link: &TreeLink) -> Link {
    let channels = link.channels.clone();
    if link.at_each_sink { Link::AtEachSink(channels) } else { Link::Streams(channels) }
}

fn quality(channel: &Name) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: channel.clone() }
}
