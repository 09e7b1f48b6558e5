//! Whose events a policy paces, beside the policies of other users.

use qfabric_types::monitor::{Cause, HOST, Reading, Unit};

use super::*;

impl Host {
    /// Starts a policy of a user that keeps a rate, in events per second.
    fn hold(&self, user: User<'_>, name: &str, rate: f64) -> Result<(), Problem> {
        let policy = serde_json::json!({ "kind": "hold", "name": name, "channel": "video", "rate": rate });
        self.fabric.start_policy(Some(user.peer), serde_json::from_value(policy).unwrap()).map(drop)
    }

    /// This host reports arrivals, so policies learn that it has sinks.
    fn reports_arrivals(&self) {
        let (attribute, at, over) = (AttributeId::of(RATE), clock::now(), Nanos::from_millis(500));
        let reading =
            Reading { attribute, application: HOST, value: 0, at, over, cause: Cause::Poll, unit: Unit::Count };
        let input = Input::Reading(Some("quality:video".parse().unwrap()), "alpha".parse().unwrap(), reading);
        self.fabric.network.manager(|manager, now| manager.handle(input, now));
        self.call_policies();
        self.turn();
    }

    fn end(&self, user: User<'_>, name: &str) {
        self.fabric.stop_policy(user.peer, &name.parse().unwrap()).unwrap();
        self.turn();
    }

    fn users(&self) -> Vec<Option<u32>> {
        self.fabric.policies.paces_for(&"video".parse().unwrap())
    }
}

/// The last rate that an application was told.
fn told(end: &mut End) -> Option<Option<i64>> {
    let mut rates = decided(end).into_iter().filter(|(attribute, subject, _)| attribute == RATE && subject == "alpha");
    rates.next_back().map(|(.., amount)| amount)
}

#[test]
fn a_users_policy_paces_the_events_of_own_sources_alone() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let users = [bob, alice].map(|user| {
        host.hold(user, "hold", 25.0).unwrap();
        let users = host.users();
        host.end(user, "hold");
        users
    });
    assert_eq!(users, [[Some(BOB)], [None]]);
    assert!(host.users().is_empty());
}

/// One event passes at these rates while the test runs: the credit of the beginning.
#[test]
fn policies_of_two_users_pace_one_channel_and_the_lower_rate_is_in_force() {
    let host = Host::start(Vec::new());
    let ((alice, mut hers), (bob, mut his)) = (host.reader(ALICE), host.reader(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    alice.sink("video").unwrap();
    let [of_alice, of_bob] = [alice, bob].map(|user| user.source("video").unwrap());
    host.hold(bob, "bobs", 0.002).unwrap();
    host.hold(alice, "alices", 0.001).expect("bob's policy is not in the way");
    let refused = host.hold(bob, "again", 25.0).unwrap_err();
    assert!(refused.message.contains("`bobs` already decides at what rates"), "{refused:?}");
    host.reports_arrivals();
    let paced = host.fabric.policies.paced(&"video".parse().unwrap());
    let paced: Vec<_> = paced.iter().map(|pace| (pace.uid, pace.rate_milli)).collect();
    assert_eq!(paced, [(None, 1), (Some(BOB), 2)]);
    assert_eq!((told(&mut hers), told(&mut his)), (Some(Some(1)), Some(Some(1))), "the creator's policy paces all");
    assert_eq!([bob.submit(of_bob, 0), bob.submit(of_bob, 1), alice.submit(of_alice, 0)], [1, 0, 0]);
    host.end(alice, "alices");
    assert_eq!((told(&mut hers), told(&mut his)), (Some(None), Some(Some(2))), "his own is in force again");
    assert_eq!([alice.submit(of_alice, 1), alice.submit(of_alice, 2), bob.submit(of_bob, 2)], [1, 1, 0]);
    host.hold(alice, "alices", 0.001).unwrap();
    host.reports_arrivals();
    host.end(bob, "bobs");
    assert_eq!(told(&mut his), Some(Some(1)), "the creator's stays");
    host.end(alice, "alices");
    assert_eq!((told(&mut his), bob.submit(of_bob, 3)), (Some(None), 1));
}
