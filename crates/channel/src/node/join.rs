//! Sources and sinks of this host.

use qfabric_types::Instant;
use qfabric_types::channel::ChannelId;

use super::Node;
use crate::change::Change;
use crate::delivery::{Mode, Roster, Sink, Source, Totals};
use crate::queue::Queue;
use crate::{
    Action, Attributes, Error, Key, Limits, SinkId, SinkInfo, SinkSpec, SourceId, SourceInfo, SourceSpec, Spec,
};

impl Node {
    /// The channel has to be open on this host.
    pub fn source_subscribe(
        &mut self,
        channel: &ChannelId,
        source: SourceSpec,
        now: Instant,
    ) -> Result<SourceId, Error> {
        let place = self.delivery.channels.place(channel).ok_or_else(|| Error::NotOpen(channel.clone()))?;
        self.config.permit(Action::Send, channel)?;
        self.members.room_for_member(channel)?;
        few(&source.attributes)?;
        let id = SourceId(self.next_number());
        let mut new = Source { user: source.user, ..Source::default() };
        if let Some(channel) = self.delivery.channels.at(place) {
            new.reseat(&Roster::default(), &channel.roster);
        }
        self.delivery.channels.add_source(place, id.0, new);
        let info = SourceInfo { application: source.application, attributes: source.attributes };
        self.change(Change::Source(channel.clone(), id, info));
        self.settle(now);
        self.delivery.welcome_all(place, id.0, &mut self.exit);
        Ok(id)
    }

    /// The channel has to be open on this host. The sink receives the events that a source submits after the source's
    /// host has received this sink.
    pub fn sink_subscribe(&mut self, channel: &ChannelId, sink: SinkSpec, now: Instant) -> Result<SinkId, Error> {
        if !(1..=Limits::QUEUE).contains(&(sink.capacity as usize)) {
            return Err(Error::Capacity { asked: sink.capacity });
        }
        let mode = Mode::Queue(Queue::new(sink.capacity));
        self.seat(channel, sink, mode, now)
    }

    pub(crate) fn seat(&mut self, id: &ChannelId, sink: SinkSpec, mode: Mode, now: Instant) -> Result<SinkId, Error> {
        let place = self.delivery.channels.place(id).ok_or_else(|| Error::NotOpen(id.clone()))?;
        self.config.permit(Action::Join, id)?;
        self.members.room_for_member(id)?;
        few(&sink.attributes)?;
        let channel = self.delivery.channels.at(place).ok_or_else(|| Error::NotOpen(id.clone()))?;
        let types = channel.spec.wanted(id, &sink.types)?;
        readable(id, &channel.spec, &sink)?;
        if channel.sinks.is_empty() {
            self.exit.out.listen(id);
        }
        let number = SinkId(self.next_number());
        self.delivery.channels.add_sink(place, number.0, Sink { mode, totals: Totals::default() });
        let info =
            SinkInfo { application: sink.application, types, capacity: sink.capacity, attributes: sink.attributes };
        self.change(Change::Sink(id.clone(), number, info));
        self.settle(now);
        Ok(number)
    }

    /// Ends a source; its events that are under way still arrive.
    pub fn leave_source(&mut self, source: SourceId, now: Instant) -> Result<(), Error> {
        let channel = self.delivery.channels.remove_source(source.0, now).ok_or(Error::no_source(source))?;
        let id = (*channel.id).clone();
        self.change(Change::SourceGone(id, source));
        self.settle(now);
        Ok(())
    }

    /// Ends a sink; the events in its queue are discarded.
    pub fn leave_sink(&mut self, sink: SinkId, now: Instant) -> Result<(), Error> {
        let place = self.delivery.channels.of_sink(sink.0).ok_or(Error::no_sink(sink))?;
        self.delivery.close_books(place, |leaving| leaving == sink.0, &mut self.exit);
        let channel = self.delivery.channels.remove_sink(sink.0).ok_or(Error::no_sink(sink))?;
        let id = (*channel.id).clone();
        if channel.sinks.is_empty() {
            self.exit.out.ignore(&id);
        }
        self.change(Change::SinkGone(id, sink));
        self.settle(now);
        Ok(())
    }

    /// `None` removes the attribute.
    pub fn set_source_attribute(
        &mut self,
        source: SourceId,
        key: Key,
        value: Option<i64>,
        now: Instant,
    ) -> Result<(), Error> {
        let gone = || Error::no_source(source);
        let id = self.channel_of_source(source).ok_or_else(gone)?.clone();
        let info = self.members.held(&id).and_then(|held| held.sources.get(&source));
        let mut info = info.ok_or_else(gone)?.clone();
        if set(&mut info.attributes, key, value)? {
            self.change(Change::Source(id, source, info));
            self.settle(now);
        }
        Ok(())
    }

    /// OUT-filters of all sources see the attribute. `None` removes it.
    pub fn set_sink_attribute(
        &mut self,
        sink: SinkId,
        key: Key,
        value: Option<i64>,
        now: Instant,
    ) -> Result<(), Error> {
        let gone = || Error::no_sink(sink);
        let id = self.channel_of_sink(sink).ok_or_else(gone)?.clone();
        let info = self.members.held(&id).and_then(|held| held.sinks.get(&sink));
        let mut info = info.ok_or_else(gone)?.clone();
        if set(&mut info.attributes, key, value)? {
            self.change(Change::Sink(id, sink, info));
            self.settle(now);
        }
        Ok(())
    }
}

/// Returns whether the attributes changed.
fn set(attributes: &mut Attributes, key: Key, value: Option<i64>) -> Result<bool, Error> {
    let before = match value {
        Some(value) => attributes.set(key, value),
        None => attributes.remove(key.as_str()),
    };
    few(attributes)?;
    Ok(before != value)
}

fn few(attributes: &Attributes) -> Result<(), Error> {
    let (what, asked, limit) = ("attributes of one member", attributes.len(), Attributes::MAX);
    let remedy = "remove attributes";
    if asked > limit { Err(Error::TooMany { what, asked, limit, remedy }) } else { Ok(()) }
}

/// Whether the sink's own formats can read the channel's events.
fn readable(id: &ChannelId, spec: &Spec, sink: &SinkSpec) -> Result<(), Error> {
    for format in &sink.formats {
        format.validate()?;
        let channel = &spec.types[usize::from(spec.numbered(id, &format.name)?)].format;
        if let Some(difference) = format.first_difference(channel) {
            return Err(Error::Format { name: format.name.clone(), difference });
        }
    }
    Ok(())
}
