//! Filters: which sinks get an event.

mod closure;
mod plan;
mod spec;
mod text;

use qfabric_types::channel::{ChannelId, Name};

pub(crate) use closure::Closure;
pub use closure::{Candidates, Choose};
pub(crate) use plan::FieldAt;
pub use spec::{Binding, Direction, FilterSpec, Order, Spot};
pub(crate) use text::TextFilter;

use crate::node::{Ctx, Seat};
use crate::{Event, FilterCounts, MemberId, Notice};

/// A filter that is installed.
#[derive(Debug)]
pub(crate) struct Filter {
    pub name: Name,
    pub direction: Direction,
    /// The host that shipped it: only that one replaces or removes it from elsewhere, and it goes with it. None: this host.
    pub author: Option<Name>,
    /// The only sink that it decides on.
    pub sink: Option<MemberId>,
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

/// An event on its way through filters, which may change its payload.
#[derive(Debug)]
pub(crate) struct Draft<'a, 'e> {
    pub event: Event<'e>,
    /// Empty where nothing was changed.
    pub changed: &'a mut Vec<u8>,
}

impl<'e> Draft<'_, 'e> {
    /// The event as it is by now.
    pub fn event(&self) -> Event<'_> {
        let payload = if self.changed.is_empty() { self.event.payload } else { &self.changed[..] };
        Event { payload, ..self.event }
    }

    /// The payload, to be changed.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        if self.changed.is_empty() {
            self.changed.extend_from_slice(self.event.payload);
        }
        self.changed
    }
}

/// Lets each filter in turn unset those that are not to get the event. Gives how many are left.
pub(crate) fn choose(
    filters: &mut [Filter],
    draft: &mut Draft<'_, '_>,
    generation: u64,
    seats: &[Seat],
    chosen: &mut [bool],
    ctx: &mut Ctx<'_>,
) -> usize {
    let mut left = count(chosen);
    for filter in filters {
        if left == 0 {
            break;
        }
        if filter.types & 1 << draft.event.event_type != 0 {
            filter.run(draft, generation, seats, chosen, ctx);
            left = count(chosen);
        }
    }
    left
}

pub(crate) fn count(chosen: &[bool]) -> usize {
    chosen.iter().map(|chosen| usize::from(*chosen)).sum()
}

impl Filter {
    fn run(
        &mut self,
        draft: &mut Draft<'_, '_>,
        generation: u64,
        seats: &[Seat],
        chosen: &mut [bool],
        ctx: &mut Ctx<'_>,
    ) {
        let Some(range) = self.scope(seats, chosen) else { return };
        let (seats, chosen) = (&seats[range.clone()], &mut chosen[range]);
        self.counts.calls += 1;
        match &mut self.body {
            Body::Closure(closure) => closure.run(&draft.event(), seats, chosen),
            Body::Text(text) => match text.run(draft, generation, seats, chosen, ctx.now) {
                Ok(beyond) => self.counts.beyond += beyond,
                Err(fault) => {
                    // A filter that failed has chosen nobody.
                    chosen.fill(false);
                    self.counts.faults += 1;
                    if self.counts.faults == 1 {
                        let (spot, fault) = (self.spot(draft.event.channel), fault.to_string());
                        ctx.port.notice(Notice::FilterFaulted { spot, fault });
                    }
                }
            },
        }
        self.counts.blocked += u64::from(!chosen.contains(&true));
    }

    /// The seats that it decides on, where one of them is chosen.
    fn scope(&self, seats: &[Seat], chosen: &[bool]) -> Option<std::ops::Range<usize>> {
        let Some(sink) = &self.sink else { return Some(0..seats.len()) };
        let at = seats.binary_search_by(|seat| seat.member.cmp(sink)).ok()?;
        chosen[at].then_some(at..at + 1)
    }

    pub fn spot(&self, channel: &ChannelId) -> Spot {
        Spot { channel: channel.clone(), direction: self.direction, name: self.name.clone() }
    }
}
