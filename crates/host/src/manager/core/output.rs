//! The outputs of a manager, in order.

use std::collections::VecDeque;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent};
use qfabric_types::{AppId, BitRate, Bytes, Instant};

use super::super::{Filter, Outcome, Recipient};

/// One output; see [`super::Manager::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Publish a control event.
    Tell(ChannelId, Recipient, QualityEvent),
    /// Change a filter's parameter.
    Parameter(Filter, String, i64),
    /// An effect on this host, beside channels.
    Effect(Effect),
}

/// An effect that the manager requests on its own host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give an application an amount of a resource.
    Apply(AppId, AttributeId, i64),
    /// The outcome of a request of a controller, or of the host itself ([`super::Manager::ask`]).
    Answered(u64, Outcome),
    /// The broker ([`super::Manager::broker`]) must keep this amount, memory and rate for a request of another host,
    /// or extend the time; [`super::Manager::kept`] reports the result. The broker ends the loan when the time is over.
    Keep {
        /// The host that asked.
        asker: Name,
        /// The number of the request on that host.
        request: u64,
        amount: i64,
        /// Zero: none was asked for.
        memory: Bytes,
        /// Out of a link of this host. Zero: none was asked for.
        rate: BitRate,
        until: Instant,
    },
    /// The broker may end the loan.
    LetGo {
        /// The host that asked.
        asker: Name,
        /// The number of the request on that host.
        request: u64,
    },
    /// The lender reports that the loan for a request of this host was claimed.
    Taken {
        /// The lender.
        giver: Name,
        /// The number of the request on this host.
        request: u64,
    },
}

/// The outputs that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Outputs(VecDeque<Output>);

impl Outputs {
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.0.pop_front()
    }

    pub(super) fn tell(&mut self, channel: &ChannelId, to: Recipient, event: QualityEvent) {
        self.0.push_back(Output::Tell(channel.clone(), to, event));
    }

    pub(super) fn parameter(&mut self, filter: Filter, parameter: String, value: i64) {
        self.0.push_back(Output::Parameter(filter, parameter, value));
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.0.push_back(Output::Effect(effect));
    }
}
