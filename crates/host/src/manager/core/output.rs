//! What a manager wants done, in the order in which it is to be done.

use std::collections::VecDeque;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent};
use qfabric_types::{AppId, Instant};

use super::super::{Filter, Outcome, Recipient};

/// One thing that a manager wants done; see [`super::Manager::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Publish a control event.
    Tell(ChannelId, Recipient, QualityEvent),
    /// Change a filter's parameter.
    Parameter(Filter, String, i64),
    /// Something on this host, beside channels.
    Effect(Effect),
}

/// What a manager wants done on its own host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An application gets so much of a resource.
    Apply(AppId, AttributeId, i64),
    /// What became of a request that the host itself made ([`super::Manager::ask`]) or a controller.
    Answered(u64, Outcome),
    /// The broker ([`super::Manager::broker`]) is to keep so much for a request of another host, or the same for longer;
    /// [`super::Manager::kept`] says what it did. It lets go by itself when the time is over.
    Keep {
        /// Whose request.
        asker: Name,
        /// Its number there.
        request: u64,
        /// How much.
        amount: i64,
        /// Until then.
        until: Instant,
    },
    /// The broker need not keep it any more.
    LetGo {
        /// Whose request.
        asker: Name,
        /// Its number there.
        request: u64,
    },
    /// What that host kept for a request of this one has an application of that host, by now.
    Taken {
        /// Who kept it.
        giver: Name,
        /// The request's number here.
        request: u64,
    },
}

/// The outputs that nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Outputs(VecDeque<Output>);

impl Outputs {
    pub fn poll(&mut self) -> Option<Output> {
        self.0.pop_front()
    }

    pub fn tell(&mut self, channel: &ChannelId, to: Recipient, event: QualityEvent) {
        self.0.push_back(Output::Tell(channel.clone(), to, event));
    }

    pub fn parameter(&mut self, filter: Filter, parameter: String, value: i64) {
        self.0.push_back(Output::Parameter(filter, parameter, value));
    }

    pub fn effect(&mut self, effect: Effect) {
        self.0.push_back(Output::Effect(effect));
    }
}
