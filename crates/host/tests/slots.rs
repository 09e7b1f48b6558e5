//! The promises of a host whose mechanism gives the slots of dispatch tables.

mod common;

use common::*;
use qfabric_host::{HostConfig, Input, Limits};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::{AppId, Contract, DispatchRules, Instant, JobSource, MechanismFeatures, Nanos, Setting, ThreadId};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Two CPUs in slots of 10 ms, of which 10 % stay free.
fn bench() -> Bench {
    let rules = DispatchRules::default();
    let features = MechanismFeatures { cpus: vec![0, 1], slots: Some(rules), ..MechanismFeatures::default() };
    Bench::with_config(HostConfig {
        limits: Limits::of_capacity(share(180)),
        cpu_capacity: rules.capacity(),
        features,
        mechanism: "dispatcher".to_owned(),
        ..HostConfig::default()
    })
}

fn fixed(name: &str, service_ms: u64, period_ms: u64) -> Contract {
    Contract::fixed(name, ms(period_ms), ms(service_ms))
}

/// Joins a program of one thread that may run on `cpus`.
fn pinned(bench: &mut Bench, contract: &Contract, thread: i32, cpus: &[u32]) -> Result<AppId, Problem> {
    let join = Input::Join {
        request: thread as u64,
        pid: thread,
        owner: qfabric_types::Owner { uid: 0, gid: 0 },
        covers: ApplicationScope::Program,
        threads: vec![ThreadId(thread)],
        contract: contract.clone(),
        cpus: Some(cpus.to_vec()),
    };
    bench.input(join).expect("every join is answered")
}

fn last(bench: &Bench, thread: i32) -> Setting {
    *bench.settings.iter().rfind(|setting| setting.thread == ThreadId(thread)).expect("the thread has a setting")
}

#[test]
fn a_pinned_program_gets_slots_of_its_cpu_and_is_refused_if_they_are_taken() {
    let mut bench = bench();
    let app = pinned(&mut bench, &fixed("first", 50, 100), 7, &[1]).unwrap();
    let setting = last(&bench, 7);
    assert_eq!((setting.terms.cpu, setting.terms.group), (Some(1), Some(app)));
    assert_eq!(setting.reservation.map(|r| (r.budget(), r.period())), Some((ms(50), ms(100))));
    let refused = pinned(&mut bench, &fixed("second", 50, 100), 8, &[1]).unwrap_err();
    assert_eq!((refused.free, refused.holders[0].name.as_str()), (Some(share(40)), "first"));
    pinned(&mut bench, &fixed("second", 50, 100), 8, &[0, 1]).unwrap();
    assert_eq!(last(&bench, 8).terms.cpu, Some(0));
}

#[test]
fn whole_slots_decide_and_the_offer_names_the_program() {
    let mut bench = bench();
    for (name, thread, period) in [("a", 1, 610), ("b", 2, 670)] {
        pinned(&mut bench, &fixed(name, 10, period), thread, &[0]).unwrap();
    }
    let refused = pinned(&mut bench, &fixed("c", 10, 710), 3, &[0]).unwrap_err();
    assert!(refused.next_step.starts_with("these periods fit: 670 ms for c"), "{refused}");
    // 15 ms in 35 ms are 2 slots in every 3.
    pinned(&mut bench, &fixed("rounded", 15, 35), 4, &[1]).unwrap();
    let refused = pinned(&mut bench, &fixed("third", 10, 30), 5, &[1]).unwrap_err();
    assert!(refused.message.contains("in whole slots of 10 ms"), "{refused}");
}

#[test]
fn a_fixed_share_is_one_server_and_feedback_is_refused_with_the_option_to_use() {
    let mut bench = bench();
    let share_of = Contract { fixed: Some(share(40)), server_period: ms(50), ..Contract::new("share", ms(50)) };
    let app = bench.join(&share_of, ApplicationScope::Program, &[1, 2]).unwrap();
    let groups = [1, 2].map(|thread| last(&bench, thread).terms.group);
    assert_eq!(groups, [Some(app); 2]);
    let refused = bench.join(&marked(), ApplicationScope::Program, &[3]).unwrap_err();
    assert!(refused.next_step.contains("--service TIME") && refused.code == "unavailable", "{refused}");
}

#[test]
fn the_end_of_a_marked_job_with_slots_wakes_the_daemon_at_once() {
    let mut bench = bench();
    let marks = Contract { jobs: JobSource::Marked, ..fixed("player", 20, 40) };
    let app = bench.join_thread(&marks, 7).unwrap();
    bench.job(app, 0, 5, 0);
    assert_eq!(bench.host.look_at(app), Instant::ZERO, "nothing is promised, so the ring asks for a wake-up");
    bench.job(app, 1, 5, 0);
    assert_eq!(bench.host.look_at(app), Instant::ZERO);
}
