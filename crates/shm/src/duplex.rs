//! Messages in both directions between an application and its daemon. One sealed memfd holds a ring for each
//! direction; a socket wakes a reader that sleeps, and reports that the other side has closed.
//!
//! ```text
//! send ─> ring ┄┄> next           a message costs no system call
//!   └─ reader sleeps? ─> socket   one byte each time that the reader has gone to sleep; also from a reader that has
//!                                 made room for a writer that found none
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use qfabric_types::message_ring::{MessageRing, MessageRings, Reader, TakeOutcome, WriteOutcome, Writer};

use crate::fds;
use crate::mapping::Shared;
use crate::memfd::refused;

/// The only message on the socket, except those that begin a connection.
const NUDGE: [u8; 1] = [0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Writes into the ring `up` and reads from `down`.
    Application,
    Daemon,
}

/// The end of one side. Unmapped when dropped.
#[derive(Debug)]
pub struct Duplex {
    rings: Shared<MessageRings>,
    side: Side,
    writer: Writer,
    reader: Reader,
}

impl Duplex {
    /// Creates new rings (daemon). Pass the file on with [`fds::send`]: it can neither shrink nor grow, whatever
    /// its receiver does.
    pub fn create() -> io::Result<(Duplex, OwnedFd)> {
        let (rings, file) = Shared::<MessageRings>::create("qfabric-messages")?;
        rings.up.initialize();
        rings.down.initialize();
        Ok((Duplex::of(rings, Side::Daemon), file))
    }

    /// Maps rings that the daemon created (application). Refused unless the file is sealed against shrinking, is
    /// large enough, and holds rings of this version.
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

    /// Sends a message, and wakes the other side if it sleeps. Returns `false` if the ring has no room; `socket`
    /// becomes readable when there is room.
    ///
    /// # Errors
    /// The other side has closed the socket.
    pub fn send(&mut self, socket: impl AsFd, message: &[u8]) -> io::Result<bool> {
        self.send_joined(socket, message, &[])
    }

    /// Like [`Duplex::send`], for a message that is `head` with `body` behind it.
    ///
    /// # Errors
    /// The other side has closed the socket.
    pub fn send_joined(&mut self, socket: impl AsFd, head: &[u8], body: &[u8]) -> io::Result<bool> {
        match self.write_joined(head, body) {
            WriteOutcome::Quiet => Ok(true),
            WriteOutcome::Wake => nudge(socket).map(|()| true),
            WriteOutcome::Full => Ok(false),
        }
    }

    /// Like [`Duplex::send`], for a caller that wakes the other side later, with [`nudge`].
    pub fn write(&mut self, message: &[u8]) -> WriteOutcome {
        self.write_joined(message, &[])
    }

    /// Like [`Duplex::write`], for a message that is `head` with `body` behind it.
    pub fn write_joined(&mut self, head: &[u8], body: &[u8]) -> WriteOutcome {
        let Duplex { rings, side, writer, .. } = self;
        writer.write_joined(outgoing(rings, *side), head, body)
    }

    /// Reads the next message into `buffer` and returns its length. `None` means that there is no message, and that
    /// `socket` becomes readable when there is one. Takes the nudges for this side off the socket.
    ///
    /// # Errors
    /// The other side has closed the socket, or the ring holds no valid message.
    pub fn next(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut has_nudge = false;
        loop {
            match self.take(&socket, buffer)? {
                TakeOutcome::Message(length) => return Ok(Some(length)),
                TakeOutcome::Nonsense => return Err(refused("the rings hold an invalid message")),
                TakeOutcome::Nothing => {}
            }
            let asleep = self.is_asleep();
            if asleep && has_nudge {
                return Ok(None);
            }
            if !asleep && !self.may_sleep() {
                continue;
            }
            match fds::recv_now(&socket, &mut [0; NUDGE.len()]) {
                Ok(got) if got.length == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => has_nudge = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes one message, valid or not, from the ring, and wakes the other side if it waits for room.
    pub fn take(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<TakeOutcome> {
        let Duplex { rings, side, reader, .. } = self;
        let ring = incoming(rings, *side);
        let took = reader.take(ring, buffer);
        if reader.has_made_room(ring) {
            nudge(socket)?;
        }
        Ok(took)
    }

    /// Announces that this side sleeps. Returns `false` if there is something to read.
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
/// The other side has closed the socket.
pub fn nudge(socket: impl AsFd) -> io::Result<()> {
    match fds::send_now(socket, &[io::IoSlice::new(&NUDGE)]) {
        // The socket is full: the bytes in it wake the other side.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        sent => sent,
    }
}

/// Whether a message on the socket carries no content and only wakes the reader.
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
    fn messages_go_both_ways_and_a_sleeping_reader_is_woken_once() {
        let (mut daemon, mut application) = pair();
        assert_eq!(daemon.next(), None);
        assert!(!daemon.readable(0) && application.send(b"one") && daemon.readable(0));
        assert!(application.send(b"two"));
        assert_eq!([daemon.next().unwrap(), daemon.next().unwrap()], [b"one", b"two"]);
        assert_eq!(daemon.next(), None);
        assert!(!daemon.readable(0), "the nudge is taken off the socket");
        assert!(daemon.send(b"back") && !application.readable(0), "the application has not gone to sleep yet");
        assert_eq!(application.next().unwrap(), b"back");
    }

    #[test]
    fn a_closed_end_is_noticed_on_both_sides() {
        let (mut daemon, mut application) = pair();
        assert_eq!(application.next(), None);
        assert!(daemon.send(b"last"));
        drop(daemon);
        assert_eq!(application.next().unwrap(), b"last");
        assert_eq!(application.next(), None, "the nudge comes before the end of the socket");
        let gone = application.duplex.next(&application.socket, &mut [0; 8]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        let (mut daemon, application) = pair();
        assert_eq!(daemon.next(), None);
        drop(application);
        assert!(daemon.duplex.next(&daemon.socket, &mut [0; 8]).is_err());
    }

    #[test]
    fn no_message_is_lost_if_writer_and_reader_sleep_whenever_they_can() {
        const MESSAGES: u32 = 200_000;
        let (mut daemon, mut application) = pair();
        let writing = thread::spawn(move || {
            for number in 0..MESSAGES {
                let message = vec![number as u8; 4 + number as usize % 300];
                while !application.send(&[&number.to_le_bytes(), &message[..]].concat()) {
                    assert!(application.readable(60), "no nudge announced room");
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
                None => assert!(daemon.readable(60), "no nudge woke the reader"),
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
