//! The header before the data of an event: which transcoders were applied, and which the receiver has to run.
//!
//! ```text
//!   'Q' 'T' 1  applied: count, then (length, name)…  left: the same  |  data
//! ```

/// Longest name of a transcoder, in bytes.
pub const MAX_NAME: usize = 32;
/// Most names of each of the two lists.
pub const MAX_NAMES: usize = 8;

const MAGIC: [u8; 3] = [b'Q', b'T', 1];

/// What happened to the data of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Applied by the sender, in this order.
    pub applied: Vec<String>,
    /// Mandatory ones that the receiver runs, in this order.
    pub left: Vec<String>,
}

/// Bytes that do not begin with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    #[error("{0} bytes do not begin with a header of version 1; the source does not use this pipeline")]
    Magic(usize),
    #[error("the header ends in the middle of a name or list")]
    Cut,
    #[error("{0} transcoders; a header names at most {MAX_NAMES}")]
    Count(u8),
    #[error("a name of {0} bytes; 1 to {MAX_NAME} printable ASCII characters are allowed")]
    Name(u8),
}

impl Header {
    /// Appends it to `bytes`. Names beyond the bounds are left out; [`super::Pipeline`] has none.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(MAGIC);
        for list in [&self.applied, &self.left] {
            let names = list.iter().filter(|name| is_name(name.as_bytes())).take(MAX_NAMES);
            bytes.push(names.clone().count() as u8);
            names.for_each(|name| {
                bytes.push(name.len() as u8);
                bytes.extend(name.as_bytes());
            });
        }
    }

    /// Splits the bytes of an event into header and data.
    ///
    /// # Errors
    /// [`InvalidHeader`].
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), InvalidHeader> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(InvalidHeader::Magic(bytes.len()))?;
        let (applied, rest) = names(rest)?;
        let (left, data) = names(rest)?;
        Ok((Header { applied, left }, data))
    }
}

fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}

fn names(bytes: &[u8]) -> Result<(Vec<String>, &[u8]), InvalidHeader> {
    let (&count, mut rest) = bytes.split_first().ok_or(InvalidHeader::Cut)?;
    if usize::from(count) > MAX_NAMES {
        return Err(InvalidHeader::Count(count));
    }
    let mut names = Vec::with_capacity(count.into());
    for _ in 0..count {
        let (&length, after) = rest.split_first().ok_or(InvalidHeader::Cut)?;
        let (name, after) = after.split_at_checked(length.into()).ok_or(InvalidHeader::Cut)?;
        if !is_name(name) {
            return Err(InvalidHeader::Name(length));
        }
        names.push(String::from_utf8_lossy(name).into_owned());
        rest = after;
    }
    Ok((names, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_survives_and_every_cut_is_refused() {
        let header = Header { applied: vec!["gray".into(), "crop:40".into()], left: vec!["huffman".into()] };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        let length = bytes.len();
        bytes.extend(b"data");
        assert_eq!(Header::parse(&bytes), Ok((header, &b"data"[..])));
        assert!((0..length).all(|cut| Header::parse(&bytes[..cut]).is_err()));
        assert_eq!(Header::parse(b"QT\x01\x09"), Err(InvalidHeader::Count(9)));
        assert_eq!(Header::parse(b"QT\x01\x01\x02a\n\x00"), Err(InvalidHeader::Name(2)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_to_what_encodes_to_them(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let bytes = [&MAGIC[..], &bytes].concat();
            if let Ok((header, data)) = Header::parse(&bytes) {
                let mut again = Vec::new();
                header.encode(&mut again);
                again.extend(data);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
