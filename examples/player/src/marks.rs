//! The marks that a player sets under Q-Fabric: the begin and the end of each job. The end of a job carries the
//! foresight of the next job, early enough to change the budget.

use anyhow::{Context, Result};
use qfabric_client::{Client, Session};
use qfabric_types::ring::Grant;
use qfabric_types::{Contract, Foresight, Instant, JobSource, Nanos, Reclaiming};

use crate::options::ContractOptions;
use crate::{pace, trace};

/// How the player waits for its releases.
pub(crate) enum Marks {
    /// Without a contract: the player sleeps until the release.
    NoContract { period: Nanos },
    /// Under a contract: the daemon receives a report about each job.
    Session(Box<Session>),
}

impl Marks {
    /// Requests a contract if the options ask for one.
    pub(crate) fn start(options: &ContractOptions, period: Nanos) -> Result<Marks> {
        if !options.qfabric {
            return Ok(Marks::NoContract { period });
        }
        let client = match &options.socket {
            Some(path) => Client::connect_to(path),
            None => Client::connect(),
        }
        .context("no daemon answers; start one with `sudo qfabric daemon`")?;
        let session = Session::start(&client, contract(options, period)?).context("the daemon granted no contract")?;
        Ok(Marks::Session(Box::new(session)))
    }

    /// Waits for the release of job `k`. `known` is the foresight of job 0; for later jobs it has no effect.
    pub(crate) fn wait(&mut self, k: u64, start: Instant, known: Foresight) {
        match self {
            Marks::NoContract { period } => pace::sleep_until(start + period.saturating_mul(k)),
            Marks::Session(session) if k == 0 => {
                pace::sleep_until(start);
                session.begin_at(start, known);
            }
            Marks::Session(session) => drop(session.wait_for_next_job()),
        }
    }

    /// The budget and period that are granted now.
    pub(crate) fn grant(&self) -> Grant {
        match self {
            Marks::NoContract { .. } => Grant::default(),
            Marks::Session(session) => session.grant(),
        }
    }

    /// Marks the end of a job. `next` is the foresight of the next job.
    pub(crate) fn end(&mut self, next: Foresight) {
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
