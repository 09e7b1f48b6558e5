//! CPU time of the thread that codes, or shows, pictures: a contract with this host's daemon, whose service follows the
//! rate of the pictures.
//!
//! A policy of the resource managers takes the place of this law when it decides about the contract for the first
//! time, or from the beginning if the user says so. Source: 000 §5.4, where a manager raises the priority of vic by one
//! step a second while the rate differs from the wanted one. Departure: the step grows with the error, and service that
//! pictures need is not taken back.

use std::path::PathBuf;

use anyhow::Result;
use qfabric_client::{Client, ClientError, Foresight, Session};
use qfabric_types::{Contract, Nanos, Share};

use super::retry::client;

/// A rate of which less than this part is missing is kept.
const KEPT: f64 = 0.08;
/// Seconds in which the rate must be kept before a step is given back.
const CALM: u32 = 10;

/// How much service a program asks for. Pure.
#[derive(Clone, Copy, Debug)]
struct ServiceLaw {
    period: Nanos,
    /// A tenth of the period; also the least service.
    step: Nanos,
    most: Nanos,
    service: Nanos,
    calm: u32,
}

impl ServiceLaw {
    fn new(period: Nanos, most: Share) -> ServiceLaw {
        let step = Nanos::new((period.get() / 10).max(1));
        ServiceLaw { period, step, most: most.budget_in(period).min(period).max(step), service: step, calm: 0 }
    }

    /// A second in which `missing` of the rate, 0 to 1, was missing, and the costliest picture used `cost`. Returns
    /// another service, if there is one.
    fn on_second(&mut self, missing: f64, cost: Nanos) -> Option<Nanos> {
        let before = self.service;
        self.calm = if missing > KEPT { 0 } else { self.calm + 1 };
        if self.calm == 0 {
            let steps = (missing.min(1.0) * self.period.as_f64() / 2.0 / self.step.as_f64()).ceil().max(1.0) as u64;
            self.service = Nanos::new(before.get() + steps * self.step.get()).min(self.most);
        } else if self.calm > CALM && before > self.step {
            let less = before - self.step;
            let is_enough = 2 * less.get() >= 3 * cost.get();
            self.service = if is_enough { less.max(self.step) } else { before };
            self.calm = 0;
        }
        (self.service != before).then_some(self.service)
    }
}

/// The limit of the CPU time of a program, and who decides the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuTime {
    /// The program, by its rate.
    Own(Share),
    /// The policies of this host's daemon.
    ByPolicy(Share),
}

/// The attributes of decisions about the amount of CPU time. `app.cpu_most` is a limit, not an amount.
pub(super) fn is_amount(attribute: &str) -> bool {
    ["app.cpu_guaranteed", "app.cpu_service"].contains(&attribute)
}

/// The calling thread's contract. It goes on without a reservation if the daemon refuses one, and says why.
pub(super) struct Service {
    session: Option<(Client, Session)>,
    law: ServiceLaw,
    most: Share,
    is_by_policy: bool,
    /// CPU time of the costliest picture of this second.
    cost: Nanos,
    said: String,
}

impl Service {
    /// Asks for a tenth of `period`, and later for up to `most`.
    pub(super) fn start(socket: Option<&PathBuf>, period: Nanos, cpu: CpuTime) -> Service {
        let (most, is_by_policy) = match cpu {
            CpuTime::Own(most) => (most, false),
            CpuTime::ByPolicy(most) => (most, true),
        };
        let (law, said) = (ServiceLaw::new(period, most), String::new());
        let mut service = Service { session: None, law, most, is_by_policy, cost: Nanos::ZERO, said };
        if let Err(error) = service.open(socket) {
            service.say(&format!("{error:#}"));
        }
        service
    }

    fn open(&mut self, socket: Option<&PathBuf>) -> Result<()> {
        // The first service is a tenth of the period.
        let max_bandwidth = self.most.max(Share::from_ppm(100_000));
        let fixed = Contract::fixed("conference", self.law.period, self.law.service);
        let client = client(socket)?;
        let session = Session::start(&client, Contract { max_bandwidth, ..fixed })?;
        self.session = Some((client, session));
        Ok(())
    }

    /// A policy has decided about the contract: two that decide would undo each other's changes.
    pub(super) fn leave_to_policy(&mut self) {
        if !std::mem::replace(&mut self.is_by_policy, true) {
            eprintln!(
                "qfabric-conference: from now on a policy decides the CPU time; --cpu is only the limit of the contract"
            );
        }
    }

    /// The service in force; zero without a reservation.
    pub(super) fn in_force(&self) -> Nanos {
        self.session.as_ref().map_or(Nanos::ZERO, |(_, session)| session.grant().budget)
    }

    /// A picture is done: what is left of the service in this period goes to others.
    pub(super) fn on_picture(&mut self) {
        if let Some((_, session)) = &mut self.session {
            self.cost = self.cost.max(session.end_cycle(Foresight::Nothing).cost);
        }
    }

    /// A second in which this part of the rate was missing. True: there is more service now, so wait for its effect.
    pub(super) fn on_second(&mut self, missing: f64) -> bool {
        let Some((client, session)) = self.session.as_mut().filter(|_| !self.is_by_policy) else { return false };
        let (before, cost) = (self.law, std::mem::take(&mut self.cost));
        let Some(service) = self.law.on_second(missing, cost) else { return false };
        match set_service(client, session, service) {
            Ok(()) => service > before.service,
            Err(error) => {
                self.law = before;
                self.say(&error.to_string());
                false
            }
        }
    }

    /// Each new reason once.
    fn say(&mut self, why: &str) {
        if self.said != why {
            let service = self.in_force();
            eprintln!("qfabric-conference: CPU time stays {service} in every {}: {why}", self.law.period);
            self.said = why.to_owned();
        }
    }
}

/// Changes the service of the contract in force. The daemon's contract counts, not the one that the session began with: a
/// policy may have changed other parts.
fn set_service(client: &Client, session: &mut Session, service: Nanos) -> Result<(), ClientError> {
    let in_force = match session.id() {
        Some(id) => client.application(id)?.contract,
        None => session.contract().clone(),
    };
    session.change(Contract { service: Some(service), ..in_force })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Nanos {
        Nanos::from_millis(time)
    }

    #[test]
    fn service_follows_the_missing_rate_up_to_its_limit() {
        let mut law = ServiceLaw::new(ms(50), Share::from_f64(0.7));
        assert_eq!(law.service, ms(5));
        assert_eq!(law.on_second(0.05, ms(9)), None, "little is missing");
        assert_eq!(law.on_second(0.1, ms(9)), Some(ms(10)));
        assert_eq!(law.on_second(0.9, ms(9)), Some(ms(35)), "25 ms more in one second, at most 35 ms");
        assert_eq!(law.on_second(1.0, ms(9)), None);
    }

    #[test]
    fn service_that_pictures_need_is_not_taken_back() {
        let mut law = ServiceLaw::new(ms(50), Share::from_f64(0.8));
        law.on_second(0.9, ms(12));
        assert_eq!(law.service, ms(30));
        for _ in 0..200 {
            law.on_second(0.0, ms(12));
        }
        assert_eq!(law.service, ms(20), "15 ms would be too little for pictures of 12 ms");
    }
}
