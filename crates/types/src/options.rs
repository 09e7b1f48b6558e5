//! The options that describe a contract, for people: the same for the command line and for the tables `[[contract]]` of
//! the daemon's configuration. Times and other quantities are written as texts with a unit.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::api::Problem;
use crate::{
    Bytes, Choice, Class, Contract, ControlPlace, InvalidContract, InvalidQuantity, JobSource, Nanos, PERIOD_RANGE,
    PredictorSpec, Reclaiming, Share, Utility, Window,
};

/// Number of jobs per second, whose period is in [`PERIOD_RANGE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobRate(f64);

impl JobRate {
    /// The period, rounded to a multiple of 16 ns, so that T/2, T/4, T/8 and T/16 are whole numbers of nanoseconds.
    pub fn period(self) -> Nanos {
        Nanos::new(((1e9 / self.0 / 16.0).round() as u64).saturating_mul(16))
    }
}

impl FromStr for JobRate {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let (shortest, longest) = PERIOD_RANGE;
        match text.parse().map(JobRate) {
            Ok(rate) if rate.0 > 0.0 && (shortest..=longest).contains(&rate.period()) => Ok(rate),
            _ => Err(InvalidQuantity {
                text: text.to_owned(),
                expected: "a number of jobs per second from 0.2385 to 10000; choose one in this range, such as 25 or 29.97",
            }),
        }
    }
}

impl<'de> Deserialize<'de> for JobRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer)?.to_string().parse().map_err(Error::custom)
    }
}

/// The options contradict each other, or describe no valid contract.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidOptions {
    /// Two options that exclude each other.
    Together(&'static str, &'static str),
    /// An option without one that it needs.
    NoPeriod(&'static str),
    /// A value of the contract is not valid.
    Contract(InvalidContract),
}

/// No `#[from]`: the reason is the whole message, so it must not follow a second time as its source.
impl From<InvalidContract> for InvalidOptions {
    fn from(reason: InvalidContract) -> Self {
        InvalidOptions::Contract(reason)
    }
}

impl InvalidOptions {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::Together(one, other) => {
                (format!("{one} and {other} cannot be used together"), "leave one of them out")
            }
            Self::NoPeriod(option) => (format!("{option} needs period or fps"), "add one of them"),
            Self::Contract(reason) => return reason.problem(),
        };
        Problem::new("invalid_options", message, next_step)
    }
}

/// All options of a contract. Fields that are not commented have the name and the meaning of [`Contract`]'s.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)] // the fields of Contract are documented
pub struct ContractOptions {
    /// Absent: the name of the program or unit.
    pub name: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub period: Option<Nanos>,
    /// T as the number of jobs per second.
    pub fps: Option<JobRate>,
    /// Find the period while the program runs.
    pub auto: bool,
    #[serde(deserialize_with = "optional")]
    pub server_period: Option<Nanos>,
    #[serde(deserialize_with = "text")]
    pub class: Class,
    pub max_bandwidth: Share,
    pub guaranteed: Option<Share>,
    pub recovery_jobs: u32,
    pub deviation: f64,
    pub weight: u32,
    pub priority: u8,
    #[serde(deserialize_with = "text")]
    pub predictor: PredictorSpec,
    #[serde(deserialize_with = "text")]
    pub choose: Choice,
    pub rho: f64,
    pub early: f64,
    pub late: f64,
    #[serde(deserialize_with = "text")]
    pub reclaiming: Reclaiming,
    pub give_back: bool,
    #[serde(deserialize_with = "optional")]
    pub service: Option<Nanos>,
    pub fixed: Option<Share>,
    #[serde(deserialize_with = "optional")]
    pub window: Option<Window>,
    pub work_conserving: bool,
    pub favour_events: bool,
    #[serde(deserialize_with = "text")]
    pub controller: ControlPlace,
    #[serde(deserialize_with = "text")]
    pub memory: Bytes,
    pub utility: Option<Utility>,
}

impl Default for ContractOptions {
    fn default() -> Self {
        let Contract { class, max_bandwidth, recovery_jobs, deviation, weight, priority, predictor, .. } =
            Contract::default();
        let Contract { choice, rho, early, late, reclaiming, give_back, controller, memory, .. } = Contract::default();
        ContractOptions {
            name: None,
            period: None,
            fps: None,
            auto: false,
            server_period: None,
            class,
            max_bandwidth,
            guaranteed: None,
            recovery_jobs,
            deviation,
            weight,
            priority,
            predictor,
            choose: choice,
            rho,
            early,
            late,
            reclaiming,
            give_back,
            service: None,
            fixed: None,
            window: None,
            work_conserving: false,
            favour_events: false,
            controller,
            memory,
            utility: None,
        }
    }
}

impl ContractOptions {
    /// The contract that the options describe. Its name is `program` unless the options name another one.
    ///
    /// # Errors
    /// A value is out of range, or two options contradict each other.
    pub fn contract(self, program: &str) -> Result<Contract, InvalidOptions> {
        self.check_combinations()?;
        let name = self.name.as_deref().unwrap_or(program);
        let period = self.period.or(self.fps.map(JobRate::period));
        let mut contract = match period {
            Some(period) => Contract::new(name, period),
            None => Contract { name: name.to_owned(), ..Contract::default() },
        };
        contract.jobs = match period {
            Some(_) => JobSource::Activations,
            None if self.auto => JobSource::Auto,
            None => JobSource::Consumption,
        };
        contract = contract.reclaimed_as(self.reclaiming);
        contract.server_period = self.server_period.unwrap_or(contract.server_period);
        contract.class = self.class;
        contract.max_bandwidth = self.max_bandwidth;
        contract.guaranteed = self.guaranteed;
        contract.recovery_jobs = self.recovery_jobs;
        contract.deviation = self.deviation;
        contract.weight = self.weight;
        contract.priority = self.priority;
        contract.predictor = self.predictor;
        contract.choice = self.choose;
        contract.rho = self.rho;
        contract.early = self.early;
        contract.late = self.late;
        contract.give_back = self.give_back;
        contract.service = self.service;
        contract.fixed = self.fixed;
        contract.window = self.window;
        contract.work_conserving = self.work_conserving;
        contract.favour_events = self.favour_events;
        contract.controller = self.controller;
        contract.memory = self.memory;
        contract.utility = self.utility;
        let contract = contract.settled();
        contract.check()?;
        Ok(contract)
    }

    /// The combinations that the command line refuses as well, beside those that [`Contract::check`] refuses.
    fn check_combinations(&self) -> Result<(), InvalidOptions> {
        let has_rhythm = self.period.is_some() || self.fps.is_some();
        let in_kernel = self.controller != ControlPlace::User;
        let excluded = [
            ("period", self.period.is_some(), "fps", self.fps.is_some()),
            ("auto", self.auto, "period or fps", has_rhythm),
            ("auto", self.auto, "server_period", self.server_period.is_some()),
            ("auto", self.auto, "service", self.service.is_some()),
            ("auto", self.auto, "fixed", self.fixed.is_some()),
            ("auto", self.auto, "controller kernel", in_kernel),
            ("service", self.service.is_some(), "server_period", self.server_period.is_some()),
            ("service", self.service.is_some(), "controller kernel", in_kernel),
            ("fixed", self.fixed.is_some(), "controller kernel", in_kernel),
        ];
        match excluded.into_iter().find(|(_, one, _, other)| *one && *other) {
            Some((one, _, other, _)) => Err(InvalidOptions::Together(one, other)),
            None if self.service.is_some() && !has_rhythm => Err(InvalidOptions::NoPeriod("service")),
            None => Ok(()),
        }
    }
}

/// A value in the same form as on the command line.
fn text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(Error::custom)
}

fn optional<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<Option<T>, D::Error> {
    text(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Contract, String> {
        let options: ContractOptions = serde_json::from_str(json).map_err(|error| error.to_string())?;
        options.contract("prog").map_err(|error| error.to_string())
    }

    #[test]
    fn without_options_the_contract_is_the_default_with_unknown_jobs() {
        let expected = Contract { name: "prog".to_owned(), jobs: JobSource::Consumption, ..Contract::default() };
        assert_eq!(read("{}"), Ok(expected));
    }

    #[test]
    fn options_are_written_as_on_the_command_line() {
        let text = r#"{"name": "player", "period": "40ms", "class": "A", "max_bandwidth": 0.4, "guaranteed": 0.2,
                       "predictor": "mma:3,12", "choose": "right", "reclaiming": "hard", "weight": 2}"#;
        let contract = read(text).unwrap();
        assert_eq!((contract.period, contract.class, contract.weight), (Nanos::from_millis(40), Class::A, 2));
        assert_eq!(contract.predictor, PredictorSpec::Interleaved { n: 3, lanes: 12 });
        assert_eq!((contract.choice, contract.reclaiming), (Choice::Right, Reclaiming::Hard));
        assert_eq!((contract.name.as_str(), contract.jobs), ("player", JobSource::Activations));
        assert_eq!(read(r#"{"fps": 25}"#).unwrap().period, Nanos::from_millis(40));
        assert_eq!(read(r#"{"auto": true}"#).unwrap().jobs, JobSource::Auto);
    }

    #[test]
    fn wrong_and_contradicting_options_are_refused_with_their_names() {
        for (text, said) in [
            (r#"{"fps": 25, "period": "40ms"}"#, "period and fps cannot be used together"),
            (r#"{"fps": 25, "auto": true}"#, "auto and period or fps"),
            (r#"{"auto": true, "fixed": 0.3}"#, "auto and fixed"),
            (r#"{"service": "10ms"}"#, "service needs period or fps"),
            (r#"{"fps": 25, "fixed": 0.1, "controller": "kernel"}"#, "fixed and controller kernel"),
            (r#"{"fps": 25, "fixed": 0.1, "service": "10ms"}"#, "leave one of them out"),
            (r#"{"fps": 0.1}"#, "from 0.2385 to 10000"),
            (r#"{"period": "40"}"#, "with its unit"),
            (r#"{"fixd": 0.1}"#, "unknown field `fixd`"),
            (r#"{"weight": 0}"#, "weight is 0"),
            (r#"{"name": ""}"#, "1 to 64 characters"),
        ] {
            let refusal = read(text).unwrap_err();
            assert!(refusal.contains(said), "{text}: {refusal}");
        }
    }
}
