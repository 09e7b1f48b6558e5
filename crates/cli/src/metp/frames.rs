//! The frames of a video file, in their coded order, each with its kind. FFmpeg's own parsers find them: `ffprobe` runs
//! beside the sender and prints the position, size and kind of each frame.
//!
//! An elementary stream is read where it lies. From a container, `ffmpeg` first copies the video into a temporary file
//! without decoding it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use qfabric_carrier::FrameKind;
use tempfile::TempPath;

use crate::exit::Failure;

/// Frames that wait for their kind: a decoder gives frames out in the order of display, at most this much later.
const REORDERING: usize = 64;
/// Frames that are found ahead of the sender.
const AHEAD: usize = 32;
/// Formats of ffprobe that are elementary streams: frames lie one after the other.
const ELEMENTARY: [&str; 6] = ["h264", "hevc", "mpegvideo", "m4v", "mjpeg", "h261"];
/// Video codecs that can be copied into an elementary stream, and ffmpeg's name of its format.
const COPIED: [(&str, &str); 6] = [
    ("h264", "h264"),
    ("hevc", "hevc"),
    ("mpeg1video", "mpeg1video"),
    ("mpeg2video", "mpeg2video"),
    ("mpeg4", "m4v"),
    ("mjpeg", "mjpeg"),
];

/// A frame and its bytes.
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    pub(super) data: Vec<u8>,
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    position: u64,
    size: u64,
    kind: Option<FrameKind>,
}

/// Reads the frames of a file.
pub(super) struct Frames {
    file: File,
    path: PathBuf,
    length: u64,
    places: Receiver<Place>,
    /// End of the last frame.
    end: u64,
    largest: u64,
    prober: Child,
    _temporary: Option<TempPath>,
}

impl Frames {
    /// Frames above `largest` bytes are refused.
    pub(super) fn open(path: &Path, largest: u64) -> Result<Frames, Failure> {
        let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
        File::open(path).map_err(unreadable)?;
        let (format, codec) = inspect(path)?;
        let temporary = if ELEMENTARY.contains(&format.as_str()) { None } else { Some(extract(path, &codec)?) };
        let path: &Path = temporary.as_deref().unwrap_or(path);
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let (prober, places) = probe(path)?;
        Ok(Frames { file, path: path.to_owned(), length, places, end: 0, largest, prober, _temporary: temporary })
    }

    /// Bytes of all frames together.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The next frame. `None`: all bytes of the file have been read.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Failure> {
        let bad = |why: String| Failure::fault(format!("{}: {why}", self.path.display()));
        let Ok(place) = self.places.recv() else {
            return match self.length - self.end {
                0 => Ok(None),
                left => Err(bad(format!("ffprobe found no frame in the last {left} bytes, from byte {}", self.end))),
            };
        };
        if place.position != self.end || place.size > self.length - self.end {
            return Err(bad(format!(
                "the frame at byte {} does not follow the one that ends at {}",
                place.position, self.end
            )));
        }
        if place.size > self.largest {
            let (size, largest, at) = (place.size, self.largest, place.position);
            return Err(Failure::usage(format!(
                "{}: the frame at byte {at} has {size} bytes, of at most {largest}\ntry: a larger frame_size in the contract",
                self.path.display()
            )));
        }
        let mut data = vec![0; place.size as usize];
        self.file.seek(SeekFrom::Start(place.position)).and_then(|_| self.file.read_exact(&mut data))?;
        self.end += place.size;
        Ok(Some(Frame { kind: place.kind.unwrap_or(FrameKind::Other), data }))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.prober.kill();
        let _ = self.prober.wait();
    }
}

/// The container's format and the codec of the first video stream.
fn inspect(path: &Path) -> Result<(String, String), Failure> {
    let mut command = prober(path);
    command.args(["-show_entries", "format=format_name:stream=codec_name", "-of", "default=noprint_wrappers=1"]);
    let output = command.arg("-i").arg(path).output().map_err(|error| missing("ffprobe", &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    match (value("format_name="), value("codec_name=")) {
        (Some(format), Some(codec)) => Ok((format, codec)),
        _ => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().last().unwrap_or("ffprobe finds no video in it");
            Err(Failure::usage(format!("{}: {why}\ntry: a file with video that ffmpeg can read", path.display())))
        }
    }
}

fn prober(_path: &Path) -> Command {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-select_streams", "v:0", "-threads", "1"]);
    command.stdin(Stdio::null());
    command
}

/// Copies the video of a container into an elementary stream.
fn extract(path: &Path, codec: &str) -> Result<TempPath, Failure> {
    let Some((_, format)) = COPIED.iter().find(|(known, _)| *known == codec) else {
        let known: Vec<_> = COPIED.iter().map(|(codec, _)| *codec).collect();
        return Err(Failure::usage(format!(
            "{}: its video is {codec}; frames of {} can be sent\ntry: ffmpeg -i {} -c:v libx264 video.264",
            path.display(),
            known.join(", "),
            path.display()
        )));
    };
    let temporary = tempfile::Builder::new().prefix("qfabric-").suffix(".video").tempfile()?.into_temp_path();
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-y", "-i"]).arg(path).args(["-map", "0:v:0", "-c", "copy", "-f", format]);
    let output = command.arg(&temporary).output().map_err(|error| missing("ffmpeg", &error))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::usage(format!("{}: ffmpeg cannot copy its video: {}", path.display(), why.trim())));
    }
    Ok(temporary)
}

/// Starts the search for frames, which runs ahead of the reader by a bounded number.
fn probe(path: &Path) -> Result<(Child, Receiver<Place>), Failure> {
    let entries = "packet=pos,size:frame=pkt_pos,pict_type:frame_tags=:frame_side_data_list=";
    let mut command = prober(path);
    command.args(["-show_packets", "-show_frames", "-show_entries", entries, "-of", "compact", "-i"]).arg(path);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| missing("ffprobe", &error))?;
    let lines = BufReader::new(child.stdout.take().expect("is piped"));
    let (send, places) = sync_channel(AHEAD);
    thread::Builder::new().name("frames".to_owned()).spawn(move || {
        let mut finder = Finder::default();
        for line in lines.lines().map_while(Result::ok) {
            finder.read(&line);
            while let Some(place) = finder.known() {
                if send.send(place).is_err() {
                    return;
                }
            }
        }
        // The reader may be gone.
        finder.waiting.into_iter().all(|place| send.send(place).is_ok());
    })?;
    Ok((child, places))
}

fn missing(program: &str, error: &std::io::Error) -> Failure {
    Failure::fault(format!("cannot run {program}, which finds the frames of a video: {error}\ntry: apt install ffmpeg"))
}

/// Joins the packets of ffprobe's output with the kinds of their frames.
#[derive(Default)]
struct Finder {
    waiting: VecDeque<Place>,
}

impl Finder {
    fn read(&mut self, line: &str) {
        let mut fields = line.split('|');
        let section = fields.next().unwrap_or_default();
        let fields: Vec<(&str, &str)> = fields.filter_map(|field| field.split_once('=')).collect();
        let value = |key: &str| fields.iter().find(|(found, _)| *found == key).map(|(_, value)| *value);
        let number = |key: &str| value(key)?.parse::<u64>().ok();
        match section {
            "packet" => {
                if let (Some(position), Some(size)) = (number("pos"), number("size")) {
                    self.waiting.push_back(Place { position, size, kind: None });
                }
            }
            "frame" => {
                let position = number("pkt_pos");
                let found = self.waiting.iter_mut().find(|place| Some(place.position) == position);
                if let Some(place) = found {
                    place.kind = Some(kind(value("pict_type").unwrap_or_default()));
                }
            }
            _ => {}
        }
    }

    /// The first frame, when its kind is known or can no longer become known.
    fn known(&mut self) -> Option<Place> {
        let first = self.waiting.front()?;
        let is_ready = first.kind.is_some() || self.waiting.len() > REORDERING;
        is_ready.then(|| self.waiting.pop_front()).flatten()
    }
}

fn kind(picture: &str) -> FrameKind {
    match picture {
        "I" => FrameKind::I,
        "P" => FrameKind::P,
        "B" => FrameKind::B,
        _ => FrameKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_in_the_order_of_display_and_frames_in_the_coded_order() {
        let mut finder = Finder::default();
        let mut found = Vec::new();
        let lines = "packet|pos=0|size=10\npacket|pos=10|size=5\nframe|pkt_pos=0|pict_type=I\n\
                     packet|pos=15|size=2\nframe|pkt_pos=15|pict_type=B|x\nframe|pkt_pos=10|pict_type=P\nnonsense";
        for line in lines.lines() {
            finder.read(line);
            found.extend(std::iter::from_fn(|| finder.known()).map(|place| (place.position, place.kind)));
        }
        assert_eq!(found, [(0, Some(FrameKind::I)), (10, Some(FrameKind::P)), (15, Some(FrameKind::B))]);
    }

    #[test]
    fn a_frame_without_a_kind_does_not_hold_up_the_others() {
        let mut finder = Finder::default();
        (0..=REORDERING as u64).for_each(|at| finder.read(&format!("packet|pos={at}|size=1")));
        assert_eq!(finder.known().map(|place| place.kind), Some(None));
        assert_eq!(finder.known(), None);
    }
}
