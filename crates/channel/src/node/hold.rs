//! Which channels this host holds.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name, Plane};

use super::{Channel, Node};
use crate::wire::Change;
use crate::{Action, Error, Held, Limits, Notice, Origin, Spec};

impl Node {
    /// Creates a channel, with its Q-channel, and holds both until [`Node::close`].
    pub fn create(&mut self, channel: &ChannelId, spec: Spec, now: Instant) -> Result<(), Error> {
        if channel.plane == Plane::Quality {
            return Err(Error::Hidden);
        }
        if let Some(there) = self.directory.standing(channel) {
            return Err(Error::Exists { channel: channel.clone(), origin: there.origin.clone() });
        }
        self.permit(Action::Create, channel)?;
        spec.validate()?;
        self.room_for_two()?;
        self.hold_quality(channel, now);
        self.hold_new(channel, spec, now);
        self.settle(now);
        Ok(())
    }

    /// Holds a channel that some host holds, with its Q-channel. Each opening wants its [`Node::close`].
    pub fn open(&mut self, channel: &ChannelId, now: Instant) -> Result<(), Error> {
        if channel.plane == Plane::Quality {
            return Err(Error::Hidden);
        }
        if self.directory.standing(channel).is_none() {
            return Err(Error::Unknown(channel.clone()));
        }
        self.room_for_two()?;
        if self.place(channel).is_none() {
            self.hold_quality(channel, now);
        }
        self.hold_known(channel);
        self.settle(now);
        Ok(())
    }

    /// Takes one creation or opening back; the last takes the host's members with it, and lets the Q-channel go.
    pub fn close(&mut self, channel: &ChannelId, now: Instant) -> Result<(), Error> {
        let Some(place) = self.place(channel).filter(|_| channel.plane == Plane::Data) else {
            return Err(Error::NotOpen(channel.clone()));
        };
        self.release(place, now);
        self.settle(now);
        Ok(())
    }

    pub(crate) fn permit(&self, action: Action, channel: &ChannelId) -> Result<(), Error> {
        if self.config.policy.allows(&self.host, action, channel) {
            return Ok(());
        }
        let why = self.config.policy.why_not(&self.host, action, channel);
        Err(Error::Forbidden { host: (*self.host).clone(), action, channel: channel.clone(), why })
    }

    pub(crate) fn room_for_two(&self) -> Result<(), Error> {
        let (what, asked, limit) = ("open channels (each with its Q-channel)", self.places.len() + 2, Limits::CHANNELS);
        if asked > limit {
            return Err(Error::TooMany { what, asked, limit, remedy: "close channels that are not used" });
        }
        Ok(())
    }

    fn hold_quality(&mut self, data: &ChannelId, now: Instant) {
        let quality = ChannelId { plane: Plane::Quality, name: data.name.clone() };
        self.hold_any(&quality, now);
    }

    /// Holds a Q-channel, whether there is one or not.
    pub(crate) fn hold_any(&mut self, channel: &ChannelId, now: Instant) {
        match self.directory.standing(channel) {
            Some(_) => self.hold_known(channel),
            None => self.hold_new(channel, self.config.quality.clone(), now),
        }
    }

    fn hold_new(&mut self, channel: &ChannelId, spec: Spec, now: Instant) {
        let origin = Origin { created_unix_ns: self.unix_ns(now), creator: (*self.host).clone() };
        self.hold(channel, origin, spec);
    }

    fn hold_known(&mut self, channel: &ChannelId) {
        if let Some(place) = self.place(channel) {
            let channel = self.at_mut(place).expect("places are of open channels");
            channel.opens += 1;
            return;
        }
        if let Some(there) = self.standing(channel) {
            self.hold(channel, there.origin.clone(), (*there.spec).clone());
        }
    }

    fn hold(&mut self, id: &ChannelId, origin: Origin, spec: Spec) {
        let shared = self.directory.shared(id, spec.clone());
        let mut channel = Channel::new(id.clone(), shared);
        channel.opens = 1;
        let free = self.channels.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() - 1
        });
        self.channels[place] = Some(channel);
        self.places.insert(id.clone(), place as u32);
        self.change(Change::Hold(id.clone(), origin, spec));
        self.share_spec(id);
        self.out.notice(Notice::Opened(id.clone()));
    }

    /// One specification for the channel and the directory: whose members are in the roster is then seen by the address.
    fn share_spec(&mut self, id: &ChannelId) {
        let held = self.directory.host(&self.host).and_then(|record| record.channels.get(id));
        let Some((spec, place)) = held.map(|held| held.spec.clone()).zip(self.place(id)) else { return };
        if let Some(channel) = self.at_mut(place) {
            channel.spec = spec;
        }
    }

    /// One opening less.
    pub(crate) fn release(&mut self, place: u32, now: Instant) {
        let Some(channel) = self.at_mut(place) else { return };
        channel.opens = channel.opens.saturating_sub(1);
        if channel.opens == 0 {
            self.end(place, now);
        }
    }

    /// Lets a channel go with all that this host has on it.
    pub(crate) fn end(&mut self, place: u32, now: Instant) {
        self.close_books(place, |_| true);
        let Some(channel) = self.channels.get_mut(place as usize).and_then(Option::take) else { return };
        let id = (*channel.id).clone();
        self.places.remove(&id);
        for number in channel.sources.keys() {
            self.sources.remove(number);
        }
        for number in channel.sinks.keys() {
            self.sinks.remove(number);
            self.bound.remove(number);
        }
        for peer in self.peers.values_mut() {
            peer.inbound.retain(|_, inbound| inbound.slot != place);
        }
        if !channel.sinks.is_empty() {
            self.out.ignore(&id);
        }
        self.change(Change::Release(id.clone()));
        self.out.notice(Notice::Closed(id.clone()));
        if id.plane == Plane::Data {
            let quality = self.place(&ChannelId { plane: Plane::Quality, name: id.name });
            quality.into_iter().for_each(|quality| self.release(quality, now));
        }
    }

    /// How the creation of a channel that stands is held: the earliest of those that a host which may create holds. That
    /// others name a creator proves nothing; theirs counts where there is no such host, its creator having gone.
    fn standing<'a>(&'a self, id: &'a ChannelId) -> Option<&'a Held> {
        let may_create = |host: &Name| self.config.policy.allows(host, Action::Create, id);
        let believed = self.directory.holders(id).filter(|(host, _)| may_create(host)).map(|(_, held)| held);
        believed.min_by_key(|held| &held.origin).or_else(|| self.directory.standing(id))
    }

    /// Of several creations of one name one stands: another becomes an opening of it where the specifications agree,
    /// else it ends here.
    pub(crate) fn stand(&mut self, id: &ChannelId, now: Instant) {
        let Some(place) = self.place(id) else { return };
        let mine = self.directory.host(&self.host).and_then(|record| record.channels.get(id));
        let (Some(mine), Some(stands)) = (mine, self.standing(id)) else { return };
        if mine.origin == stands.origin {
            return;
        }
        let (origin, spec) = (stands.origin.clone(), stands.spec.clone());
        if mine.spec == spec {
            return self.change(Change::Hold(id.clone(), origin, (*spec).clone()));
        }
        self.end(place, now);
        self.out.notice(Notice::DuplicateName { channel: id.clone(), stands: origin });
    }
}
