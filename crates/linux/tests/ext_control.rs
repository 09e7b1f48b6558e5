//! AQuoSA's controller in the kernel while the kernel schedules: its budgets must be those of its twin in Rust for the
//! costs and delays that it saw.

mod ext_shared;

use ext_shared::{Servers, hogs, loaded, ms, server, sleep_ms};
use qfabric_control::fixed::{FixedController, FixedSpec};
use qfabric_linux::clock;
use qfabric_linux::ext::{Change, ServerId, ServerSpec, ServerStatistics};
use qfabric_linux::testing::{Worker, burn};
use qfabric_types::{Choice, KernelController, Nanos, PredictorSpec, Share};

/// T = 40 ms = 4 P.
const JOBS_EVERY: Nanos = Nanos::from_millis(40);

fn controller(choice: Choice) -> KernelController {
    KernelController {
        predictor: PredictorSpec::Interleaved { n: 3, lanes: 4 },
        choice,
        periods_per_job: 4,
        rho_milli: 1_000,
        early: Share::from_ppm(500_000),
        late: Share::from_ppm(250_000),
        max_budget: ms(6),
    }
}

fn twin(choice: Choice) -> FixedController {
    FixedController::new(FixedSpec {
        samples: 3,
        lanes: 4,
        rho_milli: 1_000,
        periods_per_job: 4,
        early: 2,
        late: 1,
        choice,
        period_ns: ms(10).get(),
        min_budget_ns: 1_024,
        max_budget_ns: ms(6).get(),
    })
    .unwrap()
}

/// Jobs of 6, 8, 10 and 14 ms in turn; every tenth job takes 20 ms, which is more than predicted.
fn player() -> Worker {
    let mut job = 0u64;
    let mut due = clock::now();
    Worker::start(move || {
        let usual = [6, 8, 10, 14][job as usize % 4];
        burn(ms(if job % 10 == 9 { 20 } else { usual }));
        job += 1;
        due = due + JOBS_EVERY;
        match due.since(clock::now()) {
            Nanos::ZERO => std::thread::yield_now(), // late, but the job ends here, too
            left => std::thread::sleep(std::time::Duration::from_nanos(left.get())),
        }
    })
}

/// The statistics after each of the `count` jobs that follow job number `last`.
fn jobs(servers: &Servers<'_>, id: ServerId, mut last: u64, count: usize) -> Vec<ServerStatistics> {
    let mut seen: Vec<ServerStatistics> = Vec::new();
    while seen.len() < count {
        sleep_ms(1);
        let did = servers.stats(id);
        if did.jobs != last {
            assert_eq!(did.jobs, last + 1, "a job was skipped");
            last = did.jobs;
            seen.push(did);
        }
    }
    seen
}

#[test]
fn budgets_in_the_kernel_are_those_of_the_twin_for_the_same_jobs() {
    let Some(mut ext) = loaded() else { return };
    for choice in [Choice::Left, Choice::Middle, Choice::Zero] {
        let mut servers = Servers::of(&mut ext);
        let _hogs = hogs(3);
        let player = player();
        let spec = ServerSpec { control: Some(controller(choice)), ..server(10, 4) };
        let id = servers.create(&spec);
        let mut twin = twin(choice);
        servers.ext.join(id, player.thread, false).unwrap();
        let seen = jobs(&servers, id, 0, 40);
        for (job, did) in seen.iter().enumerate() {
            let budget = twin.on_job(did.last_job.get(), did.last_late.into());
            assert_eq!(did.service.get(), budget, "{choice:?}, job {job}: {did:?}");
        }
        let (least, most) = (seen.iter().map(|d| d.service).min(), seen.iter().map(|d| d.service).max());
        let late = seen.iter().filter(|did| did.last_late > 0).count();
        eprintln!("{choice:?}: budgets {least:?} to {most:?}, {late} of {} jobs late", seen.len());
        assert!(least < most, "the controller changes the budget");
    }
}

#[test]
fn without_its_controller_a_server_keeps_the_budget_it_had() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let player = player();
    let id = servers.create(&ServerSpec { control: Some(controller(Choice::Left)), ..server(10, 4) });
    servers.ext.join(id, player.thread, false).unwrap();
    jobs(&servers, id, 0, 20);
    servers.ext.change(id, &Change { control: Some(None), ..Change::default() }).unwrap();
    let (kept, done) = (servers.stats(id).service, servers.stats(id).jobs);
    assert!(jobs(&servers, id, done, 5).iter().all(|did| did.service == kept), "{kept}");
}
