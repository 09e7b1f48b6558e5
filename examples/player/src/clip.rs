//! A stream in memory: its packets, read once, so that no job ever waits for a disk.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use ffmpeg::codec::Parameters;
use ffmpeg_next as ffmpeg;

/// The video packets of one file in decoding order.
pub struct Clip {
    packets: Vec<ffmpeg::Packet>,
    parameters: Parameters,
}

impl Clip {
    /// Reads every packet of the best video stream of `path`. Refused where there are none.
    pub fn load(path: &Path) -> Result<Clip> {
        let mut input = ffmpeg::format::input(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let stream = input
            .streams()
            .best(ffmpeg::media::Type::Video)
            .with_context(|| format!("{} has no video stream", path.display()))?;
        let (index, parameters) = (stream.index(), stream.parameters());
        let packets: Vec<_> =
            input.packets().filter(|(stream, _)| stream.index() == index).map(|(_, packet)| packet).collect();
        ensure!(!packets.is_empty(), "{} has no frames", path.display());
        Ok(Clip { packets, parameters })
    }

    /// Frames in one pass.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// What is needed to open a decoder for it.
    pub fn parameters(&self) -> Parameters {
        self.parameters.clone()
    }

    /// Packet `position` of the endless loop of this clip.
    pub fn packet(&self, position: usize) -> &ffmpeg::Packet {
        &self.packets[position % self.len()]
    }

    /// Bytes of that packet: what is known of a job before it runs.
    pub fn bytes(&self, position: usize) -> usize {
        self.packet(position).size()
    }

    /// Type of that picture.
    pub fn kind(&self, position: usize) -> char {
        self.packet(position).data().map_or('?', picture_type)
    }

    /// The closest key frame at or before `position` in the endless loop.
    pub fn key_before(&self, position: usize) -> usize {
        (0..self.len().min(position + 1)).map(|back| position - back).find(|&p| self.packet(p).is_key()).unwrap_or(0)
    }
}

/// Picture coding type in the first picture header of MPEG-1/2 video (ISO/IEC 13818-2 §6.2.3): start code
/// `00 00 01 00`, ten bits of temporal reference, three of type.
fn picture_type(data: &[u8]) -> char {
    let header = data.windows(6).find(|w| w[..4] == [0, 0, 1, 0]);
    match header.map(|w| w[5] >> 3 & 7) {
        Some(1) => 'I',
        Some(2) => 'P',
        Some(3) => 'B',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_type_is_read_from_its_header() {
        let sequence_header = [0, 0, 1, 0xB3, 0x16, 0x01, 0x20];
        for (bits, kind) in [(1_u8, 'I'), (2, 'P'), (3, 'B'), (0, '?')] {
            let picture = [sequence_header.as_slice(), &[0, 0, 1, 0, 0x40, bits << 3 | 7]].concat();
            assert_eq!(picture_type(&picture), kind);
        }
        assert_eq!(picture_type(&[0, 0, 1]), '?');
    }
}
