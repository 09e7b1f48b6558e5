//! The connection to `channels.sock`, which everything that is made with it shares.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use qfabric_shm::{Duplex, Process, fds};
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::{InvalidName, Name};
use qfabric_types::channel_wire::{
    Decision, FromClient, FromDaemon, LateReport, MAX_MESSAGE, Reassembler, ReassemblyOutcome, VERSION, parts,
};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::handlers::{Handler, Handlers};
use super::inbox::{Answer, Inbox, LARGE, LateEvents, Notice};
use super::slot::Slot;
use super::turns::Turns;
use crate::client::Client;
use crate::clock;
use crate::error::ClientError;
use crate::sync::lock;

/// Events that a sink may have on its way to this process.
pub(super) const WINDOW: u32 = 64;

/// Memory that is kept for the next message, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// How long new events are waited for beside old ones that nobody takes.
const GLANCE: Duration = Duration::from_millis(5);

/// Called for what resource managers decide.
type OnDecided = Arc<Slot<Box<dyn FnMut(&Decision<'_>) + Send>>>;

pub(super) struct Inner {
    pub client: Client,
    pub(super) socket: OwnedFd,
    pub(super) path: PathBuf,
    process: Process,
    lease: LeaseId,
    host: String,
    state: Mutex<State>,
    handlers: Handlers,
    on_decided: Mutex<Option<OnDecided>>,
    tags: AtomicU32,
    /// Readable when the socket is, or when something waits in the inbox.
    notify: OwnedFd,
    waiting: OwnedFd,
    /// Wakes the thread that waits for the socket.
    pub(super) kick: OwnedFd,
    /// Wakes the threads that wait for it.
    pub(super) sorted: Condvar,
}

pub(super) struct State {
    duplex: Duplex,
    pub inbox: Inbox,
    buffer: Vec<u8>,
    /// What comes in parts.
    reassembler: Reassembler,
    out: Vec<u8>,
    /// The part of it that goes next.
    part: Vec<u8>,
    /// Events read of each sink since credit was last given.
    read: BTreeMap<u32, u32>,
    pub turns: Turns,
    /// Somebody waits for [`Inner::notify`], so it has to be readable whenever something waits.
    pub is_watched: bool,
    /// [`Inner::waiting`] is readable.
    is_readable: bool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("lease", &self.lease).field("host", &self.host).finish_non_exhaustive()
    }
}

/// Says hello; the memory that messages go through, the lease's number and this host's name.
fn greet(socket: &OwnedFd, path: &Path) -> Result<(Duplex, LeaseId, String), ClientError> {
    let broken = |error: io::Error| lost(path, &error.to_string());
    let mut buffer = vec![0; MAX_MESSAGE];
    FromClient::Hello { version: VERSION }.encode(&mut buffer);
    fds::send(socket, &buffer, &[]).map_err(broken)?;
    buffer.resize(MAX_MESSAGE, 0);
    let got = fds::recv(socket, &mut buffer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => lost(path, "no answer in time"),
        _ => broken(error),
    })?;
    match (FromDaemon::decode(&buffer[..got.length]), &got.fds[..]) {
        (Some(FromDaemon::Welcome { lease, host }), [file]) => {
            Ok((Duplex::map(file).map_err(broken)?, lease, host.to_owned()))
        }
        (Some(FromDaemon::Refused(refused)), _) => Err(lost(path, refused.why)),
        (None, _) if got.length == 0 => Err(lost(path, "the daemon closed the connection")),
        _ => Err(lost(
            path,
            &format!("the daemon's answer is not in version {VERSION}; install the same version of both"),
        )),
    }
}

/// One descriptor for both.
fn both(socket: &OwnedFd, waiting: &OwnedFd) -> io::Result<OwnedFd> {
    let notify = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&notify, socket, EventData::new_u64(0), EventFlags::IN)?;
    epoll::add(&notify, waiting, EventData::new_u64(1), EventFlags::IN)?;
    Ok(notify)
}

impl Inner {
    /// Connects to the daemon's `channels.sock`.
    pub(super) fn open(client: &Client) -> Result<Inner, ClientError> {
        let path = client.channels_socket();
        let broken = |error: io::Error| lost(&path, &error.to_string());
        let missing = |error: io::Error| match error.kind() {
            // The call says whether channels are switched off, and how to switch them on.
            io::ErrorKind::NotFound => client.channels().err().unwrap_or_else(|| lost(&path, &error.to_string())),
            _ => lost(&path, &error.to_string()),
        };
        let process = Process::current().map_err(ClientError::unnumbered)?;
        let socket = fds::connect(&path, client.patience()).map_err(missing)?;
        let counter = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| broken(e.into()));
        let (waiting, kick) = (counter()?, counter()?);
        let notify = both(&socket, &waiting).map_err(broken)?;
        let (duplex, lease, host) = greet(&socket, &path)?;
        let state = State {
            duplex,
            inbox: Inbox::default(),
            buffer: vec![0; MAX_MESSAGE],
            reassembler: Reassembler::default(),
            out: Vec::with_capacity(MAX_MESSAGE),
            part: Vec::with_capacity(MAX_MESSAGE),
            read: BTreeMap::new(),
            turns: Turns::default(),
            is_watched: false,
            is_readable: false,
        };
        Ok(Inner {
            client: client.clone(),
            socket,
            path,
            process,
            lease,
            host,
            state: state.into(),
            handlers: Handlers::default(),
            on_decided: Mutex::default(),
            tags: AtomicU32::new(1),
            notify,
            waiting,
            kick,
            sorted: Condvar::new(),
        })
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    /// This host's name on the network.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // In a child of a fork a lock may be held for ever, and the descriptor is of no use.
        if self.own().is_ok() {
            let mut state = self.state();
            state.is_watched = true;
            // Messages that a thread has left in the ring wake nobody; an error comes again at the next read.
            let _ = self.receive_all(&mut state);
            self.remember(&mut state);
        }
        self.notify.as_fd()
    }

    pub(super) fn poll(&self, patience: Duration) -> Result<usize, ClientError> {
        self.own()?;
        self.state().is_watched = true;
        let until = Instant::now() + patience;
        loop {
            let handled = self.handle_all()?;
            if handled > 0 || Instant::now() >= until || !self.wait(until)? {
                return Ok(handled);
            }
            let handled = self.handle_all()?;
            if handled > 0 {
                return Ok(handled);
            }
            // What waits is a notice, or for sinks without a handler: that is not to be looked at over and over.
            self.wait_for_socket(until.min(Instant::now() + GLANCE))?;
        }
    }

    /// The handler before is not called any more once this returns.
    pub(super) fn on_decided(&self, handler: Box<dyn FnMut(&Decision<'_>) + Send>) {
        let handler: OnDecided = Arc::new(Slot::new(handler));
        let before = lock(&self.on_decided).replace(handler);
        if let Some(before) = before {
            before.take_out();
        }
    }

    pub(super) fn next_notice(&self) -> Result<Option<Notice>, ClientError> {
        self.own()?;
        let mut state = self.state();
        self.receive_all(&mut state)?;
        let notice = state.inbox.next_notice();
        self.remember(&mut state);
        Ok(notice)
    }

    pub(super) fn forget_notices(&self) -> Result<(), ClientError> {
        self.own()?;
        let mut state = self.state();
        state.inbox.forget_notices();
        self.remember(&mut state);
        Ok(())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The number of the lease. Fails in a forked child, which has copies of the descriptors, but no lease. Call this
    /// before taking a lock: in a forked child, a lock may be held for ever.
    pub(super) fn own(&self) -> Result<LeaseId, ClientError> {
        self.process
            .is_current()
            .then_some(self.lease)
            .ok_or(ClientError::Forked { what: "the connection for channels" })
    }

    /// A member of this connection leaves. The daemon may be gone, or has ended it by itself: that was the aim.
    pub(super) fn leave(&self, what: &str, number: u32) {
        if self.own().is_ok() {
            let _ = self.client.leave(what, number);
        }
    }

    /// Names an event; never 0.
    pub(super) fn tag(&self) -> u32 {
        self.tags.fetch_add(1, Ordering::Relaxed) | 1 << 31
    }

    pub(super) fn set_handler(&self, sink: u32, handler: Handler) {
        self.handlers.set(sink, handler);
    }

    /// A source leaves: its queued events get no answers, and take no room any more.
    pub(super) fn leave_source(&self, source: u32) {
        if self.own().is_ok() {
            self.state().inbox.queued.forget(source);
            self.leave("sources", source);
        }
    }

    /// The sink's events are kept from now on. Call this before the daemon gets credit for the first of them.
    pub(super) fn begin_sink(&self, sink: u32) {
        self.state().inbox.begin(sink);
    }

    /// Once this returns, the sink's handler is not called any more; see [`Slot::take_out`].
    pub(super) fn forget_sink(&self, sink: u32) {
        if self.own().is_err() {
            return;
        }
        self.handlers.remove(sink);
        let mut state = self.state();
        state.inbox.forget(sink);
        state.read.remove(&sink);
        self.remember(&mut state);
    }

    /// Sends a message, and waits until the daemon has room for it.
    pub(super) fn send(&self, message: &FromClient<'_>) -> Result<(), ClientError> {
        self.own()?;
        self.send_with(&mut self.state(), message)
    }

    pub(super) fn send_with(&self, state: &mut State, message: &FromClient<'_>) -> Result<(), ClientError> {
        let mut out = std::mem::take(&mut state.out);
        let payload = message.encode_head(&mut out);
        let done = match out.len() + payload.len() <= MAX_MESSAGE {
            true => self.send_piece(state, &out, payload),
            false => self.send_parts(state, &mut out, payload),
        };
        state.out = out;
        state.out.clear();
        state.out.shrink_to(KEPT_BYTES);
        done
    }

    /// Sends a message that is longer than one piece; `out` is its beginning.
    fn send_parts(&self, state: &mut State, out: &mut Vec<u8>, payload: &[u8]) -> Result<(), ClientError> {
        out.extend(payload);
        let (mut part, mut all, mut done) = (std::mem::take(&mut state.part), parts(out), Ok(()));
        while done.is_ok() && all.next(&mut part) {
            done = self.send_piece(state, &part, &[]);
        }
        state.part = part;
        done
    }

    /// What is in the ring stays: a message of which a part found no room in time ends the connection.
    fn send_piece(&self, state: &mut State, head: &[u8], body: &[u8]) -> Result<(), ClientError> {
        let until = Instant::now() + self.client.patience();
        loop {
            match state.duplex.send_joined(&self.socket, head, body) {
                Ok(true) => return Ok(()),
                Ok(false) if self.wait_for_socket(until)? => {}
                Ok(false) => return Err(lost(&self.path, "the daemon does not read")),
                Err(error) => return Err(lost(&self.path, &error.to_string())),
            }
            // What it has said is read meanwhile: it hears nothing more while it has no room to answer.
            self.receive_all(state)?;
            self.remember(state);
        }
    }

    /// Sends a message, and waits for its answer; nobody else reads meanwhile, so that it is not taken away.
    pub(super) fn ask(&self, tag: u32, message: &FromClient<'_>) -> Result<Answer, ClientError> {
        self.own()?;
        let mut state = self.state();
        self.send_with(&mut state, message)?;
        state.inbox.awaited = Some(tag);
        let until = Instant::now() + self.client.patience();
        let answer = loop {
            match self.receive(&mut state) {
                Ok(Some(Some(answer))) => break Ok(answer),
                Ok(Some(None)) => {}
                Ok(None) if !self.wait_for_socket(until)? => break Err(lost(&self.path, "no answer in time")),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        };
        state.inbox.awaited = None;
        // Messages behind the answer wake no thread; an error comes again at the next read.
        let _ = self.receive_all(&mut state);
        self.remember(&mut state);
        answer
    }

    /// What was read beside an answer makes the descriptor readable.
    pub(super) fn remember(&self, state: &mut State) {
        self.share(state);
        if !state.is_watched {
            return;
        }
        let waits = !state.inbox.is_empty();
        match std::mem::replace(&mut state.is_readable, waits) {
            before if before == waits => {}
            true => drop(rustix::io::read(&self.waiting, &mut [0; 8])),
            false => drop(rustix::io::write(&self.waiting, &1u64.to_ne_bytes())),
        }
    }

    /// One message: none is there, or it was sorted in, or it is an answer.
    fn receive(&self, state: &mut State) -> Result<Option<Option<Answer>>, ClientError> {
        let State { duplex, inbox, buffer, reassembler, .. } = state;
        let length = match duplex.next(&self.socket, buffer) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(lost(&self.path, "the daemon closed the connection"));
            }
            Err(error) => return Err(lost(&self.path, &error.to_string())),
        };
        let sorted = match reassembler.add(&buffer[..length]) {
            // It came in one piece and is large: its memory is kept, not copied.
            ReassemblyOutcome::Message(message) if length >= LARGE && message.as_ptr() == buffer.as_ptr() => {
                inbox.take_in_buffer(buffer, length)
            }
            ReassemblyOutcome::Message(message) => inbox.take_in(message),
            ReassemblyOutcome::More => Some(None),
            ReassemblyOutcome::Nonsense => None,
        };
        sorted.map(Some).ok_or_else(|| lost(&self.path, "the daemon said something that is not understood"))
    }

    /// Sorts one message in, if one is there; returns whether it was.
    pub(super) fn receive_one(&self, state: &mut State) -> Result<bool, ClientError> {
        match self.receive(state)? {
            Some(Some(Answer::Refused { tag: 0, why, .. })) => Err(lost(&self.path, &why)),
            received => Ok(received.is_some()),
        }
    }

    /// Everything that is there.
    pub(super) fn receive_all(&self, state: &mut State) -> Result<(), ClientError> {
        while self.receive_one(state)? {}
        Ok(())
    }

    fn handle_all(&self) -> Result<usize, ClientError> {
        let mut handled = 0;
        loop {
            let mut state = self.state();
            self.receive_all(&mut state)?;
            let now = clock::now().get();
            let next = self.handlers.first(|has| state.inbox.next_of(now, has));
            self.tell_late(&mut state)?;
            self.share(&state);
            drop(state);
            let Some((slot, (sink, message))) = next else {
                let handled = handled + self.handle_decided();
                return if handled > 0 { Ok(handled) } else { self.tell_end().map(|()| handled) };
            };
            if let Some(FromDaemon::Event(event)) = FromDaemon::decode(&message) {
                slot.call(|handler| handler(&event));
            }
            self.done(sink, message)?;
            handled += 1;
        }
    }

    /// Fails if a sink with a handler has ended by itself and this was not said before.
    fn tell_end(&self) -> Result<(), ClientError> {
        let mut state = self.state();
        match self.handlers.find(|has| state.inbox.untold_end(has)) {
            Some((sink, why)) => Err(ClientError::SinkEnded { sink, why }),
            None => Ok(()),
        }
    }

    /// Calls the handler of decisions, where there is one.
    fn handle_decided(&self) -> usize {
        let slot = lock(&self.on_decided).clone();
        let slot = slot.filter(|slot| !slot.is_inside());
        let mut handled = 0;
        loop {
            let mut state = self.state();
            let next = slot.as_ref().and_then(|slot| Some((slot, state.inbox.next_decided()?)));
            self.remember(&mut state);
            drop(state);
            let Some((slot, Notice::Decided { channel, attribute, subject, amount })) = next else { return handled };
            let decided = Decision { channel: &channel, attribute: &attribute, subject: &subject, amount };
            slot.call(|handler| handler(&decided));
            handled += 1;
        }
    }

    /// The next event of a sink that has no handler.
    pub(super) fn next_of(&self, sink: u32, patience: Duration) -> Result<Option<Vec<u8>>, ClientError> {
        self.wait_until(Instant::now() + patience, |state| {
            let next = state.inbox.next_of(clock::now().get(), |other| other == sink);
            self.tell_late(state)?;
            match (next, state.inbox.end_of(sink)) {
                (None, Some(why)) => Err(ClientError::SinkEnded { sink, why: why.to_owned() }),
                (next, _) => Ok(next.map(|(_, message)| message)),
            }
        })
    }

    /// An event has been read: its memory is used again, and there is room for another one.
    pub(super) fn done(&self, sink: u32, message: Vec<u8>) -> Result<(), ClientError> {
        self.own()?;
        let mut state = self.state();
        state.inbox.give_back(message);
        self.make_room(&mut state, sink, 1)
    }

    /// So many events of the sink wait here no longer.
    fn make_room(&self, state: &mut State, sink: u32, events: u32) -> Result<(), ClientError> {
        if !state.inbox.has(sink) {
            return Ok(());
        }
        let read = state.read.entry(sink).or_default();
        *read += events;
        if *read < WINDOW / 2 {
            return Ok(());
        }
        let events = std::mem::take(read);
        self.send_with(state, &FromClient::More { sink, events })
    }

    /// Events that nobody read in time were late, not delivered; there is room for others.
    fn tell_late(&self, state: &mut State) -> Result<(), ClientError> {
        while let Some(LateEvents { sink, host, source, events }) = state.inbox.next_late() {
            self.send_with(state, &FromClient::Late(LateReport { sink, host: &host, source, events }))?;
            self.make_room(state, sink, events)?;
        }
        Ok(())
    }

    /// Whether the source may try again before `until`.
    pub(super) fn wait_writable(&self, source: u32, until: Instant) -> Result<bool, ClientError> {
        let writable = self.wait_until(until, |state| Ok(state.inbox.take_writable(source).then_some(())))?;
        Ok(writable.is_some())
    }

    /// Whether something came, or waits, before `until`.
    fn wait(&self, until: Instant) -> Result<bool, ClientError> {
        self.wait_for(self.notify.as_fd(), until)
    }

    fn wait_for_socket(&self, until: Instant) -> Result<bool, ClientError> {
        self.wait_for(self.socket.as_fd(), until)
    }

    fn wait_for(&self, fd: BorrowedFd<'_>, until: Instant) -> Result<bool, ClientError> {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout(until))) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(Instant::now() < until),
            Err(error) => Err(lost(&self.path, &error.to_string())),
        }
    }
}

/// The time left.
pub(super) fn timeout(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

pub(super) fn name(text: &str) -> Result<Name, ClientError> {
    text.parse().map_err(|error: InvalidName| ClientError::value(error.problem()))
}

pub(super) fn lost(path: &Path, why: &str) -> ClientError {
    ClientError::Channels { path: path.to_owned(), why: why.to_owned() }
}
