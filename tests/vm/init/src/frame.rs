//! Frames: one byte for the kind, the length in four bytes (little endian), and the content.

use std::io::{self, Read, Write};

/// Largest length of a frame's content in bytes. A reader that lost its position in the stream finds a larger
/// length.
const MAX_CONTENT: usize = 1 << 20;

/// The two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A message from the machine to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The machine is up; carries the kernel's release.
    Hello(String),
    /// A problem outside of any command.
    Trouble(String),
    /// The command of this number, counted from 0, starts.
    Start(u32),
    /// Output of the command.
    Said(Stream, Vec<u8>),
    /// The command ended with this code: 128 + n after signal n, 127 if it could not be started.
    Exit(u8),
    /// A file with this path below [`crate::OUT`] follows.
    File(String),
    /// A part of the file.
    Content(Vec<u8>),
    /// The last frame: the host may switch the machine off.
    Done,
}

#[derive(Debug)]
pub enum FrameError {
    /// The other side closed the stream between two frames.
    End,
    /// Reading failed, or the other side closed the stream within a frame.
    Io(io::Error),
    /// The bytes are not a frame.
    Damaged(String),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::End => f.write_str("the stream of frames ended"),
            FrameError::Io(e) => e.fmt(f),
            FrameError::Damaged(what) => write!(f, "not a frame: {what}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        FrameError::Io(error)
    }
}

impl Frame {
    /// Writes the frame with one call. A lock around the call keeps frames of several threads apart.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, content) = self.parts();
        let length = u32::try_from(content.len()).ok().filter(|length| *length as usize <= MAX_CONTENT);
        let length = length.ok_or_else(|| {
            io::Error::other(format!("{} B do not fit into a frame; at most {MAX_CONTENT} B do", content.len()))
        })?;
        let mut bytes = vec![kind];
        bytes.extend(length.to_le_bytes());
        bytes.extend(content);
        to.write_all(&bytes)
    }

    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Frame::Hello(release) => (b'h', release.clone().into_bytes()),
            Frame::Trouble(what) => (b't', what.clone().into_bytes()),
            Frame::Start(number) => (b's', number.to_le_bytes().to_vec()),
            Frame::Said(Stream::Out, bytes) => (b'o', bytes.clone()),
            Frame::Said(Stream::Err, bytes) => (b'e', bytes.clone()),
            Frame::Exit(code) => (b'x', vec![*code]),
            Frame::File(path) => (b'f', path.clone().into_bytes()),
            Frame::Content(bytes) => (b'c', bytes.clone()),
            Frame::Done => (b'd', Vec::new()),
        }
    }

    /// Waits for the next frame.
    pub fn read(from: &mut impl Read) -> Result<Frame, FrameError> {
        let mut kind = [0];
        if from.read(&mut kind)? == 0 {
            return Err(FrameError::End);
        }
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_CONTENT {
            return Err(FrameError::Damaged(format!("length {length} B, at most {MAX_CONTENT} B")));
        }
        let mut content = vec![0; length];
        from.read_exact(&mut content)?;
        Frame::from_parts(kind[0], content)
    }

    fn from_parts(kind: u8, content: Vec<u8>) -> Result<Frame, FrameError> {
        let damaged = || FrameError::Damaged(format!("kind {kind}, {} B", content.len()));
        let text = || String::from_utf8_lossy(&content).into_owned();
        Ok(match kind {
            b'h' => Frame::Hello(text()),
            b't' => Frame::Trouble(text()),
            b's' => Frame::Start(u32::from_le_bytes(content.as_slice().try_into().map_err(|_| damaged())?)),
            b'o' => Frame::Said(Stream::Out, content),
            b'e' => Frame::Said(Stream::Err, content),
            b'x' => Frame::Exit(*content.first().ok_or_else(damaged)?),
            b'f' => Frame::File(text()),
            b'c' => Frame::Content(content),
            b'd' => Frame::Done,
            _ => return Err(damaged()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        let (out, err) = (Frame::Said(Stream::Out, vec![0, 255]), Frame::Said(Stream::Err, Vec::new()));
        let (hello, trouble) = (Frame::Hello("7.3".to_owned()), Frame::Trouble("no veth".to_owned()));
        let (file, content) = (Frame::File("a/b".to_owned()), Frame::Content(vec![7; 4096]));
        vec![hello, trouble, Frame::Start(70_000), out, err, Frame::Exit(101), file, content, Frame::Done]
    }

    #[test]
    fn frames_arrive_as_they_were_sent() {
        let mut bytes = Vec::new();
        all().iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        let mut from = bytes.as_slice();
        for frame in all() {
            assert_eq!(Frame::read(&mut from).unwrap(), frame);
        }
        assert!(matches!(Frame::read(&mut from), Err(FrameError::End)));
    }

    #[test]
    fn a_truncated_frame_is_distinguished_from_the_end() {
        let mut bytes = Vec::new();
        Frame::Start(1).write(&mut bytes).unwrap();
        for end in 1..bytes.len() {
            assert!(matches!(Frame::read(&mut &bytes[..end]), Err(FrameError::Io(_))), "cut at {end}");
        }
    }

    #[test]
    fn kernel_messages_are_no_frames() {
        assert!(matches!(Frame::read(&mut &b"[    0.1] Kernel panic"[..]), Err(FrameError::Damaged(_))));
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_sent() {
        assert!(Frame::Content(vec![0; MAX_CONTENT + 1]).write(&mut Vec::new()).is_err());
    }
}
