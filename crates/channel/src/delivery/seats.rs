//! Updates the rosters step by step with each change. Rebuilding them for the changes of each of N hosts on N hosts
//! would cost N³.

use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use super::Delivery;
use super::channel::{Channel, Roster, Span, Tally};
use super::unread::Unread;
use crate::change::Change;
use crate::exit::Exit;
use crate::member::Seat;
use crate::{Directory, MemberId, SinkInfo};

/// The effect of a record's change on the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    Sink(u32),
    SinkGone(u32),
    Source,
    SourceGone,
    /// The roster is rebuilt.
    All,
}

impl Step {
    /// Call this before the change is applied.
    pub(crate) fn of(directory: &Directory, host: &Name, is_own: bool, change: &Change) -> Step {
        let held = |channel| directory.host(host).and_then(|record| record.channels.get(channel));
        match change {
            Change::Hold(..) if is_own => Step::All,
            Change::Hold(channel, _, spec, _) => {
                let other = held(channel).is_some_and(|held| *held.spec != *spec);
                if other { Step::All } else { Step::Nothing }
            }
            Change::Release(channel) => {
                let empty = held(channel).is_none_or(|held| held.sources.is_empty() && held.sinks.is_empty());
                if empty { Step::Nothing } else { Step::All }
            }
            Change::Source(channel, id, _) => {
                let known = held(channel).is_some_and(|held| held.sources.contains_key(id));
                if known { Step::Nothing } else { Step::Source }
            }
            Change::SourceGone(..) => Step::SourceGone,
            Change::Sink(_, id, _) => Step::Sink(id.0),
            Change::SinkGone(_, id) => Step::SinkGone(id.0),
            Change::Register(..) | Change::Unregister(_) => Step::Nothing,
        }
    }
}

impl Delivery {
    /// Call this after the change was applied.
    pub(crate) fn reseat(&mut self, directory: &Directory, host: &Name, id: &ChannelId, step: Step) {
        if step == Step::Nothing || self.stale.contains(id) {
            return;
        }
        let Some(place) = self.channels.place(id) else { return };
        let Some(channel) = self.channels.at_mut(place) else { return };
        if step == Step::All {
            self.stale.insert(id.clone());
            return;
        }
        let Some(record) = directory.host(host) else { return };
        let Some(held) = record.channels.get(id) else { return };
        if !(Arc::ptr_eq(&held.spec, &channel.spec) || held.spec == channel.spec) {
            return;
        }
        match step {
            Step::Source => channel.roster.sources += 1,
            Step::SourceGone => channel.roster.sources = channel.roster.sources.saturating_sub(1),
            Step::SinkGone(number) => channel.unseat(host, number),
            Step::Sink(number) => {
                let Some(info) = held.sinks.get(&crate::SinkId(number)) else { return };
                let member = MemberId { host: host.clone(), number };
                let local = *host == *self.host;
                if channel.seat(member.clone(), info.clone(), record.incarnation.0, local) {
                    self.fresh.push((place, member));
                }
            }
            Step::Nothing | Step::All => {}
        }
    }

    /// Whether [`Delivery::settle`] has rosters to rebuild.
    pub(crate) fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Call this after all changes: rebuilds rosters, welcomes new sinks, and sets the end of sources that have left.
    pub(crate) fn settle(&mut self, directory: &Directory, now: Instant, exit: &mut Exit) {
        self.set_ends(now, exit);
        while let Some(channel) = self.stale.pop_first() {
            self.refresh(&channel, directory, exit);
        }
        for (place, member) in std::mem::take(&mut self.fresh) {
            let Some(channel) = self.channels.at(place).filter(|_| member.host != *self.host) else { continue };
            let seat = channel.roster.seats.binary_search_by(|seat| seat.member.cmp(&member));
            seat.into_iter().for_each(|at| self.welcome(place, &[at], exit));
        }
    }

    fn refresh(&mut self, id: &ChannelId, directory: &Directory, exit: &mut Exit) {
        let Some(place) = self.channels.place(id) else { return };
        let Some(channel) = self.channels.at_mut(place) else { return };
        let roster = Roster::of(directory, channel, &self.host);
        let before = channel.replace_roster(roster);
        let fresh = channel.roster.newcomers(&before);
        self.welcome(place, &fresh, exit);
    }

    /// Checks that the rosters and the sums of unread events equal rebuilt ones; for tests.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn assert_sound(&self, directory: &Directory) {
        for channel in self.channels.iter() {
            let anew = Roster::of(directory, channel, &self.host);
            assert_eq!(channel.roster.seats, anew.seats);
            assert_eq!((&channel.roster.types, channel.roster.sources), (&anew.types, anew.sources));
            let spans = |roster: &Roster| {
                let of = |span: &Span| ((*span.host).clone(), span.incarnation, span.local, span.from, span.to);
                roster.spans.iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(spans(&channel.roster), spans(&anew));
            assert!(channel.all_sources().all(|source| source.tallies.len() == anew.seats.len()));
            assert_eq!(channel.unread, channel.added_up());
        }
    }
}

impl Channel {
    /// Adds a sink or updates it; returns whether the sink is new.
    pub(super) fn seat(&mut self, member: MemberId, info: SinkInfo, incarnation: u64, local: bool) -> bool {
        let roster = &mut self.roster;
        roster.generation += 1;
        match roster.seats.binary_search_by(|seat| seat.member.cmp(&member)) {
            Ok(at) => {
                roster.types[at] = info.types;
                roster.seats[at].info = info;
                false
            }
            Err(at) => {
                roster.make_room(at, &member.host, incarnation, local);
                roster.types.insert(at, info.types);
                roster.seats.insert(at, Seat { member, info });
                self.unread.insert(at, Unread::default());
                for source in self.all_sources_mut() {
                    source.tallies.insert(at, Tally { from: source.last, ..Tally::default() });
                }
                true
            }
        }
    }

    pub(super) fn unseat(&mut self, host: &Name, number: u32) {
        let roster = &mut self.roster;
        let sits = |seat: &Seat| (&seat.member.host, seat.member.number).cmp(&(host, number));
        let Ok(at) = roster.seats.binary_search_by(sits) else { return };
        let local = roster.local().contains(&at);
        roster.generation += 1;
        roster.seats.remove(at);
        roster.types.remove(at);
        for span in &mut roster.spans {
            span.from -= usize::from(span.from > at);
            span.to -= usize::from(span.to > at);
        }
        roster.spans.retain(|span| span.from < span.to);
        self.unread.remove(at);
        for source in self.all_sources_mut() {
            let tally = source.tallies.remove(at);
            source.close(tally, local);
        }
    }
}

impl Roster {
    /// Adjusts the spans for a new seat of this host at `at`.
    fn make_room(&mut self, at: usize, host: &Name, incarnation: u64, local: bool) {
        let own = match self.spans.binary_search_by(|span| (*span.host).cmp(host)) {
            Ok(own) => own,
            Err(own) => {
                let host = Arc::new(host.clone());
                self.spans.insert(own, Span { host, incarnation, local, from: at, to: at });
                own
            }
        };
        self.spans[own].to += 1;
        for span in &mut self.spans[own + 1..] {
            span.from += 1;
            span.to += 1;
        }
    }
}
