//! The overload that an application sees when its jobs are short of what they need (AQuoSA §7).

mod common;

use common::*;
use qfabric_host::HostConfig;
use qfabric_types::ring::JobEvent;
use qfabric_types::{AppId, Foresight, JobRecord, MechanismFeatures, Nanos, Overload};

fn overload(bench: &Bench, app: AppId) -> Option<Overload> {
    let shown = bench.host.grant(app).unwrap().overload;
    assert_eq!(shown, bench.host.application(app).unwrap().overload, "ring and status agree");
    shown
}

/// The job numbers in `jobs` after which the overload began or ended.
fn changes(bench: &mut Bench, apps: [AppId; 2], jobs: std::ops::Range<u64>, costs_ms: [u64; 2]) -> Vec<(u64, bool)> {
    let mut told = Vec::new();
    let mut before = overload(bench, apps[0]).is_some();
    for k in jobs {
        bench.job(apps[0], k, costs_ms[0], 0);
        bench.job(apps[1], k, costs_ms[1], 0);
        let now = overload(bench, apps[0]).is_some();
        if now != std::mem::replace(&mut before, now) {
            told.push((k, now));
        }
    }
    told
}

#[test]
fn an_overload_is_reported_when_it_begins_and_when_it_ends() {
    let mut bench = Bench::new(share(80));
    let apps = [1, 2].map(|thread| bench.join_thread(&marked(), thread).unwrap());
    // 20 ms and 16 ms in 40 ms: 0.5 and 0.4 CPU, of 0.8 CPU; equal weights, so 0.4 CPU each.
    let told = changes(&mut bench, apps, 0..30, [20, 16]);
    assert_eq!(told, [(8, true)], "job 0 has no prediction; the eighth predicted job begins the overload");
    let Overload { wanted, granted } = overload(&bench, apps[0]).unwrap();
    assert_eq!((wanted, granted), (share(50), share(40)));
    assert_eq!(overload(&bench, apps[1]), None, "the other one has what it requests");
    // The application adapts: its frames cost 0.8 of the earlier cost.
    let told = changes(&mut bench, apps, 30..60, [16, 16]);
    assert_eq!(told, [(44, false)], "job 30 was decided for the old cost; then 14 jobs in a row are not short");
}

#[test]
fn a_lower_limit_of_the_administrator_causes_an_overload() {
    let mut bench = Bench::new(share(90));
    let apps = [1, 2].map(|thread| bench.join_thread(&marked(), thread).unwrap());
    assert_eq!(changes(&mut bench, apps, 0..20, [16, 8]), []);
    let limits =
        qfabric_host::Limits { users: [(ME.uid, share(30))].into(), ..qfabric_host::Limits::of_capacity(share(90)) };
    bench.input(qfabric_host::Input::Limits { limits, max_applications: 9, max_threads: 9 });
    assert_eq!(changes(&mut bench, apps, 20..40, [16, 8]), [(27, true)]);
}

#[test]
fn giving_back_while_asleep_is_no_overload() {
    let features = MechanismFeatures { gives_back: true, ..MechanismFeatures::default() };
    let mut bench = Bench::with_config(HostConfig { features, ..HostConfig::default() });
    let apps = [1, 2].map(|thread| bench.join_thread(&marked(), thread).unwrap());
    for k in 0..60 {
        let release = at(1_000 + 40 * k);
        let finish = release + Nanos::from_millis(20);
        bench.wait_until(finish);
        for app in apps {
            let job = JobRecord { k, release, finish, cost: Nanos::from_millis(14), next: Foresight::Nothing };
            bench.input(qfabric_host::Input::Job { app, event: JobEvent::End(job) });
            assert_eq!(overload(&bench, app), None, "job {k}");
        }
    }
    assert!(bench.budget_us(1) < 3_500, "the thread gives back: {} µs", bench.budget_us(1));
}
