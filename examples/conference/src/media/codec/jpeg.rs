//! JPEG: `jpeg-encoder`, and `zune-jpeg`.

use jpeg_encoder::{Encoder, ImageBuffer, JpegColorType, SamplingFactor};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{CodecProblem, CodedPicture};
use crate::Codec;
use crate::media::picture::Picture;

/// The encoder reads rows with all colours.
struct Rows<'a>(&'a Picture);

impl ImageBuffer for Rows<'_> {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        JpegColorType::Ycbcr
    }

    fn width(&self) -> u16 {
        self.0.size().width()
    }

    fn height(&self) -> u16 {
        self.0.size().height()
    }

    fn fill_buffers(&self, y: u16, buffers: &mut [Vec<u8>; 4]) {
        let (width, _) = self.0.shape(0);
        let row = usize::from(y);
        buffers[0].extend_from_slice(&self.0.plane(0)[width * row..width * (row + 1)]);
        for number in [1, 2] {
            let from = &self.0.plane(number)[width / 2 * (row / 2)..width / 2 * (row / 2 + 1)];
            buffers[number].extend(from.iter().flat_map(|colour| [*colour, *colour]));
        }
    }
}

pub(super) fn encode(picture: &Picture, quality: u8, coded: &mut CodedPicture) -> Result<(), CodecProblem> {
    let mut encoder = Encoder::new(&mut coded.data, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.encode_image(Rows(picture)).map_err(|error| CodecProblem::failed(Codec::Jpeg, error))?;
    coded.key = true;
    Ok(())
}

/// Pictures larger than `picture` are refused before memory is taken for them.
pub(super) fn decode(data: &[u8], picture: &mut Picture) -> Result<(), CodecProblem> {
    let failed = |why: &dyn std::fmt::Display| CodecProblem::failed(Codec::Jpeg, why);
    let (width, height) = picture.shape(0);
    let options = DecoderOptions::default().set_max_width(width).set_max_height(height);
    let options = options.jpeg_set_out_colorspace(ColorSpace::YCbCr).set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(data), options);
    let pixels = decoder.decode().map_err(|error| failed(&error))?;
    let info = decoder.info().ok_or_else(|| failed(&"no header"))?;
    if (usize::from(info.width), usize::from(info.height)) != (width, height) || pixels.len() != 3 * width * height {
        let what = format!("a picture of {}x{}, not {width}x{height} in colours", info.width, info.height);
        return Err(failed(&what));
    }
    for (luma, pixel) in picture.plane_mut(0).iter_mut().zip(pixels.chunks_exact(3)) {
        *luma = pixel[0];
    }
    for number in [1, 2] {
        let rows = pixels.chunks_exact(3 * width).step_by(2);
        for (to, row) in picture.plane_mut(number).chunks_exact_mut(width / 2).zip(rows) {
            to.iter_mut().zip(row.chunks_exact(6)).for_each(|(colour, pair)| *colour = pair[number]);
        }
    }
    Ok(())
}
