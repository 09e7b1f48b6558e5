//! Streams over a flooded link that is paced to a rate: packets alone, and a stream whose computation also has
//! rivals.

use anyhow::Result;
use qfabric_linux::clock;
use qfabric_stream::{Shape, StreamRequest, Together, pieces};
use qfabric_types::api::net::{Flow, Protocol, Selector, StreamSpec};
use qfabric_types::{Instant, Nanos, ServerCounts, ThreadId};

use super::fifth;
use crate::actor::Actor;
use crate::link::{INTERFACE, Link, Queue};
use crate::regime::{Competitor, elevate};
use crate::role::{Role, Sender, Viewer};
use crate::row::{Host, Played, Row, Task};
use crate::work::Work;

const RATE_BPS: u64 = 8_000_000;
/// One frame per period.
const PERIOD: Nanos = Nanos::from_millis(40);
/// Four packets per frame: 1.15 Mbit/s per stream.
const BYTES: u32 = 5_400;
/// Accepted time from the interface to the viewer's time stamp.
const GRACE: Nanos = Nanos::from_millis(1);
/// Time from the reservations to the common start.
const RUN_UP: Nanos = Nanos::from_millis(200);
/// For the stream with both reservations: computation, reserved service, and Θ.
const COST: Nanos = Nanos::from_millis(8);
const SERVICE: Nanos = Nanos::from_millis(9);
const PHASE: Nanos = Nanos::from_millis(15);
const HOGS: usize = 6;

/// Runs n streams against a flood of many flows under a packet scheduler.
pub(super) fn packets(n: usize, competitor: Competitor, span: Nanos, work: Work) -> Result<Row> {
    elevate(ThreadId(0), 60)?;
    let link = Link::new(RATE_BPS)?;
    let shape = shape(Nanos::ZERO, span);
    let mut cast = Participants::default();
    for i in 0..n as u16 {
        cast.stream(&link, i, &shape, (offset(i, n), Nanos::ZERO), work)?;
    }
    // The senders stand for applications with reserved CPU time, because only packets are measured here.
    cast.senders.iter().try_for_each(|sender| elevate(sender.thread(), 40))?;
    cast.others.push(Actor::spawn(&Role::Flood(link.discard()), work)?);
    let mut queue = link.set_scheduler(competitor)?;
    let start = clock::now() + RUN_UP;
    let streams: Vec<_> = (0..n as u16).map(|i| spec(&link, i, &shape, start + offset(i, n))).collect();
    queue.begin(&streams)?;
    let played = cast.perform(start)?;
    Ok(row("packets", competitor, format!("{n} streams, a flood"), played, queue.counts()))
}

/// Runs one stream with computation beside hogs over a flooded link, with reservations for neither, one or both.
pub(super) fn both(competitor: Competitor, span: Nanos, work: Work) -> Result<Row> {
    elevate(ThreadId(0), 60)?;
    let link = Link::new(RATE_BPS)?;
    let shape = shape(PHASE, span);
    let mut cast = Participants::default();
    cast.stream(&link, 0, &shape, (Nanos::ZERO, COST), work)?;
    cast.others.push(Actor::spawn(&Role::Flood(link.discard()), work)?);
    for _ in 0..HOGS {
        cast.others.push(Actor::spawn(&Role::Hog, work)?);
    }
    let unreserved = matches!(competitor, Competitor::Neither | Competitor::CpuOnly);
    let _queue: Option<Queue> = unreserved.then(|| link.set_scheduler(Competitor::Fifo)).transpose()?;
    let mut together = Together::load(&reservations(competitor))?;
    let start = clock::now() + RUN_UP;
    together.reserve(&shape, start, cast.senders[0].thread(), link.stream(0))?;
    let played = cast.perform(start)?;
    let counted = counted(&together)?;
    Ok(row("both", competitor, format!("1 stream, {HOGS} hogs, a flood"), played, counted))
}

fn reservations(competitor: Competitor) -> StreamRequest {
    let cpu = matches!(competitor, Competitor::CpuOnly | Competitor::Together);
    let packets = matches!(competitor, Competitor::PacketsOnly | Competitor::Together);
    StreamRequest {
        service: cpu.then_some(SERVICE),
        interface: packets.then(|| (INTERFACE.to_owned(), RATE_BPS)),
        window: fifth(),
    }
}

fn counted(together: &Together) -> Result<Vec<ServerCounts>> {
    let packets = together.packet_counts().map(|seen| {
        let (served, missed, violations) = (seen.served, seen.missed, seen.violations);
        ServerCounts { served, missed, violations, ..ServerCounts::default() }
    });
    Ok(together.cpu_counts()?.into_iter().chain(packets).collect())
}

fn shape(phase: Nanos, span: Nanos) -> Shape {
    Shape { period: PERIOD, phase, bytes: BYTES, frames: (span.get() / PERIOD.get()) as u32 }
}

/// Streams start at times spread over a period.
fn offset(i: u16, n: usize) -> Nanos {
    Nanos::new(PERIOD.get() * u64::from(i) / n as u64)
}

fn spec(link: &Link, i: u16, shape: &Shape, start: Instant) -> StreamSpec {
    let (source, destination) = link.stream(i);
    let flow = Flow { protocol: Protocol::Udp, source, destination };
    StreamSpec {
        window: fifth(),
        size: pieces(shape.bytes).1,
        phase: shape.phase,
        limit: StreamSpec::LIMIT,
        start: Some(start),
        ..StreamSpec::new(Selector::Flow(flow), shape.period)
    }
}

#[derive(Default)]
struct Participants {
    senders: Vec<Actor>,
    viewers: Vec<Actor>,
    others: Vec<Actor>,
}

impl Participants {
    fn stream(&mut self, link: &Link, i: u16, shape: &Shape, (offset, cost): (Nanos, Nanos), work: Work) -> Result<()> {
        let (from, to) = link.stream(i);
        let (period, frames, cost) = (shape.period.get(), shape.frames, cost.get());
        let due = (offset + shape.phase + GRACE).get();
        let viewer =
            Actor::spawn_in(&link.netns_command(), &Role::Viewer(Viewer { at: to, period, due, frames }), work)?;
        // The viewer stands for another host, so tasks of this host must not delay it.
        elevate(viewer.thread(), 50)?;
        self.viewers.push(viewer);
        let sender = Sender { from, to, period, phase: offset.get(), cost, bytes: shape.bytes, frames };
        self.senders.push(Actor::spawn(&Role::Sender(sender), work)?);
        Ok(())
    }

    fn perform(mut self, start: Instant) -> Result<Played> {
        for actor in self.viewers.iter_mut().chain(&mut self.senders).chain(&mut self.others) {
            actor.begin(start)?;
        }
        let traces = self.viewers.into_iter().map(Actor::finish).collect::<Result<Vec<_>>>()?;
        Ok(Played { start, traces })
    }
}

fn row(experiment: &str, competitor: Competitor, setting: String, played: Played, counted: Vec<ServerCounts>) -> Row {
    let (experiment, host) = (experiment.to_owned(), Host::this());
    let tasks = played.traces.iter().map(|trace| Task::of(trace, fifth())).collect();
    Row { experiment, competitor, setting, x: 0.0, round: 0, refused: None, tasks, counted, others: 0.0, host, played }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Window;

    use super::*;

    #[test]
    fn all_streams_and_best_effort_fit_into_the_link() {
        let bps = f64::from(pieces(BYTES).1) * 8.0 / PERIOD.as_secs_f64();
        let streams = super::super::Experiment::Packets.sizes().into_iter().max().unwrap();
        assert!(bps * streams as f64 <= 0.95 * RATE_BPS as f64, "{bps}");
    }

    #[test]
    fn the_competitor_decides_the_reservations_of_a_stream() {
        assert_eq!(
            reservations(Competitor::Neither),
            StreamRequest { service: None, interface: None, window: Window::new(1, 5).unwrap() }
        );
        assert!(
            reservations(Competitor::Together).service.is_some()
                && reservations(Competitor::PacketsOnly).interface.is_some()
        );
    }
}
