//! Registrations of this host's applications in groups.

use qfabric_types::Instant;

use super::Node;
use crate::change::Change;
use crate::{Action, Error, Limits, Registration, RegistrationId};

impl Node {
    /// An application joins a group; this host opens the group's Q-channel.
    pub fn register(&mut self, registration: Registration, now: Instant) -> Result<RegistrationId, Error> {
        let channel = registration.validate()?;
        self.config.permit(Action::Join, &channel)?;
        self.room_for_two()?;
        let (what, limit) = ("registrations on one host", Limits::REGISTRATIONS);
        let asked = 1 + self.members.own().map_or(0, |record| record.registrations.len());
        if asked > limit {
            return Err(Error::TooMany { what, asked, limit, remedy: "unregister applications that have ended" });
        }
        let id = RegistrationId(self.next_number());
        self.hold_any(&channel, now);
        self.change(Change::Register(id, registration));
        self.settle(now);
        Ok(id)
    }

    pub fn unregister(&mut self, id: RegistrationId, now: Instant) -> Result<(), Error> {
        let registration = self.members.own().and_then(|record| record.registrations.get(&id));
        let channel = registration.and_then(Registration::channel);
        let channel = channel.ok_or(Error::Gone { what: "registration", number: id.0 })?;
        self.change(Change::Unregister(id));
        self.release(&channel, now);
        self.settle(now);
        Ok(())
    }
}
