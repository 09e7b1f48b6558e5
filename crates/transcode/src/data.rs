//! Images as bytes of portable pixel maps (P6) and grey maps (P5), and data without a picture.

use std::borrow::Cow;

/// Largest number of bytes of all pixels of an image.
pub const MAX_PIXEL_BYTES: usize = 64 << 20;

/// Bytes or dimensions that are no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImage {
    #[error(
        "an image of {width}x{height} pixels with {channels} bytes each; use 1 or 3 bytes, and at most {MAX_PIXEL_BYTES} in all"
    )]
    Size { width: u32, height: u32, channels: u8 },
    #[error("{found} bytes of pixels instead of {expected}")]
    Length { found: usize, expected: usize },
    #[error("no P5 or P6 image with 255 levels: {0}")]
    Format(&'static str),
}

/// An image with 1 (grey) or 3 (red, green, blue) bytes for each pixel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    width: u32,
    height: u32,
    channels: u8,
    pixels: Vec<u8>,
}

impl Image {
    /// An image of these pixels.
    ///
    /// # Errors
    /// [`InvalidImage`]: the size is impossible or too large, or the number of bytes is another one.
    pub fn new(width: u32, height: u32, channels: u8, pixels: Vec<u8>) -> Result<Image, InvalidImage> {
        let expected = bytes_of(width, height, channels)?;
        match pixels.len() == expected {
            true => Ok(Image { width, height, channels, pixels }),
            false => Err(InvalidImage::Length { found: pixels.len(), expected }),
        }
    }

    /// Width and height in pixels.
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Bytes for each pixel: 1 or 3.
    pub fn channels(&self) -> u8 {
        self.channels
    }

    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes of one row.
    pub(crate) fn row(&self, y: u32) -> &[u8] {
        let length = self.width as usize * usize::from(self.channels);
        &self.pixels[y as usize * length..][..length]
    }

    /// Writes a P5 or P6 file.
    pub fn to_pnm(&self) -> Vec<u8> {
        let kind = if self.channels == 1 { 5 } else { 6 };
        let mut bytes = format!("P{kind}\n{} {}\n255\n", self.width, self.height).into_bytes();
        bytes.extend_from_slice(&self.pixels);
        bytes
    }

    /// Reads a P5 or P6 file. Bytes after the pixels are refused.
    ///
    /// # Errors
    /// [`InvalidImage`].
    pub fn from_pnm(bytes: &[u8]) -> Result<Image, InvalidImage> {
        let (channels, rest) = match bytes.split_at_checked(2) {
            Some((b"P5", rest)) => (1, rest),
            Some((b"P6", rest)) => (3, rest),
            _ => return Err(InvalidImage::Format("it does not begin with P5 or P6")),
        };
        let (width, rest) = number(rest)?;
        let (height, rest) = number(rest)?;
        let (levels, rest) = number(rest)?;
        if levels != 255 {
            return Err(InvalidImage::Format("it has another number of levels"));
        }
        let pixels = match rest.split_first() {
            Some((space, pixels)) if space.is_ascii_whitespace() => pixels,
            _ => return Err(InvalidImage::Format("there is no space before the pixels")),
        };
        let expected = bytes_of(width, height, channels)?;
        if pixels.len() != expected {
            return Err(InvalidImage::Length { found: pixels.len(), expected });
        }
        Image::new(width, height, channels, pixels.to_vec())
    }
}

fn bytes_of(width: u32, height: u32, channels: u8) -> Result<usize, InvalidImage> {
    let bytes = (width as usize).checked_mul(height as usize).and_then(|all| all.checked_mul(channels.into()));
    let fits = bytes.filter(|bytes| (1..=MAX_PIXEL_BYTES).contains(bytes) && matches!(channels, 1 | 3));
    fits.ok_or(InvalidImage::Size { width, height, channels })
}

/// A decimal number after spaces and comments, and the bytes after it.
fn number(mut bytes: &[u8]) -> Result<(u32, &[u8]), InvalidImage> {
    loop {
        match bytes.first() {
            Some(b'#') => {
                let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
                bytes = &bytes[end..];
            }
            Some(space) if space.is_ascii_whitespace() => bytes = &bytes[1..],
            _ => break,
        }
    }
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    let (digits, rest) = bytes.split_at(end);
    let text = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    text.map(|number| (number, rest)).ok_or(InvalidImage::Format("a number in its head is missing or too large"))
}

/// What passes from one transcoder to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Image(Image),
    /// Without a picture that transcoders can see: compressed, or of another format.
    Bytes(Vec<u8>),
}

impl Data {
    /// Number of bytes when it is sent.
    pub fn length(&self) -> usize {
        match self {
            Data::Image(image) => image.pixels.len() + format!("P6\n{} {}\n255\n", image.width, image.height).len(),
            Data::Bytes(bytes) => bytes.len(),
        }
    }

    /// The bytes that are sent.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Data::Image(image) => Cow::Owned(image.to_pnm()),
            Data::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// An image if the bytes are one, else the bytes.
    pub fn of(bytes: Vec<u8>) -> Data {
        Image::from_pnm(&bytes).map_or_else(|_| Data::Bytes(bytes), Data::Image)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refusals_name_the_numbers() {
        let text = |bytes: &[u8]| Image::from_pnm(bytes).unwrap_err().to_string();
        assert!(text(b"P6\n2 2\n255\n123").contains("3 bytes of pixels instead of 12"));
        assert!(text(b"P6 99999 99999 255\n").contains("99999x99999"));
        assert!(text(b"P6 99999999999 1 255\n").contains("too large"));
        assert!(text(b"P5 1 1 65535\n..").contains("levels") && text(b"PK").contains("P5 or P6"));
        assert!(Image::new(2, 2, 2, vec![0; 8]).is_err() && Image::new(0, 2, 1, vec![]).is_err());
        assert!(Image::from_pnm(b"P5 # a comment\n# another\n1 1\n255\nx").is_ok());
    }

    proptest! {
        #[test]
        fn an_image_survives_its_file(width in 1u32..20, height in 1u32..20, gray: bool, seed: u8) {
            let channels = if gray { 1 } else { 3 };
            let count = width as usize * height as usize * usize::from(channels);
            let image = Image::new(width, height, channels, (0..count).map(|at| at as u8 ^ seed).collect()).unwrap();
            prop_assert_eq!(Data::of(image.to_pnm()), Data::Image(image.clone()));
            prop_assert_eq!(Data::Image(image.clone()).length(), image.to_pnm().len());
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Image::from_pnm(&[b"P6", &bytes[..]].concat());
        }
    }
}
