//! The frames of a run: sizes and kinds of a real clip, due at a steady pace.
//!
//! Default: the frames of a clip of H.264 that `clip/make.sh` makes, measured by the same script. Other clips are
//! measured by ffprobe. Frames are in the order of the file, which is the order of sending.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const DEFAULT: &str = include_str!("../clip/h264.csv");
/// Limit of the frames of a run: 66 minutes at 25 frames a second.
pub const MOST_FRAMES: u32 = 100_000;
/// Limit of one frame in bytes; bounds the memory of a receiver.
const LARGEST: u32 = 64 << 20;

/// The kind of a frame of compressed video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Coded alone.
    I,
    /// Predicted from an earlier frame.
    P,
    /// Predicted from both sides; no frame depends on it.
    B,
}

/// One frame of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: Kind,
    /// Bytes, with the stamp of [`crate::stamp`].
    pub size: u32,
}

/// What both processes of an engine know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Time between two frames; zero: a frame is due when the engine has taken the one before it.
    pub period: Duration,
    pub deadline: Duration,
    pub granted_bps: u64,
    pub frames: Vec<Frame>,
}

impl Plan {
    /// `count` frames of a clip, which is repeated if it is shorter.
    pub(crate) fn frames_of(clip: &[Frame], count: u32) -> Vec<Frame> {
        clip.iter().copied().cycle().take(count as usize).collect()
    }

    /// Bytes of the largest frame.
    pub(crate) fn largest(&self) -> u32 {
        self.frames.iter().map(|frame| frame.size).max().unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.frames.iter().map(|frame| u64::from(frame.size)).sum()
    }

    /// Writes the plan for the processes, also those in C: `PERIOD DEADLINE RATE`, then `SIZE KIND` of each frame.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let mut text = format!("{} {} {}\n", self.period.as_nanos(), self.deadline.as_nanos(), self.granted_bps);
        for frame in &self.frames {
            writeln!(text, "{} {:?}", frame.size, frame.kind)?;
        }
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    pub(crate) fn read(file: &Path) -> Result<Plan> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let (head, frames) = text.split_once('\n').context("the plan is empty")?;
        let numbers: Vec<u64> = head.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [period, deadline, granted_bps] = numbers[..] else { bail!("the plan begins with {head:?}") };
        let frame = |line: &str| {
            let (size, kind) = line.split_once(' ')?;
            Some(Frame { kind: kind_of(kind)?, size: size.parse().ok()? })
        };
        let frames = frames.lines().map(|line| frame(line).with_context(|| format!("not a frame: {line:?}")));
        let frames = frames.collect::<Result<Vec<_>>>()?;
        ensure!(frames.len() <= MOST_FRAMES as usize, "{} frames, the limit is {MOST_FRAMES}", frames.len());
        Ok(Plan { period: Duration::from_nanos(period), deadline: Duration::from_nanos(deadline), granted_bps, frames })
    }
}

fn kind_of(letter: &str) -> Option<Kind> {
    match letter {
        "I" => Some(Kind::I),
        "P" => Some(Kind::P),
        "B" => Some(Kind::B),
        _ => None,
    }
}

/// The frames of a clip; `None`: of the default clip.
pub(crate) fn clip(file: Option<&Path>) -> Result<Vec<Frame>> {
    match file {
        None => parse(DEFAULT),
        Some(file) => parse(&measure(file)?).with_context(|| format!("the frames of {}", file.display())),
    }
}

/// Lines `KIND,SIZE`.
fn parse(text: &str) -> Result<Vec<Frame>> {
    let frames = text.lines().enumerate().map(|(at, line)| {
        let parts = line.split_once(',').and_then(|(kind, size)| Some((kind_of(kind)?, size.parse::<u32>().ok()?)));
        let (kind, size) =
            parts.with_context(|| format!("line {}: {line:?} is not a frame such as I,20000", at + 1))?;
        ensure!(size <= LARGEST, "frame {} has {size} bytes, the limit is {LARGEST}", at + 1);
        Ok(Frame { kind, size: size.max(crate::stamp::LEAST) })
    });
    let frames: Vec<Frame> = frames.collect::<Result<_>>()?;
    ensure!(!frames.is_empty(), "there is no frame; ffprobe must find a video stream in the file");
    Ok(frames)
}

/// Asks ffprobe for the frames of a file, in the order of the file.
fn measure(file: &Path) -> Result<String> {
    let arguments = ["-v", "error", "-select_streams", "v:0", "-of", "csv=print_section=0", "-show_entries"];
    let mut command = Command::new("ffprobe");
    command.args(arguments).arg("frame=pkt_pos,pkt_size,pict_type").arg("-i").arg(file);
    let output = command.output().context("cannot start ffprobe; try: apt-get install ffmpeg")?;
    ensure!(output.status.success(), "ffprobe: {}", String::from_utf8_lossy(&output.stderr).trim());
    in_file_order(&String::from_utf8_lossy(&output.stdout))
}

/// From ffprobe's lines `POSITION,SIZE,KIND`, which are in the order of display.
fn in_file_order(lines: &str) -> Result<String> {
    let frame = |line: &str| {
        let mut parts = line.split(',');
        let (at, size, kind) = (parts.next()?.parse::<u64>().ok()?, parts.next()?, parts.next()?);
        Some((at, format!("{kind},{size}\n")))
    };
    let frames = lines.lines().filter(|line| !line.is_empty());
    let frames = frames.map(|line| frame(line).with_context(|| format!("ffprobe printed {line:?}")));
    let mut frames: Vec<(u64, String)> = frames.collect::<Result<_>>()?;
    frames.sort_by_key(|(at, _)| *at);
    Ok(frames.into_iter().map(|(_, frame)| frame).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_clip_has_groups_of_twelve_and_the_measured_rate() {
        let frames = clip(None).unwrap();
        assert_eq!(frames.len(), 600);
        let groups = frames.iter().enumerate().filter(|(_, frame)| frame.kind == Kind::I);
        assert!(groups.map(|(at, _)| at % 12).all(|place| place == 0));
        let bits = 8 * frames.iter().map(|frame| u64::from(frame.size)).sum::<u64>();
        assert!((9_000_000..13_000_000).contains(&(bits / 24)), "{} bit/s", bits / 24);
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan");
        let plan = Plan {
            period: Duration::from_millis(40),
            deadline: Duration::from_millis(200),
            granted_bps: 27_000_000,
            frames: Plan::frames_of(&clip(None).unwrap(), 700),
        };
        plan.write(&file).unwrap();
        assert_eq!(Plan::read(&file).unwrap(), plan);
        assert_eq!(plan.frames[0], plan.frames[600], "a short clip is repeated");
    }

    #[test]
    fn a_line_that_is_no_frame_is_named() {
        let refusal = parse("I,20000\nX,3").unwrap_err().to_string();
        assert!(refusal.contains("line 2") && refusal.contains("X,3"), "{refusal}");
        assert!(parse("I,99999999999").is_err() && parse("I,90000000").is_err() && parse("").is_err());
    }

    #[test]
    fn frames_of_ffprobe_come_in_the_order_of_the_file() {
        assert_eq!(in_file_order("500,20,B\n100,30,I\n\n300,25,P\n").unwrap(), "I,30\nP,25\nB,20\n");
        assert!(in_file_order("N/A,20,B\n").unwrap_err().to_string().contains("N/A"));
    }
}
