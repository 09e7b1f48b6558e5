//! A picture in memory: three planes, the two of the colours at half the width and height (4:2:0).

use anyhow::{Context, Result};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::Size;

/// Luma and two planes of colour differences, without gaps between rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    planes: [Vec<u8>; 3],
}

impl Picture {
    /// A grey picture.
    pub fn grey(size: Size) -> Picture {
        let colour = size.pixels() / 4;
        Picture { size, planes: [vec![128; size.pixels()], vec![128; colour], vec![128; colour]] }
    }

    /// Width and height of the luma plane.
    pub fn size(&self) -> Size {
        self.size
    }

    /// A plane's rows one after another. 0 is luma.
    pub fn plane(&self, number: usize) -> &[u8] {
        &self.planes[number]
    }

    /// The same, to be written.
    pub fn plane_mut(&mut self, number: usize) -> &mut [u8] {
        &mut self.planes[number]
    }

    /// Width and height of a plane.
    pub fn shape(&self, number: usize) -> (usize, usize) {
        let (width, height) = (usize::from(self.size.width()), usize::from(self.size.height()));
        if number == 0 { (width, height) } else { (width / 2, height / 2) }
    }

    /// Copies a plane whose rows begin every `stride` bytes. Bytes that `rows` does not have stay as they are.
    pub fn fill(&mut self, number: usize, rows: &[u8], stride: usize) {
        let (width, _) = self.shape(number);
        for (to, from) in self.planes[number].chunks_exact_mut(width).zip(rows.chunks(stride.max(1))) {
            let length = width.min(from.len());
            to[..length].copy_from_slice(&from[..length]);
        }
    }
}

/// Scales pictures, and keeps the memory for that.
#[derive(Debug)]
pub struct Scaler {
    resizer: Resizer,
    scaled: Picture,
}

impl Scaler {
    /// A scaler to `size`.
    pub fn new(size: Size) -> Scaler {
        Scaler { resizer: Resizer::new(), scaled: Picture::grey(size) }
    }

    /// The picture in the scaler's size.
    pub fn scale(&mut self, picture: &Picture) -> Result<&Picture> {
        if picture.size == self.scaled.size {
            self.scaled.clone_from(picture);
            return Ok(&self.scaled);
        }
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        for number in 0..3 {
            let ((width, height), (to_width, to_height)) = (picture.shape(number), self.scaled.shape(number));
            let from = TypedImageRef::<U8>::from_buffer(width as u32, height as u32, picture.plane(number));
            let rows = self.scaled.plane_mut(number);
            let to = TypedImage::<U8>::from_buffer(to_width as u32, to_height as u32, rows);
            let (from, mut to) = (from.context("a plane")?, to.context("a plane")?);
            // With its type: otherwise code for all types of pixels is compiled here.
            self.resizer.resize_typed(&from, &mut to, &options).context("cannot scale a picture")?;
        }
        Ok(&self.scaled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_picture_keeps_its_brightness() {
        let mut picture = Picture::grey(Size::LARGE);
        picture.plane_mut(0).iter_mut().enumerate().for_each(|(at, pixel)| *pixel = (at % 200) as u8);
        let mean = |picture: &Picture| {
            picture.plane(0).iter().map(|pixel| f64::from(*pixel)).sum::<f64>() / picture.size().pixels() as f64
        };
        let mut scaler = Scaler::new(Size::SMALL);
        let scaled = scaler.scale(&picture).unwrap();
        assert_eq!(scaled.size(), Size::SMALL);
        assert!((mean(scaled) - mean(&picture)).abs() < 2.0);
        assert!(scaled.plane(1).iter().all(|pixel| *pixel == 128));
    }

    #[test]
    fn rows_with_gaps_and_missing_rows_do_no_harm() {
        let mut picture = Picture::grey(Size::SMALL);
        picture.fill(0, &vec![7; 200 * 10 + 3], 200);
        assert_eq!(picture.plane(0).iter().filter(|pixel| **pixel == 7).count(), 176 * 10 + 3);
    }
}
