//! The marks that a player sets under Q-Fabric: beginning and end of each job, with its foresight of the next one,
//! said at the end of the job before, early enough to change the budget.

use anyhow::{Context, Result};
use qfabric_client::{Client, Session};
use qfabric_types::ring::Grant;
use qfabric_types::{Contract, Foresight, Instant, JobSource, Nanos, Reclaiming};

use crate::options::ContractOptions;
use crate::{pace, trace};

/// A session with the daemon, or pacing on its own.
pub enum Marks {
    /// Without a contract.
    Alone {
        /// T.
        period: Nanos,
    },
    /// Under a contract.
    Session(Box<Session>),
}

impl Marks {
    /// Asks for the contract where one is wanted.
    pub fn start(options: &ContractOptions, period: Nanos) -> Result<Marks> {
        if !options.qfabric {
            return Ok(Marks::Alone { period });
        }
        let client = match &options.socket {
            Some(path) => Client::connect_to(path),
            None => Client::connect(),
        }
        .context("no daemon answers; start one with `qfabric daemon`")?;
        let session = Session::start(&client, contract(options, period)?).context("no contract")?;
        Ok(Marks::Session(Box::new(session)))
    }

    /// Waits for the release of job `k`; `known` is foresight of the first job.
    pub fn wait(&mut self, k: u64, start: Instant, known: Foresight) {
        match self {
            Marks::Alone { period } => pace::sleep_until(start + period.saturating_mul(k)),
            Marks::Session(session) if k == 0 => {
                pace::sleep_until(start);
                session.begin_at(start, known);
            }
            Marks::Session(session) => drop(session.wait_for_next_job()),
        }
    }

    /// What is granted now.
    pub fn grant(&self) -> Grant {
        match self {
            Marks::Alone { .. } => Grant::default(),
            Marks::Session(session) => session.grant(),
        }
    }

    /// A job has ended; `next` is known of the next one.
    pub fn end(&mut self, next: Foresight) {
        if let Marks::Session(session) = self {
            session.end_cycle(next);
        }
    }
}

fn contract(options: &ContractOptions, period: Nanos) -> Result<Contract> {
    let kind = if options.hard { Reclaiming::Hard } else { options.reclaiming };
    let standard = Contract::new(&options.name, period).reclaimed_as(kind);
    Ok(Contract {
        class: options.class,
        server_period: options.server_period.unwrap_or(standard.server_period),
        jobs: JobSource::Marked,
        predictor: options.predictor,
        choice: options.choose,
        rho: options.rho,
        early: options.early,
        late: options.late,
        max_bandwidth: options.max_bandwidth,
        give_back: options.give_back,
        profile: options.profile.as_deref().map(trace::read).transpose()?,
        ..standard
    })
}
