//! Both directions of the link with their schedule, as one state machine: packets and the time go in; packets and the
//! time of the next call come out.

use qfabric_types::{Instant, Nanos, RandomNumbers};

use crate::link::{Delivery, EmulatedLink};
use crate::report::DirectionCounters;
use crate::schedule::{Schedule, Step};
use crate::settings::{LabSettings, LinkChange, LinkDirection};

/// The emulated link. `P` is the content of a packet.
#[derive(Debug)]
pub struct EmulatedPath<P> {
    up: EmulatedLink<P>,
    down: EmulatedLink<P>,
    /// The changes to come, the last one first.
    steps: Vec<Step>,
    /// Time zero of the schedule.
    began: Option<Instant>,
}

impl<P> EmulatedPath<P> {
    pub fn new(settings: &LabSettings, now: Instant) -> EmulatedPath<P> {
        let mut seeds = RandomNumbers::new(settings.seed);
        let Schedule { mut steps } = settings.schedule.clone();
        steps.reverse();
        let up = EmulatedLink::new(settings.up.clone(), &settings.paths, seeds.draw(), now);
        let down = EmulatedLink::new(settings.down.clone(), &settings.paths, seeds.draw(), now);
        EmulatedPath { up, down, steps, began: None }
    }

    fn link_mut(&mut self, direction: LinkDirection) -> &mut EmulatedLink<P> {
        match direction {
            LinkDirection::Up => &mut self.up,
            LinkDirection::Down => &mut self.down,
        }
    }

    pub fn link(&self, direction: LinkDirection) -> &EmulatedLink<P> {
        match direction {
            LinkDirection::Up => &self.up,
            LinkDirection::Down => &self.down,
        }
    }

    pub fn counters(&self, direction: LinkDirection) -> DirectionCounters {
        self.link(direction).counters()
    }

    /// Begins the schedule, once.
    pub fn begin(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        self.advance(now);
    }

    /// Changes a direction at `now`, beside the schedule.
    pub fn change(&mut self, now: Instant, direction: LinkDirection, change: &LinkChange) {
        self.advance(now);
        let link = self.link_mut(direction);
        let mut settings = link.settings().clone();
        change.apply(&mut settings);
        link.set(now, settings);
    }

    /// A packet arrives; see [`EmulatedLink::arrive`].
    pub fn arrive(&mut self, now: Instant, direction: LinkDirection, packet: P, bytes: u32, path: usize) {
        self.advance(now);
        self.link_mut(direction).arrive(now, packet, bytes, path);
    }

    /// The next packet that is due in a direction.
    pub fn deliver(&mut self, now: Instant, direction: LinkDirection) -> Option<Delivery<P>> {
        self.advance(now);
        self.link_mut(direction).deliver(now)
    }

    /// The time at which the next packet or change may be due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let links = [&self.up, &self.down].into_iter().filter_map(EmulatedLink::next_wakeup);
        links.chain(self.next_step()).min()
    }

    fn next_step(&self) -> Option<Instant> {
        Some(self.began? + self.steps.last()?.at)
    }

    /// Carries out the changes up to `now`, each at its own time.
    fn advance(&mut self, now: Instant) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            let Some(Step { directions, change, .. }) = self.steps.pop() else { return };
            for direction in directions {
                let link = self.link_mut(direction);
                let mut settings = link.settings().clone();
                change.apply(&mut settings);
                link.set(at, settings);
            }
        }
    }
}

/// The time of the schedule's last change.
impl Schedule {
    pub fn length(&self) -> Nanos {
        self.steps.last().map_or(Nanos::ZERO, |step| step.at)
    }
}
