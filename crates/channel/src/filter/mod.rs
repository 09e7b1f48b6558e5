//! Filters: they choose the sinks that receive an event, and may change the event.

mod account;
mod changed;
mod closure;
mod copies;
mod followed;
mod list;
mod plan;
mod spec;
mod text;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

pub(crate) use account::Accounts;
pub use account::Payer;
pub(crate) use account::Sender;
pub(crate) use changed::Changed;
pub(crate) use closure::Closure;
pub use closure::{Candidates, Choose};
pub(crate) use copies::Copies;
pub use followed::Word;
pub(crate) use list::Filters;
pub(crate) use plan::FieldAt;
pub use spec::{Binding, Direction, FilterCommand, FilterId, FilterSpec};
pub(crate) use text::{TextFilter, bounded};

use crate::member::Seat;
use crate::output::Outputs;
use crate::{Event, FilterCounts, MemberId, Notice};

/// An installed filter.
#[derive(Debug)]
pub(crate) struct Filter {
    pub name: Name,
    pub direction: Direction,
    /// The host that shipped the filter. No other remote host may replace or remove it, and it is removed when its
    /// author leaves. `None`: this host.
    pub author: Option<Name>,
    /// The only sink that the filter decides about. Its changes to an event apply to that sink's copy only.
    pub sink: Option<MemberId>,
    /// The user of this host on whose sources' events alone an OUT-filter acts; `None`: on events of all sources.
    pub user: Option<u32>,
    /// The filter belongs to the host: see [`Turn::Host`].
    pub is_hosts: bool,
    /// Who is charged for the calls; above the payer's rate the filter lets nothing pass. `None`: nobody.
    pub payer: Option<Payer>,
    /// The types it is called for, one bit each.
    pub types: u64,
    pub body: Body,
    pub counts: FilterCounts,
}

#[derive(Debug)]
pub(crate) enum Body {
    Text(Box<TextFilter>),
    Closure(Closure),
}

/// An event on its way through the filters, which may change its payload.
#[derive(Debug)]
pub(crate) struct Draft<'a, 'e> {
    pub event: Event<'e>,
    pub changed: &'a mut Changed,
    /// The time of the call, for filters that read it.
    pub now: Instant,
    pub sender: Sender<'e>,
}

impl<'e> Draft<'_, 'e> {
    /// The event after the changes so far.
    pub(crate) fn event(&self) -> Event<'_> {
        Event { payload: self.changed.payload(self.event.payload), ..self.event }
    }

    /// The payload for editing.
    pub(crate) fn edit(&mut self) -> &mut Vec<u8> {
        self.changed.edit(self.event.payload)
    }
}

/// The sinks that filters choose among.
pub(crate) struct Choice<'a> {
    /// Increases when the seats change.
    pub generation: u64,
    pub seats: &'a [Seat],
    /// One place for each seat.
    pub chosen: &'a mut [bool],
    /// The payloads that filters for single sinks have changed.
    pub copies: &'a mut Copies,
    /// The user whose source submitted the event; `None`: no user of this host.
    pub user: Option<u32>,
    /// Accounts of the filters' payers.
    pub accounts: &'a mut Accounts,
}

/// The order of filters; filters of one turn are called in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Filters for all sinks share one draft.
    All,
    /// Filters for a single sink get the draft as filters for all have left it, on a copy for their sink.
    Sink,
    /// The host's own filters, which count and pace the remaining events, and filters for all whose names come after
    /// them. Their changes also apply to the copies.
    Host,
}

/// Calls each filter in turn; each clears the places of sinks that must not receive the event. A filter that is not
/// called because its payer is above the rate clears them all. Returns how many sinks remain.
pub(crate) fn choose(
    filters: &mut [Filter],
    draft: &mut Draft<'_, '_>,
    mut choice: Choice<'_>,
    out: &mut Outputs,
) -> usize {
    choice.copies.clear();
    let (event_type, user) = (draft.event.event_type, choice.user);
    let candidates = Candidates::new(choice.seats, user);
    let first_own = filters.iter().position(|filter| filter.is_hosts).unwrap_or(filters.len());
    for turn in [Turn::All, Turn::Sink, Turn::Host] {
        for (at, filter) in filters.iter_mut().enumerate() {
            if filter.turn(at > first_own) != turn || !filter.acts_on(event_type, user) {
                continue;
            }
            if !choice.chosen.contains(&true) {
                return 0;
            }
            match turn {
                Turn::Sink => filter.run_for_its_sink(draft, &mut choice, out),
                Turn::All => filter.run(draft, choice.generation, candidates, choice.chosen, (choice.accounts, out)),
                Turn::Host => {
                    filter.run(draft, choice.generation, candidates, choice.chosen, (choice.accounts, out));
                    filter.run_on_copies(draft, &mut choice, out);
                }
            }
        }
    }
    count(choice.chosen)
}

pub(crate) fn count(chosen: &[bool]) -> usize {
    chosen.iter().map(|chosen| usize::from(*chosen)).sum()
}

impl Filter {
    fn run(
        &mut self,
        draft: &mut Draft<'_, '_>,
        generation: u64,
        candidates: Candidates<'_>,
        chosen: &mut [bool],
        (accounts, out): (&mut Accounts, &mut Outputs),
    ) {
        if self.payer.as_ref().is_some_and(|payer| !accounts.admits(payer, draft.sender, draft.now)) {
            chosen.fill(false);
            self.counts.skipped += 1;
            return;
        }
        self.counts.calls += 1;
        let moved = draft.event().payload.len() / 8 + chosen.len();
        match &mut self.body {
            Body::Closure(closure) => closure.run(&draft.event(), candidates, chosen),
            Body::Text(text) => match text.run(draft, generation, candidates.seats, chosen) {
                Ok(beyond) => self.counts.beyond += beyond,
                Err(failed) => {
                    // A filter that faulted chooses no sink.
                    chosen.fill(false);
                    self.counts.faults += 1;
                    if self.counts.faults == 1 {
                        let (id, fault) = (self.id(draft.event.channel), failed.to_string());
                        out.notice(Notice::FilterFaulted { id, fault });
                    }
                }
            },
        }
        self.counts.blocked += u64::from(!chosen.contains(&true));
        if let (Some(payer), Body::Text(text)) = (&self.payer, &self.body) {
            let until = accounts.charge(payer, draft.sender, text.executed() + moved as u64, draft.now);
            let notice =
                until.map(|until| Notice::FiltersSuspended { payer: payer.clone(), lasts: until.since(draft.now) });
            notice.into_iter().for_each(|notice| out.notice(notice));
        }
    }

    /// Runs a filter for a single sink if that sink is still chosen, on the event as filters for all and earlier
    /// filters for this sink have left it.
    fn run_for_its_sink(&mut self, draft: &Draft<'_, '_>, choice: &mut Choice<'_>, out: &mut Outputs) {
        let Some(sink) = &self.sink else { return };
        let found = choice.seats.binary_search_by(|seat| seat.member.cmp(sink));
        if let Ok(at) = found {
            self.run_at(at, draft, choice, out);
        }
    }

    /// Runs a filter for all once more on each copy, for the copy's sink alone. The host's own filters change no
    /// payload.
    fn run_on_copies(&mut self, draft: &Draft<'_, '_>, choice: &mut Choice<'_>, out: &mut Outputs) {
        for at in 0..choice.seats.len() {
            if !self.is_hosts && choice.copies.get(at).is_some() {
                self.run_at(at, draft, choice, out);
            }
        }
    }

    /// Runs on the copy of one sink, if that sink is still chosen.
    fn run_at(&mut self, at: usize, draft: &Draft<'_, '_>, choice: &mut Choice<'_>, out: &mut Outputs) {
        if !choice.chosen[at] {
            return;
        }
        let mut changed = choice.copies.take(at);
        let mut own = Draft { event: draft.event(), changed: &mut changed, now: draft.now, sender: draft.sender };
        let candidate = Candidates::new(&choice.seats[at..=at], choice.user);
        self.run(&mut own, choice.generation, candidate, &mut choice.chosen[at..=at], (choice.accounts, out));
        choice.copies.put(at, changed);
    }

    /// `is_behind`: the filter's name comes after the name of one of the host's own filters.
    fn turn(&self, is_behind: bool) -> Turn {
        match (self.is_hosts, &self.sink) {
            (false, Some(_)) => Turn::Sink,
            (false, None) if !is_behind => Turn::All,
            _ => Turn::Host,
        }
    }

    /// Whether the filter is called for events of this type, submitted by a source of this user.
    fn acts_on(&self, event_type: u16, user: Option<u32>) -> bool {
        self.types & 1 << event_type != 0 && (self.user.is_none() || self.user == user)
    }

    pub(crate) fn id(&self, channel: &ChannelId) -> FilterId {
        FilterId { channel: channel.clone(), direction: self.direction, name: self.name.clone() }
    }
}
