//! Effects on events and on other policies of controllers that compute for long, are stopped meanwhile, or panic.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;

use qfabric_host::manager::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, View};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityKind, Reading, Unit};

use super::*;

/// A controller that records the values it receives. Its first call waits at the barrier twice, at begin and end.
struct Slow {
    barrier: Arc<Barrier>,
    heard: Sender<i64>,
    is_first: bool,
}

struct Broken;

fn quality() -> ChannelId {
    "quality:video".parse().unwrap()
}

impl Controller for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn interests(&self) -> Vec<Interest> {
        Vec::new()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        if std::mem::take(&mut self.is_first) {
            self.barrier.wait();
            self.barrier.wait();
        }
        if let ChangeKind::Reading(reading) = &change.what {
            self.heard.send(reading.value).unwrap();
        }
        let event = told("slow", QualityKind::Level, "app.level", 1, view.now);
        decisions.push(Decision::Tell { channel: quality(), to: Recipient::All, event });
    }
}

impl Controller for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn interests(&self) -> Vec<Interest> {
        Vec::new()
    }

    fn changed(&mut self, _change: &Change, _view: &View<'_>, _decisions: &mut Decisions) {
        panic!("no such case");
    }
}

fn hold(name: &str) -> Policy {
    let policy = serde_json::json!({ "kind": "hold", "name": name, "channel": "video", "rate": 25.0 });
    serde_json::from_value(policy).unwrap()
}

fn report(host: &Host, value: i64) {
    let (attribute, at, over) = (AttributeId::of(RATE), clock::now(), Nanos::from_millis(500));
    let (cause, unit) = (Cause::Poll, Unit::Count);
    let reading = Reading { attribute, application: HOST, value, at, over, cause, unit };
    let input = Input::Reading(Some(quality()), "viewer".parse().unwrap(), reading);
    host.fabric.network.manager(|manager, now| manager.handle(input, now));
}

fn decisions(host: &Host) -> u64 {
    host.fabric.network.manager(|manager, _| manager.counts().decisions)
}

#[test]
fn events_flow_while_a_controller_computes_and_what_it_misses_is_counted() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.fabric.start_policy(None, hold("slow")).unwrap();
    let (barrier, (heard, values)) = (Arc::new(Barrier::new(2)), channel());
    host.fabric.policies.replace("slow", Box::new(Slow { barrier: barrier.clone(), heard, is_first: true }));
    report(&host, 0);
    thread::scope(|scope| {
        let calling = scope.spawn(|| host.fabric.call_next_policy(&clock::now));
        barrier.wait();
        let mut taken = Taken::default();
        for _ in 0..100 {
            let event = Submission { payload: &[0; 4], ..Submission::default() };
            let got = host.fabric.network.with(|node, now| {
                node.submit(source, &event, now).unwrap();
                node.take(sink, &mut taken, now).unwrap()
            });
            assert!(got, "an event is delivered though the policy computes");
        }
        (1..=259).for_each(|value| report(&host, value));
        assert_eq!(host.fabric.policies()[0].dropped, 3, "256 wait");
        assert_eq!(decisions(&host), 0, "its call is still running");
        barrier.wait();
        assert!(calling.join().unwrap());
    });
    host.call_policies();
    assert_eq!(values.try_iter().collect::<Vec<_>>(), [0].into_iter().chain(4..=259).collect::<Vec<_>>());
    assert_eq!(decisions(&host), 257);
    assert_eq!(host.fabric.policies.usage().dropped, 3);
    assert!(host.fabric.policies()[0].cpu_ns > 0);
}

#[test]
fn a_policy_that_is_stopped_while_it_computes_decides_nothing() {
    let host = Host::start(Vec::new());
    host.user(ALICE).create("video").unwrap();
    host.fabric.start_policy(None, hold("slow")).unwrap();
    let (barrier, (heard, values)) = (Arc::new(Barrier::new(2)), channel());
    host.fabric.policies.replace("slow", Box::new(Slow { barrier: barrier.clone(), heard, is_first: true }));
    report(&host, 7);
    thread::scope(|scope| {
        scope.spawn(|| host.fabric.call_next_policy(&clock::now));
        barrier.wait();
        host.fabric.stop_policy(host.user(0).peer, &"slow".parse().unwrap()).unwrap();
        barrier.wait();
    });
    assert_eq!(values.try_iter().collect::<Vec<_>>(), [7], "the call came to its end");
    assert_eq!(decisions(&host), 0);
    assert!(host.fabric.policies().is_empty());
}

#[test]
fn a_panic_stops_its_policy_and_no_other() {
    let host = Host::start(Vec::new());
    host.user(ALICE).create("video").unwrap();
    host.fabric.start_policy(None, hold("broken")).unwrap();
    host.fabric.policies.replace("broken", Box::new(Broken));
    report(&host, 1);
    host.call_policies();
    let shown = host.fabric.policies().remove(0);
    assert_eq!((shown.failed, shown.fault.as_deref()), (true, Some("it panicked: no such case")));
    assert!(host.fabric.policies.paces_for(&"video".parse().unwrap()).is_empty(), "its decisions have ended");
    host.fabric.start_policy(None, hold("whole")).unwrap();
    report(&host, 2);
    host.call_policies();
    host.fabric.stop_policy(host.user(0).peer, &"broken".parse().unwrap()).unwrap();
    assert!(host.fabric.policies.paces_for(&"video".parse().unwrap()).contains(&None), "those of the other stay");
    let shown = host.fabric.policies();
    assert_eq!((shown.len(), shown[0].failed, shown[0].calls), (1, false, 1));
}

#[test]
fn only_the_owner_of_a_policy_and_administrators_see_why_it_decided() {
    let host = Host::start(Vec::new());
    let [alice, bob] = [host.user(ALICE), host.user(BOB)];
    alice.create("video").unwrap();
    host.fabric.start_policy(Some(alice.peer), hold("own")).unwrap();
    let why = |peer| host.fabric.policies.explanations(peer, &"video".parse().unwrap());
    assert!(why(alice.peer).is_ok() && why(host.user(0).peer).is_ok());
    let refused = why(bob.peer).unwrap_err();
    assert_eq!(refused.code, "channel_forbidden");
    assert!(refused.message.contains("`own` was started by user"), "{refused:?}");
    host.fabric.stop_policy(alice.peer, &"own".parse().unwrap()).unwrap();
    assert_eq!(why(bob.peer).unwrap_err().code, "no_such_policy");
}

#[test]
fn the_budget_is_of_users_policies_alone() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    assert_eq!(host.fabric.start_policy(Some(alice.peer), hold("own")).unwrap().budget_ns, Some(10_000_000));
    host.fabric.stop_policy(alice.peer, &"own".parse().unwrap()).unwrap();
    assert_eq!(host.fabric.start_policy(None, hold("hosts")).unwrap().budget_ns, None);
}
