//! The transcoders of 000 §6.2.2 that look at each pixel: gray, crop, reduce.

use super::{Data, Image, TranscodeError, Transcoder};

fn image<'d>(data: &'d Data, name: &str) -> Result<&'d Image, TranscodeError> {
    match data {
        Data::Image(image) => Ok(image),
        Data::Bytes(_) => Err(TranscodeError::NoImage(name.to_owned())),
    }
}

/// Converts colours to grey levels: one byte for each pixel instead of three.
///
/// The thesis leaves the size of the image untouched by this conversion where it chains it with crop; here the result
/// has a third of the bytes, as in Figure 46.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gray;

impl Transcoder for Gray {
    fn name(&self) -> &str {
        "gray"
    }

    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError> {
        let colour = image(data, self.name())?;
        if colour.channels() == 1 {
            return Ok(Data::Image(colour.clone()));
        }
        // ITU-R BT.601; the weights have the sum 256.
        let level = |rgb: &[u8]| {
            let [red, green, blue] = [rgb[0], rgb[1], rgb[2]].map(u32::from);
            ((77 * red + 150 * green + 29 * blue) >> 8) as u8
        };
        let pixels = colour.pixels().chunks_exact(3).map(level).collect();
        let (width, height) = colour.size();
        Ok(Data::Image(Image::new(width, height, 1, pixels)?))
    }
}

/// Sides of an image with `percent` of the area, each at least 1.
fn sides((width, height): (u32, u32), percent: u8) -> (u32, u32) {
    let part = (f64::from(percent) / 100.0).sqrt();
    let side = |length: u32| ((f64::from(length) * part).round() as u32).clamp(1, length);
    (side(width), side(height))
}

/// Keeps the middle of the image: `percent` of its area, 1 to 100.
#[derive(Clone, Debug)]
pub struct Crop {
    percent: u8,
    name: String,
}

impl Crop {
    /// Keeps this part of the area; values outside 1 to 100 become the nearest allowed one.
    pub fn new(percent: u8) -> Crop {
        let percent = percent.clamp(1, 100);
        Crop { percent, name: format!("crop:{percent}") }
    }
}

impl Transcoder for Crop {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError> {
        let whole = image(data, &self.name)?;
        let (width, height) = sides(whole.size(), self.percent);
        let (left, top) = ((whole.size().0 - width) / 2, (whole.size().1 - height) / 2);
        let bytes = usize::from(whole.channels());
        let (begin, length) = (left as usize * bytes, width as usize * bytes);
        let rows = (top..top + height).flat_map(|y| whole.row(y)[begin..][..length].iter().copied());
        Ok(Data::Image(Image::new(width, height, whole.channels(), rows.collect())?))
    }
}

/// Makes the image smaller: `percent` of its pixels, each the mean of those that it covers.
#[derive(Clone, Debug)]
pub struct Reduce {
    percent: u8,
    name: String,
}

impl Reduce {
    /// Keeps this part of the pixels; values outside 1 to 100 become the nearest allowed one.
    pub fn new(percent: u8) -> Reduce {
        let percent = percent.clamp(1, 100);
        Reduce { percent, name: format!("reduce:{percent}") }
    }
}

impl Transcoder for Reduce {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError> {
        let whole = image(data, &self.name)?;
        let (width, height) = sides(whole.size(), self.percent);
        let channels = usize::from(whole.channels());
        let mut pixels = Vec::with_capacity(width as usize * height as usize * channels);
        for y in 0..height {
            let rows = covered(y, height, whole.size().1);
            for x in 0..width {
                let columns = covered(x, width, whole.size().0);
                (0..channels).for_each(|channel| pixels.push(mean(whole, rows.clone(), columns.clone(), channel)));
            }
        }
        Ok(Data::Image(Image::new(width, height, whole.channels(), pixels)?))
    }
}

/// The old rows or columns of the new one `at`; at least one.
fn covered(at: u32, new: u32, old: u32) -> std::ops::Range<u32> {
    let edge = |at: u32| (u64::from(at) * u64::from(old) / u64::from(new)) as u32;
    edge(at)..edge(at + 1).max(edge(at) + 1)
}

fn mean(image: &Image, rows: std::ops::Range<u32>, columns: std::ops::Range<u32>, channel: usize) -> u8 {
    let (count, bytes) = (rows.len() as u64 * columns.len() as u64, usize::from(image.channels()));
    let sum_of = |y: u32| -> u64 {
        let row = image.row(y);
        columns.clone().map(|x| u64::from(row[x as usize * bytes + channel])).sum()
    };
    let sum: u64 = rows.map(sum_of).sum();
    ((sum + count / 2) / count) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colours(width: u32, height: u32) -> Data {
        let pixels = (0..width * height).flat_map(|at| [at as u8, 100, 200]).collect();
        Data::Image(Image::new(width, height, 3, pixels).unwrap())
    }

    fn applied(mut transcoder: impl Transcoder, data: Data) -> Image {
        image(&transcoder.apply(&data).unwrap(), "test").unwrap().clone()
    }

    #[test]
    fn gray_leaves_a_third_and_white_stays_white() {
        let gray = applied(Gray, colours(4, 3));
        assert_eq!((gray.size(), gray.channels(), gray.pixels().len()), ((4, 3), 1, 12));
        let white = Data::Image(Image::new(1, 1, 3, vec![255; 3]).unwrap());
        assert_eq!(applied(Gray, white.clone()).pixels(), [255]);
        assert_eq!(applied(Gray, Data::Image(applied(Gray, white))).pixels(), [255]);
    }

    #[test]
    fn crop_keeps_the_middle() {
        let middle = applied(Crop::new(25), colours(8, 8));
        assert_eq!((middle.size(), middle.pixels()[0]), ((4, 4), 2 * 8 + 2));
        assert_eq!(applied(Crop::new(1), colours(1, 1)).size(), (1, 1));
    }

    #[test]
    fn reduce_takes_means() {
        let small = applied(Reduce::new(25), colours(2, 2));
        assert_eq!((small.size(), small.pixels()), ((1, 1), &[2, 100, 200][..]));
        let odd = applied(Reduce::new(30), colours(7, 5));
        assert_eq!((odd.size(), odd.pixels()[2]), ((4, 3), 200));
    }

    #[test]
    fn transcoders_of_images_refuse_other_data() {
        let refused = Crop::new(40).apply(&Data::Bytes(vec![1, 2])).unwrap_err().to_string();
        assert!(refused.contains("crop:40") && refused.contains("before compression"), "{refused}");
    }
}
