//! The receive thread: accepts connections, checks greetings, reads frames, calls the handler, detects silent peers.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qfabric_channel::{DestinationRef, Incarnation, Lane};
use qfabric_types::LogLimit;
use qfabric_types::channel::Name;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::Plain;
use super::connection::Connection;
use super::socket::Listener;
use super::wire::{self, Hello, Kind, Reader};
use crate::engine::{EngineEvent, SIGNS};
use crate::presence::{Change, Presence};
use crate::{LEASE, MAX_HOSTS};

/// Connections that have not greeted yet; further ones are closed at once.
const MAX_STRANGERS: usize = 64;
/// Time for which a listener rests after the kernel gave no connection. Descriptors are used up then, so the next
/// attempt would fail, too, but the listener stays readable: without a pause this thread would use a whole CPU.
const PAUSE: Duration = Duration::from_millis(100);
const WAKE: u64 = 0;

/// The event thread's state for a connection.
struct Half {
    connection: Arc<Connection>,
    reader: Reader,
    greeted: Option<(Name, Incarnation)>,
    heard: Instant,
    /// The index of the address this host connected to; `None` if the other side connected.
    wanted: Option<usize>,
}

/// The state of the receive thread.
pub(super) struct Serve {
    plain: Arc<Plain>,
    listeners: Vec<Listener>,
    /// The ends of pauses, by index of the listener.
    paused: BTreeMap<usize, Instant>,
    warnings: LogLimit,
    halves: HashMap<u64, Half>,
    presence: Presence,
    next_token: u64,
}

impl Serve {
    pub(super) fn new(plain: Arc<Plain>, listeners: Vec<Listener>) -> rustix::io::Result<Serve> {
        epoll::add(&plain.epoll, &plain.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        for (index, listener) in listeners.iter().enumerate() {
            watch(&plain, index, listener)?;
        }
        let next_token = 1 + listeners.len() as u64;
        let (paused, halves, presence) = (BTreeMap::new(), HashMap::new(), Presence::default());
        Ok(Serve { plain, listeners, paused, warnings: LogLimit::default(), halves, presence, next_token })
    }

    pub(super) fn run(mut self) {
        let _ = self.plain.thread.set(rustix::thread::gettid().as_raw_nonzero().get());
        let mut tick = Instant::now() + LEASE / SIGNS;
        let mut events = [MaybeUninit::<Event>::uninit(); 64];
        while !self.plain.is_closing() {
            let next = self.paused.values().fold(tick, |next, end| next.min(*end));
            let left = next.saturating_duration_since(Instant::now());
            for event in self.wait(&mut events, left) {
                self.ready(event.data.u64(), event.flags);
            }
            self.end_pauses(Instant::now());
            if Instant::now() >= tick {
                tick = Instant::now() + LEASE / SIGNS;
                self.signs_of_life();
            }
        }
        self.halves.values().for_each(|half| _ = half.connection.end());
    }

    fn wait<'a>(&self, events: &'a mut [MaybeUninit<Event>], left: Duration) -> &'a mut [Event] {
        let timeout = rustix::time::Timespec::try_from(left).ok();
        match epoll::wait(&self.plain.epoll, events, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(_) => &mut [],
        }
    }

    fn ready(&mut self, token: u64, flags: EventFlags) {
        if token == WAKE {
            return self.take_dialed();
        }
        let index = token as usize - 1;
        if index < self.listeners.len() {
            return self.accept(index);
        }
        if flags.contains(EventFlags::OUT) {
            self.halves.get(&token).map(|half| half.connection.flush(&self.plain.epoll));
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) && !self.read(token) {
            self.remove(token);
        }
    }

    fn accept(&mut self, index: usize) {
        match self.listeners[index].accept() {
            Ok(Some(socket)) => _ = self.add(socket, Lane::Control, None),
            Ok(None) => self.plain.counters.count_refused(),
            // The connection ended before it was accepted.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
            Err(error) => self.pause(index, &error),
        }
    }

    fn pause(&mut self, index: usize, error: &io::Error) {
        self.plain.counters.count_refused();
        if self.warnings.is_due(Instant::now()) {
            tracing::warn!(
                %error,
                "cannot accept connections of other hosts for now, and tries again many times in a second; if no \
                 descriptor is free, raise LimitNOFILE of the service"
            );
        }
        // Fails only if the listener is not watched, which is the aim.
        let _ = epoll::delete(&self.plain.epoll, self.listeners[index].as_fd());
        self.paused.insert(index, Instant::now() + PAUSE);
    }

    /// Waits again for connections of the listeners whose pauses are over.
    fn end_pauses(&mut self, now: Instant) {
        let Serve { plain, listeners, paused, .. } = self;
        paused.retain(|index, end| {
            if *end > now {
                return true;
            }
            // Fails without memory; then there is another attempt after another pause.
            *end = now + PAUSE;
            watch(plain, *index, &listeners[*index]).is_err()
        });
    }

    fn take_dialed(&mut self) {
        let _ = rustix::io::read(&self.plain.wake, &mut [0; 8]);
        let dialed = std::mem::take(&mut *self.plain.dialed.lock());
        for call in dialed {
            match self.add(call.socket, call.lane, Some(call.wanted)) {
                Some(token) => self.greet(token, call.lane),
                None => self.plain.wanted[call.wanted].lost(call.lane),
            }
        }
    }

    /// Adds a connection that was accepted or made. The greeting of an accepted one tells its lane.
    fn add(&mut self, socket: OwnedFd, lane: Lane, wanted: Option<usize>) -> Option<u64> {
        let strangers = self.halves.values().filter(|half| half.greeted.is_none()).count();
        if strangers >= MAX_STRANGERS || self.halves.len() >= 4 * MAX_HOSTS {
            self.plain.counters.count_refused();
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        epoll::add(&self.plain.epoll, socket.as_fd(), EventData::new_u64(token), EventFlags::IN).ok()?;
        let connection = Arc::new(Connection::new(token, lane, socket));
        let half = Half { connection, reader: Reader::default(), greeted: None, heard: Instant::now(), wanted };
        self.halves.insert(token, half);
        Some(token)
    }

    fn greet(&self, token: u64, lane: Lane) {
        let half = &self.halves[&token];
        half.connection.send(&self.plain.epoll, Kind::Hello, &self.plain.hello(lane));
    }

    /// Reads once, so that no connection keeps others waiting. Returns false if the connection has ended.
    fn read(&mut self, token: u64) -> bool {
        let Some(mut half) = self.halves.remove(&token) else { return true };
        let going = match rustix::io::read(&half.connection.socket, half.reader.space()) {
            Ok(0) => false,
            Ok(count) => self.take(&mut half, count),
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        };
        self.halves.insert(token, half);
        going
    }

    fn take(&mut self, half: &mut Half, count: usize) -> bool {
        half.heard = Instant::now();
        let mut reader = std::mem::take(&mut half.reader);
        let outcome = reader.read(count, |kind, body| self.frame(half, kind, body));
        half.reader = reader;
        if outcome.is_err() {
            self.plain.counters.count_refused();
        }
        outcome.is_ok()
    }

    /// Returns false if the other side violates the protocol.
    fn frame(&mut self, half: &mut Half, kind: Kind, body: &[u8]) -> bool {
        match (kind, &half.greeted) {
            (Kind::Hello, None) => Hello::decode(body).is_some_and(|hello| self.greeted(half, hello)),
            (Kind::Frame, Some((from, _))) => {
                let lane = half.connection.lane;
                self.plain.counters.count_received(lane);
                self.plain.handler.handle(&*self.plain, EngineEvent::Arrived { from, lane, frame: body });
                true
            }
            (Kind::Listen | Kind::Ignore, Some((from, _))) => wire::channel_of(body).is_some_and(|channel| {
                let mut peers = self.plain.peers.lock();
                peers.listens(from, channel, kind == Kind::Listen);
                true
            }),
            (Kind::Alive, Some(_)) => true,
            _ => false,
        }
    }

    fn greeted(&mut self, half: &mut Half, hello: Hello) -> bool {
        if hello.realm != self.plain.realm {
            return false;
        }
        if hello.host == self.plain.host {
            half.wanted = None; // this host's own address, or a host that uses this host's name: do not connect again
            return false;
        }
        if half.wanted.is_none() {
            Arc::get_mut(&mut half.connection).expect("not shared before it joins").lane = hello.lane;
            half.connection.send(&self.plain.epoll, Kind::Hello, &self.plain.hello(hello.lane));
        }
        half.greeted = Some((hello.host.clone(), hello.incarnation));
        self.join(half, &hello)
    }

    /// A host is present when both lanes are connected.
    fn join(&mut self, half: &Half, hello: &Hello) -> bool {
        let connection = Arc::clone(&half.connection);
        let mut peers = self.plain.peers.lock();
        if !peers.add(&hello.host, hello.incarnation, connection) {
            return false;
        }
        let complete = peers.is_complete(&hello.host);
        drop(peers);
        if half.connection.lane == Lane::Control {
            self.plain.tell_wants(&half.connection);
        }
        if complete {
            let change = self.presence.begins(&hello.host, hello.incarnation);
            self.tell(&hello.host, change);
        }
        true
    }

    fn remove(&mut self, token: u64) {
        let Some(half) = self.halves.remove(&token) else { return };
        let _ = epoll::delete(&self.plain.epoll, &half.connection.socket);
        half.connection.end();
        if let Some((host, incarnation)) = half.greeted {
            let mut peers = self.plain.peers.lock();
            let gone = peers.remove(&host, incarnation, &half.connection);
            drop(peers);
            let change = if gone { self.presence.ends(&host, incarnation) } else { Change::default() };
            self.tell(&host, change);
        }
        if let Some(wanted) = half.wanted {
            self.plain.wanted[wanted].lost(half.connection.lane);
        }
    }

    fn tell(&self, host: &Name, change: Change) {
        if let Some(incarnation) = change.vanished {
            self.plain.handler.handle(&*self.plain, EngineEvent::Vanished { host, incarnation });
        }
        if let Some(incarnation) = change.appeared {
            self.plain.handler.handle(&*self.plain, EngineEvent::Appeared { host, incarnation });
        }
    }

    /// Sends signs of life, and ends connections of peers that are silent or have not greeted in time.
    fn signs_of_life(&mut self) {
        self.plain.transmit(DestinationRef::Everyone, Lane::Control, Kind::Alive, &[]);
        let now = Instant::now();
        let silent = |half: &Half| half.greeted.is_none() || half.connection.lane == Lane::Control;
        let late = |half: &&Half| silent(half) && now.duration_since(half.heard) > LEASE;
        let gone: Vec<u64> = self.halves.values().filter(late).map(|half| half.connection.token).collect();
        for token in gone {
            self.plain.counters.count_ended();
            self.remove(token);
        }
    }
}

/// From now on waits for connections of the listener.
fn watch(plain: &Plain, index: usize, listener: &Listener) -> rustix::io::Result<()> {
    epoll::add(&plain.epoll, listener.as_fd(), EventData::new_u64(1 + index as u64), EventFlags::IN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    use rustix::event::{EventfdFlags, eventfd};

    use crate::Config;
    use crate::engine::Engine;

    /// A descriptor that is always readable and accepts nothing, like a listener without a free descriptor.
    fn failing() -> Listener {
        let readable = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Listener::Unix(UnixListener::from(readable))
    }

    #[test]
    fn a_listener_without_a_free_descriptor_rests_before_each_further_attempt() {
        let handler = Arc::new(|_: &dyn Engine, _: EngineEvent<'_>| {});
        let plain = Plain::new(&Config::new("a".parse().unwrap()), Incarnation(1), handler).unwrap();
        let mut serve = Serve::new(Arc::new(plain), vec![failing(), failing()]).unwrap();
        let (mut events, begun) = ([MaybeUninit::<Event>::uninit(); 64], Instant::now());
        for _ in 0..3 {
            let ready: Vec<_> = serve.wait(&mut events, Duration::ZERO).iter().map(|event| event.data.u64()).collect();
            assert_eq!(ready.len(), 2, "each pause is followed by an attempt");
            ready.into_iter().for_each(|token| serve.ready(token, EventFlags::IN));
            assert!(serve.wait(&mut events, Duration::ZERO).is_empty(), "still readable, but nobody waits for it");
            assert_eq!(serve.paused.len(), 2);
            serve.end_pauses(Instant::now() + PAUSE);
        }
        assert!(!serve.warnings.is_due(begun), "the first failure was logged, and the next are not");
    }
}
