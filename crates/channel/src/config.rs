//! The configuration of a node.

use std::fmt;

use qfabric_ecode::{Engine, Interpreter, Limits, Program};
use qfabric_types::channel::{ChannelId, Name};

use crate::change::Change;
use crate::{Error, Incarnation, Notary, Spec};

/// What a host wants to do with a channel; access lists permit or deny it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    Create,
    /// Have a sink on the channel.
    Join,
    /// Have a source on the channel.
    Send,
    /// Install, change or remove a filter of the channel on this host.
    Install,
}

impl Action {
    /// The action's name in access lists.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Join => "join",
            Action::Send => "send",
            Action::Install => "install",
        }
    }
}

/// Decides which host may do what. Host names are those that the network has authenticated.
pub trait Policy: Send {
    /// `host` may be this host.
    fn allows(&self, host: &Name, action: Action, channel: &ChannelId) -> bool;

    /// The reason for a denial: the rule, and the place in which it is written.
    fn why_not(&self, _host: &Name, _action: Action, _channel: &ChannelId) -> String {
        "the policy of this host does not allow it".to_owned()
    }

    /// Whether the host is believed about frames of other hosts that it passes on in bundles. If `host` is this host:
    /// whether it passes them on.
    fn relays(&self, _host: &Name) -> bool {
        false
    }
}

/// Allows everything, except that only this host may install filters here.
#[derive(Clone, Debug)]
pub struct AllowAll {
    pub this: Name,
}

impl Policy for AllowAll {
    fn relays(&self, _host: &Name) -> bool {
        true
    }

    fn allows(&self, host: &Name, action: Action, _channel: &ChannelId) -> bool {
        action != Action::Install || *host == self.this
    }

    fn why_not(&self, _host: &Name, _action: Action, _channel: &ChannelId) -> String {
        format!("{} has no access list, so only that host itself may install filters there", self.this)
    }
}

/// Makes the engine that runs a filter; the error says why no engine can run it.
pub type Engines = Box<dyn Fn(&Program, Limits) -> Result<Box<dyn Engine + Send>, String> + Send>;

/// The reference engine: for tests, and for hosts without a compiler.
pub fn interpreter() -> Engines {
    Box::new(|program, limits| Ok(Box::new(Interpreter::new(program, limits))))
}

pub struct Config {
    pub host: Name,
    pub incarnation: Incarnation,
    /// Offset in nanoseconds from an `Instant` to the time since 1970; orders creations of one name on several hosts.
    pub unix_offset_ns: u64,
    /// The specification of all Q-channels: the managers' formats.
    pub quality: Spec,
    /// Makes the engines of filters.
    pub engines: Engines,
    /// Largest number of instructions that one call of a filter may execute, at worst. A filter that may take more is
    /// refused; loops whose iteration count the text does not state may take a quarter.
    pub filter_instructions: u32,
    /// Largest number of instructions per second that the filters of one user, or of one other host, may execute. Above
    /// it they are suspended: see [`crate::Notice::FiltersSuspended`].
    pub filter_rate: u64,
    pub policy: Box<dyn Policy>,
    /// Signs and verifies creations. With `None`, creations of hosts that are gone are believed without a proof.
    pub notary: Option<Box<dyn Notary>>,
    /// The host through which events of Q-channels go to other hosts, in one frame with those of its other users. It has
    /// to be a host that [`Policy::relays`]. While it is absent, events go directly.
    pub combiner: Option<Name>,
    /// Whether this host sends and reads several frames in one. Hosts before this version do not.
    pub bundles: bool,
    /// Whether this host takes private messages of other hosts ([`crate::Node::tell`]).
    pub hears_private: bool,
}

impl Config {
    /// Interpreter, [`AllowAll`], no notary, Q-channels without event types.
    pub fn new(host: Name, incarnation: Incarnation) -> Config {
        let policy = Box::new(AllowAll { this: host.clone() });
        let quality = Spec::default();
        Config {
            host,
            incarnation,
            unix_offset_ns: 0,
            quality,
            engines: interpreter(),
            filter_instructions: Limits::default().fuel,
            filter_rate: crate::Limits::FILTER_RATE,
            policy,
            notary: None,
            combiner: None,
            bundles: true,
            hears_private: false,
        }
    }

    /// The combiner, if it is another host that this one believes.
    pub(crate) fn believed_combiner(&self) -> Option<&Name> {
        self.combiner.as_ref().filter(|combiner| **combiner != self.host && self.policy.relays(combiner))
    }

    /// Why the host may not do the action; `None`: it may.
    pub(crate) fn refusal(&self, host: &Name, action: Action, channel: &ChannelId) -> Option<String> {
        let allowed = self.policy.allows(host, action, channel);
        (!allowed).then(|| self.policy.why_not(host, action, channel))
    }

    /// Like [`Config::refusal`], for this host.
    pub(crate) fn permit(&self, action: Action, channel: &ChannelId) -> Result<(), Error> {
        let Some(why) = self.refusal(&self.host, action, channel) else { return Ok(()) };
        Err(Error::Forbidden { host: self.host.clone(), action, channel: channel.clone(), why })
    }

    /// The action that a change of the host's record needs and the policy denies. Changes of this host's own record
    /// were permitted before.
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
