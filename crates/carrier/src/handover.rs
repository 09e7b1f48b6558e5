//! What the application and the connection's thread hand each other: messages, events and commands, all bounded.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qfabric_client::Process;
use qfabric_metp::{FrameKind, Mode, Outcome, SendRefusal};
use qfabric_types::{BitRate, Nanos};
use tokio::sync::Notify;

use crate::grant::RateGrant;
use crate::quic::Revocation;
use crate::recording::Recording;
use crate::statistics::ConnectionStatistics;
use crate::{End, Error};

/// Bytes that a message takes besides its data.
pub(crate) const MESSAGE_COST: u64 = 256;
/// Messages that wait for the connection's thread; the session has its own queue behind them.
const MOST_OUTGOING: usize = 4;
/// Events that the application has not taken; the oldest are dropped and counted.
const MOST_EVENTS: usize = 1_024;
/// Commands that the connection's thread has not taken.
const MOST_COMMANDS: usize = 64;

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the message in its direction, from 0.
    pub number: u64,
    pub kind: FrameKind,
    /// Holes are zero.
    pub data: Vec<u8>,
    /// The parts that did not arrive, in ascending order; only in partially reliable mode.
    pub holes: Vec<Range<usize>>,
    /// How much later than its deadline the message was delivered.
    pub late_by: Nanos,
    /// From the sending of its first part to the arrival of its last one, as far as this side can know.
    pub delay: Nanos,
}

impl Message {
    pub fn is_complete(&self) -> bool {
        self.holes.is_empty()
    }
}

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The result of a message that this side sent; each accepted message has exactly one.
    Outcome {
        number: u64,
        kind: FrameKind,
        outcome: Outcome,
    },
    /// Messages that will not arrive: the other side dropped them, or nothing of them arrived in time.
    Skipped {
        first: u64,
        count: u64,
    },
    /// The other side switched the mode of its messages, from this message on. Of several switches in quick succession,
    /// only the last one may be told.
    ModeChanged {
        mode: Mode,
        from: u64,
    },
    /// The other side sends no more messages.
    PeerFinished,
    CarrierAttached {
        carrier: u32,
    },
    CarrierLost {
        carrier: u32,
        why: String,
    },
    /// Sending at the granted rate stopped; congestion control decides from now on.
    Revoked(Revocation),
}

/// A message for the connection's thread.
pub(crate) struct Submitted {
    pub(crate) kind: FrameKind,
    /// When the application submitted it.
    pub(crate) at: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) data: Vec<u8>,
    /// The mode of the messages behind it, if it changes there.
    pub(crate) mode_behind: Option<Mode>,
}

/// The session has taken a message.
pub(crate) struct Taken {
    /// See [`Submitted::mode_behind`].
    pub(crate) mode_behind: Option<Mode>,
}

pub(crate) type Reply<T> = SyncSender<Result<T, Error>>;

/// What the application asks of the connection's thread.
pub(crate) enum Command {
    Mode(Mode),
    Rate(BitRate),
    TpduSize(u16, Reply<()>),
    Grant(Option<RateGrant>),
    Record(Recording, Reply<()>),
    Attach { local: Option<SocketAddr>, peer: SocketAddr, reply: Reply<u32> },
    Detach(u32, Reply<()>),
    Select { send: u32, receive: u32, reply: Reply<()> },
    Rebind { carrier: u32, local: SocketAddr, reply: Reply<()> },
    Statistics(Reply<ConnectionStatistics>),
    Finish,
    Close,
}

#[derive(Default)]
pub(crate) struct State {
    outgoing: VecDeque<Submitted>,
    /// Messages that were ever accepted.
    accepted: u64,
    commands: VecDeque<Command>,
    received: VecDeque<Message>,
    received_bytes: u64,
    events: VecDeque<Event>,
    dropped_events: u64,
    /// Messages that have no outcome yet.
    pending: u64,
    last: ConnectionStatistics,
    /// The application closed the connection; its thread may not know yet.
    is_closed: bool,
    /// The application has finished: it sends no more messages.
    is_finished: bool,
    /// The session has ended, and its last datagrams have left.
    has_parted: bool,
    end: Option<End>,
}

impl State {
    /// Why the application may submit no more messages, if it has said so itself.
    fn refusal(&self) -> Option<Error> {
        if self.is_closed {
            return Some(Error::Ended(End::Closed));
        }
        let is_refused = self.is_finished && self.end.is_none();
        is_refused.then(|| Error::Refused(Box::new(SendRefusal::Finished.problem())))
    }
}

pub(crate) struct Handover {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the connection's thread.
    wake: Notify,
    /// Bytes of received messages above which the session delivers no more.
    most_received: u64,
    /// The process with the connection's thread. A child of a fork has a copy of the memory, in which the lock may be
    /// held for ever.
    by: Process,
}

impl Handover {
    pub(crate) fn new(most_received: u64) -> Result<Handover, Error> {
        let (by, wake) = (process()?, Notify::new());
        Ok(Handover { state: Mutex::default(), changed: Condvar::new(), wake, most_received, by })
    }

    /// Refuses the application's calls in a child of a fork, which has no part in the connection.
    fn check_process(&self) -> Result<(), Error> {
        if self.by.is_current() { Ok(()) } else { Err(Error::Forked { what: "the connection" }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before its thread can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `take` returns something, or the time is over, or the connection has ended.
    fn wait<T>(
        &self,
        what: &'static str,
        within: Duration,
        mut take: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Error> {
        self.check_process()?;
        let until = later(Instant::now(), within);
        let mut state = self.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return Ok(taken);
            }
            if let Some(end) = &state.end {
                return Err(Error::Ended(end.clone()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::TimeOut { what, within });
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // The application's side.

    /// Gives the message back if it is not taken.
    pub(crate) fn submit(&self, message: Submitted, within: Duration) -> Result<u64, Box<(Error, Submitted)>> {
        if let Err(error) = self.check_process() {
            return Err(Box::new((error, message)));
        }
        let mut message = Some(message);
        let taken = self.wait("sending", within, |state| {
            if let Some(refusal) = state.refusal() {
                return Some(Err(refusal));
            }
            if state.end.is_some() || state.outgoing.len() >= MOST_OUTGOING {
                return None;
            }
            state.outgoing.push_back(message.take()?);
            state.accepted += 1;
            state.pending += 1;
            Some(Ok(state.accepted - 1))
        });
        self.wake.notify_one();
        match (taken, message) {
            (Err(error) | Ok(Err(error)), Some(message)) => Err(Box::new((error, message))),
            (taken, _) => Ok(taken.and_then(|taken| taken).expect("a message is kept only if it is not taken")),
        }
    }

    pub(crate) fn command(&self, command: Command) -> Result<(), Error> {
        let (is_last, is_finish) = (matches!(command, Command::Close), matches!(command, Command::Finish));
        let mode = if let Command::Mode(mode) = command { Some(mode) } else { None };
        let mut command = Some(command);
        self.wait("a command", Duration::from_secs(1), |state| {
            if state.end.is_some() || state.commands.len() >= MOST_COMMANDS {
                return None;
            }
            if let (Some(mode), Some(last)) = (mode, state.outgoing.back_mut()) {
                // Commands overtake messages, and what was submitted keeps its mode.
                last.mode_behind = Some(mode);
                return Some(());
            }
            state.commands.push_back(command.take()?);
            state.is_closed |= is_last;
            state.is_finished |= is_finish;
            Some(())
        })?;
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) fn receive(&self, within: Duration) -> Result<Message, Error> {
        let (message, was_full) = self.wait("receiving", within, |state| {
            let was_full = state.received_bytes >= self.most_received;
            let message = state.received.pop_front()?;
            state.received_bytes -= cost(&message);
            Some((message, was_full))
        })?;
        if was_full {
            self.wake.notify_one();
        }
        Ok(message)
    }

    pub(crate) fn event(&self, within: Duration) -> Result<Event, Error> {
        self.wait("an event", within, |state| state.events.pop_front())
    }

    pub(crate) fn wait_for_outcomes(&self, within: Duration) -> Result<(), Error> {
        self.wait("the outcome of all messages", within, |state| (state.pending == 0).then_some(()))
    }

    pub(crate) fn wait_for_end(&self, within: Duration) -> Result<End, Error> {
        match self.wait("the end of the connection", within, |_| None::<()>) {
            Err(Error::Ended(end)) => Ok(end),
            Err(error) => Err(error),
            Ok(()) => unreachable!("nothing is taken"),
        }
    }

    /// Waits until the close has left this host.
    pub(crate) fn wait_for_parting(&self, within: Duration) {
        // Also ends when the connection does; in a child of a fork it returns at once.
        let _ = self.wait("closing", within, |state| state.has_parted.then_some(()));
    }

    /// In a child of a fork: never, because the connection goes on in the parent.
    pub(crate) fn ended(&self) -> Option<End> {
        self.check_process().ok()?;
        self.lock().end.clone()
    }

    pub(crate) fn last_statistics(&self) -> ConnectionStatistics {
        if self.check_process().is_err() {
            return ConnectionStatistics::default();
        }
        let state = self.lock();
        ConnectionStatistics { dropped_events: state.dropped_events, ..state.last.clone() }
    }

    // The side of the connection's thread.

    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Wakes the application only if there was a command: the connection's thread looks for one after each packet, and
    /// each look would otherwise wake a call that waits for a message.
    pub(crate) fn take_command(&self) -> Option<Command> {
        let command = self.lock().commands.pop_front()?;
        self.changed.notify_all();
        Some(command)
    }

    /// Passes the first message to `send`, which returns whether it took it. Its place stays taken meanwhile. While a
    /// command waits there is none: it may be the mode of this message.
    pub(crate) fn offer(&self, send: impl FnOnce(&Submitted) -> bool) -> Option<Taken> {
        let message = {
            let mut state = self.lock();
            if !state.commands.is_empty() {
                return None;
            }
            let first = state.outgoing.front_mut()?;
            Submitted { data: mem::take(&mut first.data), ..*first }
        };
        let is_taken = send(&message);
        let mut state = self.lock();
        if !is_taken {
            state.outgoing.front_mut()?.data = message.data;
            return None;
        }
        let mode_behind = state.outgoing.pop_front()?.mode_behind;
        self.changed.notify_all();
        Some(Taken { mode_behind })
    }

    /// The first message; none while a command waits, as in [`Handover::offer`].
    pub(crate) fn take_message(&self) -> Option<Submitted> {
        let mut state = self.lock();
        if !state.commands.is_empty() {
            return None;
        }
        let message = state.outgoing.pop_front()?;
        self.changed.notify_all();
        Some(message)
    }

    /// Whether the application takes messages.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().received_bytes < self.most_received
    }

    /// Returns whether there is room for another message.
    pub(crate) fn deliver(&self, message: Message) -> bool {
        let mut state = self.lock();
        state.received_bytes += cost(&message);
        state.received.push_back(message);
        self.changed.notify_all();
        state.received_bytes < self.most_received
    }

    pub(crate) fn report(&self, event: Event) {
        let mut state = self.lock();
        if let Event::Outcome { .. } = event {
            state.pending = state.pending.saturating_sub(1);
        }
        if state.events.len() >= MOST_EVENTS {
            state.events.pop_front();
            state.dropped_events += 1;
        }
        state.events.push_back(event);
        self.changed.notify_all();
    }

    /// Whether everything that the application submitted has been taken.
    pub(crate) fn is_drained(&self) -> bool {
        self.lock().outgoing.is_empty()
    }

    pub(crate) fn part(&self) {
        self.lock().has_parted = true;
        self.changed.notify_all();
    }

    /// The end, and the last statistics. Messages that arrived can still be taken. Must run in a runtime.
    pub(crate) fn end(&self, end: End, statistics: ConnectionStatistics) {
        let commands = {
            let mut state = self.lock();
            state.last = statistics;
            state.end.get_or_insert(end);
            mem::take(&mut state.commands)
        };
        self.changed.notify_all();
        // They came after the last look. A grant among them would stay reserved; its end asks the daemon.
        tokio::task::spawn_blocking(move || drop(commands));
    }
}

/// The time `by` after `at`. `Duration::MAX` and other times that cannot be expressed count as a year.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + Duration::from_secs(365 * 86_400))
}

/// The calling process.
pub(crate) fn process() -> Result<Process, Error> {
    Process::current().map_err(Error::io("cannot tell this process from its forked children"))
}

fn cost(message: &Message) -> u64 {
    message.data.len() as u64 + MESSAGE_COST
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};
    use std::thread;

    use super::*;

    #[test]
    fn after_finish_no_message_is_taken() {
        let handover = Handover::new(1 << 20).unwrap();
        handover.command(Command::Finish).unwrap();
        let message =
            Submitted { kind: FrameKind::Other, at: Instant::now(), deadline: None, data: vec![1], mode_behind: None };
        let (error, message) = *handover.submit(message, Duration::ZERO).unwrap_err();
        assert_eq!((error.problem().code.as_str(), message.data.len()), ("finished", 1));
        handover.wait_for_outcomes(Duration::ZERO).expect("nothing waits for an outcome");
    }

    #[test]
    fn messages_that_wait_keep_their_mode() {
        let handover = Handover::new(1 << 20).unwrap();
        let (at, kind) = (Instant::now(), FrameKind::Other);
        let message = Submitted { kind, at, deadline: None, data: vec![1], mode_behind: None };
        assert!(handover.submit(message, Duration::ZERO).is_ok());
        handover.command(Command::Mode(Mode::PartiallyReliable)).unwrap();
        assert!(handover.take_command().is_none() && handover.offer(|_| false).is_none());
        let taken = handover.offer(|message| message.data == [1]).unwrap();
        assert_eq!(taken.mode_behind, Some(Mode::PartiallyReliable));
        handover.command(Command::Mode(Mode::TotallyReliable)).unwrap();
        assert!(matches!(handover.take_command(), Some(Command::Mode(Mode::TotallyReliable))));
    }

    #[test]
    fn a_message_does_not_overtake_the_mode_before_it() {
        let handover = Handover::new(1 << 20).unwrap();
        handover.command(Command::Mode(Mode::PartiallyReliable)).unwrap();
        let (at, kind) = (Instant::now(), FrameKind::Other);
        let message = Submitted { kind, at, deadline: None, data: vec![1], mode_behind: None };
        assert!(handover.submit(message, Duration::ZERO).is_ok());
        assert!(handover.offer(|_| true).is_none() && handover.take_message().is_none());
        assert!(matches!(handover.take_command(), Some(Command::Mode(Mode::PartiallyReliable))));
        assert!(handover.offer(|_| true).is_some());
    }

    #[test]
    fn a_look_for_commands_wakes_no_call_of_the_application() {
        let handover = Handover::new(1 << 20).unwrap();
        let looks = AtomicU32::new(0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                handover.wait("an event", Duration::from_secs(60), |state| {
                    looks.fetch_add(1, Ordering::Relaxed);
                    state.events.pop_front()
                })
            });
            while looks.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            for _ in 0..10_000 {
                assert!(handover.take_command().is_none());
            }
            handover.report(Event::PeerFinished);
            assert_eq!(waiting.join().unwrap().unwrap(), Event::PeerFinished);
        });
        let looks = looks.into_inner();
        assert!(looks < 10, "before the event and after it, and not {looks} times");
    }

    #[test]
    fn a_call_may_wait_for_any_time() {
        let handover = Handover::new(1 << 20).unwrap();
        handover.wait_for_outcomes(Duration::MAX).expect("nothing waits for an outcome");
    }

    #[test]
    fn a_command_that_comes_too_late_does_not_outlive_the_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handover = Handover::new(1 << 20).unwrap();
        let (reply, answer) = sync_channel(1);
        handover.command(Command::Detach(0, reply)).unwrap();
        runtime.block_on(async { handover.end(End::Closed, ConnectionStatistics::default()) });
        let answered = answer.recv_timeout(Duration::from_secs(60));
        assert!(matches!(answered, Err(RecvTimeoutError::Disconnected)));
    }
}
