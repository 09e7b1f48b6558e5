//! Whose contracts and encoders a policy changes, and what its end gives back.

use std::thread;
use std::time::Duration;

use qfabric_host::manager::policies::{CPU_USED, GENERATED, LEVEL};
use qfabric_types::channel_wire::Report;
use qfabric_types::{AppId, Share};

use super::*;
use crate::control::{Adjust, Adjustment, AdjustmentTarget, ControlWord, Grant};

impl Host {
    /// Starts a policy of a user; `more` are the fields beside name, channel and rate.
    fn start_as(&self, user: User<'_>, name: &str, kind: &str, more: serde_json::Value) -> Result<(), Problem> {
        let mut policy = serde_json::json!({ "kind": kind, "name": name, "channel": "video", "rate": 20.0 });
        policy.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.fabric.start_policy(Some(user.peer), serde_json::from_value(policy).unwrap()).map(drop)
    }

    fn stop(&self, user: User<'_>, name: &str) {
        self.fabric.stop_policy(user.peer, &name.parse().unwrap()).unwrap();
        self.turn();
    }

    /// The application reports that it generates 5 events per second for 15 % of a CPU.
    fn reports(&self, user: User<'_>, registration: RegistrationId) {
        for (attribute, value) in [(CPU_USED, 150_000), (GENERATED, 5_000)] {
            let report = Report { registration: registration.0, attribute, value };
            self.fabric.report_of(&mut self.fabric.registry(), user.lease, &report);
        }
    }

    /// Reports of the application arrive until the policy has made this number of decisions, which are then carried out.
    fn until_decided(&self, (user, camera): (User<'_>, RegistrationId), name: &str, decisions: u64) {
        let made = || self.fabric.policies().iter().find(|one| one.name.as_str() == name).unwrap().decisions;
        while made() < decisions {
            self.reports(user, camera);
            self.call_policies();
            thread::sleep(Duration::from_millis(10));
        }
        self.turn();
    }

    fn adjusted(&self) -> Vec<Adjust> {
        let adjust = |command| match command {
            Command::Adjust(adjust) => Some(*adjust),
            _ => None,
        };
        self._commands.try_iter().filter_map(adjust).collect()
    }

    fn withdrawn(&self) -> Vec<(String, Option<AppId>)> {
        let withdrawn = |command| match command {
            Command::Withdraw { policy, member } => Some((policy.to_string(), member)),
            _ => None,
        };
        self._commands.try_iter().filter_map(withdrawn).collect()
    }
}

#[test]
fn a_users_policy_changes_the_contracts_of_own_applications_alone() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let camera = (alice, alice.register("camera", "video", [0, 20]));
    host.start_as(bob, "bobs", "cpu", serde_json::Value::Null).unwrap();
    host.until_decided(camera, "bobs", 1);
    assert!(host.adjusted().is_empty(), "the application belongs to another user");
    host.start_as(alice, "alices", "cpu", serde_json::Value::Null).expect("bob's policy is not in the way");
    host.until_decided(camera, "alices", 1);
    let adjusted = host.adjusted().remove(0);
    assert_eq!((adjusted.peer.owner.uid, adjusted.whom), (ALICE, AdjustmentTarget::Process(1)));
    assert!(matches!(adjusted.decision.adjustment, Adjustment::Guaranteed(_)));
    let refused = host.start_as(root, "roots", "cpu", serde_json::Value::Null).unwrap_err();
    assert!(refused.message.contains("already decides what CPU time"), "root's would decide about both: {refused:?}");
    host.stop(bob, "bobs");
    host.stop(alice, "alices");
    host.start_as(root, "roots", "cpu", serde_json::Value::Null).unwrap();
    host.until_decided(camera, "roots", 1);
    assert_eq!(host.adjusted().iter().map(|one| one.peer.owner.uid).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_users_policy_sets_the_levels_of_own_encoders_alone_and_its_end_releases_them() {
    let host = Host::start(Vec::new());
    let ((alice, mut hers), (bob, mut his)) = (host.reader(ALICE), host.reader(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let _sources = [alice, bob].map(|user| user.source("video").unwrap());
    let camera = (alice, alice.register("camera", "video", [0, 20]));
    let ladder = serde_json::json!({ "ladder": ["quality=80,60"] });
    let level = |amount| vec![(LEVEL.to_owned(), "quality".to_owned(), amount)];
    host.start_as(bob, "bobs", "integrated", ladder.clone()).unwrap();
    host.until_decided(camera, "bobs", 1);
    assert_eq!((decided(&mut hers), decided(&mut his)), (vec![], level(Some(80))));
    host.start_as(alice, "alices", "integrated", ladder).expect("bob's policy is not in the way");
    host.until_decided(camera, "alices", 1);
    assert_eq!((decided(&mut hers), decided(&mut his)), (level(Some(80)), vec![]));
    host.stop(alice, "alices");
    assert_eq!((decided(&mut hers), decided(&mut his)), (level(None), vec![]));
    host.stop(bob, "bobs");
    assert_eq!((decided(&mut hers), decided(&mut his)), (vec![], level(None)));
}

#[test]
fn contracts_are_given_back_when_an_application_leaves_the_group_and_when_the_policy_ends() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let [camera, other] = ["camera", "other"].map(|name| alice.register(name, "video", [0, 20]));
    host.start_as(alice, "cpu", "cpu", serde_json::Value::Null).unwrap();
    host.until_decided((alice, camera), "cpu", 1);
    host.until_decided((alice, other), "cpu", 2);
    assert_eq!(host.adjusted().len(), 2);
    alice.unregister(other);
    host.call_policies();
    host.turn();
    let left = number_of(&"video".parse().unwrap(), &"other".parse().unwrap());
    assert_eq!(host.withdrawn(), [("cpu".to_owned(), Some(left))]);
    host.stop(alice, "cpu");
    assert_eq!(host.withdrawn(), [("cpu".to_owned(), None)]);
    host.start_as(alice, "cpu", "hold", serde_json::Value::Null).unwrap();
    host.stop(alice, "cpu");
    assert!(host.withdrawn().is_empty(), "it has decided about no contract");
}

#[test]
fn what_is_granted_reaches_the_policies_of_this_host() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let camera = (alice, alice.register("camera", "video", [0, 20]));
    host.start_as(alice, "cpu", "cpu", serde_json::Value::Null).unwrap();
    host.until_decided(camera, "cpu", 1);
    let Adjust { decision, .. } = host.adjusted().remove(0);
    let calls = || host.fabric.policies()[0].calls;
    let before = calls();
    let share = Share::from_ppm(600_000);
    decision.teller.tell(ControlWord::Granted(Grant { member: decision.member, own: share, granted: share }));
    host.turn();
    host.call_policies();
    assert!(calls() >= before + 2, "own and granted share");
}
