//! Frames that another process hands over while the player runs, through a FIFO or a file.
//!
//! Each frame has its number and its size (4 bytes each, big endian) and then its packet.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ffmpeg_next::Packet;

/// Largest packet that is accepted.
const LARGEST: u32 = 16 << 20;

/// The frames in their order of arrival.
pub(crate) struct Arriving<R>(R);

impl Arriving<BufReader<File>> {
    /// Opens the FIFO or the file. Waits until a process has opened a FIFO for writing.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Arriving(BufReader::new(file)))
    }
}

impl<R: Read> Arriving<R> {
    /// Waits for the next frame: its number and its packet; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Packet)>> {
        let mut head = [0; 8];
        match self.0.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other.context("cannot read the next frame")?,
        }
        let [number, size] = [0, 4].map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        ensure!((1..=LARGEST).contains(&size), "frame {number} has {size} bytes; at most {LARGEST} are allowed");
        let mut packet = Packet::new(size as usize);
        let Some(data) = packet.data_mut() else { bail!("no memory for frame {number} of {size} bytes") };
        self.0.read_exact(data).with_context(|| format!("frame {number} ends before its {size} bytes"))?;
        Ok(Some((number.into(), packet)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32, size: u32, data: &[u8]) -> Vec<u8> {
        [&number.to_be_bytes()[..], &size.to_be_bytes(), data].concat()
    }

    #[test]
    fn frames_are_read_in_order_and_a_cut_or_too_large_one_is_named() {
        let bytes = [frame(0, 2, b"ab"), frame(7, 1, b"c"), frame(8, 5, b"de")].concat();
        let mut arriving = Arriving(&bytes[..]);
        let mut next =
            || arriving.next().map(|frame| frame.map(|(number, packet)| (number, packet.data().map(<[u8]>::to_vec))));
        assert_eq!(next().unwrap(), Some((0, Some(b"ab".to_vec()))));
        assert_eq!(next().unwrap(), Some((7, Some(b"c".to_vec()))));
        assert!(next().unwrap_err().to_string().contains("frame 8 ends before its 5 bytes"));
        assert!(Arriving(&b"\0\0"[..]).next().unwrap().is_none());
        for size in [0, LARGEST + 1] {
            assert!(Arriving(&frame(3, size, b"")[..]).next().is_err());
        }
    }
}
