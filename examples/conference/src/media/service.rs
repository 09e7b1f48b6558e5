//! CPU time of the thread that codes, or shows, pictures: a contract with this host's daemon, whose service follows the
//! rate of the pictures.
//!
//! The law stands for a policy of the resource managers: such a policy can take its place, because it changes the same
//! contract. Source: 000 §5.4, where a manager raises the priority of vic by one step a second while the rate differs
//! from the wanted one. Departure: the step grows with the error, and service that pictures need is not taken back.

use std::path::PathBuf;

use anyhow::Result;
use qfabric_client::{Foresight, Session};
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

/// The calling thread's contract. It goes on without a reservation if the daemon refuses one, and says why.
pub(super) struct Service {
    session: Option<Session>,
    law: ServiceLaw,
    /// CPU time of the costliest picture of this second.
    cost: Nanos,
    said: String,
}

impl Service {
    /// Asks for a tenth of `period`, and later for up to `most`.
    pub(super) fn start(socket: Option<&PathBuf>, period: Nanos, most: Share) -> Service {
        let law = ServiceLaw::new(period, most);
        let mut service = Service { session: None, law, cost: Nanos::ZERO, said: String::new() };
        if let Err(error) = service.open(socket) {
            service.say(&format!("{error:#}"));
        }
        service
    }

    fn open(&mut self, socket: Option<&PathBuf>) -> Result<()> {
        let contract = Contract::fixed("conference", self.law.period, self.law.service);
        self.session = Some(Session::start(&client(socket)?, contract)?);
        Ok(())
    }

    /// The service in force; zero without a reservation.
    pub(super) fn in_force(&self) -> Nanos {
        self.session.as_ref().and_then(|session| session.contract().service).unwrap_or_default()
    }

    /// A picture is done: what is left of the service in this period goes to others.
    pub(super) fn on_picture(&mut self) {
        if let Some(session) = &mut self.session {
            self.cost = self.cost.max(session.end_cycle(Foresight::Nothing).cost);
        }
    }

    /// A second in which this part of the rate was missing. True: there is more service now, so wait for its effect.
    pub(super) fn on_second(&mut self, missing: f64) -> bool {
        let Some(session) = &mut self.session else { return false };
        let (before, cost) = (self.law, std::mem::take(&mut self.cost));
        let Some(service) = self.law.on_second(missing, cost) else { return false };
        let wanted = Contract { service: Some(service), ..session.contract().clone() };
        match session.change(wanted) {
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
