//! A stream and its decoder. One job sends one packet to the decoder and receives all frames that are then ready.

use anyhow::{Context, Result, bail};
use ffmpeg::util::error::{EAGAIN, EINVAL};
use ffmpeg_next as ffmpeg;

use crate::clip::Clip;

/// A decoder at a position of a clip that is repeated without end.
pub(crate) struct Stream<'a> {
    clip: &'a Clip,
    decoder: ffmpeg::decoder::Video,
    frame: ffmpeg::frame::Video,
    next: usize,
}

impl<'a> Stream<'a> {
    /// Opens a single-threaded decoder at frame `start`. It first decodes the frames that frame `start` refers to
    /// (one or two groups of pictures), so that the first job runs with warm caches.
    pub(crate) fn open(clip: &'a Clip, start: usize) -> Result<Stream<'a>> {
        let mut context = ffmpeg::codec::Context::from_parameters(clip.parameters())?;
        context.set_threading(ffmpeg::threading::Config { count: 1, ..Default::default() });
        let decoder = context.decoder().video().context("cannot open the decoder")?;
        // The position lies in the second pass of the loop, so that frame 0 too has frames before it.
        let start = start % clip.len() + clip.len();
        let mut stream =
            Stream { clip, decoder, frame: ffmpeg::frame::Video::empty(), next: clip.key_before(start - 1) };
        while stream.next < start {
            stream.decode()?;
        }
        Ok(stream)
    }

    /// Decodes the next packet, which is the work of one job. Returns the number of frames that became ready.
    pub(crate) fn decode(&mut self) -> Result<usize> {
        let clip = self.clip;
        self.next += 1;
        self.decode_packet(clip.packet(self.next - 1))
    }

    /// Decodes this packet. Returns the number of frames that became ready.
    pub(crate) fn decode_packet(&mut self, packet: &ffmpeg::Packet) -> Result<usize> {
        match self.decoder.send_packet(packet) {
            // Right after opening in the middle of a stream, packets refer to frames that were never sent.
            Ok(()) | Err(ffmpeg::Error::InvalidData) => (),
            Err(error) => bail!("cannot decode packet {} of the stream: {error}", self.next.saturating_sub(1)),
        }
        let mut frames = 0;
        loop {
            match self.decoder.receive_frame(&mut self.frame) {
                Ok(()) => frames += 1,
                Err(ffmpeg::Error::Other { errno: EAGAIN }) => return Ok(frames),
                Err(ffmpeg::Error::Other { errno: EINVAL }) => bail!("the decoder was not opened"),
                Err(error) => bail!("cannot receive the frame after packet {}: {error}", self.next.saturating_sub(1)),
            }
        }
    }

    /// Skips the next packet. The caller must check first that no other packet needs it
    /// ([`Stream::next_is_disposable`]).
    pub(crate) fn skip(&mut self) {
        self.next += 1;
    }

    /// Whether no other frame refers to the next one, that is, whether it is a B picture of MPEG-2 (ISO/IEC
    /// 13818-2 §6.1.1.11).
    pub(crate) fn next_is_disposable(&self) -> bool {
        self.next_kind() == 'B'
    }

    /// Position of the next packet in the clip.
    pub(crate) fn next_position(&self) -> usize {
        self.next % self.clip.len()
    }

    /// Size in bytes of the packet that the next job decodes.
    pub(crate) fn next_bytes(&self) -> usize {
        self.clip.bytes(self.next)
    }

    /// Type of the picture that the next job decodes.
    pub(crate) fn next_kind(&self) -> char {
        self.clip.kind(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    /// Makes two seconds of MPEG-2 with the group of pictures IBBPBBPBBPBB.
    fn clip(folder: &Path) -> Clip {
        let path = folder.join("small.mkv");
        let made = Command::new("ffmpeg")
            .args(["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=176x144:r=25:d=2", "-c:v", "mpeg2video"])
            .args(["-g", "12", "-bf", "2", "-b_strategy", "0", "-sc_threshold", "1000000000", "-threads", "1"])
            .arg(&path)
            .status()
            .expect("the ffmpeg program is needed: apt-get install ffmpeg");
        assert!(made.success());
        Clip::load(&path).unwrap()
    }

    /// The luma plane of each picture, by its time stamp.
    fn pictures(clip: &Clip, skips: bool) -> BTreeMap<Option<i64>, Vec<u8>> {
        let mut stream = Stream::open(clip, 0).unwrap();
        let mut pictures = BTreeMap::new();
        for _ in 0..clip.len() {
            if skips && stream.next_is_disposable() {
                stream.skip();
                continue;
            }
            // Does the same as `decode`, which does not keep the frame.
            stream.decoder.send_packet(clip.packet(stream.next)).unwrap();
            stream.next += 1;
            while stream.decoder.receive_frame(&mut stream.frame).is_ok() {
                pictures.insert(stream.frame.pts(), stream.frame.data(0).to_vec());
            }
        }
        pictures
    }

    #[test]
    fn skipping_all_disposable_frames_does_not_change_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let clip = clip(folder.path());
        let (all, rest) = (pictures(&clip, false), pictures(&clip, true));
        let needed = (0..clip.len()).filter(|&position| clip.kind(position) != 'B').count();
        assert!(needed < clip.len() / 2 && rest.len() >= needed - 1 && rest.len() <= needed + 1, "{}", rest.len());
        assert!(rest.iter().all(|(pts, picture)| all.get(pts) == Some(picture)), "a picture changed");
    }
}
