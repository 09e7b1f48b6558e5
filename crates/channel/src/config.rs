//! What a node is told at its start.

use std::fmt;

use qfabric_ecode::{Engine, Interpreter, Limits, Program};
use qfabric_types::channel::{ChannelId, Name};

use crate::change::Change;
use crate::{Error, Incarnation, Notary, Spec};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Create a channel.
    Create,
    /// Have a sink on it.
    Join,
    /// Have a source on it.
    Send,
    /// Install, change or remove a filter of it here.
    Install,
}

impl Action {
    /// Its name in access lists.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Join => "join",
            Action::Send => "send",
            Action::Install => "install",
        }
    }
}

/// Who may do what. Host names are those that the network has authenticated.
pub trait Policy: Send {
    /// Whether the host (this one included) may do it.
    fn allows(&self, host: &Name, action: Action, channel: &ChannelId) -> bool;

    /// Why it may not, where it may not: the rule, and where it is written.
    fn why_not(&self, _host: &Name, _action: Action, _channel: &ChannelId) -> String {
        "the policy of this host does not allow it".to_owned()
    }
}

/// Everybody may do everything, but only this host may install filters here.
#[derive(Clone, Debug)]
pub struct AllowAll {
    /// This host.
    pub this: Name,
}

impl Policy for AllowAll {
    fn allows(&self, host: &Name, action: Action, _channel: &ChannelId) -> bool {
        action != Action::Install || *host == self.this
    }

    fn why_not(&self, _host: &Name, _action: Action, _channel: &ChannelId) -> String {
        format!("{} has no access list, so that only itself may install filters there", self.this)
    }
}

/// Makes what runs a filter; the error says why there is none.
pub type Engines = Box<dyn Fn(&Program, Limits) -> Result<Box<dyn Engine + Send>, String> + Send>;

/// The reference engine: for tests, and where there is no compiler.
pub fn interpreter() -> Engines {
    Box::new(|program, limits| Ok(Box::new(Interpreter::new(program, limits))))
}

/// What a node is told at its start.
pub struct Config {
    /// This host's name.
    pub host: Name,
    /// Which start of it this is.
    pub incarnation: Incarnation,
    /// What to add to an `Instant` to get nanoseconds since 1970; orders creations of one name on several hosts.
    pub unix_offset_ns: u64,
    /// What all Q-channels are: the managers' formats.
    pub quality: Spec,
    /// What runs filters.
    pub engines: Engines,
    /// Who may do what.
    pub policy: Box<dyn Policy>,
    /// Signs and verifies creations. None: creations of hosts that are gone are believed without a proof.
    pub notary: Option<Box<dyn Notary>>,
}

impl Config {
    /// Interpreter, everybody allowed, Q-channels of no types.
    pub fn new(host: Name, incarnation: Incarnation) -> Config {
        let policy = Box::new(AllowAll { this: host.clone() });
        let quality = Spec::default();
        Config { host, incarnation, unix_offset_ns: 0, quality, engines: interpreter(), policy, notary: None }
    }

    /// Why a host may not do it; none: it may.
    pub(crate) fn refusal(&self, host: &Name, action: Action, channel: &ChannelId) -> Option<String> {
        let allowed = self.policy.allows(host, action, channel);
        (!allowed).then(|| self.policy.why_not(host, action, channel))
    }

    /// Whether this host may do it.
    pub(crate) fn permit(&self, action: Action, channel: &ChannelId) -> Result<(), Error> {
        let Some(why) = self.refusal(&self.host, action, channel) else { return Ok(()) };
        Err(Error::Forbidden { host: self.host.clone(), action, channel: channel.clone(), why })
    }

    /// What a host must not do, and does by this change of its record. This host's own changes were permitted before.
    pub(crate) fn denied(&self, host: &Name, change: &Change) -> Option<Action> {
        let (who, action, channel) = match change {
            _ if *host == self.host => return None,
            Change::Hold(channel, origin, ..) => (&origin.creator, Action::Create, channel),
            Change::Sink(channel, ..) => (host, Action::Join, channel),
            Change::Source(channel, ..) => (host, Action::Send, channel),
            _ => return None,
        };
        (!self.policy.allows(who, action, channel)).then_some(action)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("host", &self.host)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}
