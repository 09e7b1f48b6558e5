//! Order of calls, on a clock that jumps.

use std::sync::Arc;

use qfabric_host::manager::{Change, ChangeKind, Controller, Decisions, Interest, View};
use qfabric_types::{Instant, Nanos};

use super::budget::WINDOW;
use super::{Call, Next, Proxy, Runner};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const START: Instant = Instant::new(5_000_000_000);

/// Asks to be woken at this time.
struct Idle(Option<Instant>);

impl Controller for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn interests(&self) -> Vec<Interest> {
        Vec::new()
    }

    fn changed(&mut self, _change: &Change, _view: &View<'_>, _decisions: &mut Decisions) {}

    fn next_wakeup(&self) -> Option<Instant> {
        self.0
    }
}

fn change() -> Change {
    Change { channel: None, host: "a".parse().unwrap(), what: ChangeKind::HostGone }
}

fn policy(runner: &Arc<Runner>, most: Option<Nanos>, wakeup: Option<Instant>) -> (u64, Proxy) {
    let (seat, proxy) = runner.add(Box::new(Idle(wakeup)), most);
    runner.open(seat, 100 + seat);
    (seat, proxy)
}

fn call(runner: &Runner, now: Instant) -> Option<Call> {
    if let Next::Call(call) = runner.next(now) { Some(call) } else { None }
}

/// Calls the next controller, which takes `cost`; returns its seat.
fn called(runner: &Runner, now: Instant, cost: Nanos) -> Option<u64> {
    let Call { seat, called, .. } = call(runner, now)?;
    runner.put_back(seat, called, cost, now);
    Some(seat)
}

fn sleeps_until(runner: &Runner, now: Instant) -> Option<Instant> {
    let Next::Sleep(until) = runner.next(now) else { panic!("something is due") };
    until
}

#[test]
fn policies_take_turns() {
    let runner = Arc::new(Runner::default());
    let [(first, _), (second, _)] = [(); 2].map(|()| policy(&runner, None, None));
    (0..3).for_each(|_| runner.note(first, &change()));
    runner.note(second, &change());
    let order: Vec<_> = std::iter::from_fn(|| called(&runner, START, MS(1))).collect();
    assert_eq!(order, [first, second, first, first]);
    assert_eq!(runner.totals().cpu, MS(4));
}

#[test]
fn a_suspended_policy_delays_no_other_and_is_called_again_in_the_next_window() {
    let runner = Arc::new(Runner::default());
    let [(greedy, _), (modest, _)] = [(); 2].map(|()| policy(&runner, Some(MS(10)), None));
    (0..2).for_each(|_| runner.note(greedy, &change()));
    assert_eq!(called(&runner, START, MS(11)), Some(greedy));
    assert!(runner.usage(greedy, START).is_suspended);
    runner.note(modest, &change());
    assert_eq!(called(&runner, START, MS(1)), Some(modest));
    assert_eq!(sleeps_until(&runner, START), Some(START + WINDOW));
    assert_eq!(called(&runner, START + WINDOW, MS(1)), Some(greedy));
    let usage = runner.usage(greedy, START + WINDOW);
    assert_eq!((usage.cpu, usage.suspensions, usage.is_suspended), (MS(12), 1, false));
}

#[test]
fn a_policy_is_woken_at_its_time() {
    let runner = Arc::new(Runner::default());
    let (seat, _) = policy(&runner, None, Some(START + MS(7)));
    assert_eq!(sleeps_until(&runner, START), Some(START + MS(7)));
    assert_eq!(called(&runner, START + MS(7), MS(1)), Some(seat));
}

#[test]
fn what_is_noted_between_the_look_and_the_sleep_ends_the_sleep() {
    let runner = Arc::new(Runner::default());
    let (seat, _) = policy(&runner, None, None);
    assert_eq!(sleeps_until(&runner, START), None);
    runner.note(seat, &change());
    runner.sleep(None, START);
    assert_eq!(called(&runner, START, MS(1)), Some(seat));
}

#[test]
fn a_policy_can_be_removed_while_it_computes() {
    let runner = Arc::new(Runner::default());
    let (seat, _) = policy(&runner, None, None);
    runner.note(seat, &change());
    let Call { called, .. } = call(&runner, START).unwrap();
    runner.note(seat, &change());
    assert_eq!(sleeps_until(&runner, START), None, "it is not called twice at a time");
    runner.remove(seat);
    runner.put_back(seat, called, MS(3), START);
    assert_eq!(sleeps_until(&runner, START), None);
    assert_eq!(runner.totals().cpu, MS(3), "what it took counts");
}

#[test]
fn nothing_is_called_after_the_stop() {
    let runner = Arc::new(Runner::default());
    let (seat, _) = policy(&runner, None, None);
    runner.note(seat, &change());
    runner.stop();
    assert!(matches!(runner.next(START), Next::Stop));
    runner.sleep(Some(START + MS(1)), START + MS(1));
}
