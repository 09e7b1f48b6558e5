//! Applications of this host in groups.

use qfabric_types::Instant;

use super::join::gone;
use super::{Ctx, Node};
use crate::wire::Change;
use crate::{Action, Error, Limits, Port, Registration, RegistrationId};

impl Node {
    /// An application joins a group, and this host the group's Q-channel.
    pub fn register(
        &mut self,
        registration: Registration,
        now: Instant,
        port: &mut dyn Port,
    ) -> Result<RegistrationId, Error> {
        let channel = registration.validate()?;
        self.permit(Action::Join, &channel)?;
        self.room_for_two()?;
        let (what, limit) = ("registrations on one host", Limits::REGISTRATIONS);
        let asked = 1 + self.directory.host(&self.host).map_or(0, |record| record.registrations.len());
        if asked > limit {
            return Err(Error::TooMany { what, asked, limit, remedy: "end those of programs that are gone" });
        }
        let mut ctx = Ctx { now, port };
        let id = RegistrationId(self.next_number());
        self.hold_any(&channel, &mut ctx);
        self.change(Change::Register(id, registration), &mut ctx);
        self.settle(&mut ctx);
        Ok(id)
    }

    /// It leaves.
    pub fn unregister(&mut self, id: RegistrationId, now: Instant, port: &mut dyn Port) -> Result<(), Error> {
        let record = self.directory.host(&self.host);
        let registration = record.and_then(|record| record.registrations.get(&id));
        let channel = registration.and_then(Registration::channel).ok_or(gone("registration", id.0))?;
        let mut ctx = Ctx { now, port };
        self.change(Change::Unregister(id), &mut ctx);
        if let Some(place) = self.place(&channel) {
            self.release(place, &mut ctx);
        }
        self.settle(&mut ctx);
        Ok(())
    }
}
