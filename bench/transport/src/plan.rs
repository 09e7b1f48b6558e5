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
use qfabric_netlab::MediaFlow;
use qfabric_types::BitRate;

const DEFAULT: &str = include_str!("../clip/h264.csv");
/// Time between two frames of a clip.
pub(crate) const PERIOD: Duration = Duration::from_millis(40);
/// The largest rate at which an engine sends in a test case of RFC 8867: no test case has more capacity.
const LARGEST_CAPACITY: BitRate = BitRate::new(4_000_000);
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
    /// Bytes, with the stamp of [`crate::stamp`]; zero: a pause of one period.
    pub size: u32,
}

/// What both processes of an engine know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Time between two frames; zero: a frame is due when the engine has taken the one before it.
    pub period: Duration,
    pub deadline: Duration,
    pub granted_bps: u64,
    /// Whether METP may claim the granted rate; otherwise congestion control decides.
    pub is_reserved: bool,
    pub frames: Vec<Frame>,
}

impl Plan {
    /// `count` frames of a clip, which is repeated if it is shorter.
    pub(crate) fn frames_of(clip: &[Frame], count: u32) -> Vec<Frame> {
        clip.iter().copied().cycle().take(count as usize).collect()
    }

    /// A media flow of a test case: frames of a clip, scaled to this rate; `shorten` divides its times.
    pub(crate) fn of_flow(flow: &MediaFlow, clip: &[Frame], video: BitRate, deadline: Duration, shorten: u32) -> Plan {
        let per_second = 1.0 / PERIOD.as_secs_f64();
        let at = |seconds: u64| (seconds as f64 * per_second / f64::from(shorten)) as usize;
        let taken: Vec<Frame> = clip.iter().copied().cycle().take(at(flow.end) - at(flow.begin)).collect();
        let mean = taken.iter().map(|frame| f64::from(frame.size)).sum::<f64>() / taken.len() as f64;
        let scale = video.as_f64() / (8.0 * mean * per_second);
        let is_paused = |frame: usize| flow.pause.is_some_and(|(from, to)| (at(from)..at(to)).contains(&frame));
        let frame = |(number, frame): (usize, &Frame)| match is_paused(at(flow.begin) + number) {
            true => Frame { size: 0, ..*frame },
            false => Frame { size: ((f64::from(frame.size) * scale) as u32).max(crate::stamp::LEAST), ..*frame },
        };
        let frames = taken.iter().enumerate().map(frame).collect();
        Plan { period: PERIOD, deadline, granted_bps: LARGEST_CAPACITY.get(), is_reserved: false, frames }
    }

    /// Frames that are sent.
    pub(crate) fn count(&self) -> usize {
        self.frames.iter().filter(|frame| frame.size > 0).count()
    }

    /// Bytes of the largest frame.
    pub(crate) fn largest(&self) -> u32 {
        self.frames.iter().map(|frame| frame.size).max().unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.frames.iter().map(|frame| u64::from(frame.size)).sum()
    }

    /// Writes the plan for the processes, also those in C: `PERIOD DEADLINE RATE RESERVED`, then `SIZE KIND` of each frame.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let reserved = u64::from(self.is_reserved);
        let head = [self.period.as_nanos() as u64, self.deadline.as_nanos() as u64, self.granted_bps, reserved];
        let mut text = head.map(|number| number.to_string()).join(" ") + "\n";
        for frame in &self.frames {
            writeln!(text, "{} {:?}", frame.size, frame.kind)?;
        }
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    pub(crate) fn read(file: &Path) -> Result<Plan> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let (head, frames) = text.split_once('\n').context("the plan is empty")?;
        let numbers: Vec<u64> = head.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [period, deadline, granted_bps, reserved] = numbers[..] else { bail!("the plan begins with {head:?}") };
        let frame = |line: &str| {
            let (size, kind) = line.split_once(' ')?;
            Some(Frame { kind: kind_of(kind)?, size: size.parse().ok()? })
        };
        let frames = frames.lines().map(|line| frame(line).with_context(|| format!("not a frame: {line:?}")));
        let frames = frames.collect::<Result<Vec<_>>>()?;
        ensure!(frames.len() <= MOST_FRAMES as usize, "{} frames, the limit is {MOST_FRAMES}", frames.len());
        let [period, deadline] = [period, deadline].map(Duration::from_nanos);
        Ok(Plan { period, deadline, granted_bps, is_reserved: reserved > 0, frames })
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
            is_reserved: true,
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
