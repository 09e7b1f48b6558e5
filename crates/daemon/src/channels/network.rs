//! The node with its resource manager, and what carries its frames.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_channel::{Destination, Event, Lane, Node, Notice, Port, SinkId, SourceId};
use qfabric_host::manager::{Controller, Manager, ManagerPort, Member, MemberPort, Outcome, Whom};
use qfabric_link::{
    self as link, Address, Attending, Counters, EngineKind, Inside, Link, Listener, Role, Security, Tls,
};
use qfabric_linux::clock;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Claim;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, ThreadId};

use super::mailbox::{Lent, Mailbox};
use super::{ChannelsConfig, EngineName, Mode, Scouting, lock, node, socket};
use crate::handshakes;
use crate::startup::DaemonError;

/// A node and its network. One lock around the node; whoever has work calls it.
pub(super) enum Network {
    /// No other hosts.
    Alone {
        /// The node.
        managed: Box<Lock<Managed, { rank::NODE }>>,
        /// Where it says what it wants.
        mailbox: Arc<Mailbox>,
    },
    /// Others, over an engine.
    Linked {
        /// The node, and the engine.
        link: Link<Managed>,
        /// What it was opened with.
        config: Lock<link::Config, { rank::NETWORK_CONFIG }>,
    },
}

/// The node and its manager.
pub(super) struct Managed {
    member: Member,
    mailbox: Arc<Mailbox>,
}

impl Network {
    /// Joins the network that is configured.
    pub fn open(config: &ChannelsConfig, host: Name, mailbox: &Arc<Mailbox>) -> Result<Network, DaemonError> {
        let refused = |error: link::Error| DaemonError::Channels(error.to_string());
        let mut own = node::config(host.clone());
        let linked = linked(config, host).map_err(refused)?;
        if let Some(link::Config { security: Security::Tls(tls), .. }) = &linked {
            own.policy = Box::new(tls.access.clone());
        }
        let managed = Managed { member: Member::new(own, clock::now()), mailbox: mailbox.clone() };
        let Some(linked) = linked else {
            return Ok(Network::Alone { managed: Box::new(Lock::new(managed)), mailbox: mailbox.clone() });
        };
        let (listener, priority) = (mailbox.clone(), config.priority);
        let link = Link::open(&linked, managed, listener, move || socket::enter(priority)).map_err(refused)?;
        hurry(&link, priority);
        Ok(Network::Linked { link, config: Lock::new(linked) })
    }

    /// Calls the node.
    pub fn with<T>(&self, act: impl FnOnce(&mut Node, Instant) -> T) -> T {
        self.inside(|managed, now, port| managed.call(now, port, |node, port| act(node, now, port)))
    }

    /// Calls the node for something that leaves no work: a look, or a change of filters.
    pub fn look<T>(&self, look: impl FnOnce(&mut Node) -> T) -> T {
        self.with(|node, _| look(node))
    }

    /// A reading of this host's monitor, for its own controllers and for those of all Q-channels that are open here.
    pub fn reading(&self, reading: &Reading, name: &str) {
        self.inside(|managed, now, port| {
            let Managed { member, mailbox } = managed;
            member.reading((reading, name), None, &Whom::All, now, &mut Hands { port, mailbox });
        });
    }

    /// A reading for the hosts that feed the data channel of that name.
    pub fn report(&self, reading: &Reading, name: &str, quality: &ChannelId) {
        self.inside(|managed, now, port| {
            let Managed { member, mailbox } = managed;
            member.reading((reading, name), Some(quality), &Whom::Sources, now, &mut Hands { port, mailbox });
        });
    }

    /// Adds a policy to the manager; its number there.
    pub fn add_policy(&self, policy: Box<dyn Controller>) -> u64 {
        self.inside(|managed, now, port| {
            let Managed { member, mailbox } = managed;
            member.add(policy, now, &mut Hands { port, mailbox })
        })
    }

    /// Removes it.
    pub fn remove_policy(&self, number: u64) {
        // Dropped outside of the node's lock.
        drop(self.inside(|managed, now, port| {
            let Managed { member, mailbox } = managed;
            member.remove(number, now, &mut Hands { port, mailbox })
        }));
    }

    /// Calls the manager.
    pub fn manager<T>(&self, act: impl FnOnce(&mut Manager, Instant, &mut dyn ManagerPort) -> T) -> T {
        self.inside(|managed, now, port| {
            let Managed { member, mailbox } = managed;
            member.manager(now, &mut Hands { port, mailbox }, |manager, port| act(manager, now, port))
        })
    }

    /// Control events that could not be submitted, and events of managers that could not be read.
    pub fn lost(&self) -> (u64, u64) {
        self.inside(|managed, _, _| managed.member.lost())
    }

    fn inside<T>(&self, act: impl FnOnce(&mut Managed, Instant, &mut dyn Port) -> T) -> T {
        match self {
            Network::Linked { link, .. } => link.with(act),
            Network::Alone { managed, mailbox } => {
                let mut managed = managed.lock();
                let before = managed.next_wakeup();
                let answer = act(&mut managed, clock::now(), &mut Local(mailbox));
                let earlier = managed.next_wakeup().is_some_and(|next| before.is_none_or(|before| next < before));
                drop(managed);
                if earlier {
                    mailbox.nudge();
                }
                answer
            }
        }
    }

    /// Does what is due, and says when to come back. Beside a network there is a thread for that.
    pub fn wake(&self) -> Option<Instant> {
        match self {
            Network::Linked { .. } => None,
            Network::Alone { .. } => self.inside(|managed, now, port| {
                managed.wake(now, port);
                managed.next_wakeup()
            }),
        }
    }

    /// Calls `turn` in the network's own thread whenever `fd` is readable; see [`link::attend`]. None: there is no such
    /// thread.
    pub fn attend(
        &self,
        fd: OwnedFd,
        turn: impl FnMut() -> bool + Send + 'static,
        failed: impl Fn(&'static str, String) + Send + 'static,
    ) -> io::Result<Option<Attending>> {
        match self {
            Network::Linked { config, .. } if lock(config).engine == EngineKind::Zenoh => {
                link::attend(fd, turn, failed)
            }
            _ => Ok(None),
        }
    }

    /// What the engine has counted: frames dropped, refused, connections ended.
    pub fn engine_counts(&self) -> [u64; 3] {
        let Network::Linked { link, .. } = self else { return [0; 3] };
        let of =
            |counter: fn(&Counters) -> &AtomicU64| link.count(|counters| counter(counters).load(Ordering::Relaxed));
        [of(|all| &all.dropped), of(|all| &all.refused) + handshakes::refused(), of(|all| &all.ended)]
    }

    /// Says goodbye to the others.
    pub fn close(&self) {
        if let Network::Linked { link, .. } = self {
            link.close();
        }
    }
}

/// The real-time policy for the engine's threads.
pub(super) fn hurry(link: &Link<Managed>, priority: u32) {
    for thread in link.threads().into_iter().filter(|_| priority > 0) {
        // Without the capability it runs like anybody else, as was logged.
        let _ = SchedAttr::fifo(priority).give(ThreadId(thread));
    }
}

/// The section of the configuration as the engine takes it; none: no other hosts.
pub(super) fn linked(config: &ChannelsConfig, host: Name) -> Result<Option<link::Config>, link::Error> {
    let engine = match config.engine {
        EngineName::None => return Ok(None),
        EngineName::Zenoh => EngineKind::Zenoh,
        EngineName::Tcp => EngineKind::Plain,
    };
    let addresses = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Address>, _>>();
    let security = match &config.tls {
        None => Security::Insecure,
        Some(folder) => Security::Tls(Box::new(Tls::from_folder(folder, &host, &config.access_file(folder))?)),
    };
    Ok(Some(link::Config {
        realm: config.realm.clone(),
        engine,
        role: match config.mode {
            Mode::Peer => Role::Peer,
            Mode::Router => Role::Router,
        },
        listen: addresses(&config.listen)?,
        peers: addresses(&config.connect)?,
        scouting: match config.scouting {
            Scouting::Configured => link::Scouting::Configured,
            Scouting::Gossip => link::Scouting::Gossip,
            Scouting::Multicast => link::Scouting::Multicast,
        },
        security,
        ..link::Config::new(host)
    }))
}

impl Inside for Managed {
    fn call<R>(&mut self, now: Instant, port: &mut dyn Port, act: impl FnOnce(&mut Node, &mut dyn Port) -> R) -> R {
        self.member.with(now, &mut Hands { port, mailbox: &self.mailbox }, act)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.member.next_wakeup()
    }

    fn wake(&mut self, now: Instant, port: &mut dyn Port) {
        self.member.wake(now, &mut Hands { port, mailbox: &self.mailbox });
    }
}

impl Listener for Mailbox {
    /// Every sink of this service's applications has a queue.
    fn deliver(&self, _sink: SinkId, _event: &Event<'_>) {}

    fn ready(&self, sink: SinkId) {
        Mailbox::ready(self, sink);
    }

    fn ready_by_arrival(&self, sink: SinkId) {
        Mailbox::ready_by_arrival(self, sink);
    }

    fn arrived(&self) {
        let Some(fabric) = self.fabric() else { return };
        let mut arrived = self.take_arrived();
        fabric.hand_over(&mut arrived);
        self.keep_for_arrivals(arrived);
    }

    fn writable(&self, source: SourceId) {
        Mailbox::writable(self, source);
    }

    fn notice(&self, notice: Notice) {
        Mailbox::notice(self, notice);
    }

    fn failed(&self, thread: &'static str, message: String) {
        Mailbox::failed(self, thread, message);
    }
}

/// The port of a host without others.
struct Local<'a>(&'a Mailbox);

impl Port for Local<'_> {
    fn send(&mut self, _to: Destination<'_>, _lane: Lane, _frame: &[u8]) {}

    fn listen(&mut self, _channel: &ChannelId) {}

    fn ignore(&mut self, _channel: &ChannelId) {}

    fn deliver(&mut self, _sink: SinkId, _event: &Event<'_>) {}

    fn ready(&mut self, sink: SinkId) {
        self.0.ready(sink);
    }

    fn writable(&mut self, source: SourceId) {
        self.0.writable(source);
    }

    fn notice(&mut self, notice: Notice) {
        self.0.notice(notice);
    }
}

/// What a manager can do beside the node's work.
struct Hands<'a> {
    port: &'a mut dyn Port,
    mailbox: &'a Mailbox,
}

impl Port for Hands<'_> {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        self.port.send(to, lane, frame);
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.port.listen(channel);
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.port.ignore(channel);
    }

    fn deliver(&mut self, sink: SinkId, event: &Event<'_>) {
        self.port.deliver(sink, event);
    }

    fn ready(&mut self, sink: SinkId) {
        self.port.ready(sink);
    }

    fn writable(&mut self, source: SourceId) {
        self.port.writable(source);
    }

    fn notice(&mut self, notice: Notice) {
        self.port.notice(notice);
    }
}

impl MemberPort for Hands<'_> {
    fn apply(&mut self, application: AppId, attribute: AttributeId, amount: i64) {
        self.mailbox.apply(application, attribute, amount);
    }

    fn answered(&mut self, request: u64, outcome: &Outcome) {
        tracing::debug!(request, ?outcome, "a request to other hosts ended");
        let giver = if let Outcome::Met { host } = outcome { Some(host.clone()) } else { None };
        self.mailbox.lend(Lent::Answered { request, giver });
    }

    fn keep(&mut self, asker: &Name, number: u64, amount: i64, until: Instant) {
        let claim = Claim { host: asker.clone(), number };
        self.mailbox.lend(Lent::Keep { claim, amount, until });
    }

    fn let_go(&mut self, asker: &Name, number: u64) {
        self.mailbox.lend(Lent::LetGo(Claim { host: asker.clone(), number }));
    }

    fn taken(&mut self, giver: &Name, request: u64) {
        self.mailbox.lend(Lent::Taken { request, giver: giver.clone() });
    }
}
