//! The clips: compressed video that ffmpeg makes once. Players of files get temporal noise, so that a frame costs a good
//! part of a CPU as it did on the paper's machine. Frames that cross a link have none, because the paper's needed 1 Mbit/s.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use qfabric_demo::clips::make_whole;

/// A file and how ffmpeg makes it. The name changes with the recipe.
pub(crate) struct Clip {
    name: &'static str,
    recipe: &'static str,
}

/// For players of files.
pub(crate) const NOISY: Clip = Clip {
    name: "qualman-1080p.mkv",
    recipe: "-v error -nostdin -y -f lavfi -i \
             testsrc2=size=1920x1080:rate=10:duration=4.8,noise=alls=12:allf=t,format=yuv420p \
             -threads 1 -c:v mpeg2video -g 12 -bf 2 -b_strategy 0 -sc_threshold 1000000000 -q:v 3",
};
/// For the link: an elementary stream.
#[cfg(feature = "hosts")]
pub(crate) const SENT: Clip = Clip {
    name: "qualman-1080p-q10.m2v",
    recipe: "-v error -nostdin -y -f lavfi -i testsrc2=size=1920x1080:rate=10:duration=4.8,format=yuv420p \
             -threads 1 -c:v mpeg2video -g 12 -bf 2 -b_strategy 0 -sc_threshold 1000000000 -q:v 10",
};

/// The clip in the cache; makes it if it is missing.
pub(crate) fn ensure(cache: &Path, clip: &Clip) -> Result<PathBuf> {
    let Clip { name, recipe } = clip;
    let clip = cache.join(name);
    if clip.exists() {
        return Ok(clip);
    }
    std::fs::create_dir_all(cache)
        .with_context(|| format!("cannot create {}; name another folder with --cache", cache.display()))?;
    // The end of the name tells ffmpeg the format.
    let part = cache.join(format!("{}-{name}", std::process::id()));
    make_whole(&clip, &part, || {
        let mut command = Command::new("ffmpeg");
        command.args(recipe.split_whitespace()).arg(&part);
        let output = command.output().context("cannot start ffmpeg; try: apt-get install ffmpeg")?;
        ensure!(output.status.success(), "ffmpeg: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    })?;
    Ok(clip)
}

/// The coded pictures of an elementary stream of MPEG-2 video (ISO/IEC 13818-2 §6.2), in coding order. Headers of a
/// sequence or a group belong to the picture that follows.
#[cfg(feature = "hosts")]
pub(crate) fn pictures(stream: &[u8]) -> Vec<&[u8]> {
    const PICTURE: u8 = 0x00;
    const SEQUENCE: u8 = 0xb3;
    const GROUP: u8 = 0xb8;
    let codes = stream.windows(4).enumerate().filter(|(_, code)| code[..3] == [0, 0, 1]);
    let mut starts = Vec::new();
    let mut header = None;
    for (at, code) in codes {
        match code[3] {
            SEQUENCE | GROUP => header = header.or(Some(at)),
            PICTURE => starts.push(header.take().unwrap_or(at)),
            _ => {}
        }
    }
    let ends = starts.iter().skip(1).copied().chain([stream.len()]);
    starts.iter().zip(ends).map(|(start, end)| &stream[*start..end]).collect()
}

#[cfg(all(test, feature = "hosts"))]
mod tests {
    use super::*;

    #[test]
    fn headers_belong_to_the_picture_that_follows_and_slices_to_the_one_before() {
        let code = |kind: u8, more: &[u8]| [&[0, 0, 1, kind][..], more].concat();
        let first = [code(0xb3, b"seq"), code(0xb8, b"gop"), code(0, b"I"), code(1, b"slice")].concat();
        let (second, third) = (code(0, b"B"), [code(0xb8, b""), code(0, b"P"), code(0xaf, b"end")].concat());
        let stream = [first.clone(), second.clone(), third.clone()].concat();
        assert_eq!(pictures(&stream), [&first[..], &second, &third]);
        assert!(pictures(b"no video").is_empty());
    }
}
