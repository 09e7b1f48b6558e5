//! The marks that a player sets under Q-Fabric: the begin and the end of each job. The end of a job carries the
//! foresight of the next job, early enough to change the budget.

use anyhow::{Context, Result};
use qfabric_client::{Client, Session};
use qfabric_types::ring::Grant;
use qfabric_types::{Contract, Foresight, Instant, JobSource, Nanos, Reclaiming};

use crate::display::Displays;
use crate::options::ContractOptions;
use crate::{pace, trace};

/// How the player waits for its releases, and what it reports about its jobs.
pub(crate) struct Marks {
    period: Nanos,
    /// The contract; the daemon receives a report about each job.
    session: Option<Box<Session>>,
    /// The daemon announces each release; otherwise the player sleeps until it.
    displays: Option<Displays>,
}

impl Marks {
    /// Requests a contract and announcements if the options ask for them.
    pub(crate) fn start(options: &ContractOptions, period: Nanos) -> Result<Marks> {
        if !options.qfabric && !options.event_driven {
            return Ok(Marks { period, session: None, displays: None });
        }
        let client = match &options.socket {
            Some(path) => Client::connect_to(path),
            None => Client::connect(),
        }
        .context("no daemon answers; start one with `sudo qfabric daemon`")?;
        let asked = options.qfabric.then(|| contract(options, period)).transpose()?;
        let session = asked.map(|asked| Session::start(&client, asked).context("the daemon granted no contract"));
        let displays = options.event_driven.then(|| Displays::start(&client, &options.name, period));
        Ok(Marks { period, session: session.transpose()?.map(Box::new), displays: displays.transpose()? })
    }

    /// Waits for the release of job `k`, and returns it. `known` is the foresight of job 0; for later jobs it has no
    /// effect.
    pub(crate) fn wait(&mut self, k: u64, start: Instant, known: Foresight) -> Result<Instant> {
        let mut release = start + self.period.saturating_mul(k);
        match (&mut self.displays, &mut self.session) {
            (Some(displays), _) => release = displays.wait(k, start)?,
            (None, Some(session)) if k > 0 => drop(session.wait_for_next_job()),
            (None, _) => pace::sleep_until(release),
        }
        if let Some(session) = &mut self.session {
            match (k, &self.displays) {
                (0, _) => session.begin_at(start, known),
                (_, Some(_)) => drop(session.next_job()),
                (_, None) => {}
            }
        }
        Ok(release)
    }

    /// The budget and period that are granted now.
    pub(crate) fn grant(&self) -> Grant {
        self.session.as_ref().map(|session| session.grant()).unwrap_or_default()
    }

    /// Marks the end of job `k`, which was due at `release`. `next` is the foresight of the next job.
    pub(crate) fn end(&mut self, k: u64, release: Instant, next: Foresight) {
        if let Some(displays) = &self.displays {
            displays.shown(k, release);
        }
        if let Some(session) = &mut self.session {
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
        fixed: options.fixed,
        give_back: options.give_back,
        favour_events: options.event_driven,
        profile: options.profile.as_deref().map(trace::read).transpose()?,
        ..standard
    })
}
