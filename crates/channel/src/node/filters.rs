//! Filters of this host: installing, removing, parameters and bindings.

use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use super::Node;
use crate::delivery::{Bound, Channel, Mode};
use crate::filter::{Body, Closure, FieldAt, Filter, TextFilter, bounded};
use crate::{
    Action, Attributes, Binding, Choose, Direction, Error, FilterCounts, FilterError, FilterId, FilterSpec, MemberId,
    Payer, SinkId, SinkSpec, SuspensionCounts, Word,
};

/// The host or user that installs a filter, and the events that the filter may act on. The default is this host, for
/// all events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Installer {
    /// The other host that ships the filter; `None`: this host.
    pub author: Option<Name>,
    /// The user on whose events alone the filter acts; `None`: on all events.
    pub user: Option<u32>,
    /// The filter belongs to the host itself and is called after all others.
    pub is_hosts: bool,
    /// Who is charged for the calls; `None`: nobody.
    pub payer: Option<Payer>,
}

impl Node {
    /// Installs a filter in E-code on this host, or replaces it. An IN-filter for one sink of this host needs no right,
    /// because it affects no other member.
    pub fn install(&mut self, filter: &FilterSpec) -> Result<(), FilterError> {
        self.install_paid_by(None, filter)
    }

    /// Like [`Node::install`], for a user who is charged for the filter's calls.
    pub fn install_paid_by(&mut self, user: Option<u32>, filter: &FilterSpec) -> Result<(), FilterError> {
        let own = filter.sink.as_ref().is_some_and(|sink| sink.host == self.config.host);
        if !own || filter.id.direction == Direction::Out {
            self.config.permit(Action::Install, &filter.id.channel)?;
        }
        self.install_text(filter, Installer { payer: user.map(Payer::User), ..Installer::default() })
    }

    /// Like [`Node::install_paid_by`], for a user who may decide only about the events of this user's own sources: an
    /// OUT-filter acts on the events of these sources and on no others. An IN-filter without a sink would act on all
    /// users' events and is refused.
    pub fn install_for(&mut self, user: u32, filter: &FilterSpec) -> Result<(), FilterError> {
        let FilterId { direction, channel, .. } = &filter.id;
        if *direction == Direction::In {
            let (host, action, channel) = (self.config.host.clone(), Action::Install, channel.clone());
            let why = "without a sink it acts on the events of all users, so only root may install it".to_owned();
            return Err(Error::Forbidden { host, action, channel, why }.into());
        }
        self.config.permit(Action::Install, channel)?;
        let payer = Some(Payer::User(user));
        self.install_text(filter, Installer { user: Some(user), payer, ..Installer::default() })
    }

    /// Sets the limits [`crate::Config::filter_instructions`], for filters that are installed from now on, and
    /// [`crate::Config::filter_rate`].
    pub fn set_filter_limits(&mut self, instructions: u32, rate: u64) {
        (self.config.filter_instructions, self.config.filter_rate) = (instructions, rate);
        self.delivery.accounts.set_rate(rate);
    }

    /// The instructions that one call of a filter may take at worst. Its channel has to be open here.
    pub fn filter_instructions(&self, wanted: &FilterSpec) -> Result<u64, FilterError> {
        let id = &wanted.id.channel;
        let channel = self.delivery.channels.find(id).ok_or_else(|| Error::NotOpen(id.clone()))?;
        let types = channel.spec.wanted(id, &wanted.types)?;
        let (_, bound) = bounded(&wanted.text, &channel.spec, types, self.config.filter_instructions)?;
        Ok(bound.instructions)
    }

    pub(crate) fn install_text(&mut self, wanted: &FilterSpec, installer: Installer) -> Result<(), FilterError> {
        let Node { delivery, config, .. } = self;
        let id = &wanted.id.channel;
        let channel = delivery.channels.find_mut(id).ok_or_else(|| Error::NotOpen(id.clone()))?;
        let types = channel.spec.wanted(id, &wanted.types)?;
        channel.filters.room_for(&wanted.id)?;
        let mut text = TextFilter::new(&wanted.text, &channel.spec, types, config)?;
        channel.filters.inherit(&wanted.id, &mut text);
        for (key, value) in &wanted.parameters {
            *text.parameter(key.as_str())? = *value;
        }
        installer.payer.iter().for_each(|payer| delivery.accounts.open(payer));
        put(channel, &wanted.id, installer, wanted.sink.clone(), types, Body::Text(Box::new(text)));
        Ok(())
    }

    /// Installs a filter in Rust on this host, or replaces it.
    pub fn install_closure(
        &mut self,
        id: FilterId,
        sink: Option<MemberId>,
        types: &[String],
        choose: Choose,
    ) -> Result<(), FilterError> {
        self.config.permit(Action::Install, &id.channel)?;
        self.install_choice(id, Installer::default(), sink, types, choose)
    }

    /// Installs a closure of the host itself, which counts, paces or balances events of these types (empty: all types).
    /// It is called after all other filters. No access list is checked, because the closure handles this host's own
    /// sending and receiving. With a user, an OUT-filter acts on the events of that user's sources only.
    pub fn install_own(
        &mut self,
        id: FilterId,
        user: Option<u32>,
        types: &[String],
        choose: Choose,
    ) -> Result<(), FilterError> {
        self.install_choice(id, Installer { user, is_hosts: true, ..Installer::default() }, None, types, choose)
    }

    fn install_choice(
        &mut self,
        id: FilterId,
        installer: Installer,
        sink: Option<MemberId>,
        types: &[String],
        choose: Choose,
    ) -> Result<(), FilterError> {
        let channel = self.channel_mut(&id.channel)?;
        let types = channel.spec.wanted(&id.channel, types)?;
        channel.filters.room_for(&id)?;
        put(channel, &id, installer, sink, types, Body::Closure(Closure::new(choose)));
        Ok(())
    }

    pub fn remove_filter(&mut self, id: &FilterId) -> Result<(), FilterError> {
        let channel = self.channel_mut(&id.channel).map_err(|_| FilterError::Unknown(id.clone()))?;
        channel.filters.remove(id)
    }

    /// The next event sees the new value.
    pub fn set_parameter(&mut self, id: &FilterId, parameter: &str, value: i64) -> Result<(), FilterError> {
        *self.parameter_mut(id, parameter)? = value;
        Ok(())
    }

    pub fn parameter(&mut self, id: &FilterId, parameter: &str) -> Result<i64, FilterError> {
        self.parameter_mut(id, parameter).map(|value| *value)
    }

    fn parameter_mut(&mut self, id: &FilterId, parameter: &str) -> Result<&mut i64, FilterError> {
        let channel = self.channel_mut(&id.channel).map_err(|_| FilterError::Unknown(id.clone()))?;
        channel.filters.text(id)?.parameter(parameter)
    }

    fn channel_mut(&mut self, id: &ChannelId) -> Result<&mut Channel, Error> {
        self.delivery.channels.find_mut(id).ok_or_else(|| Error::NotOpen(id.clone()))
    }

    /// From now on a parameter also takes the values of a word that another host changes without a call of this node: each
    /// event sees the last of them. It is as if the host sent commands, so the host must be present and needs the right
    /// to install. False: the host may not, there is no such parameter, or it follows another host. A word is no longer
    /// followed when the filter is replaced, or when the host is gone or loses its right; the value stays.
    pub fn follow_parameter(&mut self, from: &Name, id: &FilterId, parameter: &str, word: Box<dyn Word>) -> bool {
        if !self.may_be_followed(from, &id.channel) {
            return false;
        }
        let channel = self.channel_mut(&id.channel).ok();
        let text = channel.and_then(|channel| channel.filters.text(id).ok());
        text.is_some_and(|text| text.follow(parameter, from, word))
    }

    /// Whether parameters of filters on the channel may follow words of the host: it is present, so that
    /// [`crate::Notice::HostVanished`] reports its end, and has the right to install.
    pub fn may_be_followed(&self, host: &Name, channel: &ChannelId) -> bool {
        let may_install = self.config.refusal(host, Action::Install, channel).is_none();
        may_install && self.members.directory.host(host).is_some()
    }

    /// Parameters no longer follow words of this host; their values stay.
    pub fn end_following(&mut self, host: &Name) {
        self.unfollow(|_, _, changer| changer == host);
    }

    /// The parameters of a filter that follow words, each with the host that changes it.
    pub fn followed(&self, id: &FilterId) -> Vec<(String, Name)> {
        let filter = self.delivery.channels.find(&id.channel).and_then(|channel| channel.filters.get(id));
        match filter.map(|filter| &filter.body) {
            Some(Body::Text(text)) => text.followed().map(|(name, host)| (name.to_owned(), host.clone())).collect(),
            _ => Vec::new(),
        }
    }

    /// Binds a filter's parameter to events of a channel that is open here. Each event of the channel sets the
    /// parameter; the next event that the filter sees is treated by the new value. [`Node::leave_sink`] ends the
    /// binding.
    pub fn bind(&mut self, binding: &Binding, now: Instant) -> Result<SinkId, FilterError> {
        let Binding { filter, parameter, channel, event_type, field } = binding.clone();
        self.parameter(&filter, parameter.as_str())?;
        let spec = self.channel_mut(&channel)?.spec.clone();
        let number = spec.numbered(&channel, &event_type)?;
        let found = FieldAt::new(number, &spec.types[usize::from(number)].format, &field);
        let no_field = FilterError::NoField { event_type: event_type.clone(), field };
        let bound = Bound { field: found.ok_or(no_field)?, filter, parameter };
        let (application, formats, attributes) = (None, vec![], Attributes::default());
        let sink = SinkSpec { application, types: vec![event_type], formats, attributes, capacity: 0 };
        Ok(self.seat(&channel, sink, Mode::Bound(Arc::new(bound)), now)?)
    }

    pub fn filters(&self, channel: &ChannelId) -> Vec<(FilterId, FilterCounts)> {
        let Some(channel) = self.delivery.channels.find(channel) else { return vec![] };
        channel.filters.iter().map(|filter| (filter.id(&channel.id), filter.counts)).collect()
    }

    /// The time until which a filter is suspended; `None`: it is called. A suspension that ended since the last event
    /// may be returned with its end, which is in the past.
    pub fn filter_suspended_until(&self, id: &FilterId) -> Option<Instant> {
        let filter = self.delivery.channels.find(&id.channel)?.filters.get(id)?;
        self.delivery.accounts.suspended_until(filter.payer.as_ref()?)
    }

    /// Counters of the suspensions of all filters.
    pub fn suspension_counts(&self) -> SuspensionCounts {
        self.delivery.accounts.counts
    }

    /// The host that shipped a filter to this host; `None` if the filter is this host's own or does not exist.
    pub fn filter_author(&self, id: &FilterId) -> Option<&Name> {
        self.delivery.channels.find(&id.channel)?.filters.get(id)?.author.as_ref()
    }

    /// Another host may replace or remove only filters that it has installed itself.
    pub(crate) fn check_author(&self, id: &FilterId, from: &Name) -> Result<(), FilterError> {
        let there = self.delivery.channels.find(&id.channel).and_then(|channel| channel.filters.get(id));
        match there.map(|filter| filter.author.as_ref().unwrap_or(&self.config.host)) {
            Some(author) if author != from => Err(FilterError::Owned { name: id.name.clone(), by: author.clone() }),
            _ => Ok(()),
        }
    }
}

fn put(channel: &mut Channel, id: &FilterId, installer: Installer, sink: Option<MemberId>, types: u64, body: Body) {
    let FilterId { name, direction, .. } = id.clone();
    let (Installer { author, user, is_hosts, payer }, counts) = (installer, FilterCounts::default());
    channel.filters.put(Filter { name, direction, author, user, is_hosts, payer, sink, types, body, counts });
}
