//! The access list as the policy of a node.

use qfabric_channel::{Action, Policy};
use qfabric_realm::{Access, Right};
use qfabric_types::channel::{ChannelId, Name};

/// Allows what the access list allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRights(pub Access);

impl Policy for ChannelRights {
    fn allows(&self, host: &Name, action: Action, channel: &ChannelId) -> bool {
        self.0.gives(host, right(action), channel)
    }

    /// The routers of the list: Zenoh believes them about frames of other hosts, too.
    fn relays(&self, host: &Name) -> bool {
        self.0.routers.contains(host)
    }

    fn why_not(&self, host: &Name, action: Action, channel: &ChannelId) -> String {
        self.0.why_not(host, right(action), &channel.name)
    }
}

fn right(action: Action) -> Right {
    match action {
        Action::Create => Right::Create,
        Action::Join => Right::Join,
        Action::Send => Right::Send,
        Action::Install => Right::Install,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_and_the_right_to_it_have_one_name() {
        for action in [Action::Create, Action::Join, Action::Send, Action::Install] {
            assert_eq!(action.name(), right(action).name());
        }
    }
}
