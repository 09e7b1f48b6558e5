//! Logs why a host is missing. Zenoh retries its connections without a message, and drops frames that the access list
//! denies without a message, so an administrator would see only an empty list. Therefore this host checks periodically
//! which configured addresses are not connected, and how many connected hosts do not appear. Each problem is logged
//! once, with the next step, until it changes.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use zenoh::Wait;

use super::Zenoh;
use crate::config::{Address, Config, Security};
use crate::{Error, probe};

/// The interval of checks; a host may take twice this time to appear.
const LOOK: Duration = Duration::from_secs(2);
/// Checks between two attempts to find out why an address is not reached; each attempt is a connection.
const RARELY: u32 = 5;

/// Starts the thread that checks as long as the engine exists.
pub(super) fn start(config: &Config, engine: Weak<Zenoh>) -> Result<(), Error> {
    let look = Look { config: config.clone(), engine, said: BTreeMap::new(), hidden: (0, 0), turn: 0 };
    let thread = thread::Builder::new().name("qf-look".into()).spawn(move || look.run());
    thread.map(drop).map_err(Error::io("start a thread"))
}

struct Look {
    config: Config,
    engine: Weak<Zenoh>,
    /// The last message for each address.
    said: BTreeMap<Address, String>,
    /// Number of connected hosts that had not appeared: at the last check, and in the last message.
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

    /// Counts a host only if it was missing at two checks in a row, so that it had time to appear.
    fn look_for_hidden(&mut self, engine: &Zenoh, now: usize) {
        let before = std::mem::replace(&mut self.hidden.0, now);
        let said = self.hidden.1;
        let hidden = now.min(before);
        if hidden > said {
            (said..hidden).for_each(|_| engine.counters.count_refused());
            tracing::warn!(
                hidden,
                realm = %self.config.realm,
                "connected hosts do not appear: they are of another realm, or one of two access lists does not \
                 name the other; compare `realm`, and `hosts` in access.toml, on both"
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
