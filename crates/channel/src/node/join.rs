//! Sources and sinks of this host.

use qfabric_types::Instant;
use qfabric_types::channel::ChannelId;

use super::Node;
use super::channel::{Mode, Sink, Source, Totals};
use crate::queue::Queue;
use crate::wire::Change;
use crate::{
    Action, Attributes, Error, Key, Limits, SinkId, SinkInfo, SinkSpec, SourceId, SourceInfo, SourceSpec, Spec,
};

impl Node {
    /// A source on a channel that is open here.
    pub fn source_subscribe(
        &mut self,
        channel: &ChannelId,
        source: SourceSpec,
        now: Instant,
    ) -> Result<SourceId, Error> {
        let place = self.place(channel).ok_or_else(|| Error::NotOpen(channel.clone()))?;
        self.permit(Action::Send, channel)?;
        self.room_for_member(channel)?;
        few(&source.attributes)?;
        let id = SourceId(self.next_number());
        if let Some(channel) = self.at_mut(place) {
            let mut new = Source { user: source.user, ..Source::default() };
            new.reseat(&super::Roster::default(), &channel.roster);
            channel.sources.insert(id.0, new);
        }
        self.sources.insert(id.0, place);
        let info = SourceInfo { application: source.application, attributes: source.attributes };
        self.change(Change::Source(channel.clone(), id, info));
        self.settle(now);
        self.welcome_all(place, id.0);
        Ok(id)
    }

    /// A sink on a channel that is open here. It gets what sources submit from when they hear of it.
    pub fn sink_subscribe(&mut self, channel: &ChannelId, sink: SinkSpec, now: Instant) -> Result<SinkId, Error> {
        if !(1..=Limits::QUEUE).contains(&(sink.capacity as usize)) {
            return Err(Error::Capacity { asked: sink.capacity });
        }
        let mode = Mode::Queue(Queue::new(sink.capacity));
        self.seat(channel, sink, mode, now)
    }

    pub(crate) fn seat(&mut self, id: &ChannelId, sink: SinkSpec, mode: Mode, now: Instant) -> Result<SinkId, Error> {
        let place = self.place(id).ok_or_else(|| Error::NotOpen(id.clone()))?;
        self.permit(Action::Join, id)?;
        self.room_for_member(id)?;
        few(&sink.attributes)?;
        let spec = self.at(place).map(|channel| channel.spec.clone()).ok_or_else(|| Error::NotOpen(id.clone()))?;
        let types = wanted_types(id, &spec, &sink.types)?;
        readable(id, &spec, &sink)?;
        let number = SinkId(self.next_number());
        if let Some(channel) = self.channels.get_mut(place as usize).and_then(Option::as_mut) {
            if channel.sinks.is_empty() {
                self.out.listen(id);
            }
            channel.sinks.insert(number.0, Sink { mode, totals: Totals::default() });
        }
        self.sinks.insert(number.0, place);
        let info =
            SinkInfo { application: sink.application, types, capacity: sink.capacity, attributes: sink.attributes };
        self.change(Change::Sink(id.clone(), number, info));
        self.settle(now);
        Ok(number)
    }

    /// Ends a source.
    pub fn leave_source(&mut self, source: SourceId, now: Instant) -> Result<(), Error> {
        let place = self.sources.remove(&source.0).ok_or(gone("source", source.0))?;
        let Some(channel) = self.at_mut(place) else { return Ok(()) };
        let id = (*channel.id).clone();
        channel.sources.remove(&source.0);
        self.change(Change::SourceGone(id, source));
        self.settle(now);
        Ok(())
    }

    /// Ends a sink; what is in its queue is gone.
    pub fn leave_sink(&mut self, sink: SinkId, now: Instant) -> Result<(), Error> {
        let place = self.sinks.remove(&sink.0).ok_or(gone("sink", sink.0))?;
        self.bound.remove(&sink.0);
        self.close_books(place, |leaving| leaving == sink.0);
        let Some(channel) = self.at_mut(place) else { return Ok(()) };
        let id = (*channel.id).clone();
        channel.sinks.remove(&sink.0);
        if channel.sinks.is_empty() {
            self.out.ignore(&id);
        }
        for peer in self.peers.values_mut() {
            for inbound in peer.inbound.values_mut() {
                inbound.entries.retain(|entry| entry.sink != sink.0);
            }
        }
        self.change(Change::SinkGone(id, sink));
        self.settle(now);
        Ok(())
    }

    /// Sets a source's attribute; none takes it away.
    pub fn set_source_attribute(
        &mut self,
        source: SourceId,
        key: Key,
        value: Option<i64>,
        now: Instant,
    ) -> Result<(), Error> {
        let lost = || gone("source", source.0);
        let place = *self.sources.get(&source.0).ok_or_else(lost)?;
        let id = self.at(place).map(|channel| channel.id.clone()).ok_or_else(lost)?;
        let held = self.directory.host(&self.host).and_then(|record| record.channels.get(&*id)).ok_or_else(lost)?;
        let mut info = held.sources.get(&source).ok_or_else(lost)?.clone();
        if set(&mut info.attributes, key, value)? {
            self.change(Change::Source((*id).clone(), source, info));
            self.settle(now);
        }
        Ok(())
    }

    /// Sets a sink's attribute, which OUT-filters at all sources see; none takes it away.
    pub fn set_sink_attribute(
        &mut self,
        sink: SinkId,
        key: Key,
        value: Option<i64>,
        now: Instant,
    ) -> Result<(), Error> {
        let lost = || gone("sink", sink.0);
        let place = *self.sinks.get(&sink.0).ok_or_else(lost)?;
        let id = self.at(place).map(|channel| channel.id.clone()).ok_or_else(lost)?;
        let held = self.directory.host(&self.host).and_then(|record| record.channels.get(&*id)).ok_or_else(lost)?;
        let mut info = held.sinks.get(&sink).ok_or_else(lost)?.clone();
        if set(&mut info.attributes, key, value)? {
            self.change(Change::Sink((*id).clone(), sink, info));
            self.settle(now);
        }
        Ok(())
    }

    fn room_for_member(&self, channel: &ChannelId) -> Result<(), Error> {
        let remedy = "share members between applications, or use several channels";
        let all = (1 + self.directory.crowd(channel), "members of one channel", Limits::MEMBERS);
        let own = (1 + self.directory.load(&self.host), "members of one host on all channels", Limits::HOST_MEMBERS);
        let over = [all, own].into_iter().find(|(asked, _, limit)| asked > limit);
        over.map_or(Ok(()), |(asked, what, limit)| Err(Error::TooMany { what, asked, limit, remedy }))
    }
}

/// Whether that changes anything.
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
    let remedy = "take some away";
    if asked > limit { Err(Error::TooMany { what, asked, limit, remedy }) } else { Ok(()) }
}

pub(crate) fn gone(what: &'static str, number: u32) -> Error {
    Error::Gone { what, number }
}

/// The types of those names, one bit each.
pub(crate) fn wanted_types(id: &ChannelId, spec: &Spec, names: &[String]) -> Result<u64, Error> {
    if names.is_empty() {
        return Ok(spec.all_types());
    }
    names.iter().try_fold(0, |types, name| Ok(types | 1 << type_number(id, spec, name)?))
}

pub(crate) fn type_number(id: &ChannelId, spec: &Spec, name: &str) -> Result<u16, Error> {
    let known = || Error::NoType { channel: id.clone(), name: name.to_owned(), known: spec.type_names() };
    spec.type_number(name).ok_or_else(known)
}

/// Whether the sink's own formats can read the channel's events.
fn readable(id: &ChannelId, spec: &Spec, sink: &SinkSpec) -> Result<(), Error> {
    for format in &sink.formats {
        format.validate()?;
        let channel = &spec.types[usize::from(type_number(id, spec, &format.name)?)].format;
        if let Some(difference) = format.first_difference(channel) {
            return Err(Error::Format { name: format.name.clone(), difference });
        }
    }
    Ok(())
}
