//! Creating, opening and closing channels on this host.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Plane};

use super::Node;
use crate::change::Change;
use crate::delivery::Channel;
use crate::{Action, Error, Limits, Notice, Origin, Spec, notary};

impl Node {
    /// Creates a channel with its Q-channel, and holds both until [`Node::close`].
    pub fn create(&mut self, channel: &ChannelId, spec: Spec, now: Instant) -> Result<(), Error> {
        if channel.plane == Plane::Quality {
            return Err(Error::Hidden);
        }
        // A channel that is open here may have a creation that is no longer believed, after a change of certificates.
        let there = self.members.standing(channel, &self.config).or_else(|| self.members.held(channel));
        if let Some(there) = there {
            return Err(Error::Exists { channel: channel.clone(), origin: there.origin.clone() });
        }
        self.config.permit(Action::Create, channel)?;
        spec.validate()?;
        self.room_for_two()?;
        self.hold_quality(channel, now);
        self.hold_new(channel, spec, now);
        self.settle(now);
        Ok(())
    }

    /// Opens a channel that some host holds, with its Q-channel. Each opening needs its own [`Node::close`].
    pub fn open(&mut self, channel: &ChannelId, now: Instant) -> Result<(), Error> {
        if channel.plane == Plane::Quality {
            return Err(Error::Hidden);
        }
        if !self.is_open(channel) && self.members.standing(channel, &self.config).is_none() {
            return Err(Error::Unknown(channel.clone()));
        }
        if !self.is_open(channel) {
            self.room_for_two()?;
            self.hold_quality(channel, now);
        }
        self.hold_known(channel);
        self.settle(now);
        Ok(())
    }

    /// Ends one creation or opening. The last one removes the host's members and releases the Q-channel.
    pub fn close(&mut self, channel: &ChannelId, now: Instant) -> Result<(), Error> {
        if channel.plane == Plane::Quality || !self.is_open(channel) {
            return Err(Error::NotOpen(channel.clone()));
        }
        self.release(channel, now);
        self.settle(now);
        Ok(())
    }

    pub(crate) fn room_for_two(&self) -> Result<(), Error> {
        let (what, limit) = ("open channels (each with its Q-channel)", Limits::CHANNELS);
        let asked = self.delivery.channels.len() + 2;
        if asked > limit {
            return Err(Error::TooMany { what, asked, limit, remedy: "close unused channels" });
        }
        Ok(())
    }

    fn hold_quality(&mut self, data: &ChannelId, now: Instant) {
        let quality = ChannelId { plane: Plane::Quality, name: data.name.clone() };
        self.hold_any(&quality, now);
    }

    /// Opens a Q-channel, and creates it if no host holds it.
    pub(crate) fn hold_any(&mut self, channel: &ChannelId, now: Instant) {
        match self.members.standing(channel, &self.config) {
            None if !self.is_open(channel) => self.hold_new(channel, self.config.quality.clone(), now),
            _ => self.hold_known(channel),
        }
    }

    fn hold_new(&mut self, channel: &ChannelId, spec: Spec, now: Instant) {
        let created_unix_ns = now.get().wrapping_add(self.config.unix_offset_ns);
        let origin = Origin { created_unix_ns, creator: self.config.host.clone() };
        let proof = notary::prove(self.config.notary.as_deref(), channel, &origin, &spec);
        self.hold(Change::Hold(channel.clone(), origin, spec, proof));
    }

    fn hold_known(&mut self, channel: &ChannelId) {
        if let Some(channel) = self.delivery.channels.find_mut(channel) {
            channel.opens += 1;
            return;
        }
        if let Some(there) = self.members.standing(channel, &self.config) {
            let hold = there.hold(channel);
            self.hold(hold);
        }
    }

    fn hold(&mut self, hold: Change) {
        let Change::Hold(id, _, spec, _) = &hold else { return };
        let (id, spec) = (&id.clone(), spec.clone());
        let shared = self.members.directory.shared(id, spec);
        let mut channel = Channel::new(id.clone(), shared);
        channel.opens = 1;
        self.delivery.channels.open(channel);
        self.change(hold);
        self.share_spec(id);
        self.exit.notice(Notice::Opened(id.clone()));
    }

    /// Lets the channel and the directory share one specification, so that the roster compares specifications by
    /// address.
    fn share_spec(&mut self, id: &ChannelId) {
        let channel = self.delivery.channels.find_mut(id);
        if let (Some(held), Some(channel)) = (self.members.held(id), channel) {
            channel.spec = held.spec.clone();
        }
    }

    /// Counts one opening less; the last one ends the channel.
    pub(crate) fn release(&mut self, id: &ChannelId, now: Instant) {
        let Some(channel) = self.delivery.channels.find_mut(id) else { return };
        channel.opens = channel.opens.saturating_sub(1);
        if channel.opens == 0 {
            self.end(id, now);
        }
    }

    /// Closes a channel and removes all members that this host has on it.
    pub(crate) fn end(&mut self, id: &ChannelId, now: Instant) {
        let place = self.delivery.channels.place(id);
        let Some(channel) = place.and_then(|place| self.delivery.end(place, &mut self.exit)) else { return };
        if !channel.sinks.is_empty() {
            self.exit.out.ignore(id);
        }
        self.change(Change::Release(id.clone()));
        self.exit.notice(Notice::Closed(id.clone()));
        if id.plane == Plane::Data {
            self.release(&ChannelId { plane: Plane::Quality, name: id.name.clone() }, now);
        }
    }

    /// Resolves a name conflict: the earlier creation wins. If this host's creation lost and the specifications are
    /// equal, this host becomes a holder of the winner; otherwise it leaves the channel.
    pub(crate) fn stand(&mut self, id: &ChannelId, now: Instant) {
        let (Some(mine), Some(stands)) = (self.members.held(id), self.members.standing(id, &self.config)) else {
            return;
        };
        if mine.origin == stands.origin || !self.is_open(id) {
            return;
        }
        if mine.spec == stands.spec {
            let hold = stands.hold(id);
            return self.change(hold);
        }
        let origin = stands.origin.clone();
        self.end(id, now);
        self.exit.notice(Notice::DuplicateName { channel: id.clone(), stands: origin });
    }
}
