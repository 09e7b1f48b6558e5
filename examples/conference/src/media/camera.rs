//! Where pictures come from: a film that is repeated without end, or a generated test picture that moves.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use ffmpeg_next as ffmpeg;

use super::picture::Picture;
use crate::Size;

/// What is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A texture that moves behind a still one, of this size.
    Test(Size),
    /// A film; each captured picture is its next picture.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    /// `test`, or the path of a film.
    fn from_str(text: &str) -> Result<Source, Self::Err> {
        Ok(if text == "test" { Source::Test(Size::LARGE) } else { Source::File(text.into()) })
    }
}

/// An open source.
pub enum Camera {
    /// See [`Source::Test`].
    Test(Pattern),
    /// See [`Source::File`].
    Film(Box<Film>),
}

impl Camera {
    /// Opens the source.
    ///
    /// # Errors
    /// The file cannot be read, has no video stream, or its pictures are not 8-bit 4:2:0 of a size up to
    /// [`Size::LARGEST`].
    pub fn open(source: &Source) -> Result<Camera> {
        Ok(match source {
            Source::Test(size) => Camera::Test(Pattern::new(*size)),
            Source::File(path) => Camera::Film(Box::new(Film::open(path)?)),
        })
    }

    /// The next picture.
    pub fn capture(&mut self) -> Result<&Picture> {
        match self {
            Camera::Test(pattern) => Ok(pattern.next()),
            Camera::Film(film) => film.next(),
        }
    }
}

/// A texture that moves two pixels to the left with each picture. A quarter of it stands still.
pub struct Pattern {
    /// A row has twice the picture's width.
    texture: Vec<u8>,
    picture: Picture,
    number: usize,
}

impl Pattern {
    fn new(size: Size) -> Pattern {
        let mut noise = 0x2545_f491_4f6c_dd1d_u64;
        let mut texture = vec![0; 2 * size.pixels()];
        for (at, pixel) in texture.iter_mut().enumerate() {
            // xorshift64: grain, so that the quality decides how many bytes a picture has.
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            let (x, y) = (at % (2 * usize::from(size.width())), at / (2 * usize::from(size.width())));
            *pixel = (((x / 8 + y / 6) * 5 % 160) as u8) + (noise % 48) as u8 + 16;
        }
        Pattern { texture, picture: Picture::grey(size), number: 0 }
    }

    fn next(&mut self) -> &Picture {
        let (width, height) = self.picture.shape(0);
        let shift = 2 * self.number % width;
        for (y, row) in self.picture.plane_mut(0).chunks_exact_mut(width).enumerate() {
            let still = if y < height / 2 { width / 2 } else { 0 };
            let from = &self.texture[2 * width * y..2 * width * (y + 1)];
            row[..still].copy_from_slice(&from[..still]);
            row[still..].copy_from_slice(&from[still + shift..width + shift]);
        }
        self.number += 1;
        &self.picture
    }
}

/// A film, decoded picture by picture in the thread that captures.
pub struct Film {
    path: PathBuf,
    input: ffmpeg::format::context::Input,
    stream: usize,
    decoder: ffmpeg::decoder::Video,
    decoded: ffmpeg::frame::Video,
    picture: Picture,
}

impl Film {
    fn open(path: &Path) -> Result<Film> {
        let (input, stream, decoder) = open(path)?;
        let picture = Picture::grey(Size::SMALL);
        let mut film =
            Film { path: path.to_owned(), input, stream, decoder, decoded: ffmpeg::frame::Video::empty(), picture };
        ensure!(film.advance()?, "{} has no picture that can be decoded", path.display());
        (film.input, film.stream, film.decoder) = open(path)?;
        Ok(film)
    }

    fn next(&mut self) -> Result<&Picture> {
        if !self.advance()? {
            (self.input, self.stream, self.decoder) = open(&self.path)?;
            ensure!(self.advance()?, "{} has no picture any more", self.path.display());
        }
        Ok(&self.picture)
    }

    /// Decodes the next picture. False: the film ends here.
    fn advance(&mut self) -> Result<bool> {
        while self.decoder.receive_frame(&mut self.decoded).is_err() {
            let mut packet = ffmpeg::Packet::empty();
            match packet.read(&mut self.input) {
                Ok(()) if packet.stream() != self.stream => {}
                // A damaged packet: the film goes on behind it.
                Ok(()) => _ = self.decoder.send_packet(&packet),
                Err(ffmpeg::Error::Eof) if self.decoder.send_eof().is_ok() => {}
                Err(ffmpeg::Error::Eof) => return Ok(false),
                Err(error) => bail!("cannot read {}: {error}", self.path.display()),
            }
        }
        self.take()?;
        Ok(true)
    }

    fn take(&mut self) -> Result<()> {
        let Film { decoded, picture, path, .. } = self;
        let what = |detail: String| format!("{} has pictures {detail}", path.display());
        let how = "convert it with `ffmpeg -i FILM -pix_fmt yuv420p -s 640x480 OTHER`";
        let format = decoded.format();
        let known = [ffmpeg::format::Pixel::YUV420P, ffmpeg::format::Pixel::YUVJ420P].contains(&format);
        ensure!(known, "{}; {how}", what(format!("in the format {format:?}, not 8-bit 4:2:0")));
        let sides = (u16::try_from(decoded.width()), u16::try_from(decoded.height()));
        let size = match sides {
            (Ok(width), Ok(height)) => Size::new(width & !1, height & !1).ok(),
            _ => None,
        };
        let size = size.with_context(|| {
            let (width, height) = (decoded.width(), decoded.height());
            format!("{}; {how}", what(format!("of {width}x{height}, not {} to {}", Size::SMALL, Size::LARGEST)))
        })?;
        if picture.size() != size {
            *picture = Picture::grey(size);
        }
        (0..3).for_each(|plane| picture.fill(plane, decoded.data(plane), decoded.stride(plane)));
        Ok(())
    }
}

fn open(path: &Path) -> Result<(ffmpeg::format::context::Input, usize, ffmpeg::decoder::Video)> {
    let input = ffmpeg::format::input(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let best = input.streams().best(ffmpeg::media::Type::Video);
    let stream = best.with_context(|| format!("{} has no video stream", path.display()))?;
    let mut context = ffmpeg::codec::Context::from_parameters(stream.parameters())?;
    context.set_threading(ffmpeg::threading::Config { count: 1, ..Default::default() });
    let number = stream.index();
    let decoder = context.decoder().video().with_context(|| format!("cannot decode {}", path.display()))?;
    Ok((input, number, decoder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodedPicture, Encoder, Level};

    /// A film of three pictures, one after the other in a file.
    fn film(folder: &Path, level: &str, ending: &str) -> PathBuf {
        let level: Level = level.parse().unwrap();
        let mut camera = Camera::open(&Source::Test(level.size())).unwrap();
        let (mut encoder, mut coded, mut all) = (Encoder::open(level).unwrap(), CodedPicture::default(), Vec::new());
        for _ in 0..3 {
            encoder.encode(camera.capture().unwrap(), true, &mut coded).unwrap();
            all.extend_from_slice(&coded.data);
        }
        let path = folder.join("film").with_extension(ending);
        std::fs::write(&path, all).unwrap();
        path
    }

    #[test]
    fn a_film_is_decoded_picture_by_picture_and_begins_again_after_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = film(folder.path(), "jpeg:90:352x288", "mjpeg");
        let mut camera = Camera::open(&Source::File(path)).unwrap();
        let mut captured: Vec<Picture> = (0..4).map(|_| camera.capture().unwrap().clone()).collect();
        assert!(captured.iter().all(|picture| picture.size() == Size::MEDIUM));
        let last = captured.pop().unwrap();
        let luma = |picture: &Picture| picture.plane(0).to_vec();
        assert!(luma(&captured[0]) != luma(&captured[1]) && luma(&captured[1]) != luma(&captured[2]), "it moves");
        assert_eq!(luma(&last), luma(&captured[0]));
    }

    #[test]
    fn files_that_are_no_films_are_refused_with_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.mp4");
        std::fs::write(&path, "no film").unwrap();
        let refusal = Camera::open(&Source::File(path)).err().map(|error| format!("{error:#}")).unwrap();
        assert!(refusal.contains("notes.mp4"), "{refusal}");
    }
}
