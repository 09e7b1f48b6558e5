//! Filters of this host.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use super::channel::Mode;
use super::join::{type_number, wanted_types};
use super::{Channel, Node};
use crate::filter::{Body, Closure, FieldAt, Filter, TextFilter};
use crate::{
    Action, Attributes, Binding, Choose, Direction, Error, FilterCounts, FilterError, FilterSpec, Key, Limits,
    MemberId, Notice, SinkId, SinkSpec, Spot,
};

/// What events change: which parameter of which filter.
#[derive(Debug)]
pub(crate) struct Bound {
    filter: Spot,
    parameter: Key,
}

/// Who installs a filter; by default the host itself, for all events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Installer {
    /// The host that ships it.
    pub author: Option<Name>,
    /// The user on whose events it acts, if not on all.
    pub user: Option<u32>,
    /// It is one of the host's own, called after all others.
    pub is_hosts: bool,
}

impl Node {
    /// Installs a filter in E-code on this host, or replaces it. An IN-filter for one sink of this host is nobody else's
    /// affair: it needs no right.
    pub fn install(&mut self, filter: &FilterSpec) -> Result<(), FilterError> {
        let own = filter.sink.as_ref().is_some_and(|sink| sink.host == *self.host);
        if !own || filter.spot.direction == Direction::Out {
            self.permit(Action::Install, &filter.spot.channel)?;
        }
        self.install_text(filter, Installer::default())
    }

    /// As [`Node::install`], for a user who may decide on the events of own sources only: an OUT-filter acts on these,
    /// whoever else submits to the channel. An IN-filter without a sink has no such part, and is refused.
    pub fn install_for(&mut self, user: u32, filter: &FilterSpec) -> Result<(), FilterError> {
        let Spot { direction, channel, .. } = &filter.spot;
        if *direction == Direction::In {
            let (host, action, channel) = ((*self.host).clone(), Action::Install, channel.clone());
            let why = "without a sink it acts on the events of all users, so that only root may".to_owned();
            return Err(Error::Forbidden { host, action, channel, why }.into());
        }
        self.permit(Action::Install, channel)?;
        self.install_text(filter, Installer { user: Some(user), ..Installer::default() })
    }

    pub(crate) fn install_text(&mut self, wanted: &FilterSpec, installer: Installer) -> Result<(), FilterError> {
        let (spec, types) = self.filter_types(&wanted.spot, &wanted.types)?;
        let mut text = TextFilter::new(&wanted.text, &spec, types, &self.config.engines)?;
        self.inherit(&wanted.spot, &mut text);
        for (key, value) in &wanted.parameters {
            set(&mut text, key.as_str(), *value)?;
        }
        self.put(&wanted.spot, installer, wanted.sink.clone(), types, Body::Text(Box::new(text)))
    }

    /// Installs a filter in Rust on this host, or replaces it.
    pub fn install_closure(
        &mut self,
        spot: Spot,
        sink: Option<MemberId>,
        types: &[String],
        choose: Choose,
    ) -> Result<(), FilterError> {
        self.permit(Action::Install, &spot.channel)?;
        let (_, types) = self.filter_types(&spot, types)?;
        self.put(&spot, Installer::default(), sink, types, Body::Closure(Closure::new(choose)))
    }

    /// Installs a closure of the host itself, for events of these types (none: of all): to count, to pace, to balance.
    /// It is called after all others. What it sends and takes is its own affair, so that no access list is asked. With a user, an OUT-filter acts on the
    /// events of that user's sources only.
    pub fn install_own(
        &mut self,
        spot: Spot,
        user: Option<u32>,
        types: &[String],
        choose: Choose,
    ) -> Result<(), FilterError> {
        let (_, types) = self.filter_types(&spot, types)?;
        self.put(
            &spot,
            Installer { author: None, user, is_hosts: true },
            None,
            types,
            Body::Closure(Closure::new(choose)),
        )
    }

    /// Removes a filter of this host.
    pub fn remove_filter(&mut self, spot: &Spot) -> Result<(), FilterError> {
        let filters = self.filters_mut(spot).ok_or_else(|| FilterError::Unknown(spot.clone()))?;
        let at = find(filters, spot).map_err(|_| FilterError::Unknown(spot.clone()))?;
        filters.remove(at);
        Ok(())
    }

    /// Changes a filter's parameter on this host; the next event sees it.
    pub fn set_parameter(&mut self, spot: &Spot, parameter: &str, value: i64) -> Result<(), FilterError> {
        set(self.text_mut(spot)?, parameter, value)
    }

    /// A filter's parameter.
    pub fn parameter(&mut self, spot: &Spot, parameter: &str) -> Result<i64, FilterError> {
        let text = self.text_mut(spot)?;
        let value = text.parameter(parameter).map(|value| *value);
        value.ok_or_else(|| no_parameter(text, parameter))
    }

    /// Binds a filter's parameter to events of a channel that is open here: from an event's arrival on, the next event
    /// that the filter sees is treated by the new value. [`Node::leave_sink`] ends it.
    pub fn bind(&mut self, binding: &Binding, now: Instant) -> Result<SinkId, FilterError> {
        self.parameter(&binding.filter, binding.parameter.as_str())?;
        let from = &binding.channel;
        let spec = self.place(from).and_then(|place| Some(self.at(place)?.spec.clone()));
        let spec = spec.ok_or_else(|| Error::NotOpen(from.clone()))?;
        let event_type = type_number(from, &spec, &binding.event_type)?;
        let field = FieldAt::new(event_type, &spec.types[usize::from(event_type)].format, &binding.field);
        let field = field.ok_or_else(|| FilterError::NoField {
            event_type: binding.event_type.clone(),
            field: binding.field.clone(),
        })?;
        let types = vec![binding.event_type.clone()];
        let (application, formats, attributes) = (None, vec![], Attributes::default());
        let sink = SinkSpec { application, types, formats, attributes, capacity: 0 };
        let id = self.seat(from, sink, Mode::Bound(field), now)?;
        self.bound.insert(id.0, Bound { filter: binding.filter.clone(), parameter: binding.parameter.clone() });
        Ok(id)
    }

    /// An event has come to a bound sink. A filter that is gone by now has no parameters.
    pub(crate) fn turn(&mut self, sink: u32, value: i64) {
        let Some(Bound { filter, parameter }) = self.bound.get(&sink) else { return };
        let place = self.places.get(&filter.channel).copied();
        let channel = place.and_then(|place| self.channels.get_mut(place as usize)?.as_mut());
        let Some(filters) = channel.map(|channel| channel.filters_mut(filter.direction)) else { return };
        let Ok(at) = find(filters, filter) else { return };
        if let Body::Text(text) = &mut filters[at].body {
            // It had the parameter when it was bound; another text may not.
            let _ = set(text, parameter.as_str(), value);
        }
    }

    /// The filters of a channel on this host.
    pub fn filters(&self, channel: &ChannelId) -> Vec<(Spot, FilterCounts)> {
        let Some(channel) = self.place(channel).and_then(|place| self.at(place)) else { return vec![] };
        let all = channel.filters_in.iter().chain(&channel.filters_out);
        all.map(|filter| (filter.spot(&channel.id), filter.counts)).collect()
    }

    /// The host that shipped a filter to this one; none: it is this host's own, or there is none.
    pub fn filter_author(&self, spot: &Spot) -> Option<&Name> {
        let filters = self.at(self.place(&spot.channel)?)?.filters(spot.direction);
        filters[find(filters, spot).ok()?].author.as_ref()
    }

    /// Whether another host may replace or remove the filter, if there is one: only its own.
    pub(crate) fn check_author(&self, spot: &Spot, from: &Name) -> Result<(), FilterError> {
        let there = self.place(&spot.channel).and_then(|place| self.at(place));
        let there = there.is_some_and(|channel| find(channel.filters(spot.direction), spot).is_ok());
        match self.filter_author(spot) {
            Some(author) if author == from => Ok(()),
            author if there => {
                Err(FilterError::Owned { name: spot.name.clone(), by: author.unwrap_or(&self.host).clone() })
            }
            _ => Ok(()),
        }
    }

    /// A host is gone, or has started anew: what it shipped goes with it.
    pub(crate) fn forget_filters(&mut self, author: &Name) {
        let Node { channels, out, .. } = self;
        for channel in channels.iter_mut().flatten() {
            let id = channel.id.clone();
            for filters in [&mut channel.filters_in, &mut channel.filters_out] {
                let gone = filters.extract_if(.., |filter| filter.author.as_ref() == Some(author));
                gone.map(|filter| filter.spot(&id)).for_each(|spot| {
                    out.notice(Notice::FilterChanged { spot, author: author.clone() });
                });
            }
        }
    }

    /// The channel's specification, and the types that are meant.
    fn filter_types(&self, spot: &Spot, names: &[String]) -> Result<(std::sync::Arc<crate::Spec>, u64), FilterError> {
        let channel = self.place(&spot.channel).and_then(|place| self.at(place));
        let channel = channel.ok_or_else(|| Error::NotOpen(spot.channel.clone()))?;
        let types = wanted_types(&spot.channel, &channel.spec, names)?;
        let all = channel.filters_in.len() + channel.filters_out.len();
        let fresh = channel.filters(spot.direction).iter().all(|filter| filter.name != spot.name);
        if fresh && all >= Limits::FILTERS {
            let (what, asked, limit) = ("filters of one channel", all + 1, Limits::FILTERS);
            return Err(Error::TooMany { what, asked, limit, remedy: "remove one, or join two texts" }.into());
        }
        Ok((channel.spec.clone(), types))
    }

    /// Parameters of the filter that is replaced, as they are by now.
    fn inherit(&mut self, spot: &Spot, text: &mut TextFilter) {
        let Ok(old) = self.text_mut(spot) else { return };
        for name in old.parameters.clone() {
            if let (Some(value), Some(place)) = (old.parameter(&name).map(|value| *value), text.parameter(&name)) {
                *place = value;
            }
        }
    }

    fn put(
        &mut self,
        spot: &Spot,
        installer: Installer,
        sink: Option<MemberId>,
        types: u64,
        body: Body,
    ) -> Result<(), FilterError> {
        let filters = self.filters_mut(spot).ok_or_else(|| Error::NotOpen(spot.channel.clone()))?;
        let (name, direction, Installer { author, user, is_hosts }) = (spot.name.clone(), spot.direction, installer);
        let filter =
            Filter { name, direction, author, user, is_hosts, sink, types, body, counts: FilterCounts::default() };
        match find(filters, spot) {
            Ok(at) => filters[at] = filter,
            Err(at) => filters.insert(at, filter),
        }
        Ok(())
    }

    fn filters_mut(&mut self, spot: &Spot) -> Option<&mut Vec<Filter>> {
        let place = self.place(&spot.channel)?;
        Some(self.at_mut(place)?.filters_mut(spot.direction))
    }

    fn text_mut(&mut self, spot: &Spot) -> Result<&mut TextFilter, FilterError> {
        let unknown = || FilterError::Unknown(spot.clone());
        let filters = self.filters_mut(spot).ok_or_else(unknown)?;
        let at = find(filters, spot).map_err(|_| unknown())?;
        match &mut filters[at].body {
            Body::Text(text) => Ok(text),
            Body::Closure(_) => Err(unknown()),
        }
    }
}

impl Channel {
    fn filters(&self, direction: Direction) -> &[Filter] {
        match direction {
            Direction::In => &self.filters_in,
            Direction::Out => &self.filters_out,
        }
    }

    fn filters_mut(&mut self, direction: Direction) -> &mut Vec<Filter> {
        match direction {
            Direction::In => &mut self.filters_in,
            Direction::Out => &mut self.filters_out,
        }
    }
}

fn find(filters: &[Filter], spot: &Spot) -> Result<usize, usize> {
    filters.binary_search_by(|filter| filter.name.cmp(&spot.name))
}

fn set(text: &mut TextFilter, parameter: &str, value: i64) -> Result<(), FilterError> {
    match text.parameter(parameter) {
        Some(place) => *place = value,
        None => return Err(no_parameter(text, parameter)),
    }
    Ok(())
}

fn no_parameter(text: &TextFilter, name: &str) -> FilterError {
    let known = if text.parameters.is_empty() { "none".to_owned() } else { text.parameters.join(", ") };
    FilterError::NoParameter { name: name.to_owned(), known }
}
