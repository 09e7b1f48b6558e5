//! Properties of the schedule for every sequence of calls.

use std::collections::BTreeMap;

use proptest::prelude::*;
use qfabric_host::monitor::{Monitor, Watch};
use qfabric_types::monitor::{AttributeId, Cause, HOST, Reading, Threshold};
use qfabric_types::{AppId, Instant, Nanos};

use super::{A, BYTES, Made, QUEUE, at, ms, poll};

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    Set(i64),
    Watch { app: u64, bytes: bool, period: u64, check: Option<u64>, limit: Option<i64> },
    Unwatch { app: u64, bytes: bool },
    Leave(u64),
    Period { app: u64, period: u64 },
    Alert(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let watch = (1u64..4, any::<bool>(), 1u64..200, prop::option::of(1u64..50), prop::option::of(0i64..50));
    prop_oneof![
        6 => (0u64..150).prop_map(Op::Wait),
        4 => (0i64..60).prop_map(Op::Set),
        3 => watch.prop_map(|(app, bytes, period, check, limit)| Op::Watch { app, bytes, period, check, limit }),
        1 => (1u64..4, any::<bool>()).prop_map(|(app, bytes)| Op::Unwatch { app, bytes }),
        1 => (1u64..4).prop_map(Op::Leave),
        1 => (1u64..4, 1u64..200).prop_map(|(app, period)| Op::Period { app, period }),
        1 => (0i64..60).prop_map(Op::Alert),
    ]
}

fn carry_out(op: &Op, monitor: &mut Monitor, made: &mut Made, now: Instant, told: &mut Vec<Reading>) {
    let name = |bytes| if bytes { "net.eth0.rx_bytes" } else { "cpu.run_queue" };
    match *op {
        Op::Wait(_) => told.extend(poll(monitor, made, now)),
        Op::Set(value) => {
            made.set(QUEUE, value);
            *made.raw.get_mut(&(BYTES, HOST)).unwrap() += value;
        }
        Op::Watch { app, bytes, period, check, limit } => {
            let threshold = limit.map(|limit| Threshold::Above { limit, until: limit / 2 });
            let watch = Watch { check: check.map(ms), threshold, ..Watch::every(ms(period)) };
            monitor.watch(AppId(app), name(bytes), watch, made, now).unwrap();
        }
        Op::Unwatch { app, bytes } => {
            monitor.unwatch(AppId(app), AttributeId::of(name(bytes)));
        }
        Op::Leave(app) => monitor.leave(AppId(app)),
        Op::Period { app, period } => drop(monitor.set_period(AppId(app), QUEUE, ms(period), now)),
        Op::Alert(level) => monitor.alert(QUEUE, level, now, made, &mut |reading| told.push(reading)),
    }
}

proptest! {
    /// For every sequence of calls: only watchers receive readings, due times lie ahead and on their grid, and
    /// crossings and clearings of a watch alternate.
    #[test]
    fn no_sequence_of_calls_breaks_the_schedule(ops in prop::collection::vec(op(), 1..80)) {
        let (mut monitor, mut made, mut now) = (Monitor::new(), Made::new(), at(3));
        let mut beyond: BTreeMap<(AppId, AttributeId), bool> = BTreeMap::new();
        for op in &ops {
            if let Op::Wait(by) = op { now = now + ms(*by) + Nanos::new(137); }
            let before: Vec<_> = monitor.watches().map(|w| (w.application, w.attribute.id(), w.beyond)).collect();
            beyond.extend(before.iter().map(|(app, id, beyond)| ((*app, *id), *beyond)));
            let mut told = Vec::new();
            carry_out(op, &mut monitor, &mut made, now, &mut told);
            for reading in &told {
                let key = (reading.application, reading.attribute);
                prop_assert!(before.iter().any(|(app, id, _)| (*app, *id) == key), "{reading:?}");
                match reading.cause {
                    Cause::Crossed => prop_assert_eq!(beyond.insert(key, true), Some(false)),
                    Cause::Cleared => prop_assert_eq!(beyond.insert(key, false), Some(true)),
                    _ => (),
                }
            }
            for watched in monitor.watches() {
                prop_assert_eq!(watched.due.get() % watched.watch.period.get(), 0, "off its grid");
                if matches!(op, Op::Wait(_)) {
                    prop_assert!(watched.due > now && watched.due <= now + watched.watch.period);
                }
            }
            prop_assert_eq!(monitor.next_wakeup().is_none(), monitor.watches().count() == 0);
            if matches!(op, Op::Wait(_)) {
                prop_assert!(monitor.next_wakeup().is_none_or(|due| due > now), "wake-ups without end");
            }
        }
    }

    /// However late the polls are: readings come at the first poll at or after each multiple of the period, and
    /// their values add up to the total.
    #[test]
    fn polls_do_not_drift_and_lose_no_amount(lateness in prop::collection::vec(0u64..40_000_000, 1..100)) {
        let (mut monitor, mut made) = (Monitor::new(), Made::new());
        monitor.watch(A, "net.eth0.rx_bytes", Watch::every(ms(10)), &mut made, at(0)).unwrap();
        let (mut sum, mut last) = (0, at(0));
        for late in lateness {
            let due = monitor.next_wakeup().unwrap();
            prop_assert_eq!(due.get() % 10_000_000, 0);
            prop_assert!(due > last && due <= last + ms(10));
            last = due + Nanos::new(late);
            made.set(BYTES, 1_000 + last.get() as i64 / 1_000);
            let told = poll(&mut monitor, &mut made, last);
            prop_assert_eq!(told.len(), 1);
            sum += told[0].value;
        }
        prop_assert_eq!(sum, last.get() as i64 / 1_000);
    }
}
