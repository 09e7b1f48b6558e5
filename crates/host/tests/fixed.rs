//! Static reservations: a share of a CPU without a controller, on mechanisms with one server per thread and with
//! servers for several threads.

mod common;

use common::*;
use qfabric_host::{HostConfig, HostEvent, Input, Limits};
use qfabric_types::api::ApplicationScope;
use qfabric_types::{AppId, Contract, JobSource, MechanismFeatures, Nanos, Reservation, Share, ThreadId};

fn fixed(percent: u32) -> Contract {
    let jobs = JobSource::Consumption;
    Contract { fixed: Some(share(percent)), jobs, ..Contract::new("static", T) }
}

fn joint() -> MechanismFeatures {
    MechanismFeatures {
        terms: true,
        rescues: true,
        kernel_control: true,
        all_reclaiming: true,
        cpus: vec![0, 1],
        ..MechanismFeatures::default()
    }
}

fn program(bench: &mut Bench, contract: &Contract, threads: &[i32]) -> AppId {
    bench.join(contract, ApplicationScope::Program, threads).unwrap()
}

fn budgets(bench: &Bench, threads: &[i32]) -> Vec<u64> {
    threads.iter().map(|&thread| bench.budget_us(thread)).collect()
}

#[test]
fn a_fixed_share_stays_whatever_is_consumed() {
    let mut bench = Bench::new(share(90));
    let app = program(&mut bench, &fixed(30), &[1]);
    for k in 0..60 {
        let cost = Nanos::from_millis(if k < 30 { 1 } else { 12 });
        bench.ran(app, 1, at(1_000 + 40 * k), cost, k < 30);
    }
    assert_eq!(bench.settings.len(), 1, "{:?}", bench.settings);
    assert_eq!(bench.budget_us(1), 3_000);
}

#[test]
fn per_thread_servers_are_whole_and_the_oldest_threads_come_first() {
    let mut bench = Bench::new(share(180));
    let app = program(&mut bench, &fixed(30), &[1, 2, 3, 4]);
    assert_eq!(budgets(&bench, &[1, 2, 3, 4]), [3_000, 3_000, 3_000, 0], "0.95 CPU in total");
    bench.input(Input::ThreadGone { app, thread: ThreadId(2) });
    bench.wait_until(at(2_000));
    assert_eq!(budgets(&bench, &[1, 3, 4]), [3_000; 3]);
}

#[test]
fn one_server_is_guaranteed_and_more_if_the_contract_says_so() {
    let mut bench = Bench::new(share(90));
    let two = Contract { guaranteed: Some(share(60)), ..fixed(30) };
    let app = program(&mut bench, &two, &[1, 2]);
    assert_eq!(bench.host.application(app).unwrap().guaranteed, share(60));
    assert_eq!(bench.join_thread(&fixed(40), 9).unwrap_err().code, "over_committed");
    bench.join_thread(&fixed(30), 9).unwrap();
    assert_eq!(budgets(&bench, &[1, 2, 9]), [3_000; 3]);
}

#[test]
fn a_lower_capacity_shortens_the_first_server_and_drops_the_others() {
    let mut bench = Bench::new(share(90));
    program(&mut bench, &fixed(30), &[1, 2]);
    bench.input(Input::Capacity(share(20)));
    assert_eq!(budgets(&bench, &[1, 2]), [2_000, 0]);
    assert!(matches!(bench.events[..], [.., HostEvent::GuaranteesCut { .. }] | [HostEvent::GuaranteesCut { .. }, ..]));
}

#[test]
fn with_shared_servers_all_threads_share_one_that_counts_once() {
    let limits = Limits::of_capacity(share(180));
    let config = HostConfig { limits, features: joint(), cpu_capacity: share(90), ..HostConfig::default() };
    let mut bench = Bench::with_config(config);
    let app = program(&mut bench, &fixed(30), &[1, 2, 3]);
    assert_eq!(budgets(&bench, &[1, 2, 3]), [3_000; 3]);
    assert!(bench.settings.iter().all(|setting| setting.terms.group == Some(app)), "{:?}", bench.settings);
    assert_eq!(bench.host.held(), share(30));
}

#[test]
fn another_mechanism_turns_the_one_server_into_one_per_thread() {
    let limits = Limits::of_capacity(share(180));
    let config = HostConfig { limits, features: joint(), cpu_capacity: share(90), ..HostConfig::default() };
    let mut bench = Bench::with_config(config);
    program(&mut bench, &fixed(30), &[1, 2]);
    bench.kernel.clear();
    let (name, features, capacity) = ("deadline".to_owned(), MechanismFeatures::default(), share(180));
    bench.input(Input::Mechanism { name, features, capacity });
    assert_eq!(budgets(&bench, &[1, 2]), [3_000; 2]);
    assert_eq!(bench.host.held(), share(60));
    let server = Reservation::new(Nanos::from_millis(3), P).ok();
    assert!(
        bench.settings[bench.settings.len() - 2..].iter().all(|s| s.reservation == server && s.terms.group.is_none())
    );
    assert_ne!(Share::ZERO, bench.host.free());
}

#[test]
fn another_mechanism_with_less_room_than_the_guarantees_cuts_them_and_reports_it() {
    let limits = Limits::of_capacity(share(180));
    let config = HostConfig { limits, features: joint(), cpu_capacity: share(90), ..HostConfig::default() };
    let mut bench = Bench::with_config(config);
    program(&mut bench, &fixed(30), &[1]);
    let (name, features, capacity) = ("deadline".to_owned(), MechanismFeatures::default(), share(20));
    bench.input(Input::Mechanism { name, features, capacity });
    assert_eq!(budgets(&bench, &[1]), [2_000]);
    assert!(bench.events.contains(&HostEvent::GuaranteesCut { capacity, guaranteed: share(30) }), "{:?}", bench.events);
}
