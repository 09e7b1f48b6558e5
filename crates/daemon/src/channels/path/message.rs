//! What two hosts tell each other about the kernel path: JSON in private messages.

use std::fmt;
use std::net::SocketAddr;

use qfabric_channel::{FilterId, Key, Limits};
use qfabric_types::kernel_path::PathKey;
use serde::{Deserialize, Serialize};

use crate::auth::random_bytes;

/// A parameter of a filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameter {
    pub filter: FilterId,
    pub key: Key,
}

impl Parameter {
    pub(super) fn new(filter: &FilterId, key: &Key) -> Parameter {
        Parameter { filter: filter.clone(), key: key.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Message {
    /// The sender wants to change the parameter. It has the key of this epoch; 0: none.
    Bind { epoch: u32, parameter: Parameter },
    /// A key for the receiver of this message: changes go to this address, under this number.
    Key { address: SocketAddr, peer: u32, epoch: u32, key: Secret },
    /// The sender uses the key of this epoch from now on.
    Has { epoch: u32 },
    /// Changes of the parameter are those of this word.
    Bound { parameter: Parameter, channel: u16, word: u16 },
    /// The filter does not follow the word any more.
    Ended { word: u16 },
    /// The last change of each of these words that filters follow.
    Applied { words: Vec<Applied> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Applied {
    pub word: u16,
    pub epoch: u32,
    pub sequence: u64,
}

/// A key; it is not printed for debugging.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Secret([u8; 16]);

impl Secret {
    /// A random key.
    pub(super) fn random() -> std::io::Result<Secret> {
        random_bytes().map(Secret)
    }

    pub(super) fn key(&self) -> PathKey {
        PathKey::new(self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers")
    }

    /// `None`: the bytes are not a message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        serde_json::from_slice(bytes).ok().filter(|_| bytes.len() <= Limits::PRIVATE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use qfabric_channel::Direction;
    use qfabric_types::channel::ChannelId;
    use qfabric_types::kernel_path::PARAMETERS;

    use super::*;

    fn longest() -> Parameter {
        let name = "n".repeat(64);
        let channel = ChannelId::data(name.parse().unwrap());
        let filter = FilterId { channel, direction: Direction::Out, name: name.parse().unwrap() };
        Parameter { filter, key: "k".repeat(Key::MAX).parse().unwrap() }
    }

    #[test]
    fn messages_come_back_and_the_longest_fit() {
        let applied = |word| Applied { word, epoch: u32::MAX, sequence: u64::MAX };
        let address = "[fe80::1:2:3:4]:65535".parse().unwrap();
        for message in [
            Message::Bind { epoch: 7, parameter: longest() },
            Message::Key { address, peer: 3, epoch: 9, key: Secret([255; 16]) },
            Message::Has { epoch: 9 },
            Message::Bound { parameter: longest(), channel: 63, word: 15 },
            Message::Ended { word: 1 },
            Message::Applied { words: (0..PARAMETERS).map(applied).collect() },
        ] {
            let bytes = message.encode();
            assert!(bytes.len() <= Limits::PRIVATE && Message::decode(&bytes) == Some(message));
        }
    }

    #[test]
    fn keys_are_random_and_not_printed() {
        let keys = [Secret::random().unwrap(), Secret::random().unwrap()];
        assert_ne!(keys[0].0, keys[1].0);
        assert_eq!(format!("{:?}", keys[0]), "Secret");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Message::decode(&bytes), None);
        }
    }
}
