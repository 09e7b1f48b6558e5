//! Why a host is not there. Zenoh calls again and again and says nothing, and what the access list denies is dropped
//! in silence: somebody who sets hosts up sees an empty list. So this host looks after a while: whom it calls and does
//! not reach, and who is connected but does not show itself. Each is said once, with what to do, until it changes.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use zenoh::Wait;

use super::Zenoh;
use crate::config::{Address, Config, Security};
use crate::{Error, probe};

/// Between two looks; twice that is what a host may take to show itself.
const LOOK: Duration = Duration::from_secs(2);
/// Looks between two attempts to find out why an address is not reached, each of them a connection.
const RARELY: u32 = 5;

/// Looks, in a thread of its own, as long as there is an engine.
pub(super) fn start(config: &Config, engine: Weak<Zenoh>) -> Result<(), Error> {
    let look = Look { config: config.clone(), engine, said: BTreeMap::new(), hidden: (0, 0), turn: 0 };
    let thread = thread::Builder::new().name("qf-look".into()).spawn(move || look.run());
    thread.map(drop).map_err(Error::io("start a thread"))
}

struct Look {
    config: Config,
    engine: Weak<Zenoh>,
    /// What was said of an address.
    said: BTreeMap<Address, String>,
    /// Hosts that did not show themselves, at the last look and when it was last said.
    hidden: (usize, usize),
    turn: u32,
}

impl Look {
    fn run(mut self) {
        loop {
            thread::sleep(LOOK);
            let Some(engine) = self.engine.upgrade() else { return };
            let info = engine.session.info();
            let connected = info.peers_zid().wait().count() + info.routers_zid().wait().count();
            let present = engine.presence.lock().count();
            self.look_for_hidden(&engine, connected.saturating_sub(present));
            drop(engine);
            self.look_for_unreached(connected);
        }
    }

    /// Both at this look and the one before: it had time to show itself.
    fn look_for_hidden(&mut self, engine: &Zenoh, now: usize) {
        let before = std::mem::replace(&mut self.hidden.0, now);
        let said = self.hidden.1;
        let hidden = now.min(before);
        if hidden > said {
            (said..hidden).for_each(|_| engine.counters.count_refused());
            tracing::warn!(
                hidden,
                realm = %self.config.realm,
                "connected hosts do not show themselves: they are of another realm, or one of two access lists does \
                 not name the other; compare `realm`, and `hosts` in access.toml, on both"
            );
        }
        self.hidden.1 = if now == 0 { 0 } else { said.max(hidden) };
    }

    fn look_for_unreached(&mut self, connected: usize) {
        let calls = self.config.calls();
        if connected >= calls.len() {
            return self.said.clear();
        }
        self.turn += 1;
        if self.turn % RARELY != 1 {
            return;
        }
        for address in calls {
            let tls = match &self.config.security {
                Security::Insecure => None,
                Security::Tls(tls) => Some(&**tls),
            };
            match probe::probe(&address, tls) {
                Ok(()) => _ = self.said.remove(&address),
                Err(why) if self.said.get(&address) != Some(&why) => {
                    tracing::warn!(%address, "not connected: {why}");
                    self.said.insert(address, why);
                }
                Err(_) => {}
            }
        }
    }
}
