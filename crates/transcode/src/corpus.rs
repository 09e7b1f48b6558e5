//! Images made from a seed: four kinds of content of equal size, for measurements that repeat (000 Figure 49).

use super::Image;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Large areas of one colour, such as a slide.
    Flat,
    /// Small dark marks on a light page.
    Text,
    /// Slow changes of colour with the noise of a camera.
    Photo,
    /// Bytes without any order.
    Noise,
}

impl Content {
    pub const ALL: [Content; 4] = [Content::Flat, Content::Text, Content::Photo, Content::Noise];

    pub const fn name(self) -> &'static str {
        match self {
            Content::Flat => "flat",
            Content::Text => "text",
            Content::Photo => "photo",
            Content::Noise => "noise",
        }
    }

    /// An RGB image of about `kilobytes` (1000 bytes), in the ratio 4:3.
    pub fn image(self, kilobytes: f64, seed: u32) -> Image {
        let pixels = (kilobytes.clamp(0.1, 20_000.0) * 1e3 / 3.0).max(12.0);
        let height = (pixels * 0.75).sqrt().round().max(1.0) as u32;
        let width = (pixels / f64::from(height)).round().max(1.0) as u32;
        let mut random = Random(seed.wrapping_mul(2_654_435_761).wrapping_add(1));
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let bytes: Vec<u8> = places.flat_map(|(x, y)| self.pixel((x, y), seed, &mut random)).collect();
        Image::new(width, height, 3, bytes).expect("the size is bounded and the bytes are counted")
    }

    fn pixel(self, (x, y): (u32, u32), seed: u32, random: &mut Random) -> [u8; 3] {
        match self {
            Content::Flat => {
                let area = (x / 64).wrapping_mul(7).wrapping_add((y / 48).wrapping_mul(13)).wrapping_add(seed);
                [area, area.wrapping_mul(3), area.wrapping_mul(5)].map(|level| (level * 32 % 256) as u8)
            }
            Content::Text => {
                let is_line = y % 12 < 8;
                let is_ink = is_line && x % 7 < 5 && random.below(3) == 0;
                [if is_ink { 20 } else { 245 }; 3]
            }
            Content::Photo => {
                let base = [x / 3 + y / 5, x / 5 + y / 4, x / 4 + y / 3].map(|level| level.wrapping_add(seed));
                base.map(|level| (level % 200 + random.below(6)) as u8)
            }
            Content::Noise => [0; 3].map(|_: u8| random.below(256) as u8),
        }
    }
}

/// A linear congruential generator (Numerical Recipes): the same on every machine.
struct Random(u32);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(self.0 >> 8) * u64::from(limit)) >> 24) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Data, Huffman, Lz77, Transcoder};
    use super::*;

    #[test]
    fn equal_sizes_compress_to_very_different_ones() {
        for transcoder in [&mut Huffman as &mut dyn Transcoder, &mut Lz77] {
            let lengths = Content::ALL.map(|content| {
                let data = Data::Image(content.image(230.0, 1));
                assert!((data.length() as f64 / 230e3 - 1.0).abs() < 0.01, "{}", content.name());
                transcoder.apply(&data).unwrap().length()
            });
            let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
            assert!(*most >= 3 * *least, "Figure 49, {}: {lengths:?}", transcoder.name());
        }
    }
}
