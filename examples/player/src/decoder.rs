//! A stream and its decoder: one job is one packet in and all frames that come out of it.

use anyhow::{Context, Result, bail};
use ffmpeg::util::error::{EAGAIN, EINVAL};
use ffmpeg_next as ffmpeg;

use crate::clip::Clip;

/// A clip with a decoder standing somewhere in its endless loop.
pub struct Stream<'a> {
    clip: &'a Clip,
    decoder: ffmpeg::decoder::Video,
    frame: ffmpeg::frame::Video,
    next: usize,
}

impl<'a> Stream<'a> {
    /// Opens a single-threaded decoder that stands before frame `start`, having decoded what that frame
    /// refers to (one group of pictures or two): the first job finds a warm decoder.
    pub fn open(clip: &'a Clip, start: usize) -> Result<Stream<'a>> {
        let mut context = ffmpeg::codec::Context::from_parameters(clip.parameters())?;
        context.set_threading(ffmpeg::threading::Config { count: 1, ..Default::default() });
        let decoder = context.decoder().video().context("cannot open the decoder")?;
        // Twice around the loop, so that there is something before frame 0 too.
        let start = start % clip.len() + clip.len();
        let mut stream =
            Stream { clip, decoder, frame: ffmpeg::frame::Video::empty(), next: clip.key_before(start - 1) };
        while stream.next < start {
            stream.decode()?;
        }
        Ok(stream)
    }

    /// Decodes the next packet; the work of one job. Returns the frames that became ready.
    pub fn decode(&mut self) -> Result<usize> {
        let packet = self.clip.packet(self.next);
        self.next += 1;
        match self.decoder.send_packet(packet) {
            // References that were never sent, right after opening in the middle of a stream.
            Ok(()) | Err(ffmpeg::Error::InvalidData) => (),
            Err(error) => bail!("packet {} of the stream: {error}", self.next - 1),
        }
        let mut frames = 0;
        loop {
            match self.decoder.receive_frame(&mut self.frame) {
                Ok(()) => frames += 1,
                Err(ffmpeg::Error::Other { errno: EAGAIN }) => return Ok(frames),
                Err(ffmpeg::Error::Other { errno: EINVAL }) => bail!("the decoder was not opened"),
                Err(error) => bail!("frame after packet {}: {error}", self.next - 1),
            }
        }
    }

    /// Leaves the next packet out. Only for packets that no other needs ([`Stream::next_is_disposable`]).
    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// Whether no other frame refers to the next one: a B picture of MPEG-2 (ISO/IEC 13818-2 §6.1.1.11).
    pub fn next_is_disposable(&self) -> bool {
        self.next_kind() == 'B'
    }

    /// Place of the next packet in the clip.
    pub fn next_position(&self) -> usize {
        self.next % self.clip.len()
    }

    /// Bytes of the packet the next job decodes.
    pub fn next_bytes(&self) -> usize {
        self.clip.bytes(self.next)
    }

    /// Type of the picture the next job decodes.
    pub fn next_kind(&self) -> char {
        self.clip.kind(self.next)
    }
}
