//! The tables `[video]` and `[sound]`.

use qfabric_types::{Bytes, Nanos};

use super::section::{Item, Section};
use super::{InvalidStream, degradation};
use crate::pattern::{FrameKind, GopPattern};
use crate::rate::{Fraction, FrameRate, Range};
use crate::stream::{Sound, Video};

const FRAME_SIZES: (u64, u64) = (1, 64 << 20);
const SAMPLE_RATES: (f64, f64) = (1.0, 10_000_000.0);
const SAMPLE_SIZES: (u64, u64) = (1, 4096);
const BLOCKS: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(4_000));
const DEFAULT_BLOCK: Nanos = Nanos::from_millis(20);

pub(super) fn video(section: &Section) -> Result<Video, InvalidStream> {
    section.check_keys(&["frame_rate", "frame_size", "pattern", "degradation"])?;
    let rate = section.require("frame_rate", "frame_rate = 25, or { min = 15, max = 25 }")?;
    let sizes =
        section.require("frame_size", "frame_size = \"20kB\", or { I = \"20kB\", P = \"8kB\", B = \"4kB\" }")?;
    let pattern = section.get("pattern").map(|item| pattern(&item)).transpose()?;
    if pattern.is_none() && sizes.is_table() {
        return Err(section.missing("pattern", "pattern = \"IBBPBBPBBPBB\", the kinds of the frames of a GOP"));
    }
    let pattern = pattern.unwrap_or_else(|| "I".parse().expect("a valid pattern"));
    Ok(Video {
        rate: range(&rate, "frame_rate", frame_rate)?,
        sizes: frame_sizes(&sizes, &pattern)?,
        pattern,
        degradation: section.get("degradation").map_or(Ok(Fraction::ZERO), degradation)?,
    })
}

pub(super) fn sound(section: &Section) -> Result<Sound, InvalidStream> {
    section.check_keys(&["sample_rate", "sample_size", "block"])?;
    let rate = section.require("sample_rate", "sample_rate = 48000, or { min = 16000, max = 48000 }")?;
    let size = section.require("sample_size", "sample_size = \"4B\", the bytes of one sample of all channels")?;
    Ok(Sound {
        sample_rate: range(&rate, "sample_rate", sample_rate)?,
        sample_size: size.size_within(SAMPLE_SIZES)?,
        block: section.get("block").map_or(Ok(DEFAULT_BLOCK), |item| block(&item))?,
    })
}

fn pattern(item: &Item) -> Result<GopPattern, InvalidStream> {
    item.parsed("1 to 256 letters I, P and B in quotes, beginning with I, such as \"IBBPBBPBBPBB\"")
}

fn block(item: &Item) -> Result<Nanos, InvalidStream> {
    let block = item.time_up_to(BLOCKS.1)?;
    let is_within = block >= BLOCKS.0;
    is_within.then_some(block).ok_or_else(|| item.outside(format!("{} to {}", BLOCKS.0.exact(), BLOCKS.1.exact())))
}

fn frame_rate(item: &Item) -> Result<FrameRate, InvalidStream> {
    let value = item.number_within(FrameRate::MIN.as_f64(), FrameRate::MAX.as_f64())?;
    FrameRate::from_f64(value).ok_or_else(|| item.outside(format!("{} to {}", FrameRate::MIN, FrameRate::MAX)))
}

fn sample_rate(item: &Item) -> Result<u64, InvalidStream> {
    Ok(item.number_within(SAMPLE_RATES.0, SAMPLE_RATES.1)?.ceil() as u64)
}

/// A number, or a table with `min` and `max`.
fn range<T: Copy + Ord>(
    item: &Item,
    path: &'static str,
    number: impl Fn(&Item) -> Result<T, InvalidStream>,
) -> Result<Range<T>, InvalidStream> {
    if !item.is_table() {
        return number(item).map(Range::Average);
    }
    let section = item.section(path)?;
    section.check_keys(&["min", "max"])?;
    let min = number(&section.require("min", "min = 15")?)?;
    let highest = section.require("max", "max = 25")?;
    let max = number(&highest)?;
    if max < min {
        return Err(highest.conflict("it is smaller than min", "exchange min and max"));
    }
    Ok(Range::Between { min, max })
}

/// The sizes by kind. Each kind of the pattern has a size; the others are zero.
fn frame_sizes(item: &Item, pattern: &GopPattern) -> Result<[Bytes; 3], InvalidStream> {
    if !item.is_table() {
        return Ok([item.size_within(FRAME_SIZES)?; 3]);
    }
    let section = item.section("frame_size")?;
    section.check_keys(&["I", "P", "B"])?;
    let examples =
        [(FrameKind::I, "I", "I = \"20kB\""), (FrameKind::P, "P", "P = \"8kB\""), (FrameKind::B, "B", "B = \"4kB\"")];
    let mut sizes = [Bytes::ZERO; 3];
    for (kind, key, example) in examples {
        let item = if pattern.count(kind) > 0 { Some(section.require(key, example)?) } else { section.get(key) };
        sizes[kind as usize] = item.map_or(Ok(Bytes::ZERO), |item| item.size_within(FRAME_SIZES))?;
    }
    Ok(sizes)
}
