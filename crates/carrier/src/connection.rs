//! A connection as the application uses it (§6.4): blocking calls, each with a time after which it returns.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use qfabric_metp::{FrameKind, Mode, SendRefusal};
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes};

use crate::grant::RateGrant;
use crate::handover::{Command, Event, Handover, Message, Reply, Submitted, later};
use crate::recording::Recording;
use crate::statistics::ConnectionStatistics;
use crate::{End, Error};

/// For an answer of the connection's own thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long dropping a connection waits at most until the close has left this host.
const FAREWELL: Duration = Duration::from_millis(100);

/// One end of a connection. Both ends send and receive. Several threads may use it at the same time.
///
/// Dropping it closes the connection. It waits up to 100 ms until the close has left this host, so that the other side
/// learns it even if the process ends next. [`Connection::finish`] and [`Connection::wait_for_end`] first let everything
/// arrive.
///
/// **In a child made by `fork`** the connection belongs to the parent, where it continues. Calls of the child fail with
/// [`Error::Forked`], and dropping it does nothing. The child's copies of the sockets send nothing. They are closed
/// when the child ends or calls `exec`.
pub struct Connection {
    pub(crate) handover: Arc<Handover>,
    pub(crate) peer: Name,
    pub(crate) largest_message: Bytes,
}

impl Connection {
    /// The host at the other end, as its certificate names it.
    pub fn peer(&self) -> &Name {
        &self.peer
    }

    /// Sends a message. In partially reliable mode, `deadline` is the time until the last byte has arrived; without one,
    /// [`crate::Options::send_time`] applies. Waits up to `within` while the queue is full. Returns the message's number,
    /// which its outcome has ([`Event::Outcome`]).
    ///
    /// # Errors
    /// The message is empty or above the admitted size, the queue stayed full, or the connection has ended.
    pub fn send(
        &self,
        kind: FrameKind,
        data: Vec<u8>,
        deadline: Option<Duration>,
        within: Duration,
    ) -> Result<u64, Error> {
        self.try_send(kind, data, deadline, within).map_err(|(error, _)| error)
    }

    /// Like [`Connection::send`]; an error gives the data back.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn try_send(
        &self,
        kind: FrameKind,
        data: Vec<u8>,
        deadline: Option<Duration>,
        within: Duration,
    ) -> Result<u64, (Error, Vec<u8>)> {
        if let Some(refusal) = self.refusal(&data) {
            return Err((Error::Message(refusal), data));
        }
        let at = Instant::now();
        let deadline = deadline.map(|time| later(at, time));
        let message = Submitted { kind, at, deadline, data, mode_behind: None };
        self.handover.submit(message, within).map_err(|refused| (refused.0, refused.1.data))
    }

    /// Why no session takes a message of this size.
    fn refusal(&self, data: &[u8]) -> Option<SendRefusal> {
        let (size, limit) = (Bytes::new(data.len() as u64), self.largest_message);
        if data.is_empty() {
            return Some(SendRefusal::Empty);
        }
        (size > limit).then_some(SendRefusal::TooLarge { size, limit })
    }

    /// The next message. In partially reliable mode it may have holes.
    ///
    /// # Errors
    /// None came within the time, or the connection has ended and everything that arrived has been received.
    pub fn receive(&self, within: Duration) -> Result<Message, Error> {
        self.handover.receive(within)
    }

    /// The next event.
    ///
    /// # Errors
    /// None came within the time, or the connection has ended and all events have been taken.
    pub fn event(&self, within: Duration) -> Result<Event, Error> {
        self.handover.event(within)
    }

    /// Waits until each message that was sent has an outcome.
    ///
    /// # Errors
    /// The time is over, or the connection has ended.
    pub fn flush(&self, within: Duration) -> Result<(), Error> {
        self.handover.wait_for_outcomes(within)
    }

    /// The mode of the messages that are sent from now on.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn set_mode(&self, mode: Mode) -> Result<(), Error> {
        self.handover.command(Command::Mode(mode))
    }

    /// The rate at which this side wants to send, with all headers.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn set_rate(&self, rate: BitRate) -> Result<(), Error> {
        self.handover.command(Command::Rate(rate))
    }

    /// Proposes another size of the parts that messages are cut into, headers included (§5.2.3).
    ///
    /// # Errors
    /// The size is out of range, or the connection has ended.
    pub fn set_tpdu_size(&self, bytes: u16) -> Result<(), Error> {
        self.ask(PATIENCE, |reply| Command::TpduSize(bytes, reply))
    }

    /// Sends at a granted rate, without congestion control, until the grant's reservation ends or the watchdog revokes it
    /// ([`Event::Revoked`]). `None`: congestion control decides again.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn grant(&self, grant: Option<RateGrant>) -> Result<(), Error> {
        self.handover.command(Command::Grant(grant))
    }

    /// Keeps the stored profile of delays in `file` fresh by the messages of this side (QualMan §5.1.2), from now on and
    /// while a rate is granted. `sizes`: the sizes for which the profile is renewed, such as the largest I, P and B frame;
    /// a message counts for the smallest size that holds it, if it has three quarters of it. After each 100 messages of a
    /// size, p50 and p99 of the last 1,000 stand in the profile for this size and the granted rate, and the shortest
    /// round trip is the connection's own. Replaces an earlier call. [`ConnectionStatistics::renewals`] counts.
    ///
    /// # Errors
    /// [`Error::Profile`]: no profile in the file. There are no sizes, or more than 16; the engine is streams; or the
    /// connection has ended.
    pub fn record_delays(&self, file: impl AsRef<Path>, sizes: &[Bytes]) -> Result<(), Error> {
        let recording = Recording::start(file.as_ref(), sizes)?;
        self.ask(PATIENCE, |reply| Command::Record(recording, reply))
    }

    /// Removes a carrier; what it had not brought yet is sent again over another one.
    ///
    /// # Errors
    /// The carrier is not attached, or the connection has ended.
    pub fn detach(&self, carrier: u32) -> Result<(), Error> {
        self.ask(PATIENCE, |reply| Command::Detach(carrier, reply))
    }

    /// The carrier of this side's messages, and the carrier of its acknowledgments (§5.2.3, detachable descriptors).
    ///
    /// # Errors
    /// A carrier is not attached, or the connection has ended.
    pub fn select(&self, send: u32, receive: u32) -> Result<(), Error> {
        self.ask(PATIENCE, |reply| Command::Select { send, receive, reply })
    }

    /// Changes the own address of a carrier while messages flow; the other side follows.
    ///
    /// # Errors
    /// The address cannot be used, the carrier has no address to change, or the other side opened the connection.
    pub fn rebind(&self, carrier: u32, local: SocketAddr) -> Result<(), Error> {
        self.ask(PATIENCE, |reply| Command::Rebind { carrier, local, reply })
    }

    /// The numbers since the begin. After the end, the last ones.
    pub fn statistics(&self) -> ConnectionStatistics {
        self.ask(PATIENCE, Command::Statistics).unwrap_or_else(|_| self.handover.last_statistics())
    }

    /// This side sends no more messages; what is queued still arrives.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn finish(&self) -> Result<(), Error> {
        self.handover.command(Command::Finish)
    }

    /// How the connection ended, if it has.
    pub fn ended(&self) -> Option<End> {
        self.handover.ended()
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The time is over.
    pub fn wait_for_end(&self, within: Duration) -> Result<End, Error> {
        self.handover.wait_for_end(within)
    }

    /// Ends the connection now; messages under way are lost.
    pub fn close(&self) {
        // It has ended already if this fails.
        let _ = self.handover.command(Command::Close);
    }

    pub(crate) fn ask<T>(&self, within: Duration, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = sync_channel(1);
        self.handover.command(command(reply))?;
        match answer.recv_timeout(within) {
            Ok(answer) => answer,
            Err(_) => Err(self.ended().map_or(Error::TimeOut { what: "an answer", within }, Error::Ended)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        self.handover.wait_for_parting(FAREWELL);
    }
}
