//! Handlers of other hosts at services of this host.

use std::collections::BTreeSet;

use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{Author, SubscriptionId, SubscriptionInfo, SubscriptionRequest};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner};

use super::message::Body;
use super::{LEASE, State};
use crate::auth::{Peer, USERS_OF_HOSTS};
use crate::ecalls::{Ecalls, drop_aside, problems};

/// A handler of another host.
pub(super) struct Guest {
    pub id: SubscriptionId,
    pub author: Author,
    /// It ends then, unless it is renewed.
    pub until: Instant,
}

impl State {
    /// The user id of a host's handlers. A host keeps it, with its account of CPU time, until all ids are taken; then
    /// the next host gets the id of one that has no handlers.
    fn uid(&mut self, host: &Name) -> Option<u32> {
        if let Some(uid) = self.uids.get(host) {
            return Some(*uid);
        }
        let used: BTreeSet<u32> = self.uids.values().copied().collect();
        let unused = USERS_OF_HOSTS.into_iter().find(|uid| !used.contains(uid));
        let uid = unused.or_else(|| self.take_quiet_uid())?;
        self.uids.insert(host.clone(), uid);
        Some(uid)
    }

    fn take_quiet_uid(&mut self) -> Option<u32> {
        let busy: BTreeSet<&Name> = self.guests.keys().map(|(host, _)| host).collect();
        let quiet = self.uids.keys().find(|host| !busy.contains(host))?.clone();
        self.uids.remove(&quiet)
    }

    /// Removes the guests for which `ends` holds.
    fn take_guests(&mut self, ends: impl Fn(&(Name, u64), &Guest) -> bool) -> Vec<SubscriptionId> {
        let keys: Vec<_> =
            self.guests.iter().filter(|(key, guest)| ends(key, guest)).map(|(key, _)| key.clone()).collect();
        keys.iter().filter_map(|key| self.guests.remove(key)).map(|guest| guest.id).collect()
    }
}

impl Ecalls {
    pub(super) fn install_for(&self, host: &Name, number: u64, uid: u32, request: SubscriptionRequest) {
        let service = request.service.clone();
        let answer = match self.try_install_for(host, number, uid, request) {
            Ok(info) => Body::Installed(info.into()),
            Err(problem) => {
                let service: String = service.chars().filter(|c| qfabric_types::text::is_plain(*c)).take(64).collect();
                tracing::info!(%host, uid, service, why = problem.message, "a handler of another host is refused");
                Body::Refused(problem)
            }
        };
        self.tell(host, number, answer);
    }

    fn try_install_for(
        &self,
        host: &Name,
        number: u64,
        uid: u32,
        request: SubscriptionRequest,
    ) -> Result<SubscriptionInfo, Problem> {
        let known = self.far.state().guests.get(&(host.clone(), number)).map(|guest| guest.id);
        if let Some(info) = known.and_then(|id| self.info_of(id)) {
            // The message came twice.
            return Ok(info);
        }
        let author = Author { host: host.clone(), uid };
        if !self.config().lets_in(&author, &request.service) {
            return Err(problems::not_for_host(&author, &request.service));
        }
        check_request(&request)?;
        if let Some(channel) = &request.channel {
            self.fabric()?.host_may_send(host, channel)?;
        }
        let uid = self.room_for(&author)?;
        let peer = Peer { pid: 0, owner: Owner { uid, gid: uid } };
        let info = self.subscribe_as(peer, request, Some(author.clone()))?;
        let (uid, subscription, service) = (author.uid, info.id, &info.service);
        tracing::info!(%host, uid, subscription, service, "a handler of another host is installed");
        let guest = Guest { id: info.id, author, until: clock::now() + LEASE };
        self.far.state().guests.insert((host.clone(), number), guest);
        Ok(info)
    }

    /// The user id for the author's host, if the author has not too many handlers. The host as a whole is limited as a
    /// user.
    fn room_for(&self, author: &Author) -> Result<u32, Problem> {
        let most = self.config().max_subscriptions_per_author;
        let mut state = self.far.state();
        let own = state.guests.values().filter(|guest| guest.author == *author).count();
        if own >= most {
            let what = format!("user {} of host {} has {own} handlers here", author.uid, author.host);
            return Err(problems::limit(&what, most, "ecalls.max_subscriptions_per_author"));
        }
        state
            .uid(&author.host)
            .ok_or_else(|| problems::limit("too many hosts have handlers here", USERS_OF_HOSTS.len(), "nothing"))
    }

    pub(super) fn renew_for(&self, host: &Name, number: u64) {
        let id = self.far.state().guests.get_mut(&(host.clone(), number)).map(|guest| {
            guest.until = clock::now() + LEASE;
            guest.id
        });
        let answer = match id.and_then(|id| self.info_of(id)) {
            Some(info) => Body::Installed(info.into()),
            None => {
                self.far.state().guests.remove(&(host.clone(), number));
                Body::Ended { why: "it was removed on that host".to_owned() }
            }
        };
        self.tell(host, number, answer);
    }

    pub(super) fn remove_for(&self, host: &Name, number: u64) {
        let guest = self.far.state().guests.remove(&(host.clone(), number));
        guest.into_iter().for_each(|guest| drop_aside(self.end_subscription(guest.id)));
    }

    pub(super) fn end_guests_of(&self, host: &Name) {
        let ids = self.far.state().take_guests(|(of, _), _| of == host);
        ids.into_iter().for_each(|id| drop_aside(self.end_subscription(id)));
    }

    pub(super) fn expire(&self, now: Instant) {
        let ids = self.far.state().take_guests(|_, guest| guest.until <= now);
        ids.into_iter().for_each(|id| drop_aside(self.end_subscription(id)));
    }

    fn info_of(&self, id: SubscriptionId) -> Option<SubscriptionInfo> {
        let found = self.registry().subscriptions.get(&id).cloned();
        found.map(|subscription| subscription.info())
    }
}

/// A handler of another host concerns no process here: its events go to a channel, or are only counted.
fn check_request(request: &SubscriptionRequest) -> Result<(), Problem> {
    let named = [
        ("lease", request.lease.is_some()),
        ("process_id", request.process_id != 0),
        ("only_pid", request.only_pid.is_some()),
        ("signal", request.signal.is_some()),
        ("memory_up", request.memory_up.is_some()),
        ("favour", request.favour),
        ("group", request.group.is_some()),
    ];
    match named.into_iter().find(|(_, is_named)| *is_named) {
        Some((what, _)) => Err(problems::chain(
            format!("a handler of another host has {what}, which concerns a process of its own host"),
            "send the events to a channel, and subscribe to the channel on the other host",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_id_passes_on_only_when_all_are_taken_and_never_from_a_host_with_handlers() {
        let host = |number: u32| -> Name { format!("h{number:04}").parse().unwrap() };
        let mut state = State::default();
        let of_first = state.uid(&host(0)).unwrap();
        let author = Author { host: host(0), uid: 1 };
        state.guests.insert((host(0), 1), Guest { id: SubscriptionId::default(), author, until: Instant::ZERO });
        for number in 1..USERS_OF_HOSTS.len() as u32 {
            assert_eq!(state.uid(&host(number)), Some(of_first + number));
        }
        assert_eq!(state.uid(&host(9_000)), Some(of_first + 1), "of the first host without handlers");
        assert_eq!((state.uid(&host(0)), state.uids.len()), (Some(of_first), USERS_OF_HOSTS.len()));
    }
}
