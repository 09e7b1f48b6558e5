//! The node with its resource manager, and the engine that carries its frames.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_channel::{Frame, Node, Output, SinkId};
use qfabric_host::manager::contracts::ContractMessage;
use qfabric_host::manager::{Controller, Effect, Manager, Member, MemberOutput, Outcome, Recipient};
use qfabric_link::security::{self, ChannelRights};
use qfabric_link::{
    self as link, Address, Attending, Buffers, Counters, EngineKind, Link, Listener, NodeOwner, Role, Security, Tls,
};
use qfabric_linux::clock;
use qfabric_linux::sched_attr::{RESET_ON_FORK, SchedAttr};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::{Claim, Problem};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::Reading;
use qfabric_types::{Instant, ThreadId};

use super::mailbox::{Lender, LendingMessage, Mailbox};
use super::{ChannelsConfig, EngineName, Mode, Scouting, node, socket};
use crate::net::LoanOrder;
use crate::startup::DaemonError;

thread_local! {
    /// Empty memory of the receive thread for the sinks with events from a frame.
    static ARRIVED: Cell<Vec<SinkId>> = const { Cell::new(Vec::new()) };
}

/// This host's node and its network. One lock protects the node; each thread calls the node itself.
///
/// Questions about this host and its channels that only the node answers belong here. Those that also need connections,
/// filters or policies of users belong to `Fabric`.
pub(super) struct Network {
    /// This host's name.
    pub host: Name,
    pub way: Way,
}

/// The way of the node's frames.
pub(super) enum Way {
    /// No other hosts.
    Alone {
        managed: Box<Lock<ManagedNode, { rank::NODE }>>,
        /// Receives the node's outputs.
        mailbox: Arc<Mailbox>,
    },
    /// Other hosts, over an engine.
    Linked {
        link: Link<ManagedNode>,
        /// The configuration with which the link was opened.
        config: Lock<link::Config, { rank::NETWORK_CONFIG }>,
        /// The engine has a thread that may also read connections. A reload does not change the engine.
        attends: bool,
    },
}

pub(super) struct ManagedNode {
    member: Member,
    mailbox: Arc<Mailbox>,
}

impl Network {
    /// Joins the configured network.
    pub(super) fn open(config: &ChannelsConfig, host: Name, mailbox: &Arc<Mailbox>) -> Result<Network, DaemonError> {
        let refused = |error: link::Error| DaemonError::refused("channels", error.problem());
        let mut own = node::config(host.clone());
        let linked = linked(config, host.clone()).map_err(refused)?;
        if let Some(link::Config { security: Security::Tls(tls), .. }) = &linked {
            is_router(config.combiner.as_ref(), tls)?;
            own.policy = Box::new(ChannelRights(tls.access.clone()));
            own.notary = Some(security::notary(tls).map_err(refused)?);
        }
        own.combiner = config.combiner.clone();
        own.filter_instructions = config.max_filter_instructions;
        own.filter_rate = config.max_filter_instructions_per_second;
        own.hears_private = mailbox.path().is_some();
        let mut managed = ManagedNode { member: Member::new(own, clock::now()), mailbox: mailbox.clone() };
        managed.member.set_slack(config.slack);
        let Some(linked) = linked else {
            let way = Way::Alone { managed: Box::new(Lock::new(managed)), mailbox: mailbox.clone() };
            return Ok(Network { host, way });
        };
        let (listener, priority) = (mailbox.clone(), config.priority);
        let link = Link::open(&linked, managed, listener, move || socket::enter(priority)).map_err(refused)?;
        hurry(&link, priority);
        let attends = linked.engine == EngineKind::Zenoh;
        Ok(Network { host, way: Way::Linked { link, config: Lock::new(linked), attends } })
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Node, Instant) -> T) -> T {
        self.inside(|managed, now| managed.call(now, |node| act(node, now)))
    }

    /// Calls the node for an operation that leaves no outputs: a query, or a change of filters.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Node) -> T) -> T {
        self.with(|node, _| look(node))
    }

    /// Sets the limits of filters, and the slack of readings.
    pub(super) fn configure(&self, config: &ChannelsConfig) {
        let (longest, rate) = (config.max_filter_instructions, config.max_filter_instructions_per_second);
        self.look(|node| node.set_filter_limits(longest, rate));
        self.inside(|managed, _| managed.member.set_slack(config.slack));
    }

    /// Passes on a reading of this host's monitor, to its own controllers and to those of all Q-channels that are
    /// open here.
    pub(super) fn reading(&self, reading: &Reading, name: &str) {
        self.inside(|managed, now| managed.member.reading((reading, name), None, &Recipient::All, now));
    }

    /// Sends a reading to the hosts that feed the data channel of that name.
    pub(super) fn report(&self, reading: &Reading, name: &str, quality: &ChannelId) {
        self.inside(|managed, now| managed.member.reading((reading, name), Some(quality), &Recipient::Sources, now));
    }

    /// Adds a policy to the manager; returns its number there.
    pub(super) fn add_policy(&self, policy: Box<dyn Controller>) -> u64 {
        self.inside(|managed, now| managed.member.add(policy, now))
    }

    pub(super) fn remove_policy(&self, number: u64) {
        // The controller is dropped without the node's lock.
        drop(self.inside(|managed, now| managed.member.remove(number, now)));
    }

    pub(super) fn manager<T>(&self, act: impl FnOnce(&mut Manager, Instant) -> T) -> T {
        self.inside(|managed, now| managed.member.manager(now, |manager| act(manager, now)))
    }

    /// Sends a message about a joint contract.
    pub(super) fn tell_contract(&self, to: &Name, message: &ContractMessage) {
        self.inside(|managed, now| managed.member.tell_contract(to, message, now));
    }

    /// Sends a message about ECalls.
    pub(super) fn tell_ecall(&self, to: &Name, tail: &[u8]) {
        self.inside(|managed, now| managed.member.tell_ecall(to, tail, now));
    }

    /// Number of control events that could not be submitted, and of managers' events that could not be read.
    pub(super) fn lost(&self) -> (u64, u64) {
        self.inside(|managed, _| managed.member.lost())
    }

    fn inside<T>(&self, act: impl FnOnce(&mut ManagedNode, Instant) -> T) -> T {
        match &self.way {
            Way::Linked { link, .. } => link.call(act),
            Way::Alone { managed, mailbox } => {
                let mut managed = managed.lock();
                let before = managed.next_wakeup();
                let now = clock::now();
                let answer = act(&mut managed, now);
                while let Some(output) = managed.poll(now) {
                    mailbox.on_output(output, false);
                }
                let earlier = managed.next_wakeup().is_some_and(|next| before.is_none_or(|before| next < before));
                drop(managed);
                if earlier {
                    mailbox.nudge();
                }
                answer
            }
        }
    }

    /// The calling thread has served connections since `begin` and holds no lock: it sleeps for a moment if it did so for
    /// long without a pause.
    pub(super) fn rest(&self, begin: Instant) {
        if let Way::Linked { link, .. } = &self.way {
            link.rest(begin);
        }
    }

    /// Carries out what is due, and returns the time of the next call. With a network, the engine's thread does this.
    pub(super) fn wake(&self) -> Option<Instant> {
        match &self.way {
            Way::Linked { .. } => None,
            Way::Alone { .. } => self.inside(|managed, now| {
                managed.wake(now);
                managed.next_wakeup()
            }),
        }
    }

    /// Calls `turn` in the network's own thread whenever something arrives at `fd`; see [`link::attend`]. None: no such
    /// thread exists.
    pub(super) fn attend(
        &self,
        fd: impl AsFd + Send + Sync + 'static,
        turn: impl FnMut(bool) + Send + 'static,
        failed: impl Fn(&'static str, String) + Send + 'static,
    ) -> io::Result<Option<Attending>> {
        match &self.way {
            Way::Linked { attends: true, .. } => link::attend(fd, turn, failed),
            _ => Ok(None),
        }
    }

    /// Counters of the engine: frames dropped, frames refused, connections ended.
    pub(super) fn engine_counts(&self) -> [u64; 3] {
        let Way::Linked { link, .. } = &self.way else { return [0; 3] };
        let of =
            |counter: fn(&Counters) -> &AtomicU64| link.count(|counters| counter(counters).load(Ordering::Relaxed));
        [of(|all| &all.dropped), of(|all| &all.refused) + link::refused_handshakes(), of(|all| &all.ended)]
    }

    /// Announces to other hosts that this one leaves.
    pub(super) fn close(&self) {
        if let Way::Linked { link, .. } = &self.way {
            link.close();
        }
    }
}

/// Sets the real-time policy of the engine's threads. Threads that these start get the ordinary policy.
pub(super) fn hurry(link: &Link<ManagedNode>, priority: u32) {
    for thread in link.threads().into_iter().filter(|_| priority > 0) {
        // Without the capability the thread keeps the ordinary policy; this was logged before.
        let _ = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(priority) }.give(ThreadId(thread));
    }
}

/// Other hosts believe only routers about frames of third hosts.
fn is_router(combiner: Option<&Name>, tls: &Tls) -> Result<(), DaemonError> {
    let Some(combiner) = combiner.filter(|combiner| !tls.access.routers.contains(*combiner)) else { return Ok(()) };
    let message = format!("channels.combiner {combiner} is not among the routers of {}", tls.access.path.display());
    let next_step = "add it to `routers` on all hosts, or leave channels.combiner out";
    Err(DaemonError::Part(Problem::new("channels", message, next_step)))
}

/// The engine's configuration; none if there are no other hosts.
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
        buffers: Buffers {
            // Checked: at most 16 MiB.
            send: u32::try_from(config.send_buffer.0.get()).unwrap_or(u32::MAX),
            receive: u32::try_from(config.receive_buffer.0.get()).unwrap_or(u32::MAX),
        },
        ..link::Config::new(host)
    }))
}

impl NodeOwner for ManagedNode {
    fn call<R>(&mut self, now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        self.member.with(now, act)
    }

    fn poll(&mut self, _now: Instant) -> Option<Output> {
        loop {
            match self.member.poll()? {
                MemberOutput::Node(output) => return Some(output),
                MemberOutput::Effect(effect) => self.mailbox.take_effect(effect),
                MemberOutput::Ecall(host, tail) => {
                    if let Some(inbox) = self.mailbox.ecalls() {
                        inbox.heard(host, tail);
                    }
                }
                // Before the service answers, nobody hears it, and its host sends it again.
                MemberOutput::Contract(host, message) => {
                    if let Some(contracts) = self.mailbox.contracts() {
                        contracts.heard(host, message);
                    }
                }
            }
        }
    }

    fn frame(&self, frame: Frame) -> &[u8] {
        self.member.frame(frame)
    }

    fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        self.member.memory(frame)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.member.next_wakeup()
    }

    fn wake(&mut self, now: Instant) {
        self.member.wake(now);
    }
}

impl Listener for Mailbox {
    fn on_output(&self, output: Output, is_arrival: bool) {
        match output {
            Output::Ready(sink) if is_arrival => self.ready_by_arrival(sink),
            Output::Ready(sink) => self.ready(sink),
            Output::Writable(source) => self.writable(source),
            Output::Notice(notice) => self.notice(notice),
            Output::Private(host, bytes) => {
                if let Some(inbox) = self.path() {
                    inbox.heard(host, bytes);
                }
            }
            // For the network; without other hosts they have no effect.
            Output::Send(..) | Output::Listen(_) | Output::Ignore(_) => {}
        }
    }

    fn arrived(&self) {
        let Some(fabric) = self.fabric() else { return };
        let mut arrived = ARRIVED.take();
        self.take_arrived(&mut arrived);
        fabric.hand_over(&mut arrived);
        ARRIVED.set(arrived);
    }

    fn failed(&self, thread: &'static str, message: String) {
        Mailbox::failed(self, thread, message);
    }
}

impl Mailbox {
    /// Carries out a manager's decision on this host.
    fn take_effect(&self, effect: Effect) {
        match effect {
            Effect::Apply(application, attribute, amount) => self.apply(application, attribute, amount),
            Effect::Answered(request, outcome) => {
                tracing::debug!(request, ?outcome, "a request to other hosts ended");
                let lender = match outcome {
                    Outcome::Met { host, memory, rate } => Some(Lender { host, memory, rate }),
                    Outcome::Unmet { .. } | Outcome::Refused { .. } => None,
                };
                self.lend(LendingMessage::Answered { request, lender });
            }
            Effect::Keep { asker, request, amount, memory, rate, until } => {
                let claim = Claim { host: asker, number: request };
                self.lend(LendingMessage::Keep(LoanOrder { claim, amount, memory, rate, until }));
            }
            Effect::LetGo { asker, request } => {
                self.lend(LendingMessage::LetGo(Claim { host: asker, number: request }))
            }
            Effect::Taken { giver, request } => self.lend(LendingMessage::Taken { request, giver }),
        }
    }
}
