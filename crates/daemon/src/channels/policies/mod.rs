//! Policies that run on this host: controllers in its resource manager, and the places in which their decisions take
//! effect.
//!
//! ```text
//!   start ──> kind ──> Supervised ( controller ) <── Runner: a thread of its own <── the manager, beside the node
//!                            │ what it decides about streams        │ all else: the manager tells and applies it
//!                            ├──> PaceTable <── OUT-filter: events let through, or held back
//!                            └──> Mailbox ──> channels.sock: the applications that can adapt
//! ```
//! | file | what |
//! |---|---|
//! | `kinds/` | turns a request into a controller; one file per kind |
//! | `code.rs`, `group.rs` | controllers that only a daemon has |
//! | `runner/` | the thread that calls controllers; their waiting changes, and their CPU time |
//! | `supervised.rs`, `control_listener.rs` | decisions of controllers of this host and of other hosts |
//! | `pace.rs`, `rate.rs` | pacing of events, and the measurement of rates |
//! | `least.rs` | requests go to the least loaded sinks |
//! | `why.rs` | explanations of the last decisions |
//! | `notify.rs`, `cpu.rs` | notifications to applications, and changes of their reservations |
//!
//! Locks: [`Policies::running`] before the node's; the runner's after it, then those of records and tables. A running
//! controller holds no lock.

mod control_listener;
mod cpu;
mod group;
mod kinds;
mod least;
mod notify;
mod pace;
mod rate;
mod refused;
mod runner;
mod supervised;
mod why;

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_channel::Notice;
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{DecisionInfo, PaceInfo, Policy, PolicyInfo, Resource};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{Nanos, Owner};

use super::settings::Settings;
use super::{Fabric, lock, problems};
use crate::auth::Peer;
use crate::net::Board;
pub(super) use control_listener::ControlListener;
use group::Members;
pub(super) use group::number_of;
use kinds::Runs;
use least::Least;
use notify::attribute_name;
use pace::Paces;
pub(super) use pace::is_reserved;
pub(super) use rate::RateMeter;
use runner::Runner;
pub(crate) use runner::Usage;
pub(crate) use runner::start_policies;
use supervised::{History, Levels, Outlets, Shared, Streams, Supervised};

/// Largest number of policies of a host, and of one user; root is excepted.
const MOST: usize = 64;
const MOST_OF_A_USER: usize = 16;

/// The user who answers for policies of the configuration.
const OF_THE_HOST: Peer = Peer { pid: 0, owner: Owner { uid: 0, gid: 0 } };

#[derive(Default)]
pub(super) struct Policies {
    running: Lock<BTreeMap<Name, Running>, { rank::POLICIES }>,
    /// By data channel, if policies decide its rates.
    paces: Lock<BTreeMap<Name, Paces>, { rank::PACES }>,
    /// By data channel, if its requests go to the least loaded sinks.
    least: Lock<BTreeMap<Name, Scoped<Least>>, { rank::LEAST }>,
    runner: Arc<Runner>,
}

/// Decisions about a channel's events.
#[derive(Clone)]
struct Scoped<T> {
    what: T,
    /// They apply only to events of this user's sources; none: to all events.
    user: Option<u32>,
}

struct Running {
    policy: Policy,
    uid: Option<u32>,
    /// The user on whose sources' events alone it decides; none: on all events.
    scope: Option<u32>,
    /// Number of the controller in the manager.
    number: u64,
    /// Seat of the controller in the runner.
    seat: u64,
    /// The controller panicked and was removed; only this record is left.
    failed: bool,
    record: Shared,
    decides: Vec<Resource>,
}

impl Policies {
    /// Rates at which this host's sources are paced on a channel.
    pub(super) fn paced(&self, channel: &ChannelId) -> Vec<PaceInfo> {
        let known = ChannelId::data(channel.name.clone()) == *channel;
        let paces = known.then(|| lock(&self.paces).get(&channel.name).cloned()).flatten();
        paces.map_or_else(Vec::new, |paces| lock(&paces).list())
    }

    /// Users whose sources alone are paced on a channel; `None`: all sources.
    #[cfg(test)]
    pub(super) fn paces_for(&self, channel: &Name) -> Vec<Option<u32>> {
        let paces = lock(&self.paces).get(channel).cloned();
        paces.map_or_else(Vec::new, |paces| lock(&paces).users())
    }

    /// Usage of all policies, including those that were stopped.
    pub(super) fn usage(&self) -> Usage {
        self.runner.totals()
    }

    /// Replaces a policy's controller.
    #[cfg(test)]
    pub(super) fn replace(&self, name: &str, controller: Box<dyn qfabric_host::manager::Controller>) {
        let seat = lock(&self.running)[&name.parse().unwrap()].seat;
        self.runner.replace(seat, controller);
    }

    pub(super) fn count(&self) -> u64 {
        lock(&self.running).len() as u64
    }
}

impl Fabric {
    pub(crate) fn policies(&self) -> Vec<PolicyInfo> {
        let running = lock(&self.policies.running);
        running.iter().map(|(name, policy)| self.policy_info(name, policy)).collect()
    }

    /// Starts a policy, for a user or for the configuration.
    pub(crate) fn start_policy(&self, peer: Option<Peer>, mut policy: Policy) -> Result<PolicyInfo, Problem> {
        let name = policy.name().ok_or_else(|| refused::nameless(policy.kind()))?;
        self.check_concern(peer, &policy)?;
        kinds::read_text(&mut policy, peer.is_none())?;
        let (kind, user) = (kinds::runs(&policy), self.user_of(peer, &policy));
        let mut running = lock(&self.policies.running);
        let decides = kind.resources()?;
        check_place(&running, &name, &decides, (peer, user))?;
        check_share(&running, peer)?;
        let record = Shared::default();
        let inner = kind.controller(self, &record, clock::now())?;
        kind.started(self, user)?;
        let supervised = Supervised {
            inner,
            record: record.clone(),
            outlets: self.outlets(kind, (&name, &decides), (peer, user)),
            peer: peer.unwrap_or(OF_THE_HOST),
            mailbox: self.mailbox.clone(),
            board: self.board.clone(),
            history: self.history_of(&name, &policy),
        };
        let runner = &self.policies.runner;
        let (seat, proxy) = runner.add(Box::new(supervised), self.settings.budget_of(peer.map(|peer| peer.owner.uid)));
        let number = self.network.add_policy(Box::new(proxy));
        runner.open(seat, number);
        let uid = peer.map(|peer| peer.owner.uid);
        let channel = policy.channel().map(tracing::field::display);
        tracing::info!(%name, kind = policy.kind(), channel, "a policy was started");
        let started = Running { policy, uid, scope: user, number, seat, failed: false, record, decides };
        let info = self.policy_info(&name, &started);
        running.insert(name, started);
        Ok(info)
    }

    fn history_of(&self, name: &Name, policy: &Policy) -> History {
        let channel = policy.channel().map(Name::to_string).unwrap_or_default();
        History { timeline: self.timeline.clone(), policy: name.clone(), channel }
    }

    /// Stops a policy; its decisions about rates, levels and contracts end.
    pub(crate) fn stop_policy(&self, peer: Peer, name: &Name) -> Result<(), Problem> {
        let mut running = lock(&self.policies.running);
        let found = running.get(name).ok_or_else(|| refused::unknown(name))?;
        let uid = peer.owner.uid;
        if uid != 0 && found.uid != Some(uid) {
            return Err(refused::not_yours(name, found.uid));
        }
        let Some(mut stopped) = running.remove(name) else { return Ok(()) };
        if !stopped.failed {
            self.withdraw(name, &mut stopped);
        }
        tracing::info!(%name, "a policy was stopped");
        Ok(())
    }

    /// Ends a policy's decisions about rates, levels and contracts. No thread waits for a call that is running; its
    /// results are dropped.
    fn withdraw(&self, name: &Name, stopped: &mut Running) {
        let kind = kinds::runs(&stopped.policy);
        let mut record = lock(&stopped.record);
        if let Some(levels) = self.levels(kind, &stopped.decides, stopped.uid) {
            levels.release(&record);
        }
        record.end();
        if std::mem::take(&mut record.decides_contracts) {
            self.mailbox.withdraw(name, None);
        }
        drop(record);
        self.network.remove_policy(stopped.number);
        self.policies.runner.remove(stopped.seat);
        let decides = std::mem::take(&mut stopped.decides);
        paced(&decides).for_each(|channel| self.let_all_through(channel, stopped.scope));
        kind.stopped(self);
    }

    /// Stops a policy whose controller panicked. The policy is shown until a user stops it by its name.
    fn policy_failed(&self, seat: u64, message: String) {
        let mut running = lock(&self.policies.running);
        // If the policy was stopped meanwhile, there is nothing to show.
        let Some((name, failed)) = running.iter_mut().find(|(_, policy)| policy.seat == seat) else { return };
        tracing::error!(%name, message, "a policy panicked and is stopped; please report this");
        failed.failed = true;
        lock(&failed.record).fails(message);
        self.withdraw(name, failed);
    }

    /// Logs that a policy used more than its share for the first time.
    fn policy_suspended(&self, seat: u64) {
        let running = lock(&self.policies.running);
        let Some((name, _)) = running.iter().find(|(_, policy)| policy.seat == seat) else { return };
        let budget = self.config().policy_budget;
        tracing::warn!(%name, %budget, "a policy used more CPU time in a second than channels.policy_budget: suspended");
    }

    /// Gives all running policies the limit in force.
    pub(super) fn limit_policies(&self) {
        let running = lock(&self.policies.running);
        running
            .values()
            .for_each(|policy| self.policies.runner.limit(policy.seat, self.settings.budget_of(policy.uid)));
    }

    fn policy_info(&self, name: &Name, running: &Running) -> PolicyInfo {
        let usage = self.policies.runner.usage(running.seat, clock::now());
        running.info(name, usage, self.settings.budget_of(running.uid), &self.board)
    }

    /// Refuses a policy to a user whom it does not concern.
    fn check_concern(&self, peer: Option<Peer>, policy: &Policy) -> Result<(), Problem> {
        let Some(peer) = peer.filter(|peer| peer.owner.uid != 0) else { return Ok(()) };
        if let Some(group) = policy.as_kind().group()
            && !self.has_in_group(peer, group)
        {
            return Err(refused::not_your_group(group));
        }
        self.check_channels(peer, policy)?;
        kinds::runs(policy).check_rights(self, peer)
    }

    fn check_channels(&self, peer: Peer, policy: &Policy) -> Result<(), Problem> {
        let registry = self.registry();
        let mut channels = policy.as_kind().channels().into_iter().map(|channel| ChannelId::data(channel.clone()));
        match channels.find(|channel| !registry.holds(peer, channel)) {
            Some(channel) => Err(problems::not_your_channel(&channel)),
            None => Ok(()),
        }
    }

    /// The user whose sources alone a policy decides about: the policy's user, if others govern one of its channels.
    fn user_of(&self, peer: Option<Peer>, policy: &Policy) -> Option<u32> {
        let mut channels = policy.as_kind().channels().into_iter().map(|channel| ChannelId::data(channel.clone()));
        let peer = peer.filter(|peer| channels.any(|channel| !self.governs(*peer, &channel)))?;
        Some(peer.owner.uid)
    }

    fn has_in_group(&self, peer: Peer, group: &Name) -> bool {
        let registry = self.registry();
        let own = registry.leases.values().filter(|lease| peer.may_touch(lease.peer.owner));
        let own: Vec<_> = own.flat_map(|lease| lease.registrations.keys()).collect();
        self.network.look(|node| {
            let known = node.directory().host(&self.network.host).map(|record| &record.registrations);
            known.is_some_and(|known| own.iter().any(|id| known.get(id).is_some_and(|one| one.group == *group)))
        })
    }

    /// `user`: as for [`Runs::started`].
    fn outlets(
        &self,
        kind: &dyn Runs,
        (name, decides): (&Name, &[Resource]),
        (peer, user): (Option<Peer>, Option<u32>),
    ) -> Outlets {
        let of = (peer.unwrap_or(OF_THE_HOST), user);
        Outlets {
            streams: paced(decides).map(|channel| self.streams(kind, channel, user)).collect(),
            members: kind.members().map(|group| Members::new(group, name, of, &self.mailbox)),
            levels: self.levels(kind, decides, peer.map(|peer| peer.owner.uid)),
        }
    }

    /// An encoder obeys policies of its own user, of root and of the configuration, as contracts do.
    fn levels(&self, kind: &dyn Runs, decides: &[Resource], uid: Option<u32>) -> Option<Levels> {
        leveled(decides).map(|channel| Levels::new(channel, &kind.dimensions(), ordinary(uid), &self.mailbox))
    }

    /// A channel's table of rates; the filter is installed if the channel is open.
    fn streams(&self, kind: &dyn Runs, channel: &Name, user: Option<u32>) -> Streams {
        let paces = lock(&self.policies.paces).entry(channel.clone()).or_default().clone();
        lock(&paces).of(user);
        self.install_pace(channel);
        let (mailbox, pacing) = (self.mailbox.clone(), kind.pacing());
        Streams { channel: channel.clone(), paces, mailbox, pacing, user, hosts: BTreeMap::new() }
    }

    /// Paces the events of a channel that is open here, if policies decide its rates.
    pub(super) fn install_pace(&self, channel: &Name) {
        let found = lock(&self.policies.paces).get(channel).cloned();
        let Some(paces) = found else { return };
        // If the channel is not open, there is nothing to pace.
        let _ = self.network.look(|node| node.install_own(pace::filter_id(channel), None, &[], pace::filter(&paces)));
    }

    /// Updates policies and reports when channels open and close.
    pub(super) fn manage(&self, notice: &Notice) {
        match notice {
            Notice::Opened(channel) if channel.plane == Plane::Data => {
                self.install_pace(&channel.name);
                self.install_least(&channel.name);
            }
            Notice::Closed(channel) if channel.plane == Plane::Data => self.reports.forget(&channel.name),
            Notice::SinkJoined(channel, member, _) if member.host == self.network.host => self.count_handed(channel),
            _ => {}
        }
    }

    /// Ends the pacing of a policy; `user` as in [`Running::scope`].
    fn let_all_through(&self, channel: &Name, user: Option<u32>) {
        let mut all = lock(&self.policies.paces);
        let Some(paces) = all.get(channel).cloned() else { return };
        let mut tables = lock(&paces);
        let ended = tables.end(user);
        let told: Vec<_> = ended.hosts().map(|host| (host.clone(), tables.in_force(host, user))).collect();
        let is_last = tables.is_empty();
        drop(tables);
        if is_last {
            all.remove(channel);
        }
        drop(all);
        if is_last {
            // If the channel was closed, the filter was removed with it.
            let _ = self.network.look(|node| node.remove_filter(&pace::filter_id(channel)));
        }
        let data = ChannelId::data(channel.clone());
        told.into_iter().for_each(|(host, rates)| pace::tell(&self.mailbox, &data, &host, rates));
    }
}

impl Settings {
    /// CPU time per second for a policy of this user; none: no limit, for administrators and the configuration.
    fn budget_of(&self, uid: Option<u32>) -> Option<Nanos> {
        ordinary(uid).map(|_| self.get().policy_budget)
    }
}

/// The channels for which a policy decides the rates to each host.
fn paced(decides: &[Resource]) -> impl Iterator<Item = &Name> {
    decides.iter().filter_map(|resource| match resource {
        Resource::Rates(channel) => Some(channel),
        _ => None,
    })
}

/// The channel for which a policy decides the levels of quality, or where its transcoders run.
fn leveled(decides: &[Resource]) -> Option<&Name> {
    decides.iter().find_map(|resource| match resource {
        Resource::Levels(channel) | Resource::Place(channel) => Some(channel),
        _ => None,
    })
}

/// The user of a policy; `None` for root and for the configuration, which no limit of users restricts.
fn ordinary(uid: Option<u32>) -> Option<u32> {
    uid.filter(|uid| *uid != 0)
}

/// Refuses a policy if a running one has its name, or decides about the same resource for the same applications.
fn check_place(
    running: &BTreeMap<Name, Running>,
    name: &Name,
    decides: &[Resource],
    (peer, scope): (Option<Peer>, Option<u32>),
) -> Result<(), Problem> {
    if running.contains_key(name) {
        return Err(refused::exists(name));
    }
    if running.len() >= MOST {
        return Err(refused::too_many(MOST));
    }
    let uid = peer.map(|peer| peer.owner.uid);
    let rival = |(other, running): (_, &Running)| {
        let both = running.decides.iter().filter(|resource| decides.contains(resource));
        let both = { both }.find(|resource| meet(resource, (running.uid, running.scope), (uid, scope)));
        both.map(|resource| refused::rival(other, resource))
    };
    running.iter().find_map(rival).map_or(Ok(()), Err)
}

/// Whether decisions of two policies about a resource concern the same applications. Each policy is given by its user and
/// its scope.
fn meet(resource: &Resource, one: (Option<u32>, Option<u32>), other: (Option<u32>, Option<u32>)) -> bool {
    match resource {
        // Those of an ordinary user decide about own applications only, those of root and of the configuration about all.
        Resource::Levels(_) | Resource::Contracts(_) => {
            let (one, other) = (ordinary(one.0), ordinary(other.0));
            one.is_none() || other.is_none() || one == other
        }
        // An event passes the rates of its user and those for all events.
        Resource::Rates(_) => one.1 == other.1,
        _ => true,
    }
}

/// Refuses policies above a user's limit, so that other users have room.
fn check_share(running: &BTreeMap<Name, Running>, peer: Option<Peer>) -> Result<(), Problem> {
    let Some(uid) = ordinary(peer.map(|peer| peer.owner.uid)) else { return Ok(()) };
    match running.values().filter(|policy| policy.uid == Some(uid)).count() < MOST_OF_A_USER {
        true => Ok(()),
        false => Err(refused::too_many(MOST_OF_A_USER)),
    }
}

impl Running {
    fn info(&self, name: &Name, usage: Usage, budget: Option<Nanos>, board: &Board) -> PolicyInfo {
        let record = lock(&self.record);
        let decided = record.decided.iter().map(|((subject, attribute), (amount, at))| DecisionInfo {
            subject: subject.clone(),
            attribute: board.name(*attribute).unwrap_or_else(|| attribute_name(*attribute)),
            amount: *amount,
            at_ns: at.get(),
        });
        PolicyInfo {
            name: name.clone(),
            policy: self.policy.clone(),
            uid: self.uid,
            calls: record.calls,
            decisions: record.decisions,
            faults: record.faults,
            fault: record.fault.clone(),
            failed: self.failed,
            cpu_ns: usage.cpu.get(),
            budget_ns: budget.map(Nanos::get),
            dropped: usage.dropped,
            suspensions: usage.suspensions,
            suspended: usage.is_suspended,
            decided: decided.collect(),
        }
    }
}
