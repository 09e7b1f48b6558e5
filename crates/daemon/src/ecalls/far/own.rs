//! Handlers of this host's users at services of other hosts.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{
    DeploymentAnswer, DeploymentRequest, LeaseId, State as Activity, SubscriptionId, SubscriptionInfo,
    SubscriptionRequest,
};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner};

use super::message::Body;
use super::{LEASE, State};
use crate::auth::Peer;
use crate::ecalls::{Ecalls, problems};

/// How long a caller waits for the other hosts.
const PATIENCE: Nanos = Nanos::from_millis(3_000);
/// Largest number of hosts of one request.
const HOSTS: usize = 64;

/// A handler on another host.
pub(super) struct Deployed {
    host: Name,
    number: u64,
    owner: Owner,
    lease: Option<LeaseId>,
    /// Its state as the other host described it last.
    info: SubscriptionInfo,
    heard_at: Instant,
}

impl Deployed {
    fn is_over(&self) -> bool {
        self.info.suspended && self.heard_at == Instant::NEVER
    }

    /// It exists no more; it stays in lists until it is removed, so that its user sees why.
    fn end(&mut self, why: String) {
        self.info.state = Activity::TakenOut { why };
        self.info.suspended = true;
        self.heard_at = Instant::NEVER;
    }
}

/// A registered request: its host, its number, and where its answer comes.
type Asked = (Name, u64, Receiver<Body>);

/// Who waits for the answer of another host.
pub(super) struct Asker {
    uid: u32,
    to: SyncSender<Body>,
}

impl State {
    /// The number of handlers that a user has on other hosts or has asked for.
    fn number_of(&self, uid: u32) -> usize {
        let installed = self.own.values().filter(|one| one.owner.uid == uid).count();
        installed + self.waiting.values().filter(|asker| asker.uid == uid).count()
    }

    /// Registers a request for each host. From now on it counts as one of the user's handlers, so that requests at the
    /// same time cannot exceed the limit together. The error is the number of handlers that the user would have.
    fn expect_answers(&mut self, uid: u32, most: usize, hosts: Vec<Name>) -> Result<Vec<Asked>, usize> {
        let number = self.number_of(uid) + hosts.len();
        if uid != 0 && number > most {
            return Err(number);
        }
        let mut expect_answer = |host: Name| {
            let (number, (to, answer)) = (random(), sync_channel(1));
            self.waiting.insert((host.clone(), number), Asker { uid, to });
            (host, number, answer)
        };
        Ok(hosts.into_iter().map(&mut expect_answer).collect())
    }

    /// Passes an answer to the request of this host and number. `Some`: no request waits for it.
    fn hand_over(&self, host: &Name, number: u64, said: Body) -> Option<Body> {
        let Some(asker) = self.waiting.get(&(host.clone(), number)) else { return Some(said) };
        // Fails if the answer came twice.
        let _ = asker.to.try_send(said);
        None
    }
}

/// A number that other hosts cannot guess, and that this host did not use before its last start.
fn random() -> u64 {
    RandomState::new().hash_one(clock::now().get())
}

impl Ecalls {
    /// Installs the subscription on each host, and waits for their answers.
    pub(crate) fn deploy(&self, peer: Peer, request: &DeploymentRequest) -> Result<Vec<DeploymentAnswer>, Problem> {
        let fabric = self.fabric()?;
        let (here, others) = fabric.targets(&request.hosts, request.group.as_ref())?;
        if !others.is_empty() {
            fabric.check_ecalls()?;
        }
        if others.len() > HOSTS {
            return Err(problems::limit(&format!("{} hosts are named", others.len()), HOSTS, "nothing: ask twice"));
        }
        if let Some(lease) = request.subscription.lease {
            self.registry().lease(lease, peer)?;
        }
        let registered = self.expect_answers(peer, others)?;
        let mut answers = Vec::new();
        if here {
            let host = fabric.host_name().clone();
            answers.push(answer(host, self.subscribe(peer, request.subscription.clone())));
        }
        let asked: Vec<_> = registered.into_iter().map(|one| self.ask(peer, one, &request.subscription)).collect();
        let until = clock::now() + PATIENCE;
        answers.extend(asked.into_iter().map(|asked| match asked {
            Ok(asked) => self.await_answer(peer, &request.subscription, asked, until),
            Err(refused) => *refused,
        }));
        Ok(answers)
    }

    /// Registers a request for each host, unless the user would have too many handlers.
    fn expect_answers(&self, peer: Peer, hosts: Vec<Name>) -> Result<Vec<Asked>, Problem> {
        let (uid, most) = (peer.owner.uid, self.config().max_subscriptions_per_user);
        let registered = self.far.state().expect_answers(uid, most, hosts);
        registered.map_err(|number| {
            let what = format!("user {uid} would have {number} handlers on other hosts");
            problems::limit(&what, most, "ecalls.max_subscriptions_per_user")
        })
    }

    /// Sends a registered request. One that is refused is no longer registered.
    fn ask(
        &self,
        peer: Peer,
        (host, number, answers): Asked,
        wanted: &SubscriptionRequest,
    ) -> Result<Asked, Box<DeploymentAnswer>> {
        let refused = if self.fabric().is_ok_and(|fabric| fabric.takes_ecalls(&host)) {
            let request = SubscriptionRequest { lease: None, ..wanted.clone() };
            if self.tell(&host, number, Body::Install { uid: peer.owner.uid, request: request.into() }) {
                return Ok((host, number, answers));
            }
            problems::chain("the text is too long for one message", "shorten it to about 12 KiB")
        } else {
            problems::no_such_host(&host)
        };
        self.far.state().waiting.remove(&(host.clone(), number));
        Err(answer(host, Err(refused)).into())
    }

    fn await_answer(
        &self,
        peer: Peer,
        wanted: &SubscriptionRequest,
        (host, number, answers): Asked,
        until: Instant,
    ) -> DeploymentAnswer {
        let left = Duration::from_nanos(until.since(clock::now()).get());
        let said = answers.recv_timeout(left);
        if let Ok(Body::Installed(info)) = said {
            let info = self.keep(peer, wanted, &host, number, *info);
            return answer(host, Ok(info));
        }
        self.far.state().waiting.remove(&(host.clone(), number));
        let refused = match said {
            Ok(Body::Refused(problem)) => problem,
            _ => {
                self.tell(&host, number, Body::Remove);
                problems::no_answer(&wanted.service, &format!("host {host} did not answer within {PATIENCE}"))
            }
        };
        answer(host, Err(refused))
    }

    /// Lists the handler here from now on, instead of the request.
    fn keep(
        &self,
        peer: Peer,
        wanted: &SubscriptionRequest,
        host: &Name,
        number: u64,
        info: SubscriptionInfo,
    ) -> SubscriptionInfo {
        let id = self.registry().number();
        let shown = SubscriptionInfo { id, service: wanted.service.clone(), ..info };
        let (owner, lease) = (peer.owner, wanted.lease);
        let mut one =
            Deployed { host: host.clone(), number, owner, lease, info: shown.clone(), heard_at: clock::now() };
        one.update(shown);
        let info = one.info.clone();
        let mut state = self.far.state();
        state.waiting.remove(&(host.clone(), number));
        state.own.insert(id, one);
        drop(state);
        let is_held = lease.is_none_or(|lease| self.registry().leases.contains_key(&lease));
        if !is_held {
            // The connection ended in the meantime.
            self.undeploy_of_lease(lease);
        }
        info
    }

    /// An answer of another host to a request, or to a renewal.
    pub(super) fn answered(&self, host: &Name, number: u64, said: Body) {
        let mut state = self.far.state();
        let Some(said) = state.hand_over(host, number, said) else { return };
        let known = state.own.values_mut().find(|one| one.number == number && one.host == *host);
        match (known, said) {
            (Some(one), Body::Installed(info)) if !one.is_over() => {
                one.heard_at = clock::now();
                one.update(*info);
            }
            (Some(one), Body::Ended { why }) => one.end(format!("host {host}: {why}")),
            (None, Body::Installed(_)) => {
                // Nobody waits for it any more.
                drop(state);
                self.tell(host, number, Body::Remove);
            }
            _ => {}
        }
    }

    /// Asks the other hosts to keep the handlers, and ends those of hosts that do not answer.
    pub(super) fn renew(&self, now: Instant) {
        let mut asked = Vec::new();
        for one in self.far.state().own.values_mut().filter(|one| !one.is_over()) {
            match one.heard_at + LEASE <= now {
                true => one.end(format!("host {} did not answer for {LEASE}", one.host)),
                false => asked.push((one.host.clone(), one.number)),
            }
        }
        asked.into_iter().for_each(|(host, number)| _ = self.tell(&host, number, Body::Renew));
    }

    pub(super) fn host_gone(&self, host: &Name) {
        let mut state = self.far.state();
        let there = state.own.values_mut().filter(|one| one.host == *host && !one.is_over());
        there.for_each(|one| one.end(format!("host {host} is gone")));
    }

    /// The user's handlers on other hosts.
    pub(in crate::ecalls) fn deployed(&self, peer: Peer) -> Vec<SubscriptionInfo> {
        let state = self.far.state();
        state.own.values().filter(|one| peer.may_touch(one.owner)).map(|one| one.info.clone()).collect()
    }

    /// One of them; `None`: the number is not that of a handler on another host.
    pub(in crate::ecalls) fn deployed_one(
        &self,
        peer: Peer,
        id: SubscriptionId,
    ) -> Option<Result<SubscriptionInfo, Problem>> {
        let state = self.far.state();
        let one = state.own.get(&id)?;
        Some(match peer.may_touch(one.owner) {
            true => Ok(one.info.clone()),
            false => Err(problems::not_your_subscription(id, one.owner.uid, peer.owner.uid)),
        })
    }

    /// Removes a handler on another host.
    pub(in crate::ecalls) fn undeploy(&self, id: SubscriptionId) {
        let one = self.far.state().own.remove(&id);
        one.into_iter().for_each(|one| _ = self.tell(&one.host, one.number, Body::Remove));
    }

    /// Removes the handlers of a connection that has ended.
    pub(in crate::ecalls) fn undeploy_of_lease(&self, lease: Option<LeaseId>) {
        let of_lease = |(id, one): (&SubscriptionId, &Deployed)| (one.lease == lease && lease.is_some()).then_some(*id);
        let ids: Vec<_> = self.far.state().own.iter().filter_map(of_lease).collect();
        ids.into_iter().for_each(|id| self.undeploy(id));
    }
}

impl Deployed {
    /// The state as the other host describes it; what this host knows better stays.
    fn update(&mut self, info: SubscriptionInfo) {
        let Deployed { info: known, host, owner, lease, .. } = self;
        self.info = SubscriptionInfo {
            id: known.id,
            service: std::mem::take(&mut known.service),
            owner: *owner,
            lease: *lease,
            process_id: 0,
            only_pid: None,
            host: Some(host.clone()),
            author: None,
            group: None,
            budget: None,
            ..info
        };
    }
}

fn answer(host: Name, installed: Result<SubscriptionInfo, Problem>) -> DeploymentAnswer {
    let (subscription, refused) = match installed {
        Ok(info) => (Some(info), None),
        Err(problem) => (None, Some(problem)),
    };
    DeploymentAnswer { host, subscription, refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_for_its_answer_counts_as_a_handler_of_its_user() {
        let mut state = State::default();
        for (number, uid) in [(1, 1000), (2, 1000), (3, 1001)] {
            let (to, _answers) = sync_channel(1);
            state.waiting.insert(("far".parse().unwrap(), number), Asker { uid, to });
        }
        assert_eq!((state.number_of(1000), state.number_of(1001), state.number_of(0)), (2, 1, 0));
    }

    #[test]
    fn requests_at_once_get_their_own_answers_and_count_together() {
        let mut state = State::default();
        let [one, two]: [Name; 2] = ["h1", "h2"].map(|host| host.parse().unwrap());
        let both = || vec![one.clone(), two.clone()];
        let first = state.expect_answers(1000, 3, both()).unwrap();
        assert_eq!(state.expect_answers(1000, 3, both()).err(), Some(4), "the first request counts");
        let second = state.expect_answers(1000, 3, vec![one.clone()]).unwrap();
        assert_eq!(state.expect_answers(1000, 3, vec![two.clone()]).err(), Some(4));
        assert_eq!(state.expect_answers(1001, 2, both()).unwrap().len(), 2, "another user");
        let answer = |why: &str| Body::Ended { why: why.to_owned() };
        let say = |(host, number, _): &Asked, why: &str| state.hand_over(host, *number, answer(why));
        // The answers come in another order, one of them twice, and a host answers for another one.
        let said = [say(&second[0], "second"), say(&first[1], "first, h2"), say(&first[0], "first, h1")];
        assert_eq!(said, [None, None, None]);
        assert_eq!(say(&first[0], "again"), None);
        assert_eq!(state.hand_over(&two, second[0].1, answer("of h2")), Some(answer("of h2")));
        let heard = [&second[0], &first[1], &first[0]].map(|(_, _, answers)| answers.try_iter().collect::<Vec<_>>());
        assert_eq!(heard, ["second", "first, h2", "first, h1"].map(|why| vec![answer(why)]));
    }
}
