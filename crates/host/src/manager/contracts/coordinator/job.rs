//! One contract at its initiator.

use std::collections::{BTreeMap, VecDeque};

use qfabric_types::api::contracts::{JointId, JointRequest, UpgradePolicy};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner, RandomNumbers, Resources};

use super::super::{AnswerTimes, Body, ContractMessage, PartRequest, Reason, Refused, Timing};
use super::CoordinatorOutput;

/// Accepts of which the sending time is remembered, per host: more than are sent in the time of a hold.
const MAX_SENT: usize = 24;

type Outputs = VecDeque<CoordinatorOutput>;

/// The next step of the coordinator.
#[derive(Debug)]
pub(super) enum Event {
    InForce,
    /// An upgrade of this host is in force.
    Upgraded(Name, Resources),
    Failed(Refused),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for offers until this time.
    Holding {
        until: Instant,
    },
    /// Waits for confirmations until this time.
    Accepting {
        until: Instant,
    },
    InForce,
    /// Waits before the next attempt; holds nothing.
    BackingOff {
        until: Instant,
    },
}

/// What the coordinator knows of one host.
#[derive(Clone, Debug)]
struct Site {
    part: PartRequest,
    /// The offered vector, and later the one to be committed.
    target: Option<Resources>,
    /// The first Accept with this target.
    target_step: u32,
    /// The confirmed vector.
    confirmed: Option<Resources>,
    /// The commitment stands at least until this time.
    relied_until: Instant,
    /// An upgrade that was offered and not accepted yet.
    upgrade: Option<Resources>,
    /// The last Accepts: step and time of sending.
    sent: VecDeque<(u32, Instant)>,
}

/// One contract.
#[derive(Clone, Debug)]
pub(super) struct Job {
    id: JointId,
    timing: Timing,
    /// Attempts may begin until this time, however many there were.
    patient_until: Instant,
    round: u32,
    stage: Stage,
    sites: BTreeMap<Name, Site>,
    step: u32,
    /// When messages without an answer are sent again, or the contract is renewed.
    next_send: Instant,
}

impl Job {
    pub(super) fn new(id: JointId, owner: Owner, request: &JointRequest, timing: Timing, now: Instant) -> Job {
        let may_grow = request.upgrades() != UpgradePolicy::Never;
        let sites = request.parts().iter().map(|part| {
            let (wanted, minimum, application) = (&part.wanted, part.minimum(), &part.application);
            let (wanted, minimum, application) = (wanted.clone(), minimum.clone(), application.clone());
            let part_request = PartRequest { owner, wanted, minimum, application, may_grow, hold: timing.hold };
            (part.host.clone(), Site::new(part_request))
        });
        let (stage, sites) = (Stage::BackingOff { until: now }, sites.collect());
        let patient_until = now + request.patience();
        Job { id, timing, patient_until, round: 0, stage, sites, step: 0, next_send: now }
    }

    pub(super) fn id(&self) -> &JointId {
        &self.id
    }

    pub(super) fn round(&self) -> u32 {
        self.round
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn has(&self, host: &Name) -> bool {
        self.sites.contains_key(host)
    }

    pub(super) fn is_in_force(&self) -> bool {
        self.stage == Stage::InForce
    }

    /// The time of the next attempt after a refusal; `None`: the contract is refused.
    pub(super) fn next_attempt(&self, reason: &Reason, now: Instant, random: &mut RandomNumbers) -> Option<Instant> {
        if self.is_in_force() {
            return None;
        }
        if reason.is_worth_waiting() && now < self.patient_until {
            let next = now + self.timing.pause(random);
            if next < self.patient_until {
                return Some(next);
            }
        }
        let may_pass = reason.is_transient() && self.round < self.timing.attempts;
        may_pass.then(|| now + self.timing.backoff(self.round, random))
    }

    /// The confirmed vectors.
    pub(super) fn granted(&self) -> BTreeMap<Name, Resources> {
        let confirmed = |(host, site): (&Name, &Site)| Some((host.clone(), site.confirmed.clone()?));
        self.sites.iter().filter_map(confirmed).collect()
    }

    pub(super) fn next_wakeup(&self) -> Instant {
        match self.stage {
            Stage::BackingOff { until } => until,
            Stage::Holding { until } | Stage::Accepting { until } => until.min(self.next_send),
            Stage::InForce => self.relied_until().min(self.next_send),
        }
    }

    /// Begins the next attempt.
    pub(super) fn begin(&mut self, now: Instant, out: &mut Outputs) {
        self.round += 1;
        self.stage = Stage::Holding { until: now + self.answer_times().offers };
        self.next_send = now + self.timing.resend();
        self.sites.values_mut().for_each(|site| *site = Site::new(site.part.clone()));
        self.request(out);
    }

    fn answer_times(&self) -> AnswerTimes {
        self.timing.answer_times(self.sites.values().any(|site| site.part.application.is_some()))
    }

    pub(super) fn back_off(&mut self, until: Instant) {
        self.stage = Stage::BackingOff { until };
    }

    pub(super) fn cancel_all(&self, out: &mut Outputs) {
        self.sites.keys().for_each(|host| self.send(host, Body::Cancel, out));
    }

    pub(super) fn receive(&mut self, from: &Name, body: Body, now: Instant, out: &mut Outputs) -> Option<Event> {
        match body {
            Body::Offer { granted, is_upgrade: false } => self.offered(from, granted, now, out),
            Body::Offer { granted, is_upgrade: true } => {
                self.offered_upgrade(from, granted, out);
                None
            }
            Body::Confirm { step, granted } => self.confirmed(from, step, granted, now),
            Body::Refuse(reason) => Some(Event::Failed(Refused { host: from.clone(), reason })),
            Body::Cancel => Some(Event::Failed(Refused { host: from.clone(), reason: Reason::Ended })),
            Body::Request(_) | Body::Accept { .. } => None,
        }
    }

    /// Accepts the upgrade that a host offered.
    pub(super) fn upgrade(&mut self, host: &Name, now: Instant, out: &mut Outputs) {
        let Some(site) = self.sites.get_mut(host) else { return };
        let Some(upgrade) = site.upgrade.take().filter(|_| self.stage == Stage::InForce) else { return };
        (site.target, site.target_step) = (Some(upgrade), self.step + 1);
        self.accept(host, false, now, out);
    }

    /// Declines the upgrade that a host offered.
    pub(super) fn decline(&mut self, host: &Name, now: Instant, out: &mut Outputs) {
        let upgrade = self.sites.get_mut(host).and_then(|site| site.upgrade.take());
        if upgrade.is_some() && self.is_in_force() {
            self.accept(host, true, now, out);
        }
    }

    pub(super) fn wake(&mut self, now: Instant, out: &mut Outputs) -> Option<Event> {
        match self.stage {
            Stage::BackingOff { until } if until <= now => self.begin(now, out),
            Stage::Holding { until } if until <= now => return self.silent(|site| site.target.is_none()),
            Stage::Accepting { until } if until <= now => return self.silent(|site| site.relied_until <= now),
            Stage::InForce if self.relied_until() <= now => return self.silent(|site| site.relied_until <= now),
            _ if self.next_send <= now => self.send_again(now, out),
            _ => {}
        }
        None
    }

    fn relied_until(&self) -> Instant {
        self.sites.values().map(|site| site.relied_until).min().unwrap_or(Instant::NEVER)
    }

    /// The first host that the contract fails for.
    fn silent(&self, is_silent: impl Fn(&Site) -> bool) -> Option<Event> {
        let (host, _) = self.sites.iter().find(|(_, site)| is_silent(site))?;
        Some(Event::Failed(Refused { host: host.clone(), reason: Reason::Silent }))
    }

    fn send_again(&mut self, now: Instant, out: &mut Outputs) {
        match self.stage {
            Stage::Holding { .. } => self.request(out),
            Stage::Accepting { .. } => self.accept_where(|site| site.confirmed.is_none(), now, out),
            Stage::InForce => {
                self.accept_where(|_| true, now, out);
                return self.next_send = now + self.timing.renewal();
            }
            Stage::BackingOff { .. } => {}
        }
        self.next_send = now + self.timing.resend();
    }

    /// Sends the request to all hosts that have not offered.
    fn request(&self, out: &mut Outputs) {
        let silent = self.sites.iter().filter(|(_, site)| site.target.is_none());
        silent.for_each(|(host, site)| self.send(host, Body::Request(site.part.clone()), out));
    }

    fn accept_where(&mut self, is_chosen: impl Fn(&Site) -> bool, now: Instant, out: &mut Outputs) {
        let chosen: Vec<Name> =
            self.sites.iter().filter(|(_, site)| is_chosen(site)).map(|(host, _)| host.clone()).collect();
        chosen.iter().for_each(|host| self.accept(host, false, now, out));
    }

    fn accept(&mut self, host: &Name, frees_upgrade: bool, now: Instant, out: &mut Outputs) {
        self.step += 1;
        let step = self.step;
        let Some(site) = self.sites.get_mut(host) else { return };
        let Some(granted) = site.target.clone() else { return };
        if site.sent.len() >= MAX_SENT {
            site.sent.pop_front();
        }
        site.sent.push_back((step, now));
        self.send(host, Body::Accept { step, granted, frees_upgrade }, out);
    }

    fn offered(&mut self, from: &Name, granted: Resources, now: Instant, out: &mut Outputs) -> Option<Event> {
        let Stage::Holding { until } = self.stage else { return None };
        let site = self.sites.get_mut(from)?;
        if !site.is_acceptable(&granted) {
            return Some(Event::Failed(Refused { host: from.clone(), reason: Reason::Invalid }));
        }
        if until <= now || site.target.is_some() {
            return None;
        }
        site.target = Some(granted);
        if self.sites.values().all(|site| site.target.is_some()) {
            self.stage = Stage::Accepting { until: now + self.answer_times().confirmations };
            self.next_send = now + self.timing.resend();
            self.accept_where(|_| true, now, out);
        }
        None
    }

    fn offered_upgrade(&mut self, from: &Name, granted: Resources, out: &mut Outputs) {
        let is_in_force = self.is_in_force();
        let Some(site) = self.sites.get_mut(from).filter(|_| is_in_force) else { return };
        let is_more = site.confirmed.as_ref().is_some_and(|now| granted.covers(now) && !now.covers(&granted));
        if !is_more || !site.is_acceptable(&granted) {
            return;
        }
        site.upgrade = Some(granted.clone());
        out.push_back(CoordinatorOutput::Upgrade { id: self.id.clone(), host: from.clone(), granted });
    }

    /// A commitment never shrinks while it is in force, so the vector of the latest Accept is the largest.
    fn confirmed(&mut self, from: &Name, step: u32, granted: Resources, now: Instant) -> Option<Event> {
        if !matches!(self.stage, Stage::Accepting { .. } | Stage::InForce) {
            return None;
        }
        let relied = self.timing.relied();
        let site = self.sites.get_mut(from)?;
        let (_, sent) = *site.sent.iter().find(|(number, _)| *number == step)?;
        if !site.is_acceptable(&granted) {
            return Some(Event::Failed(Refused { host: from.clone(), reason: Reason::Invalid }));
        }
        if site.relied_until >= sent + relied {
            return None;
        }
        site.relied_until = sent + relied;
        site.sent.retain(|(number, _)| *number > step);
        if step >= site.target_step {
            // The upgrade was committed, or was over: its vector is not asked for again.
            site.target = Some(granted.clone());
        }
        let before = site.confirmed.replace(granted.clone());
        if self.is_in_force() {
            return (before.as_ref() != Some(&granted)).then(|| Event::Upgraded(from.clone(), granted));
        }
        self.all_confirmed(now)
    }

    fn all_confirmed(&mut self, now: Instant) -> Option<Event> {
        let is_complete = self.sites.values().all(|site| site.confirmed.is_some()) && self.relied_until() > now;
        if !is_complete {
            return None;
        }
        self.stage = Stage::InForce;
        self.next_send = now + self.timing.renewal();
        Some(Event::InForce)
    }

    fn send(&self, to: &Name, body: Body, out: &mut Outputs) {
        let message = ContractMessage { id: self.id.clone(), round: self.round, body };
        out.push_back(CoordinatorOutput::Send(to.clone(), message));
    }
}

impl Site {
    fn new(part: PartRequest) -> Site {
        let (relied_until, sent) = (Instant::ZERO, VecDeque::new());
        Site { part, target: None, target_step: 0, confirmed: None, relied_until, upgrade: None, sent }
    }

    fn is_acceptable(&self, granted: &Resources) -> bool {
        granted.covers(&self.part.minimum) && self.part.wanted.covers(granted)
    }
}
