//! The side that offers a service and waits for clients.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use qfabric_client::Process;
use qfabric_realm::{Right, Tls};
use qfabric_types::Bytes;
use qfabric_types::api::Problem;
use qfabric_types::channel::{ChannelId, Name};
use tokio::sync::{Notify, mpsc};

use crate::connection::Connection;
use crate::driver::{Attachment, Attachments, Driver};
use crate::handover::{Command, Handover, later, process};
use crate::hello::{Answer, Hello, SessionKey};
use crate::options::{Engine, Options, Secured};
use crate::quic::{Arrival, Door};
use crate::streams::StreamDriver;
use crate::{Error, runtime};

/// Sessions that clients opened and the application has not accepted.
const MOST_WAITING: usize = 16;

/// A service on an address. Hosts with the right `connect` on its name may open sessions.
pub struct ServerConnection {
    opened: Arc<Opened>,
    address: SocketAddr,
    /// In a child of a fork the service and the thread belong to the parent.
    by: Process,
    thread: Option<JoinHandle<()>>,
}

/// Sessions that wait for the application.
#[derive(Default)]
struct Opened {
    queue: Mutex<Queue>,
    changed: Condvar,
    stop: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Connection>,
    /// Sessions that wait for their first carrier; then they are offered.
    coming: usize,
    /// The application accepts no more.
    is_closed: bool,
}

/// A session without a carrier yet.
struct Coming {
    opened: Arc<Opened>,
    handover: Arc<Handover>,
    peer: Name,
    largest_message: Bytes,
}

impl Opened {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coming {
    /// Offers the session, which has its first carrier, to the application.
    fn offer(self) {
        let mut queue = self.opened.lock();
        queue.coming -= 1;
        if queue.is_closed {
            // It has ended already if this fails.
            return drop(self.handover.command(Command::Close));
        }
        let Coming { handover, peer, largest_message, .. } = self;
        queue.waiting.push_back(Connection { handover, peer, largest_message });
        self.opened.changed.notify_all();
    }

    fn give_up(self) {
        self.opened.lock().coming -= 1;
    }
}

impl ServerConnection {
    /// Registers a service: listens on `local` (port 0: any free port).
    ///
    /// # Errors
    /// The address cannot be listened on, or a certificate cannot be used.
    pub fn register(service: Name, local: SocketAddr, tls: Tls, options: Options) -> Result<ServerConnection, Error> {
        options.check()?;
        let by = process()?;
        let opened = Arc::<Opened>::default();
        let inner = opened.clone();
        let (address, thread) = runtime::start(move || async move {
            let secured = Secured { tls, options };
            let (door, arrivals) = Door::open(&secured, local)?;
            let address = door.address()?;
            let desk = Desk { service, secured, opened: inner, sessions: HashMap::new() };
            Ok((address, desk.run(door, arrivals)))
        })?;
        Ok(ServerConnection { opened, address, by, thread: Some(thread) })
    }

    /// The address on which the service listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next session that a client opened.
    ///
    /// # Errors
    /// None came within the time, or the service belongs to the parent of this forked process.
    pub fn accept(&self, within: Duration) -> Result<Connection, Error> {
        if !self.by.is_current() {
            return Err(Error::Forked { what: "the service" });
        }
        let until = later(Instant::now(), within);
        let mut queue = self.opened.lock();
        loop {
            if let Some(connection) = queue.waiting.pop_front() {
                return Ok(connection);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::TimeOut { what: "waiting for a client", within });
            }
            queue = self.opened.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for ServerConnection {
    /// Accepts no more clients. Sessions that were accepted go on until they end. In a child of a fork, does nothing.
    fn drop(&mut self) {
        if !self.by.is_current() {
            // The thread does not exist here, and locks that it held stay locked.
            return mem::forget(self.thread.take());
        }
        self.opened.stop.notify_one();
        let refused = {
            let mut queue = self.opened.lock();
            queue.is_closed = true;
            mem::take(&mut queue.waiting)
        };
        drop(refused);
        // The thread ends with its last session.
        drop(self.thread.take());
    }
}

/// Decides about clients.
struct Desk {
    service: Name,
    secured: Secured,
    opened: Arc<Opened>,
    sessions: HashMap<SessionKey, Session>,
}

/// A session that runs.
struct Session {
    /// The host that opened it; no other one may attach carriers.
    host: Name,
    attachments: Attachments,
}

impl Desk {
    async fn run(mut self, door: Door, mut arrivals: mpsc::Receiver<Arrival>) {
        let endpoint = door.endpoint();
        let doorkeeper = tokio::task::spawn_local(door.run());
        let opened = self.opened.clone();
        loop {
            tokio::select! {
                () = opened.stop.notified() => break,
                Some(arrival) = arrivals.recv() => self.welcome(arrival),
            }
        }
        endpoint.set_server_config(None);
        doorkeeper.abort();
        for session in self.sessions.values() {
            session.attachments.closed().await;
        }
        endpoint.close(0u32.into(), b"the service has ended");
        endpoint.wait_idle().await;
    }

    fn welcome(&mut self, arrival: Arrival) {
        self.sessions.retain(|_, session| !session.attachments.is_closed());
        let host = arrival.path.host.clone();
        let decided = match &arrival.hello {
            Hello::Open { service, engine } => self.open(&host, service, *engine),
            Hello::Attach { session } => self.attach(&host, session),
        };
        if let Err(problem) = &decided {
            tracing::info!(%host, %problem, "a client is refused");
        }
        tokio::task::spawn_local(async move {
            match decided {
                Ok((answer, attachments)) => {
                    let path = Ok(arrival.answer(&answer).await);
                    // A session that ended meanwhile closes the connection.
                    let _ = attachments.send(Attachment { path, reply: None }).await;
                }
                Err(problem) => drop(arrival.answer(&Answer::Refused(Box::new(problem))).await),
            }
        });
    }

    fn open(&mut self, host: &Name, service: &Name, engine: Engine) -> Result<(Answer, Attachments), Problem> {
        self.check(host, service)?;
        let session = SessionKey::random();
        let handover = Handover::new(self.secured.options.memory().get()).map_err(|error| error.problem())?;
        let coming = Coming {
            opened: self.opened.clone(),
            handover: Arc::new(handover),
            peer: host.clone(),
            largest_message: self.secured.options.largest_message,
        };
        let attachments = self.run_session(&session, engine, coming).map_err(|error| error.problem())?;
        self.opened.lock().coming += 1;
        self.sessions.insert(session.clone(), Session { host: host.clone(), attachments: attachments.clone() });
        Ok((Answer::Opened { session }, attachments))
    }

    /// Starts the task of a session. It waits for its first carrier, and then offers itself to the application, which so
    /// can ask for the connection's addresses at once.
    fn run_session(&self, key: &SessionKey, engine: Engine, coming: Coming) -> Result<Attachments, Error> {
        let (options, handover) = (&self.secured.options, coming.handover.clone());
        if engine == Engine::Metp {
            let mut driver = Driver::new(options, key.tag(), handover, None)?;
            let attachments = driver.attachments();
            tokio::task::spawn_local(async move {
                driver.attach_first().await;
                coming.offer();
                driver.run().await;
            });
            return Ok(attachments);
        }
        let (attachments, mut waiting) = mpsc::channel::<Attachment>(1);
        let options = options.clone();
        tokio::task::spawn_local(async move {
            let first = waiting.recv().await;
            match first.and_then(|first| first.path.ok()) {
                Some(path) => {
                    let driver = StreamDriver::new(&options, handover, path);
                    coming.offer();
                    driver.run().await;
                }
                None => coming.give_up(),
            }
        });
        Ok(attachments)
    }

    fn check(&self, host: &Name, service: &Name) -> Result<(), Problem> {
        if *service != self.service {
            let message = format!("no service {service} here; this is {}", self.service);
            return Err(Problem::new("no_such_service", message, format!("open the service {}", self.service)));
        }
        let access = &self.secured.tls.access;
        if !access.gives(host, Right::Connect, &ChannelId::data(service.clone())) {
            let why = access.why_not(host, Right::Connect, service);
            let message = format!("{host} may not connect to the service {service}: {why}");
            return Err(Problem::new("not_allowed", message, "add the right `connect` to the access list there"));
        }
        self.check_room(host, service)
    }

    /// Whether another session of the host may begin.
    fn check_room(&self, host: &Name, service: &Name) -> Result<(), Problem> {
        let refused = |message: String, next_step: &str| Err(Problem::new("too_many_sessions", message, next_step));
        let of_host = self.sessions.values().filter(|session| session.host == *host).count();
        let (most, most_of_host) = (Options::MOST_SESSIONS, self.secured.options.sessions_per_host);
        if of_host >= most_of_host {
            let message = format!(
                "the host {host} has {of_host} sessions with the service {service}, of at most {most_of_host} per host"
            );
            return refused(message, "end one of them, or try again when one has ended");
        }
        let waiting = {
            let queue = self.opened.lock();
            queue.waiting.len() + queue.coming
        };
        if waiting >= MOST_WAITING || self.sessions.len() >= most {
            let message = format!(
                "the service {service} has {} sessions, of at most {most}; {waiting} wait, of at most {MOST_WAITING}",
                self.sessions.len()
            );
            return refused(message, "try again later");
        }
        Ok(())
    }

    fn attach(&mut self, host: &Name, session: &SessionKey) -> Result<(Answer, Attachments), Problem> {
        let found = self.sessions.get(session).filter(|found| found.host == *host);
        let missing = || Problem::new("no_such_session", "the host has no such session here", "open a new connection");
        found.map(|found| (Answer::Attached, found.attachments.clone())).ok_or_else(missing)
    }
}
