//! What the encoder is set to: codec, quality, size.

use std::fmt;
use std::str::FromStr;

/// A way to code pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "media", derive(clap::ValueEnum))]
pub enum Codec {
    /// Each picture by itself. Qualities 1 to 95, as the Independent JPEG Group counts them.
    Jpeg,
    /// Qualities 1 to 30, at 176x144 and 352x288 only.
    H261,
    /// Qualities 1 to 30.
    H264,
}

impl Codec {
    /// All of them; the number of a codec in events is its position.
    pub const ALL: [Codec; 3] = [Codec::Jpeg, Codec::H261, Codec::H264];

    /// Its number in events.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The codec of this number.
    pub fn from_number(number: u8) -> Option<Codec> {
        Codec::ALL.get(usize::from(number)).copied()
    }

    /// Its bit in a set of codecs.
    pub fn bit(self) -> u32 {
        1 << self.number()
    }

    /// The best quality; the worst is 1.
    pub fn best_quality(self) -> u8 {
        match self {
            Codec::Jpeg => 95,
            Codec::H261 | Codec::H264 => 30,
        }
    }

    /// Whether a picture may refer to earlier ones.
    pub fn refers_back(self) -> bool {
        self != Codec::Jpeg
    }

    /// Its name: `jpeg`, `h261`, `h264`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Jpeg => "jpeg",
            Codec::H261 => "h261",
            Codec::H264 => "h264",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Codec {
    type Err = InvalidLevel;

    fn from_str(text: &str) -> Result<Codec, InvalidLevel> {
        Codec::ALL.into_iter().find(|codec| codec.name() == text).ok_or_else(|| InvalidLevel::Codec(shown(text)))
    }
}

/// Width and height of a picture in pixels; both are even.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    width: u16,
    height: u16,
}

impl Size {
    /// The smallest size of vic, and the smallest one here.
    pub const SMALL: Size = Size { width: 176, height: 144 };
    /// The medium size of vic.
    pub const MEDIUM: Size = Size { width: 352, height: 288 };
    /// The large size of vic.
    pub const LARGE: Size = Size { width: 640, height: 480 };
    /// The largest size here.
    pub const LARGEST: Size = Size { width: 1920, height: 1080 };

    /// From [`Size::SMALL`] to [`Size::LARGEST`], in even numbers.
    pub fn new(width: u16, height: u16) -> Result<Size, InvalidLevel> {
        let fits = |side: u16, least: u16, most: u16| side.is_multiple_of(2) && (least..=most).contains(&side);
        let (least, most) = (Size::SMALL, Size::LARGEST);
        match fits(width, least.width, most.width) && fits(height, least.height, most.height) {
            true => Ok(Size { width, height }),
            false => Err(InvalidLevel::Size(format!("{width}x{height}"))),
        }
    }

    /// Pixels in a row.
    pub fn width(self) -> u16 {
        self.width
    }

    /// Rows.
    pub fn height(self) -> u16 {
        self.height
    }

    /// Whether a picture of the other size is neither wider nor higher.
    pub fn contains(self, other: Size) -> bool {
        self.width >= other.width && self.height >= other.height
    }

    /// The size of this width, with the same aspect ratio as this one.
    ///
    /// # Errors
    /// No such size exists.
    pub fn with_width(self, width: u16) -> Result<Size, InvalidLevel> {
        let height = u32::from(self.height) * u32::from(width) / u32::from(self.width);
        Size::new(width, u16::try_from(height & !1).unwrap_or(u16::MAX))
    }

    /// Pixels of a picture.
    pub fn pixels(self) -> usize {
        usize::from(self.width) * usize::from(self.height)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.width, self.height))
    }
}

impl FromStr for Size {
    type Err = InvalidLevel;

    /// `WIDTHxHEIGHT`, `small`, `medium` or `large`.
    fn from_str(text: &str) -> Result<Size, InvalidLevel> {
        match text {
            "small" => return Ok(Size::SMALL),
            "medium" => return Ok(Size::MEDIUM),
            "large" => return Ok(Size::LARGE),
            _ => {}
        }
        let sides = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let (width, height) = sides.ok_or_else(|| InvalidLevel::Size(shown(text)))?;
        Size::new(width, height)
    }
}

/// A setting of the encoder. In text: `CODEC:QUALITY:SIZE`, such as `jpeg:60:352x288`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    codec: Codec,
    quality: u8,
    size: Size,
}

impl Level {
    /// A quality from 1 to [`Codec::best_quality`], at a size that the codec has.
    pub fn new(codec: Codec, quality: u8, size: Size) -> Result<Level, InvalidLevel> {
        if !(1..=codec.best_quality()).contains(&quality) {
            return Err(InvalidLevel::Quality { quality, codec });
        }
        if codec == Codec::H261 && ![Size::SMALL, Size::MEDIUM].contains(&size) {
            return Err(InvalidLevel::SizeOfH261(size));
        }
        Ok(Level { codec, quality, size })
    }

    /// How pictures are coded.
    pub fn codec(self) -> Codec {
        self.codec
    }

    /// From 1, the worst, to [`Codec::best_quality`].
    pub fn quality(self) -> u8 {
        self.quality
    }

    /// The size of each picture.
    pub fn size(self) -> Size {
        self.size
    }

    /// The part of the codec's best quality.
    pub fn quality_part(self) -> f64 {
        f64::from(self.quality) / f64::from(self.codec.best_quality())
    }

    /// The same size, coded as JPEG, of about the same quality: for receivers that cannot decode the level's codec.
    #[must_use]
    pub fn as_jpeg(self) -> Level {
        let (quality, best) = (u32::from(self.quality), u32::from(self.codec.best_quality()));
        let scaled = (quality * u32::from(Codec::Jpeg.best_quality()) / best).max(1);
        Level { codec: Codec::Jpeg, quality: scaled as u8, size: self.size }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}:{}", self.codec, self.quality, self.size))
    }
}

impl FromStr for Level {
    type Err = InvalidLevel;

    fn from_str(text: &str) -> Result<Level, InvalidLevel> {
        let parts: Vec<&str> = text.splitn(4, ':').collect();
        let [codec, quality, size] = parts[..] else { return Err(InvalidLevel::Text(shown(text))) };
        let quality = quality.parse().map_err(|_| InvalidLevel::Text(shown(text)))?;
        Level::new(codec.parse()?, quality, size.parse()?)
    }
}

/// The beginning of a text of a stranger.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The level cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLevel {
    /// The text is not a level.
    #[error("{0:?} is not a level; write CODEC:QUALITY:SIZE, such as jpeg:60:352x288")]
    Text(String),
    /// Not a codec.
    #[error("{0:?} is not a codec; use jpeg, h261 or h264")]
    Codec(String),
    /// Not a quality of the codec.
    #[error("quality {quality} of {codec}; use 1 to {}", .codec.best_quality())]
    Quality {
        /// The value.
        quality: u8,
        /// The codec that does not have it.
        codec: Codec,
    },
    /// Not a size.
    #[error("size {0}; use small, medium, large or even numbers from {least} to {most}", least = Size::SMALL,
            most = Size::LARGEST)]
    Size(String),
    /// H.261 has two sizes.
    #[error("h261 at {0}; it has {small} and {medium} only: use one of them, or h264 or jpeg", small = Size::SMALL,
            medium = Size::MEDIUM)]
    SizeOfH261(Size),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_read_as_it_is_written() {
        for text in ["jpeg:95:640x480", "h261:15:352x288", "h264:1:1920x1080"] {
            assert_eq!(text.parse::<Level>().unwrap().to_string(), text);
        }
        assert_eq!("jpeg:60:medium".parse::<Level>().unwrap().size(), Size::MEDIUM);
    }

    #[test]
    fn a_wrong_level_is_refused_with_its_value_and_the_limit() {
        for (text, said) in [
            ("jpeg:96:640x480", &["96", "95"][..]),
            ("h264:0:640x480", &["0", "30"]),
            ("h261:15:640x480", &["640x480", "352x288"]),
            ("jpeg:60:175x144", &["175x144", "176x144"]),
            ("jpeg:60:9999x9999", &["9999x9999", "1920x1080"]),
            ("mpeg:60:small", &["mpeg", "h264"]),
            ("jpeg:60", &["jpeg:60", "CODEC:QUALITY:SIZE"]),
            ("jpeg:many:small", &["many"]),
        ] {
            let refusal = text.parse::<Level>().unwrap_err().to_string();
            assert!(said.iter().all(|part| refusal.contains(part)), "{text}: {refusal}");
        }
    }

    #[test]
    fn the_jpeg_of_about_the_same_quality_is_a_level() {
        for quality in 1..=30 {
            let jpeg = Level::new(Codec::H261, quality, Size::SMALL).unwrap().as_jpeg();
            assert_eq!(Level::new(jpeg.codec(), jpeg.quality(), jpeg.size()), Ok(jpeg));
        }
    }
}
