//! Coding and decoding of pictures. JPEG is always there, by libraries in Rust; H.261 and H.264 need the system's
//! libavcodec with an encoder, or a decoder, of that name.
//!
//! All work is done in the calling thread, so that a reservation of this thread covers it.

mod jpeg;
mod libav;

use anyhow::Result;

use super::picture::Picture;
use super::presets::Preset;
use crate::{Codec, Level, Size};

/// Pictures between two that can be decoded by themselves.
pub(crate) const KEY_DISTANCE: u32 = 20;

/// A codec that cannot be used, or data that it refuses.
#[derive(Debug, thiserror::Error)]
pub enum CodecProblem {
    /// This host does not have it.
    #[error(
        "no {what} for {codec} on this host; install a libavcodec that has one (Debian: libavcodec-extra59), or use jpeg"
    )]
    Missing {
        /// `encoder` or `decoder`.
        what: &'static str,
        /// The codec.
        codec: Codec,
    },
    /// It cannot be opened, or it failed.
    #[error("{codec}: {why}")]
    Failed {
        /// The codec.
        codec: Codec,
        /// What it said.
        why: String,
    },
}

impl CodecProblem {
    pub(crate) fn failed(codec: Codec, why: impl std::fmt::Display) -> CodecProblem {
        CodecProblem::Failed { codec, why: why.to_string() }
    }
}

/// A coded picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodedPicture {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Whether it can be decoded by itself.
    pub key: bool,
}

/// Codes pictures at one level.
pub struct Encoder {
    level: Level,
    preset: Preset,
    inner: Option<libav::Encoder>,
}

impl Encoder {
    /// Opens the level's codec, with the fastest preset.
    ///
    /// # Errors
    /// This host has no encoder for it.
    pub fn open(level: Level) -> Result<Encoder, CodecProblem> {
        Encoder::with_preset(level, Preset::default())
    }

    /// Opens the level's codec. Only H.264 by x264 has presets.
    ///
    /// # Errors
    /// This host has no encoder for it.
    pub fn with_preset(level: Level, preset: Preset) -> Result<Encoder, CodecProblem> {
        libav::be_quiet();
        let inner = (level.codec() != Codec::Jpeg).then(|| libav::Encoder::open(level, preset)).transpose()?;
        Ok(Encoder { level, preset, inner })
    }

    /// The preset that it was opened with.
    pub fn preset(&self) -> Preset {
        self.preset
    }

    /// The level that it was opened with.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Codes a picture of the level's size over `coded`. `key`: it can be decoded by itself.
    pub fn encode(&mut self, picture: &Picture, key: bool, coded: &mut CodedPicture) -> Result<(), CodecProblem> {
        coded.data.clear();
        match &mut self.inner {
            Some(inner) => inner.encode(picture, key, coded),
            None => jpeg::encode(picture, self.level.quality(), coded),
        }
    }
}

/// Decodes pictures of one codec and one size.
pub struct Decoder {
    codec: Codec,
    size: Size,
    inner: Option<libav::Decoder>,
    picture: Picture,
}

impl Decoder {
    /// Opens the codec.
    ///
    /// # Errors
    /// This host has no decoder for it.
    pub fn open(codec: Codec, size: Size) -> Result<Decoder, CodecProblem> {
        libav::be_quiet();
        let inner = (codec != Codec::Jpeg).then(|| libav::Decoder::open(codec)).transpose()?;
        Ok(Decoder { codec, size, inner, picture: Picture::grey(size) })
    }

    /// Whether it decodes that.
    pub fn fits(&self, level: Level) -> bool {
        (self.codec, self.size) == (level.codec(), level.size())
    }

    /// Decodes a picture.
    ///
    /// # Errors
    /// The data is not a picture of this codec and size, or it lacks pictures before it.
    pub fn decode(&mut self, data: &[u8]) -> Result<&Picture, CodecProblem> {
        match &mut self.inner {
            Some(inner) => inner.decode(data, &mut self.picture)?,
            None => jpeg::decode(data, &mut self.picture)?,
        }
        Ok(&self.picture)
    }
}

/// The codecs that this host can both code and decode.
pub fn available() -> Vec<Codec> {
    let has = |codec: &Codec| *codec == Codec::Jpeg || libav::has(*codec);
    Codec::ALL.into_iter().filter(has).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Camera, Source};

    /// Mean difference of luma.
    fn difference(one: &Picture, other: &Picture) -> f64 {
        let sum: u64 = one.plane(0).iter().zip(other.plane(0)).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        sum as f64 / one.size().pixels() as f64
    }

    /// Codes and decodes pictures; the bytes of the last one, and how far it is from the original.
    fn through(level: Level) -> (usize, f64) {
        let mut camera = Camera::open(&Source::Test(level.size())).unwrap();
        let mut encoder = Encoder::open(level).unwrap();
        let mut decoder = Decoder::open(level.codec(), level.size()).unwrap();
        let (mut coded, mut result) = (CodedPicture::default(), (0, 0.0));
        for number in 0..5 {
            let picture = camera.capture().unwrap().clone();
            encoder.encode(&picture, false, &mut coded).unwrap();
            assert!(coded.key || number > 0 && level.codec().refers_back());
            result = (coded.data.len(), difference(&picture, decoder.decode(&coded.data).unwrap()));
        }
        result
    }

    #[test]
    fn a_better_quality_has_more_bytes_and_smaller_errors_in_each_codec() {
        for codec in available() {
            for size in [Size::SMALL, Size::MEDIUM] {
                let (best, worst) = (Level::new(codec, codec.best_quality(), size), Level::new(codec, 3, size));
                let ((more, near), (less, far)) = (through(best.unwrap()), through(worst.unwrap()));
                assert!(more > 2 * less && near < far && near < 4.0, "{codec} {size}: {more} {near} {less} {far}");
            }
        }
    }

    /// Rows that are no multiple of 16 are coded with more rows, which are cut off.
    #[test]
    fn sizes_that_no_block_divides_are_decoded_in_their_order() {
        for size in [(320, 180), (960, 540), (178, 146)] {
            for codec in available().into_iter().filter(|codec| *codec != Codec::H261) {
                let (_, error) = through(Level::new(codec, 5, Size::new(size.0, size.1).unwrap()).unwrap());
                assert!(error < 40.0, "{codec} {size:?}: {error}");
            }
        }
    }

    #[test]
    fn a_slower_preset_needs_fewer_bytes_for_the_same_pictures() {
        let level = Level::new(Codec::H264, 20, Size::MEDIUM).unwrap();
        // Another encoder than x264 has no presets.
        if ffmpeg_next::codec::encoder::find_by_name("libx264").is_none() {
            return;
        }
        let bytes = [Preset::Ultrafast, Preset::Medium].map(|preset| {
            let mut camera = Camera::open(&Source::Test(level.size())).unwrap();
            let (mut encoder, mut coded) = (Encoder::with_preset(level, preset).unwrap(), CodedPicture::default());
            let mut sum = 0;
            for _ in 0..KEY_DISTANCE {
                encoder.encode(camera.capture().unwrap(), false, &mut coded).unwrap();
                sum += coded.data.len();
            }
            sum
        });
        assert!(bytes[1] < bytes[0], "{bytes:?}");
    }

    #[test]
    fn a_wanted_key_picture_needs_no_picture_before_it() {
        for codec in available() {
            let level = Level::new(codec, 20, Size::MEDIUM).unwrap();
            let mut camera = Camera::open(&Source::Test(level.size())).unwrap();
            let (mut encoder, mut coded) = (Encoder::open(level).unwrap(), CodedPicture::default());
            for number in 0..4 {
                encoder.encode(camera.capture().unwrap(), number == 3, &mut coded).unwrap();
            }
            assert!(coded.key, "{codec}");
            Decoder::open(codec, level.size()).unwrap().decode(&coded.data).unwrap();
        }
    }

    #[test]
    fn garbage_and_pictures_of_another_size_are_refused() {
        for codec in available() {
            let level = Level::new(codec, 20, Size::MEDIUM).unwrap();
            let (mut encoder, mut coded) = (Encoder::open(level).unwrap(), CodedPicture::default());
            encoder.encode(&Picture::grey(level.size()), true, &mut coded).unwrap();
            let mut decoder = Decoder::open(codec, Size::SMALL).unwrap();
            assert!(decoder.decode(&coded.data).is_err(), "{codec}: larger than its header says");
            for garbage in [&[][..], &[0], &[0xff, 0xd8], &[7; 5000]] {
                let _ = Decoder::open(codec, level.size()).unwrap().decode(garbage);
            }
            coded.data.truncate(coded.data.len() / 2);
            let _ = Decoder::open(codec, level.size()).unwrap().decode(&coded.data);
        }
    }
}
