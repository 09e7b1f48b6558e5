//! Measures the cost of one job inside the host: decision, supervisor, setting. The cost of jobs varies, so that
//! every job changes its budget. `cargo bench -p qfabric-host --bench job`.

use std::collections::VecDeque;

use qfabric_host::{Host, HostConfig, Input, Limits, Outcome, Output};
use qfabric_types::api::ApplicationScope;
use qfabric_types::ring::JobEvent;
use qfabric_types::{AppId, Contract, Foresight, Instant, JobRecord, JobSource, Nanos, Owner, Share, ThreadId};

/// Shows that a job allocates no memory.
#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

const T: Nanos = Nanos::from_millis(40);

fn main() {
    divan::main();
}

struct Bench {
    host: Host,
    apps: u64,
    k: u64,
    told: VecDeque<ThreadId>,
}

impl Bench {
    fn new(apps: u64, predictor: &str, capacity: u32) -> Self {
        let limits = Limits::of_capacity(Share::from_ppm(capacity));
        let mut host = Host::new(HostConfig { limits, ..HostConfig::default() });
        let mut contract = Contract::new("player", T);
        (contract.jobs, contract.predictor) = (JobSource::Marked, predictor.parse().expect("a known predictor"));
        for thread in 1..=apps as i32 {
            let thread = ThreadId(thread);
            host.handle(
                Input::Join {
                    request: 0,
                    pid: thread.0,
                    owner: Owner { uid: 1, gid: 1 },
                    covers: ApplicationScope::Thread(thread),
                    threads: vec![thread],
                    contract: contract.clone(),
                    cpus: None,
                },
                Instant::new(1),
            );
        }
        let mut bench = Bench { host, apps, k: 0, told: VecDeque::new() };
        for _ in 0..100 * apps {
            bench.job();
        }
        bench
    }

    /// Ends the next job of the next application.
    fn job(&mut self) {
        let (round, app) = (self.k / self.apps, self.k % self.apps);
        self.k += 1;
        let release = Instant::new(1_000_000_000) + T.saturating_mul(round) + Nanos::new(T.get() * app / self.apps);
        let finish = release + Nanos::from_millis(25);
        let cost = Nanos::new(200_000 + 37_000 * (self.k * 7_919 % 17));
        let next = Foresight::Hint(cost.as_f64());
        let event = JobEvent::End(JobRecord { k: round, release, finish, cost, next });
        self.host.handle(Input::Job { app: AppId(app + 1), event }, finish);
        self.drain(finish);
    }

    fn drain(&mut self, now: Instant) {
        while let Some(output) = self.host.poll() {
            if let Output::Set(setting) = output {
                self.told.push_back(setting.thread);
                self.host.handle(Input::Applied { thread: setting.thread, outcome: Outcome::Done }, now);
            }
        }
        self.told.clear();
    }
}

#[divan::bench(args = ["ma:12", "mma:3,12", "hint:24", "ol:36,60"])]
fn one_application(bencher: divan::Bencher, predictor: &str) {
    let mut bench = Bench::new(1, predictor, 1_800_000);
    bencher.bench_local(|| bench.job());
}

#[divan::bench(args = [10, 50])]
fn many_applications(bencher: divan::Bencher, apps: u64) {
    let mut bench = Bench::new(apps, "ma:12", 1_800_000);
    bencher.bench_local(|| bench.job());
}

#[divan::bench(args = [10, 50])]
fn many_applications_overloaded(bencher: divan::Bencher, apps: u64) {
    let mut bench = Bench::new(apps, "ma:12", apps as u32 * 8_000);
    bencher.bench_local(|| bench.job());
}
