//! Where the broker's books and the manager's meet: what applications of this host are guaranteed is not lent to other
//! hosts, and what is lent is guaranteed to nobody here.
//!
//! ```text
//!   manager's capacity = all there is − guaranteed       broker's capacity = all there is − lent
//! ```
//! So neither has to ask the other, and a refusal of the broker is the whole truth about this host: it can be forwarded
//! as it is. Shares in millionths of one CPU.

use qfabric_types::monitor::AttributeId;
use qfabric_types::{Instant, Share};

use super::Manager;
use crate::{Host, Input};

/// The processor of one host, as it is lent.
#[derive(Clone, Debug)]
pub struct Lending {
    attribute: AttributeId,
    all: Share,
    lent: Share,
}

impl Lending {
    /// `all` is what the broker of the host may hand out when nothing is lent.
    pub fn new(attribute: AttributeId, all: Share) -> Lending {
        Lending { attribute, all, lent: Share::ZERO }
    }

    /// Tells each side what the other has done. To be called when either may have promised something or taken it back, and
    /// before either is asked for more.
    pub fn settle(&mut self, host: &mut Host, manager: &mut Manager, now: Instant) {
        let free = self.all.ppm().saturating_sub(host.guaranteed().ppm());
        manager.capacity(self.attribute, free.into(), now);
        let lent = Share::from_ppm(manager.lent(self.attribute).clamp(0, self.all.ppm().into()) as u32);
        if std::mem::replace(&mut self.lent, lent) != lent {
            host.handle(Input::Capacity(Share::from_ppm(self.all.ppm() - lent.ppm())), now);
        }
    }

    /// What is lent.
    pub fn lent(&self) -> Share {
        self.lent
    }
}
