//! Who answers for the applications of this host whose consent joint contracts need (QualMan, Figure 8).
//!
//! ```text
//!   a user answers for an application ──> always yes, always no, or a question for each contract
//!   question ── next ──> told to the user's program ── answer ──> the participant offers or refuses
//!                └── no answer in time, or the program has ended ──> the participant refuses
//! ```
//! The first user that answers for an application keeps it, until its answers end with `DELETE` or with a process. The
//! configuration reserves names for users, so that no other user can take them.

use std::collections::BTreeMap;

use qfabric_host::manager::contracts::NoConsent;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{ConsentInfo, ConsentPolicy, ConsentQuestion, JointId};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner, Resources};
use tokio::sync::oneshot;

use super::lease::Lease;
use super::problems;
use crate::auth::{Peer, places_for};

/// Most applications for which one user answers; root is excepted.
const MOST_PER_USER: usize = 64;
/// Most applications of this host; users leave an eighth to root.
const MOST: usize = 1_024;
/// Most questions of one application without an answer; the contract of a further one is refused.
const MOST_OPEN: usize = 256;

/// The attempt of a contract that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub id: JointId,
    pub round: u32,
}

struct Open {
    attempt: Attempt,
    granted: Resources,
    until: Instant,
    is_told: bool,
}

struct Answering {
    owner: Owner,
    policy: ConsentPolicy,
    lease: Option<Lease>,
    open: BTreeMap<u64, Open>,
    /// The program that waits for the next question.
    waiting: Option<oneshot::Sender<ConsentQuestion>>,
}

/// All applications, by name.
pub(super) struct Consents {
    /// The user of each reserved name.
    reserved: BTreeMap<Name, u32>,
    /// Whether an application for which nobody answers consents.
    default: Result<(), NoConsent>,
    answering: BTreeMap<Name, Answering>,
    last: u64,
}

impl Consents {
    pub(super) fn new(reserved: BTreeMap<Name, u32>, is_accepted_by_default: bool) -> Consents {
        let default = if is_accepted_by_default { Ok(()) } else { Err(NoConsent::Absent) };
        Consents { reserved, default, answering: BTreeMap::new(), last: 0 }
    }

    /// Replaces the reserved names and the default. Users who may no longer answer for a name do not; returns the
    /// attempts that wait for their answers.
    pub(super) fn configure(&mut self, reserved: BTreeMap<Name, u32>, is_accepted_by_default: bool) -> Vec<Attempt> {
        let answering = std::mem::take(&mut self.answering);
        *self = Consents { answering, last: self.last, ..Consents::new(reserved, is_accepted_by_default) };
        let is_over = |(name, answering): (&Name, &Answering)| {
            let uid = answering.owner.uid;
            self.reserved.get(name).is_some_and(|user| *user != uid && uid != 0).then(|| name.clone())
        };
        let over: Vec<Name> = self.answering.iter().filter_map(is_over).collect();
        over.iter().flat_map(|name| self.remove(name)).collect()
    }

    /// From now on the peer answers for an application; returns who does.
    pub(super) fn set(
        &mut self,
        peer: Peer,
        application: &Name,
        policy: ConsentPolicy,
        lease: Option<Lease>,
    ) -> Result<ConsentInfo, Problem> {
        self.check(peer, application)?;
        let owner = peer.owner;
        let empty = || Answering { owner, policy, lease: None, open: BTreeMap::new(), waiting: None };
        let answering = self.answering.entry(application.clone()).or_insert_with(empty);
        (answering.policy, answering.lease) = (policy, lease);
        Ok(answering.info(application))
    }

    fn check(&self, peer: Peer, application: &Name) -> Result<(), Problem> {
        let uid = peer.owner.uid;
        let taken = self.answering.get(application).map(|answering| answering.owner.uid);
        let holder = self.reserved.get(application).copied().or(taken).filter(|holder| *holder != uid && uid != 0);
        if let Some(holder) = holder {
            return Err(problems::not_your_application(application, holder, uid));
        }
        let own = self.answering.values().filter(|answering| answering.owner.uid == uid).count();
        let most = places_for(uid, MOST);
        let is_full = self.answering.len() >= most || (uid != 0 && own >= MOST_PER_USER);
        match is_full && taken.is_none() {
            true => Err(problems::too_many_applications(uid, MOST_PER_USER, most)),
            false => Ok(()),
        }
    }

    /// Asks for consent. `None`: the answer comes later.
    pub(super) fn ask(
        &mut self,
        application: &Name,
        attempt: Attempt,
        granted: Resources,
        until: Instant,
        now: Instant,
    ) -> Option<Result<(), NoConsent>> {
        let Some(answering) = self.answering.get_mut(application) else { return Some(self.default) };
        match answering.policy {
            ConsentPolicy::Accept => return Some(Ok(())),
            ConsentPolicy::Decline => return Some(Err(NoConsent::Declined)),
            ConsentPolicy::Ask => {}
        }
        answering.forget(now);
        if answering.open.len() >= MOST_OPEN {
            return Some(Err(NoConsent::Silent));
        }
        self.last += 1;
        answering.open.insert(self.last, Open { attempt, granted, until, is_told: false });
        answering.tell(application, now);
        None
    }

    /// Tells the peer's program the next question, at once or when there is one. An earlier waiting program gets none.
    pub(super) fn next(
        &mut self,
        peer: Peer,
        application: &Name,
        reply: oneshot::Sender<ConsentQuestion>,
        now: Instant,
    ) -> Result<(), Problem> {
        let answering = self.of(peer, application)?;
        answering.forget(now);
        answering.waiting = Some(reply);
        answering.tell(application, now);
        Ok(())
    }

    /// The attempt that the peer answers.
    pub(super) fn answered(
        &mut self,
        peer: Peer,
        application: &Name,
        number: u64,
        now: Instant,
    ) -> Result<Attempt, Problem> {
        let answering = self.of(peer, application)?;
        let open = answering.open.remove(&number).filter(|open| open.until > now);
        open.map(|open| open.attempt).ok_or_else(|| problems::no_such_question(application, number))
    }

    /// The peer answers no more; returns the attempts that wait for an answer.
    pub(super) fn end(&mut self, peer: Peer, application: &Name) -> Result<Vec<Attempt>, Problem> {
        self.of(peer, application)?;
        Ok(self.remove(application))
    }

    /// A process has ended; returns the attempts that wait for its answer.
    pub(super) fn holder_ended(&mut self, lease: u64) -> Vec<Attempt> {
        let is_over = |answering: &Answering| answering.lease.as_ref().is_some_and(|held| held.number == lease);
        let over = self.answering.iter().find(|(_, answering)| is_over(answering)).map(|(name, _)| name.clone());
        over.map_or_else(Vec::new, |application| self.remove(&application))
    }

    /// The applications for which the peer may answer.
    pub(super) fn list(&self, peer: Peer) -> Vec<ConsentInfo> {
        let own = self.answering.iter().filter(|(_, answering)| peer.may_touch(answering.owner));
        own.map(|(application, answering)| answering.info(application)).collect()
    }

    fn of(&mut self, peer: Peer, application: &Name) -> Result<&mut Answering, Problem> {
        let answering = self.answering.get_mut(application);
        let answering = answering.ok_or_else(|| problems::nobody_answers(application))?;
        match peer.may_touch(answering.owner) {
            true => Ok(answering),
            false => Err(problems::not_your_application(application, answering.owner.uid, peer.owner.uid)),
        }
    }

    fn remove(&mut self, application: &Name) -> Vec<Attempt> {
        let removed = self.answering.remove(application);
        removed.into_iter().flat_map(|answering| answering.open.into_values().map(|open| open.attempt)).collect()
    }
}

impl Answering {
    fn info(&self, application: &Name) -> ConsentInfo {
        let (uid, policy, pid) = (self.owner.uid, self.policy, self.lease.as_ref().map(|lease| lease.pid));
        ConsentInfo { application: application.clone(), uid, policy, pid, open: self.open.len() }
    }

    /// Forgets the questions whose time is over.
    fn forget(&mut self, now: Instant) {
        self.open.retain(|_, open| open.until > now);
    }

    /// Tells the oldest question that nobody was told to the program that waits.
    fn tell(&mut self, application: &Name, now: Instant) {
        let Some((number, open)) = self.open.iter_mut().find(|(_, open)| !open.is_told) else { return };
        let Some(waiting) = self.waiting.take().filter(|waiting| !waiting.is_closed()) else { return };
        let question = ConsentQuestion {
            number: *number,
            application: application.clone(),
            contract: open.attempt.id.clone(),
            resources: open.granted.clone(),
            left_ns: open.until.since(now),
        };
        open.is_told = waiting.send(question).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::unwatched;
    use super::*;

    const NOW: Instant = Instant::new(10);
    const LATER: Instant = Instant::new(20);

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, owner: Owner { uid, gid: uid } }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn attempt(number: u64) -> Attempt {
        Attempt { id: JointId { host: name("alpha"), number }, round: 1 }
    }

    fn consents() -> Consents {
        Consents::new([(name("camera"), 7)].into(), false)
    }

    fn ask(consents: &mut Consents, number: u64) -> Option<Result<(), NoConsent>> {
        consents.ask(&name("player"), attempt(number), Resources::default(), LATER, NOW)
    }

    #[test]
    fn a_standing_answer_is_given_at_once_and_without_one_the_default_holds() {
        let mut consents = consents();
        assert_eq!(ask(&mut consents, 1), Some(Err(NoConsent::Absent)));
        for (policy, answer) in [(ConsentPolicy::Accept, Ok(())), (ConsentPolicy::Decline, Err(NoConsent::Declined))] {
            consents.set(peer(5), &name("player"), policy, None).unwrap();
            assert_eq!(ask(&mut consents, 1), Some(answer));
        }
        assert_eq!(
            Consents::new(BTreeMap::new(), true).ask(&name("x"), attempt(1), Resources::default(), LATER, NOW),
            Some(Ok(()))
        );
    }

    #[test]
    fn all_users_together_leave_places_to_root() {
        let mut consents = consents();
        let mut set = |uid: u32, number: usize| {
            let application = name(&format!("u{uid}.{number}"));
            consents.set(peer(uid), &application, ConsentPolicy::Accept, None).is_ok()
        };
        let users = 1_000..1_000 + (MOST / MOST_PER_USER) as u32;
        let taken = users.flat_map(|uid| (0..MOST_PER_USER).map(move |number| (uid, number)));
        assert_eq!(taken.filter(|(uid, number)| set(*uid, *number)).count(), MOST - MOST / 8);
        assert!(set(0, 0) && !set(2_000, 0));
    }

    #[test]
    fn every_question_is_told_once_and_answered_once_and_in_time() {
        let (mut consents, player) = (consents(), name("player"));
        consents.set(peer(5), &player, ConsentPolicy::Ask, None).unwrap();
        assert_eq!((ask(&mut consents, 1), ask(&mut consents, 2)), (None, None));
        let next = |consents: &mut Consents| {
            let (reply, mut told) = oneshot::channel();
            consents.next(peer(5), &player, reply, NOW).unwrap();
            told.try_recv().ok().map(|question| question.number)
        };
        assert_eq!((next(&mut consents), next(&mut consents), next(&mut consents)), (Some(1), Some(2), None));
        assert_eq!(consents.answered(peer(5), &player, 2, NOW).unwrap(), attempt(2));
        assert_eq!(consents.answered(peer(5), &player, 2, NOW).unwrap_err().code, "no_such_question");
        assert_eq!(consents.answered(peer(5), &player, 1, LATER).unwrap_err().code, "no_such_question");
    }

    #[test]
    fn a_program_that_waits_is_told_at_once_and_one_that_left_is_not() {
        let (mut consents, player) = (consents(), name("player"));
        consents.set(peer(5), &player, ConsentPolicy::Ask, None).unwrap();
        let (reply, left) = oneshot::channel();
        consents.next(peer(5), &player, reply, NOW).unwrap();
        drop(left);
        ask(&mut consents, 1);
        let (reply, mut told) = oneshot::channel();
        consents.next(peer(5), &player, reply, NOW).unwrap();
        assert_eq!(told.try_recv().unwrap().contract, attempt(1).id);
    }

    #[test]
    fn a_name_that_is_reserved_later_is_taken_from_its_user_and_others_keep_theirs() {
        let (mut consents, player) = (consents(), name("player"));
        for application in ["player", "viewer"] {
            consents.set(peer(5), &name(application), ConsentPolicy::Ask, None).unwrap();
        }
        ask(&mut consents, 1);
        assert_eq!(consents.configure([(player.clone(), 6)].into(), true), vec![attempt(1)]);
        assert_eq!(ask(&mut consents, 2), Some(Ok(())), "nobody answers, and the default is new");
        assert_eq!(consents.list(peer(5))[0].application, name("viewer"));
        consents.set(peer(6), &player, ConsentPolicy::Ask, None).unwrap();
        assert_eq!(consents.configure(BTreeMap::new(), false), Vec::new());
        assert_eq!(consents.list(peer(0)).len(), 2);
    }

    #[test]
    fn the_end_of_the_process_ends_its_answers_and_returns_the_open_attempts() {
        let (mut consents, player) = (consents(), name("player"));
        consents.set(peer(5), &player, ConsentPolicy::Ask, Some(unwatched(3))).unwrap();
        ask(&mut consents, 1);
        assert_eq!((consents.holder_ended(4), consents.holder_ended(3)), (Vec::new(), vec![attempt(1)]));
        assert_eq!(ask(&mut consents, 1), Some(Err(NoConsent::Absent)));
    }

    #[test]
    fn an_application_of_another_user_and_a_reserved_name_are_refused() {
        let (mut consents, player) = (consents(), name("player"));
        consents.set(peer(5), &player, ConsentPolicy::Ask, None).unwrap();
        let refused = consents.set(peer(6), &player, ConsentPolicy::Accept, None).unwrap_err();
        assert!(refused.code == "not_yours" && refused.message.contains("user 5"), "{refused:?}");
        assert_eq!(consents.answered(peer(6), &player, 1, NOW).unwrap_err().code, "not_yours");
        assert!(consents.set(peer(5), &name("camera"), ConsentPolicy::Accept, None).is_err());
        consents.set(peer(7), &name("camera"), ConsentPolicy::Accept, None).unwrap();
        assert_eq!((consents.list(peer(5)).len(), consents.list(peer(0)).len()), (1, 2));
        let many = |at| consents.set(peer(5), &name(&format!("p{at}")), ConsentPolicy::Ask, None).is_ok();
        assert_eq!((1..100).map(many).filter(|is_ok| *is_ok).count(), MOST_PER_USER - 1);
    }
}
