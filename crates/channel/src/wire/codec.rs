//! Encoding and decoding of numbers and texts.

use qfabric_types::channel::{ChannelId, Name, Plane};

use crate::{Attributes, Key, MemberId};

/// The frame ends early, or has an impossible value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

type Read<T> = Result<T, Malformed>;

/// Decodes a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Read<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// A text of at most 64 KiB, with its length before it.
    pub(crate) fn text(&mut self) -> Read<&'a str> {
        let length = self.u16()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).map_err(|_| Malformed)
    }

    /// At most 64 KiB, with their number before them.
    pub(crate) fn blob(&mut self) -> Read<&'a [u8]> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    pub(crate) fn name(&mut self) -> Read<Name> {
        let length = self.u8()?;
        let text = std::str::from_utf8(self.bytes(usize::from(length))?).map_err(|_| Malformed)?;
        text.parse().map_err(|_| Malformed)
    }

    pub(crate) fn optional_name(&mut self) -> Read<Option<Name>> {
        if self.flag()? { self.name().map(Some) } else { Ok(None) }
    }

    pub(crate) fn key(&mut self) -> Read<Key> {
        let length = self.u8()?;
        let text = std::str::from_utf8(self.bytes(usize::from(length))?).map_err(|_| Malformed)?;
        text.parse().map_err(|_| Malformed)
    }

    pub(crate) fn channel(&mut self) -> Read<ChannelId> {
        let plane = if self.flag()? { Plane::Quality } else { Plane::Data };
        Ok(ChannelId { plane, name: self.name()? })
    }

    pub(crate) fn member(&mut self) -> Read<MemberId> {
        Ok(MemberId { host: self.name()?, number: self.u32()? })
    }

    /// Reads at most `most` items. Each item takes at least one byte, so a false number of items allocates no memory.
    pub(crate) fn list<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = usize::from(self.u16()?);
        if count > most || count > self.0.len() {
            return Err(Malformed);
        }
        let mut items = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            items.push(one(self)?);
        }
        Ok(items)
    }

    pub(crate) fn attributes(&mut self) -> Read<Attributes> {
        let items = self.list(Attributes::MAX, |reader| Ok((reader.key()?, reader.i64()?)))?;
        Ok(items.into_iter().collect())
    }
}

/// Encodes a frame.
#[derive(Debug)]
pub(crate) struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Cuts a text that is longer than 64 KiB.
    pub(crate) fn text(&mut self, text: &str) {
        let text = cut(text, usize::from(u16::MAX));
        self.u16(text.len() as u16);
        self.bytes(text.as_bytes());
    }

    /// At most 64 KiB.
    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.u16(bytes.len() as u16);
        self.bytes(bytes);
    }

    /// A name or a key: at most 255 bytes.
    pub(crate) fn short(&mut self, text: &str) {
        debug_assert!(text.len() <= usize::from(u8::MAX));
        self.u8(text.len() as u8);
        self.bytes(text.as_bytes());
    }

    pub(crate) fn optional_name(&mut self, name: Option<&Name>) {
        self.flag(name.is_some());
        if let Some(name) = name {
            self.short(name.as_str());
        }
    }

    pub(crate) fn channel(&mut self, channel: &ChannelId) {
        self.flag(channel.plane == Plane::Quality);
        self.short(channel.name.as_str());
    }

    pub(crate) fn member(&mut self, member: &MemberId) {
        self.short(member.host.as_str());
        self.u32(member.number);
    }

    pub(crate) fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut one: impl FnMut(&mut Self, T)) {
        debug_assert!(items.len() <= usize::from(u16::MAX));
        self.u16(items.len() as u16);
        for item in items {
            one(self, item);
        }
    }

    pub(crate) fn attributes(&mut self, attributes: &Attributes) {
        self.u16(attributes.len() as u16);
        for (key, value) in attributes.iter() {
            self.short(key);
            self.i64(value);
        }
    }
}

/// The beginning of the text, of at most `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
