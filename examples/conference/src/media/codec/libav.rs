//! H.261 and H.264 by the system's libavcodec.

use ffmpeg::codec::{self, Flags, Id};
use ffmpeg::format::Pixel;
use ffmpeg_next as ffmpeg;

use super::{CodecProblem, CodedPicture, KEY_DISTANCE};
use crate::media::picture::Picture;
use crate::media::presets::Preset;
use crate::{Codec, Level, Size};

fn id(codec: Codec) -> Id {
    match codec {
        Codec::Jpeg => Id::MJPEG,
        Codec::H261 => Id::H261,
        Codec::H264 => Id::H264,
    }
}

fn encoder(codec: Codec) -> Option<ffmpeg::Codec> {
    match codec {
        // By name: what libavcodec prefers may be hardware that this host does not have.
        Codec::H264 => ["libx264", "libopenh264"].into_iter().find_map(codec::encoder::find_by_name),
        _ => codec::encoder::find(id(codec)),
    }
}

/// Errors are returned, and not printed as well.
pub(super) fn be_quiet() {
    ffmpeg::util::log::set_level(ffmpeg::util::log::Level::Quiet);
}

pub(super) fn has(codec: Codec) -> bool {
    encoder(codec).is_some() && codec::decoder::find(id(codec)).is_some()
}

/// An encoder without delay: each picture gives its bytes at once.
pub(super) struct Encoder {
    codec: Codec,
    encoder: codec::encoder::video::Encoder,
    frame: ffmpeg::frame::Video,
    packet: ffmpeg::Packet,
    number: i64,
}

impl Encoder {
    pub(super) fn open(level: Level, preset: Preset) -> Result<Encoder, CodecProblem> {
        let codec = level.codec();
        let found = encoder(codec).ok_or(CodecProblem::Missing { what: "encoder", codec })?;
        let (width, height) = (u32::from(level.size().width()), u32::from(level.size().height()));
        let failed = |error: ffmpeg::Error| CodecProblem::failed(codec, format!("cannot open its encoder: {error}"));
        let mut context = codec::Context::new_with_codec(found);
        context.set_threading(ffmpeg::threading::Config { count: 1, ..Default::default() });
        let mut video = context.encoder().video().map_err(failed)?;
        video.set_width(width);
        video.set_height(height);
        video.set_format(Pixel::YUV420P);
        // H.261 has the clock of NTSC.
        video.set_time_base((1001, 30_000));
        video.set_gop(KEY_DISTANCE);
        video.set_max_b_frames(0);
        // From 2, the smallest quantiser that the encoder takes, at quality 30, to 31, the largest one, at quality 1.
        let quantiser = i32::from(codec.best_quality()) + 2 - i32::from(level.quality());
        let mut options = ffmpeg::Dictionary::new();
        if codec == Codec::H264 {
            options.set("preset", preset.name());
            options.set("tune", "zerolatency");
            options.set("forced-idr", "1");
            options.set("crf", &(quantiser + 14).to_string());
        } else {
            video.set_qmin(quantiser);
            video.set_qmax(quantiser);
        }
        let encoder = video.open_with(options).map_err(failed)?;
        let frame = ffmpeg::frame::Video::new(Pixel::YUV420P, width, height);
        Ok(Encoder { codec, encoder, frame, packet: ffmpeg::Packet::empty(), number: 0 })
    }

    pub(super) fn encode(
        &mut self,
        picture: &Picture,
        key: bool,
        coded: &mut CodedPicture,
    ) -> Result<(), CodecProblem> {
        for number in 0..3 {
            let (width, stride) = (picture.shape(number).0, self.frame.stride(number));
            let rows = picture.plane(number).chunks_exact(width);
            for (to, from) in self.frame.data_mut(number).chunks_mut(stride).zip(rows) {
                to[..width].copy_from_slice(from);
            }
        }
        self.frame.set_pts(Some(self.number));
        self.number += 1;
        self.frame.set_kind(if key { ffmpeg::picture::Type::I } else { ffmpeg::picture::Type::None });
        let codec = self.codec;
        let failed = |error: ffmpeg::Error| CodecProblem::failed(codec, format!("cannot code a picture: {error}"));
        self.encoder.send_frame(&self.frame).map_err(failed)?;
        self.encoder.receive_packet(&mut self.packet).map_err(failed)?;
        coded.data.extend_from_slice(self.packet.data().unwrap_or_default());
        coded.key = self.packet.is_key();
        Ok(())
    }
}

/// A decoder without delay.
pub(super) struct Decoder {
    codec: Codec,
    decoder: codec::decoder::Video,
    frame: ffmpeg::frame::Video,
    spare: ffmpeg::frame::Video,
}

impl Decoder {
    pub(super) fn open(codec: Codec) -> Result<Decoder, CodecProblem> {
        let found = codec::decoder::find(id(codec)).ok_or(CodecProblem::Missing { what: "decoder", codec })?;
        let failed = |error: ffmpeg::Error| CodecProblem::failed(codec, format!("cannot open its decoder: {error}"));
        let mut context = codec::Context::new_with_codec(found);
        context.set_threading(ffmpeg::threading::Config { count: 1, ..Default::default() });
        context.set_flags(Flags::LOW_DELAY);
        let mut options = ffmpeg::Dictionary::new();
        // A hostile header cannot make it take memory for a larger picture. H.264 codes 1080 rows as 1088.
        options.set("max_pixels", &(Size::LARGEST.pixels() + 8 * 1920).to_string());
        let opened = context.decoder().open_as_with(found, options).and_then(|opened| opened.video());
        let [frame, spare] = [(); 2].map(|()| ffmpeg::frame::Video::empty());
        Ok(Decoder { codec, decoder: opened.map_err(failed)?, frame, spare })
    }

    pub(super) fn decode(&mut self, data: &[u8], picture: &mut Picture) -> Result<(), CodecProblem> {
        let codec = self.codec;
        let failed = |why: String| CodecProblem::failed(codec, why);
        if data.is_empty() {
            return Err(failed("an empty picture".into())); // to libavcodec it is the end of the film
        }
        let sent = self.decoder.send_packet(&ffmpeg::Packet::copy(data));
        sent.map_err(|error| failed(format!("cannot decode a picture: {error}")))?;
        let mut got = false;
        // A call without a picture empties its frame.
        while self.decoder.receive_frame(&mut self.spare).is_ok() {
            std::mem::swap(&mut self.frame, &mut self.spare);
            got = true;
        }
        let (width, height) = picture.shape(0);
        let has = (self.frame.width() as usize, self.frame.height() as usize, self.frame.format());
        if !got || !matches!(has, (w, h, Pixel::YUV420P | Pixel::YUVJ420P) if (w, h) == (width, height)) {
            return Err(failed(format!("the data is not a picture of {width}x{height} by itself")));
        }
        (0..3).for_each(|number| picture.fill(number, self.frame.data(number), self.frame.stride(number)));
        Ok(())
    }
}
