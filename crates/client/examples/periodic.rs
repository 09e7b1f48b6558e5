//! A periodic task with a predictor of the application: `cargo run -p qfabric-client --example periodic`, with
//! `qfabric daemon` running.

use std::ops::ControlFlow;
use std::process::ExitCode;

use qfabric_client::{Client, ClientError, Contract, Foresight, Interval, Nanos, Predictor, Session, clock};

/// Predicts the smallest and the largest cost of the last four jobs: simple, and it adapts within four jobs.
#[derive(Default)]
struct Recent {
    costs: [Nanos; 4],
    seen: usize,
}

impl Predictor for Recent {
    fn observe(&mut self, cost: Nanos, _hint: Option<f64>) {
        self.costs[self.seen % self.costs.len()] = cost;
        self.seen += 1;
    }

    fn predict(&mut self, _hint: Option<f64>) -> Option<Interval> {
        let (low, high) = (self.costs.iter().min()?, self.costs.iter().max()?);
        (self.seen >= self.costs.len()).then_some(Interval { low: *low, high: *high })
    }
}

/// Uses `time` of CPU time.
fn work(time: Nanos) {
    let started = clock::thread_cpu();
    while clock::thread_cpu() - started < time {}
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("periodic: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), ClientError> {
    let contract = Contract::new("periodic", Nanos::from_millis(40));
    let mut session = Session::start(&Client::connect()?, contract)?;
    session.use_predictor(Box::new(Recent::default()));
    session.start_periodic(|job| {
        work(Nanos::from_millis(3 + job.k % 3));
        if job.k < 99 { ControlFlow::Continue(Foresight::Nothing) } else { ControlFlow::Break(()) }
    });
    let (grant, quality) = (session.grant(), session.quality());
    println!("{} jobs, {} missed; now {} in every {}", quality.jobs, quality.misses, grant.budget, grant.period);
    session.end()
}
