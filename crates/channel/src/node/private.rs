//! Private messages: bytes from program to program, for what is not for the members of any channel.

use qfabric_types::channel::Name;

use super::Node;
use crate::output::Destination;
use crate::wire::{Kind, Private};
use crate::{Lane, Limits};

impl Node {
    /// Sends bytes to the program of another host. False: the host is not present or takes none, or there are more than
    /// [`Limits::PRIVATE`]. The bytes are lost if the host is gone before they arrive.
    pub fn tell(&mut self, host: &Name, bytes: &[u8]) -> bool {
        let takes = self.exit.confidants.contains(host) && bytes.len() <= Limits::PRIVATE;
        let Some(to) = self.members.incarnation(host).filter(|_| takes) else { return false };
        let destination = Destination::Host(host.clone().into());
        self.exit.send(destination, Lane::Control, Kind::Private, |writer| Private { to, bytes }.write(writer));
        true
    }

    pub(crate) fn heard(&mut self, from: &Name, private: Private<'_>) {
        if self.config.hears_private && private.to == self.exit.incarnation() {
            self.exit.out.private(from, private.bytes);
        }
    }
}
