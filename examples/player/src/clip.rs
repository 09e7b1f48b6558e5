//! Holds a video stream in memory. All packets are read once, so that no job waits for a disk.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use ffmpeg::codec::Parameters;
use ffmpeg_next as ffmpeg;

/// The video packets of one file in decoding order.
pub(crate) struct Clip {
    packets: Vec<ffmpeg::Packet>,
    parameters: Parameters,
}

impl Clip {
    /// Reads every packet of the best video stream of `path`. Fails if the file has no video stream or no packets.
    pub(crate) fn load(path: &Path) -> Result<Clip> {
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

    /// Number of frames in one pass over the clip.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// The parameters that a decoder of this clip is opened with.
    pub(crate) fn parameters(&self) -> Parameters {
        self.parameters.clone()
    }

    /// The packet at `position` if the clip is repeated without end.
    pub(crate) fn packet(&self, position: usize) -> &ffmpeg::Packet {
        &self.packets[position % self.len()]
    }

    /// Size of the packet at `position` in bytes. It is known before the job runs.
    pub(crate) fn bytes(&self, position: usize) -> usize {
        self.packet(position).size()
    }

    /// Type of the picture at `position`: `I`, `P`, `B` or `?`.
    pub(crate) fn kind(&self, position: usize) -> char {
        kind_of(self.packet(position))
    }

    /// Position of the last key frame at or before `position`.
    pub(crate) fn key_before(&self, position: usize) -> usize {
        (0..self.len().min(position + 1)).map(|back| position - back).find(|&p| self.packet(p).is_key()).unwrap_or(0)
    }
}

/// Type of the picture of a packet: `I`, `P`, `B` or `?`.
pub(crate) fn kind_of(packet: &ffmpeg::Packet) -> char {
    packet.data().map_or('?', picture_type)
}

/// Returns the picture coding type from the first picture header of MPEG-1/2 video (ISO/IEC 13818-2 §6.2.3). The
/// header is the start code `00 00 01 00`, ten bits of temporal reference, and three bits of type.
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
