//! Q-attributes: names with numbers, on members and on events.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An attribute's name: 1 to 32 characters of `a-z A-Z 0-9 _`, so that E-code can use it. A name may begin with a
/// digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Box<str>);

impl Key {
    /// In bytes.
    pub const MAX: usize = 32;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn fits(text: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=Key::MAX).contains(&text.len()) && text.bytes().all(allowed)
    }
}

/// Why a text is not an attribute's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not an attribute's name: use 1 to {} of a-z, A-Z, 0-9 and '_'", Key::MAX)]
pub struct InvalidKey {
    /// The text, cut to twice the maximal length of a name.
    pub given: String,
}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Key, InvalidKey> {
        if Key::fits(text) {
            return Ok(Key(text.into()));
        }
        Err(InvalidKey { given: text.chars().take(2 * Key::MAX).collect() })
    }
}

impl TryFrom<String> for Key {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Key, InvalidKey> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0.into()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Attributes in the order of their names; each name occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(Vec<(Key, i64)>);

impl Attributes {
    /// Largest number of attributes of one member.
    pub const MAX: usize = 64;
    /// Largest number of attributes of one event.
    pub const MAX_ON_EVENT: usize = 16;

    pub fn get(&self, key: &str) -> Option<i64> {
        let at = self.0.binary_search_by(|(have, _)| have.as_str().cmp(key)).ok()?;
        Some(self.0[at].1)
    }

    /// Returns the previous value.
    pub fn set(&mut self, key: Key, value: i64) -> Option<i64> {
        match self.0.binary_search_by(|(have, _)| have.cmp(&key)) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Returns the removed value.
    pub fn remove(&mut self, key: &str) -> Option<i64> {
        let at = self.0.binary_search_by(|(have, _)| have.as_str().cmp(key)).ok()?;
        Some(self.0.remove(at).1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(key, value)| (key.as_str(), *value))
    }
}

impl FromIterator<(Key, i64)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (Key, i64)>>(items: I) -> Attributes {
        let mut attributes = Attributes::default();
        for (key, value) in items {
            attributes.set(key, value);
        }
        attributes
    }
}

/// An event's attributes: checked bytes of its frame, read without allocating memory. Each attribute is the length of
/// its name (one byte), the name, and the value (eight bytes, little-endian).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct AttributesRef<'a>(&'a [u8]);

impl<'a> AttributesRef<'a> {
    /// The caller has checked the bytes.
    pub(crate) fn checked(bytes: &'a [u8]) -> AttributesRef<'a> {
        AttributesRef(bytes)
    }

    /// The bytes in the format of the frame.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn get(self, key: &str) -> Option<i64> {
        self.iter().find(|(have, _)| *have == key).map(|(_, value)| value)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the frame.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, i64)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (key, after) = after.split_at_checked(usize::from(*length))?;
            let (value, after) = after.split_first_chunk::<8>()?;
            rest = after;
            Some((std::str::from_utf8(key).ok()?, i64::from_le_bytes(*value)))
        })
    }
}

impl fmt::Debug for AttributesRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
