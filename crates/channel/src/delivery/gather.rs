//! Receives large events: assembles the fragments of one event after the other, then receives the event like any other.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Delivery;
use super::assembly::Gathered;
use super::channel::Channel;
use crate::Lane;
use crate::exit::Exit;
use crate::wire::{EventFrame, Fragment, Malformed, Reader};

impl Delivery {
    /// A fragment of another host's event has arrived.
    pub(crate) fn gather(
        &mut self,
        from: &Name,
        fragment: &Fragment<'_>,
        now: Instant,
        exit: &mut Exit,
    ) -> Result<(), Malformed> {
        let Some(link) = self.links.get_mut(from) else { return Ok(()) };
        let begins = u64::from(fragment.at == 0);
        let Some(inbound) = link.inbound.get(&fragment.source) else {
            exit.counts.unwelcome += begins;
            return Ok(());
        };
        if fragment.number < inbound.last || fragment.number <= inbound.marked {
            exit.counts.out_of_order += begins;
            return Ok(());
        }
        let Some(lane) = self.channels.at(inbound.slot).map(Channel::lane) else { return Ok(()) };
        let (lost, gathered) = link.way_mut(lane).assembly.add(fragment, now);
        exit.counts.incomplete += lost;
        match gathered {
            Gathered::More(until) => exit.wake_by(until),
            Gathered::Passed => {}
            Gathered::Whole => return self.put_together(from, lane, fragment, now, exit),
        }
        Ok(())
    }

    /// An event is complete. Its header has to agree with its fragments.
    fn put_together(
        &mut self,
        from: &Name,
        lane: Lane,
        last: &Fragment<'_>,
        now: Instant,
        exit: &mut Exit,
    ) -> Result<(), Malformed> {
        let Some(link) = self.links.get_mut(from) else { return Ok(()) };
        let bytes = link.way_mut(lane).assembly.take();
        let read = EventFrame::read_large(&mut Reader(&bytes));
        let read = read.and_then(|frame| {
            let same = (frame.header.source, frame.header.number) == (last.source, last.number);
            if same { Ok(frame) } else { Err(Malformed) }
        });
        let read = read.map(|frame| self.receive(from, &frame, now, exit));
        if let Some(link) = self.links.get_mut(from) {
            link.way_mut(lane).assembly.give_back(bytes);
        }
        read
    }

    /// Gives up events of which no fragment has arrived for a long time.
    pub(super) fn give_up_stale(&mut self, now: Instant, exit: &mut Exit) {
        let ways = self.links.values_mut().flat_map(|link| link.ways_mut().1);
        for way in ways.filter(|way| way.assembly.due().is_some_and(|due| due <= now)) {
            exit.counts.incomplete += way.assembly.give_up();
        }
    }
}
