//! Promises of delay (QualMan §5.1.2): streams that are admitted by their measured delay, and how many of their messages
//! keep it beside all other admitted streams and a flood.
//!
//! ```text
//! for each kind: one stream and a flood ──> profile (p99 by message size and rate)
//! admission, in turn: p99 of the profile ≤ asked delay, and the rate fits ──> streams
//! all streams together, each within its rate, and the flood ──> kept of all messages
//! ```
//! A message is a frame; its delay is the time from its release to the arrival of its last byte. Sender and receiver read
//! the same clock. A message that is lost does not keep its promise. Nothing else is tuned: the asked delay is one period,
//! so that a message arrives before the next one is sent.

use anyhow::{Context, Result, ensure};
use qfabric_linux::clock;
use qfabric_stream::pieces;
use qfabric_types::api::net::{Flow, Protocol, Selector, StreamSpec};
use qfabric_types::{BitRate, Bytes, DelayPoint, DelayProfile, Nanos, ThreadId};
use statrs::distribution::{Beta, ContinuousCDF};

use crate::actor::Actor;
use crate::link::{INTERFACE, Link};
use crate::regime::{Competitor, elevate};
use crate::role::{Role, Sender, Viewer};
use crate::trace::Trace;
use crate::work::Work;

/// Rate of the link in bit/s.
pub const RATE_BPS: u64 = 8_000_000;
/// Bytes of a message, and its period in milliseconds. The asked delay is one period.
pub const KINDS: [(u32, u64); 4] = [(1_000, 20), (5_400, 40), (8_000, 80), (20_000, 100)];
/// Time from the start of the processes to the first message.
const RUN_UP: Nanos = Nanos::from_millis(300);
/// Rounds of the admission after which it ends: more streams than the link carries.
const ROUNDS: usize = 8;

/// Messages that arrived within the promised delay, of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub kept: u64,
    pub total: u64,
}

impl Kept {
    /// The 95 % interval of the kept part (Clopper and Pearson), from 0 to 1.
    pub fn interval(self) -> (f64, f64) {
        let (kept, broken) = (self.kept as f64, (self.total - self.kept) as f64);
        let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(0.0, |beta| beta.inverse_cdf(p));
        let low = if self.kept == 0 { 0.0 } else { quantile(kept, broken + 1.0, 0.025) };
        let high = if self.kept == self.total { 1.0 } else { quantile(kept + 1.0, broken, 0.975) };
        (low, high)
    }

    pub fn ratio(self) -> f64 {
        self.kept as f64 / self.total.max(1) as f64
    }
}

/// One kind of streams: alone, and beside all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub bytes: u32,
    /// The asked delay.
    pub asked: Nanos,
    /// The measured delay before the admission; 99 % of the messages took at most this long.
    pub measured: Nanos,
    pub admitted: usize,
    /// The longest delay beside all other streams.
    pub longest: Nanos,
    pub kept: Kept,
}

/// The result under one packet scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub competitor: Competitor,
    pub rows: Vec<Row>,
    /// The sum of the promised rates.
    pub promised: BitRate,
    /// Why streams were refused.
    pub refused: Vec<String>,
}

impl Outcome {
    pub fn kept(&self) -> Kept {
        let sum = |sum: Kept, row: &Row| Kept { kept: sum.kept + row.kept.kept, total: sum.total + row.kept.total };
        self.rows.iter().fold(Kept::default(), sum)
    }

    /// A table in Markdown, and the sum with its interval.
    pub fn text(&self) -> String {
        let name = self.competitor.name();
        let mut text =
            "| message | asked | measured p99 | streams | longest | kept |\n|---|---|---|---|---|---|\n".to_owned();
        for Row { bytes, asked, measured, admitted, longest, kept: Kept { kept, total } } in &self.rows {
            text += &format!("| {bytes} B | {asked} | {measured} | {admitted} | {longest} | {kept} of {total} |\n");
        }
        let (kept, (low, high)) = (self.kept(), self.kept().interval());
        let (ratio, low, high) = (100.0 * kept.ratio(), 100.0 * low, 100.0 * high);
        let streams: usize = self.rows.iter().map(|row| row.admitted).sum();
        text += &format!(
            "{name}: {streams} streams with {} of {} admitted; {} of {} messages within their delay: {ratio:.2} % \
             (95 % interval {low:.2} to {high:.2} %)\n",
            self.promised,
            BitRate::new(RATE_BPS),
            kept.kept,
            kept.total
        );
        self.refused.iter().for_each(|why| text += &format!("refused: {why}\n"));
        text
    }
}

/// One stream.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Index in [`KINDS`].
    kind: usize,
    port: u16,
    /// First release after the start: streams are spread over their period.
    offset: Nanos,
}

impl Member {
    fn new(kind: usize, port: u16) -> Member {
        // The golden ratio spreads any number of streams evenly.
        let part = (f64::from(port) * 0.618_034).fract();
        Member { kind, port, offset: Nanos::from_f64(part * period(kind).as_f64()) }
    }
}

fn period(kind: usize) -> Nanos {
    Nanos::from_millis(KINDS[kind].1)
}

/// The rate of a stream with headers.
fn rate(kind: usize) -> BitRate {
    let bits = u64::from(pieces(KINDS[kind].0).1) * 8;
    BitRate::new((bits * 1_000_000_000).div_ceil(period(kind).get()))
}

/// Runs the experiment; each phase sends messages for `span`.
pub fn run(competitor: Competitor, span: Nanos, work: Work) -> Result<Outcome> {
    elevate(ThreadId(0), 60)?;
    let mut points = Vec::new();
    for kind in 0..KINDS.len() {
        let (traces, _) = perform(competitor, &[kind], span, work)?;
        points.push(point(kind, &traces.first().context("one stream")?.1)?);
    }
    let profile = DelayProfile {
        host: "viewer".to_owned(),
        interface: INTERFACE.parse()?,
        kernel: String::new(),
        min_rtt: Nanos::ZERO,
        points,
    };
    let (wanted, mut refused) = admitted_by_delay(&profile);
    let (traces, no_room) = perform(competitor, &wanted, span, work)?;
    refused.extend(no_room);
    let promised = BitRate::new(traces.iter().map(|(member, _)| rate(member.kind).get()).sum());
    let row = |kind| row(kind, &profile, &traces);
    Ok(Outcome { competitor, rows: (0..KINDS.len()).map(row).collect(), promised, refused })
}

/// The kinds of streams in the order in which they ask for admission, as far as their measured delay is short enough.
fn admitted_by_delay(profile: &DelayProfile) -> (Vec<usize>, Vec<String>) {
    let mut refused = Vec::new();
    let is_fast = |kind: &usize| {
        let asked = period(*kind);
        let measured = profile.delay_of(Bytes::new(KINDS[*kind].0.into()), rate(*kind));
        let is_fast = measured.as_ref().is_ok_and(|point| point.p99 <= asked);
        if !is_fast {
            refused.push(format!("{} B within {asked}: {measured:?}", KINDS[*kind].0));
        }
        is_fast
    };
    let fast: Vec<usize> = (0..KINDS.len()).filter(is_fast).collect();
    (fast.repeat(ROUNDS), refused)
}

/// The traces of the admitted streams, and the refusals.
type Performance = (Vec<(Member, Trace)>, Vec<String>);

/// Runs streams of these kinds beside a flood, as far as the link admits them.
fn perform(competitor: Competitor, kinds: &[usize], span: Nanos, work: Work) -> Result<Performance> {
    let link = Link::new(RATE_BPS)?;
    let mut queue = link.set_scheduler(competitor)?;
    let (mut members, mut streams, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (port, kind) in kinds.iter().enumerate() {
        let member = Member::new(*kind, port as u16);
        streams.push(spec(&link, member));
        if let Err(why) = link.admit(&streams) {
            streams.pop();
            refused.push(format!("{} B: {why}", KINDS[*kind].0));
            continue;
        }
        members.push(member);
    }
    queue.begin(&streams)?;
    ensure!(!members.is_empty(), "the link admits no stream: {refused:?}");
    refused.sort();
    refused.dedup();
    let mut viewers = members.iter().map(|member| viewer(&link, *member, span, work)).collect::<Result<Vec<_>>>()?;
    let mut others = members.iter().map(|member| sender(&link, *member, span, work)).collect::<Result<Vec<_>>>()?;
    others.push(Actor::spawn(&Role::Flood(link.discard()), work)?);
    let start = clock::now() + RUN_UP;
    viewers.iter_mut().chain(&mut others).try_for_each(|actor| actor.begin(start))?;
    let traces = viewers.into_iter().map(Actor::finish).collect::<Result<Vec<_>>>()?;
    Ok((members.into_iter().zip(traces).collect(), refused))
}

fn spec(link: &Link, member: Member) -> StreamSpec {
    let (source, destination) = link.stream(member.port);
    let flow = Flow { protocol: Protocol::Udp, source, destination };
    let size = pieces(KINDS[member.kind].0).1;
    StreamSpec { size, limit: StreamSpec::LIMIT, ..StreamSpec::new(Selector::Flow(flow), period(member.kind)) }
}

fn frames(kind: usize, span: Nanos) -> u32 {
    (span.get() / period(kind).get()) as u32
}

/// The viewer stands for another host, so programs of this host must not delay it.
fn viewer(link: &Link, member: Member, span: Nanos, work: Work) -> Result<Actor> {
    let (at, period, frames) = (link.stream(member.port).1, period(member.kind).get(), frames(member.kind, span));
    let role = Role::Viewer(Viewer { at, period, due: member.offset.get(), frames });
    let actor = Actor::spawn_in(&link.netns_command(), &role, work)?;
    elevate(actor.thread(), 50)?;
    Ok(actor)
}

/// The sender stands for a program with a reserved processor.
fn sender(link: &Link, member: Member, span: Nanos, work: Work) -> Result<Actor> {
    let ((from, to), bytes) = (link.stream(member.port), KINDS[member.kind].0);
    let (period, phase, frames) = (period(member.kind).get(), member.offset.get(), frames(member.kind, span));
    let actor = Actor::spawn(&Role::Sender(Sender { from, to, period, phase, cost: 0, bytes, frames }), work)?;
    elevate(actor.thread(), 40)?;
    Ok(actor)
}

/// The delays of the messages that arrived, ascending.
fn delays(trace: &Trace) -> Vec<Nanos> {
    let mut delays: Vec<_> = trace.jobs.iter().map(|job| Nanos::new(job.end.saturating_sub(job.release))).collect();
    delays.sort_unstable();
    delays
}

fn point(kind: usize, trace: &Trace) -> Result<DelayPoint> {
    let delays = delays(trace);
    ensure!(!delays.is_empty(), "no message of {} bytes arrived", KINDS[kind].0);
    let quantile = |part: f64| delays[((delays.len() as f64 * part).ceil() as usize).saturating_sub(1)];
    let (arrived, sent) = (delays.len() as u32, trace.periods as u32);
    Ok(DelayPoint {
        message_bytes: Bytes::new(KINDS[kind].0.into()),
        rate_bps: rate(kind),
        p50: quantile(0.5),
        p99: quantile(0.99),
        arrived,
        lost: sent.saturating_sub(arrived),
    })
}

fn row(kind: usize, profile: &DelayProfile, traces: &[(Member, Trace)]) -> Row {
    let (bytes, asked) = (KINDS[kind].0, period(kind));
    let of_kind = || traces.iter().filter(|(member, _)| member.kind == kind).map(|(_, trace)| trace);
    let all: Vec<Nanos> = of_kind().flat_map(delays).collect();
    let kept = all.iter().filter(|delay| **delay <= asked).count() as u64;
    Row {
        bytes,
        asked,
        measured: profile.points[kind].p99,
        admitted: of_kind().count(),
        longest: all.into_iter().max().unwrap_or_default(),
        kept: Kept { kept, total: of_kind().map(|trace| trace.periods).sum() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_equals_published_values() {
        // Clopper and Pearson: 10 of 100 is [4.9 %, 17.6 %], 43 of 43 is [91.8 %, 100 %].
        let (low, high) = Kept { kept: 10, total: 100 }.interval();
        assert!((low - 0.0490).abs() < 5e-4 && (high - 0.1762).abs() < 5e-4, "{low} {high}");
        let (low, high) = Kept { kept: 43, total: 43 }.interval();
        assert!((low - 0.9178).abs() < 5e-4 && high == 1.0, "{low} {high}");
    }

    #[test]
    fn a_stream_asks_for_less_than_the_link_and_a_slow_kind_is_refused() {
        assert!((0..KINDS.len()).all(|kind| rate(kind).get() < RATE_BPS / 2));
        let point = |kind: usize, p99| DelayPoint {
            message_bytes: Bytes::new(KINDS[kind].0.into()),
            rate_bps: rate(kind),
            p50: p99,
            p99,
            arrived: 100,
            lost: 0,
        };
        let points =
            vec![point(0, period(0)), point(1, Nanos::from_millis(41)), point(2, period(0)), point(3, period(0))];
        let (host, interface) = ("viewer".to_owned(), INTERFACE.parse().unwrap());
        let profile = DelayProfile { host, interface, kernel: String::new(), min_rtt: Nanos::ZERO, points };
        let (fast, refused) = admitted_by_delay(&profile);
        assert_eq!((&fast[..4], refused.len()), (&[0, 2, 3, 0][..], 1), "{refused:?}");
    }
}
