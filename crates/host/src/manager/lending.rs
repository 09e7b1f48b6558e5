//! Keeps the accounts of the broker and of the manager consistent: what applications of this host are guaranteed is
//! not lent to other hosts, and what is lent is not guaranteed to applications here.
//!
//! ```text
//!   manager's capacity = total − guaranteed       broker's capacity = total − lent
//! ```
//! So neither has to ask the other, and a refusal of the broker is final for this host: it can be forwarded to
//! other hosts. Shares in millionths of one CPU.

use qfabric_types::monitor::AttributeId;
use qfabric_types::{Instant, Share};

use super::Manager;
use crate::{Host, Input};

/// The lending of one host's processor.
#[derive(Clone, Debug)]
pub struct Lending {
    attribute: AttributeId,
    all: Share,
    lent: Share,
}

impl Lending {
    /// `all` is the broker's capacity when nothing is lent.
    pub fn new(attribute: AttributeId, all: Share) -> Lending {
        Lending { attribute, all, lent: Share::ZERO }
    }

    /// Updates the capacity of each side with the promises of the other. Must be called when either may have
    /// promised or released something, and before either is asked for more.
    pub fn settle(&mut self, host: &mut Host, manager: &mut Manager, now: Instant) {
        let free = self.all.ppm().saturating_sub(host.guaranteed().ppm());
        manager.capacity(self.attribute, free.into(), now);
        let lent = Share::from_ppm(manager.lent(self.attribute).clamp(0, self.all.ppm().into()) as u32);
        if std::mem::replace(&mut self.lent, lent) != lent {
            host.handle(Input::Capacity(Share::from_ppm(self.all.ppm() - lent.ppm())), now);
        }
    }

    /// The share that is lent.
    pub fn lent(&self) -> Share {
        self.lent
    }
}
