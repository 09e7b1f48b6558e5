//! Messages in both directions between an application and its daemon: a ring for each way in one sealed memfd, and a socket
//! that wakes whoever sleeps and tells when the other side has gone.
//!
//! ```text
//! send ─> ring ┄┄> next           a message costs no system call
//!   └─ reader sleeps? ─> socket   one byte, once for each time it sleeps; as well from a reader that has made room for
//!                                 a writer that found none
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use qfabric_types::message_ring::{MessageRing, MessageRings, Reader, TakeOutcome, Writer, Written};

use crate::fds;
use crate::mapping::Shared;
use crate::memfd::refused;

/// The only message on the socket beside those that begin a connection.
const NUDGE: [u8; 1] = [0];

/// Who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Sends up, hears from below.
    Application,
    /// The other one.
    Daemon,
}

/// One side's end. Unmapped when dropped.
#[derive(Debug)]
pub struct Duplex {
    rings: Shared<MessageRings>,
    side: Side,
    writer: Writer,
    reader: Reader,
}

impl Duplex {
    /// Makes fresh rings (daemon). The file is to be handed out with [`fds::send`]: it can neither shrink nor grow,
    /// whatever its receiver does.
    pub fn create() -> io::Result<(Duplex, OwnedFd)> {
        let (rings, file) = Shared::<MessageRings>::create("qfabric-messages")?;
        rings.up.initialize();
        rings.down.initialize();
        Ok((Duplex::of(rings, Side::Daemon), file))
    }

    /// Maps rings made by somebody else (application). Refused unless the file is sealed against shrinking, large enough,
    /// and holds rings of this version.
    pub fn map(file: &OwnedFd) -> io::Result<Duplex> {
        let rings = Shared::<MessageRings>::map(file)?;
        match rings.up.is_valid() && rings.down.is_valid() {
            true => Ok(Duplex::of(rings, Side::Application)),
            false => Err(refused("the shared memory holds no rings of this version; use a daemon of the same version")),
        }
    }

    fn of(rings: Shared<MessageRings>, side: Side) -> Duplex {
        Duplex { rings, side, writer: Writer::default(), reader: Reader::default() }
    }

    /// Sends a message, and wakes the other side where it sleeps. False: there is no room; `socket` will be readable when
    /// there is.
    ///
    /// # Errors
    /// The other side has gone.
    pub fn send(&mut self, socket: impl AsFd, message: &[u8]) -> io::Result<bool> {
        match self.write(message) {
            Written::Quiet => Ok(true),
            Written::Wake => nudge(socket).map(|()| true),
            Written::Full => Ok(false),
        }
    }

    /// As [`Duplex::send`], for who wakes the other side later, with [`nudge`].
    pub fn write(&mut self, message: &[u8]) -> Written {
        let Duplex { rings, side, writer, .. } = self;
        writer.write(outgoing(rings, *side), message)
    }

    /// The next message, in `buffer`; none: there is none, and `socket` will be readable when there is one. What wakes this
    /// side is taken off the socket.
    ///
    /// # Errors
    /// The other side has gone, or has written what is no message.
    pub fn next(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut has_heard = false;
        loop {
            match self.take(&socket, buffer)? {
                TakeOutcome::Message(length) => return Ok(Some(length)),
                TakeOutcome::Nonsense => return Err(refused("the rings hold what is no message")),
                TakeOutcome::Nothing => {}
            }
            let asleep = self.is_asleep();
            if asleep && has_heard {
                return Ok(None);
            }
            if !asleep && !self.may_sleep() {
                continue;
            }
            match fds::recv_now(&socket, &mut [0; NUDGE.len()]) {
                Ok(got) if got.length == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => has_heard = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// What the ring holds, whatever it is; the other side is woken where it waited for the room.
    pub fn take(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<TakeOutcome> {
        let Duplex { rings, side, reader, .. } = self;
        let ring = incoming(rings, *side);
        let took = reader.take(ring, buffer);
        if reader.has_made_room(ring) {
            nudge(socket)?;
        }
        Ok(took)
    }

    /// Says that this side sleeps. False: there is something to read.
    pub fn may_sleep(&self) -> bool {
        self.reader.may_sleep(incoming(&self.rings, self.side))
    }

    fn is_asleep(&self) -> bool {
        self.reader.is_asleep(incoming(&self.rings, self.side))
    }
}

fn outgoing(rings: &MessageRings, side: Side) -> &MessageRing {
    match side {
        Side::Application => &rings.up,
        Side::Daemon => &rings.down,
    }
}

fn incoming(rings: &MessageRings, side: Side) -> &MessageRing {
    match side {
        Side::Application => &rings.down,
        Side::Daemon => &rings.up,
    }
}

/// Wakes the other side.
///
/// # Errors
/// It has gone.
pub fn nudge(socket: impl AsFd) -> io::Result<()> {
    match fds::send_now(socket, &[io::IoSlice::new(&NUDGE)]) {
        // Full: there is enough to wake it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        sent => sent,
    }
}

/// Whether a message on the socket is there only to wake.
pub fn is_nudge(message: &[u8]) -> bool {
    message == NUDGE
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    struct End {
        duplex: Duplex,
        socket: OwnedFd,
    }

    fn pair() -> (End, End) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (near, far) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let (daemon, file) = Duplex::create().unwrap();
        let application = Duplex::map(&file).unwrap();
        (End { duplex: daemon, socket: near }, End { duplex: application, socket: far })
    }

    impl End {
        fn send(&mut self, message: &[u8]) -> bool {
            self.duplex.send(&self.socket, message).unwrap()
        }

        fn next(&mut self) -> Option<Vec<u8>> {
            let mut buffer = [0; 4096];
            let length = self.duplex.next(&self.socket, &mut buffer).unwrap();
            length.map(|length| buffer[..length].to_vec())
        }

        fn readable(&self, seconds: i64) -> bool {
            let patience = Timespec { tv_sec: seconds, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&patience)).unwrap() == 1
        }
    }

    #[test]
    fn messages_go_both_ways_and_a_sleeper_is_woken_once() {
        let (mut daemon, mut application) = pair();
        assert_eq!(daemon.next(), None);
        assert!(!daemon.readable(0) && application.send(b"one") && daemon.readable(0));
        assert!(application.send(b"two"));
        assert_eq!([daemon.next().unwrap(), daemon.next().unwrap()], [b"one", b"two"]);
        assert_eq!(daemon.next(), None);
        assert!(!daemon.readable(0), "what woke it is taken off the socket");
        assert!(daemon.send(b"back") && !application.readable(0), "it has not gone to sleep yet");
        assert_eq!(application.next().unwrap(), b"back");
    }

    #[test]
    fn who_has_gone_is_noticed_on_both_sides() {
        let (mut daemon, mut application) = pair();
        assert_eq!(application.next(), None);
        assert!(daemon.send(b"last"));
        drop(daemon);
        assert_eq!(application.next().unwrap(), b"last");
        assert_eq!(application.next(), None, "what woke it was on the socket first");
        let gone = application.duplex.next(&application.socket, &mut [0; 8]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        let (mut daemon, application) = pair();
        assert_eq!(daemon.next(), None);
        drop(application);
        assert!(daemon.duplex.next(&daemon.socket, &mut [0; 8]).is_err());
    }

    #[test]
    fn nothing_is_lost_between_a_writer_and_a_reader_that_sleep_whenever_they_can() {
        const MESSAGES: u32 = 200_000;
        let (mut daemon, mut application) = pair();
        let writing = thread::spawn(move || {
            for number in 0..MESSAGES {
                let message = vec![number as u8; 4 + number as usize % 300];
                while !application.send(&[&number.to_le_bytes(), &message[..]].concat()) {
                    assert!(application.readable(60), "nobody told of room");
                    assert_eq!(application.next(), None);
                }
            }
            application
        });
        let mut expected = 0u32;
        while expected < MESSAGES {
            match daemon.next() {
                Some(message) => {
                    assert_eq!(message[..4], expected.to_le_bytes());
                    assert!(message[4..].iter().all(|byte| *byte == expected as u8));
                    expected += 1;
                }
                None => assert!(daemon.readable(60), "nobody woke the reader"),
            }
        }
        assert_eq!(daemon.next(), None);
        drop(writing.join().unwrap());
    }

    #[test]
    fn memory_without_rings_is_refused() {
        let (_, file) = Shared::<MessageRings>::create("zeros").unwrap();
        assert!(Duplex::map(&file).unwrap_err().to_string().contains("no rings"));
        let (_, short) = crate::SharedDown::create("short").unwrap();
        assert!(Duplex::map(&short).is_err());
    }
}
