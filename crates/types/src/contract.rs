//! The contract: the request of an application.

use serde::{Deserialize, Serialize};

use crate::api::Problem;
use crate::{
    Bytes, Choice, Class, ControlPlace, InvalidReservation, InvalidUtility, Nanos, PERIOD_RANGE, PredictorSpec,
    Reclaiming, Reservation, Share, Utility, Window,
};

/// The need of a contract with a fixed service ([`Contract::needs`]).
pub const SERVICE: &str = "a fixed service for all threads together";

/// The way in which the daemon learns of the ends of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobSource {
    /// The application marks its jobs, through the client library.
    Marked,
    /// A job is the work of a thread between two sleeps. The period is known, but the application does not mark
    /// jobs.
    #[default]
    Activations,
    /// Only the consumption per server period is used; jobs are unknown.
    Consumption,
    /// Like `Consumption` until a period is found in the program's activations, then like `Activations` with that
    /// period.
    Auto,
}

/// The request of an application (QualMan's QoS contract, AQuoSA §4–5). Build it with [`Contract::new`], change the
/// public fields, then call [`Contract::check`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Contract {
    /// A name for people; at most 64 characters.
    pub name: String,
    /// The class, which determines the guarantee.
    pub class: Class,
    /// T: a job is released every `period`; its deadline is the next release.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// P: the period of the reservation; `T = L·P`.
    #[serde(rename = "server_period_ns")]
    pub server_period: Nanos,
    /// The way in which the daemon learns of the ends of jobs.
    pub jobs: JobSource,
    /// The predictor of the next computation time.
    pub predictor: PredictorSpec,
    /// ρ: half-width of the predicted interval in standard deviations.
    pub rho: f64,
    /// The point of Theorem 2's interval that the law takes.
    pub choice: Choice,
    /// e/T: the largest earliness inside the target interval, 0 to 1.
    pub early: f64,
    /// E/T: the largest lateness inside the target interval, 0 or more.
    pub late: f64,
    /// Q̄/P: the largest bandwidth that may be requested, in CPUs; above 1 only for programs with several threads.
    pub max_bandwidth: Share,
    /// The guaranteed share for classes A and B. Absent: derived from the profile by Theorems 2 and 3; without a
    /// profile, the maximum bandwidth if it is not the default.
    pub guaranteed: Option<Share>,
    /// h: the number of jobs within which class A returns to the target interval after a deviation of up to Γ, 1 to
    /// 1000.
    pub recovery_jobs: u32,
    /// Γ·P/T: the largest deviation to return from, in periods T, 0 to 100.
    pub deviation: f64,
    /// The profile of a trial execution, if there was one; it provides samples for the predictor and the first
    /// budget.
    pub profile: Option<Profile>,
    /// Priority level under overload, 0 (last) to 9 (first).
    pub priority: u8,
    /// Weight inside the priority level, 1 to 10 000.
    pub weight: u32,
    /// The kind of reclaiming: the rule for a server that has used its budget. The former field `reclaim` (`true`:
    /// GRUB, `false`: hard) is also accepted.
    #[serde(alias = "reclaim")]
    pub reclaiming: Reclaiming,
    /// When jobs compete for the capacity, the thread keeps only a part of its share between its marked jobs, and
    /// requests more than predicted while it runs, up to its share (docs/design/0021). Needs GRUB, a period of 10
    /// ms or more, and a mechanism that can tell whether a thread sleeps; otherwise it has no effect.
    pub give_back: bool,
    /// C, a fixed service: CPU time in every period T for all threads together, instead of a budget found by
    /// feedback. The server's period is then T.
    #[serde(rename = "service_ns")]
    pub service: Option<Nanos>,
    /// A static reservation: this share of one CPU in every P, without feedback. A mechanism with servers for
    /// several threads gives the program one such server. Any other mechanism gives one to each thread, the oldest
    /// first, as far as `max_bandwidth` and the grant suffice.
    pub fixed: Option<Share>,
    /// `[x, y]`: at most x of every y server periods may be missed. Absent: no period may be missed. Needs a
    /// mechanism with windows.
    pub window: Option<Window>,
    /// Whether the application gets CPU time beyond its service before best effort does.
    pub work_conserving: bool,
    /// Whether pending events favour the application: events raised for it, and wake-ups of its threads.
    pub favour_events: bool,
    /// The place at which the budget of the next job is decided.
    pub controller: ControlPlace,
    /// Mem_req: the amount of memory that stays resident under memory pressure, for the whole program; zero for no
    /// reserve. Zero is not sent, because a daemon without reserves refuses the field (docs/design/0035).
    #[serde(rename = "memory_bytes", skip_serializing_if = "is_zero")]
    pub memory: Bytes,
    /// What the levels of its metrics are worth, for the division of the CPU under overload among contracts of one user
    /// with equal priority. Absent: the division follows weights alone. An absent utility is not sent, because an older
    /// daemon refuses the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility: Option<Utility>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // called by serde
fn is_zero(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

/// The result of a trial execution (AQuoSA §5.5, QualMan's probing).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Computation times of the observed jobs, oldest first; at most [`Profile::MAX_JOBS`].
    #[serde(rename = "costs_ns")]
    pub costs: Vec<Nanos>,
    /// The hint of each of those jobs; empty, or as long as `costs`.
    #[serde(default)]
    pub hints: Vec<f64>,
}

impl Profile {
    /// Limit of the jobs of a profile; bounds the size of an API body. Longer profiles are refused.
    pub const MAX_JOBS: usize = 4_096;

    /// Mean computation time; zero for an empty profile.
    pub fn mean(&self) -> Nanos {
        let sum: u128 = self.costs.iter().map(|c| c.get() as u128).sum();
        Nanos::new((sum / self.costs.len().max(1) as u128) as u64)
    }
}

/// The contract contains an invalid value. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
#[allow(missing_docs)] // the messages explain the fields
pub enum InvalidContract {
    Name { name: String, length: usize },
    Period { period: Nanos },
    ServerPeriod { server_period: Nanos, period: Nanos },
    OutOfRange { what: &'static str, value: f64, expected: &'static str },
    Profile { jobs: usize, hints: usize },
    ServiceOverPeriod { service: Nanos, period: Nanos },
    ServiceOverMaximum { service: Nanos, period: Nanos, asked: Share, most: Share },
    ServicePeriod { server_period: Nanos, period: Nanos },
    MovedWindow { window: Window, reclaiming: Reclaiming },
    FixedAndService { fixed: Share, service: Nanos },
    FixedOverMaximum { fixed: Share, most: Share },
    Controller { what: &'static str, remedy: &'static str },
    KernelPredictor { predictor: PredictorSpec },
    Reservation(InvalidReservation),
    Memory { memory: Bytes },
    Utility(InvalidUtility),
}

/// No `#[from]`: the reason is the whole message, so it must not follow a second time as its source.
impl From<InvalidReservation> for InvalidContract {
    fn from(reason: InvalidReservation) -> Self {
        InvalidContract::Reservation(reason)
    }
}

impl From<InvalidUtility> for InvalidContract {
    fn from(reason: InvalidUtility) -> Self {
        InvalidContract::Utility(reason)
    }
}

impl InvalidContract {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        Problem::new("invalid_contract", self.message(), self.next_step())
    }

    fn message(&self) -> String {
        match self {
            Self::Name { name, length } => format!("name {name:?} has {length} characters"),
            Self::Period { period } => format!("period {period} is outside {} to {}", PERIOD_RANGE.0, PERIOD_RANGE.1),
            Self::ServerPeriod { server_period, period } => {
                format!("server period {server_period} does not divide the period {period}")
            }
            Self::OutOfRange { what, value, .. } => format!("{what} is {value}"),
            Self::Profile { jobs, hints } => format!("the profile has {jobs} jobs and {hints} hints"),
            Self::ServiceOverPeriod { service, period } => {
                format!("service {service} is longer than the period {period}")
            }
            Self::ServiceOverMaximum { service, period, asked, most } => {
                format!("service {service} in {period} is {asked}, above the maximum bandwidth {most}")
            }
            Self::ServicePeriod { server_period, period } => format!(
                "server period {server_period} with a fixed service, whose server period is always T = {period}"
            ),
            Self::MovedWindow { window, reclaiming } => {
                format!("window {window} with reclaiming {reclaiming}, which moves the periods that the window counts")
            }
            Self::FixedAndService { fixed, service } => {
                format!("fixed {fixed} beside service {service}: both set the budget")
            }
            Self::FixedOverMaximum { fixed, most } => format!("fixed {fixed} is above {most}"),
            Self::Controller { what, .. } => format!("controller kernel does not work with {what}"),
            Self::KernelPredictor { predictor } => {
                format!("controller kernel supports the predictors ma:N and mma:N,S, not {predictor}")
            }
            Self::Memory { memory } => format!("memory {memory} is above {}", Bytes::MAX),
            Self::Reservation(reason) => reason.problem().message,
            Self::Utility(reason) => reason.problem().message,
        }
    }

    fn next_step(&self) -> String {
        let fixed = match self {
            Self::OutOfRange { expected, .. } => return format!("use {expected}"),
            Self::Profile { .. } => {
                return format!("use at most {} jobs, and no hints or one per job", Profile::MAX_JOBS);
            }
            Self::Controller { remedy, .. } => return format!("leave {remedy} out, or use controller user"),
            Self::Reservation(reason) => return reason.problem().next_step,
            Self::Utility(reason) => return reason.problem().next_step,
            Self::Name { .. } => "use 1 to 64 characters, without control characters and bidirectional controls",
            Self::Period { .. } => "choose a period in this range",
            Self::ServerPeriod { .. } => "use the period divided by a whole number",
            Self::ServiceOverPeriod { .. } => "C is the CPU time in every period T, so ask for at most T",
            Self::ServiceOverMaximum { .. } => "ask for less, or raise the maximum bandwidth",
            Self::ServicePeriod { .. } => "leave the server period out",
            Self::MovedWindow { .. } => "use hard or grub",
            Self::FixedAndService { .. } => "leave one of them out",
            Self::FixedOverMaximum { .. } => {
                "ask for less, or raise the maximum bandwidth (one server has at most 1 CPU)"
            }
            Self::KernelPredictor { .. } => "use one of them",
            Self::Memory { .. } => "use a smaller amount, such as 64M",
        };
        fixed.to_owned()
    }
}

impl Default for Contract {
    /// 25 jobs per second, class C, at most 95 % of one CPU.
    fn default() -> Self {
        Contract::new("unnamed", Nanos::from_millis(40))
    }
}

impl Contract {
    /// The default maximum bandwidth.
    pub const MAX_BANDWIDTH: Share = Share::from_ppm(950_000);

    /// A copy without the profile, which alone may be long: 64 KiB.
    pub fn without_profile(&self) -> Contract {
        // All other fields are `Copy`: a new field that is not must be named here, or this does not compile.
        Contract { name: self.name.clone(), profile: None, utility: self.utility.clone(), ..*self }
    }

    /// A class C contract for jobs every `period`, with sensible defaults.
    pub fn new(name: &str, period: Nanos) -> Self {
        Contract {
            name: name.to_owned(),
            class: Class::C,
            period,
            server_period: default_server_period(period),
            jobs: JobSource::default(),
            predictor: PredictorSpec::default(),
            rho: 1.0,
            choice: Choice::Left,
            early: 0.2,
            late: 0.0,
            max_bandwidth: Contract::MAX_BANDWIDTH,
            guaranteed: None,
            recovery_jobs: 10,
            deviation: 1.0,
            profile: None,
            priority: 5,
            weight: 1,
            reclaiming: Reclaiming::default(),
            give_back: true,
            service: None,
            fixed: None,
            window: None,
            work_conserving: false,
            favour_events: false,
            controller: ControlPlace::User,
            memory: Bytes::ZERO,
            utility: None,
        }
    }

    /// A contract for `service` of CPU time in every `period`, without feedback.
    pub fn fixed(name: &str, period: Nanos, service: Nanos) -> Self {
        Contract { service: Some(service), ..Contract::new(name, period) }.settled()
    }

    /// The same contract with another kind of reclaiming. A soft server's deadline is the job's deadline, so its
    /// period is T.
    pub fn reclaimed_as(self, reclaiming: Reclaiming) -> Self {
        let server_period = if reclaiming == Reclaiming::Soft { self.period } else { self.server_period };
        Contract { reclaiming, server_period, ..self }
    }

    /// The same contract with the server period T if it has a fixed service.
    pub fn settled(self) -> Self {
        match self.service {
            Some(_) => Contract { server_period: self.period, ..self },
            None => self,
        }
    }

    /// The first property of the contract that not every mechanism supports; `None` if every mechanism supports
    /// all.
    pub fn needs(&self) -> Option<&'static str> {
        [
            (self.window.is_some(), "a window"),
            (self.service.is_some(), SERVICE),
            (self.work_conserving, "extra service before best effort"),
            (self.favour_events, "favour for pending events"),
            (self.controller == ControlPlace::Kernel, "a controller in the kernel"),
        ]
        .into_iter()
        .find_map(|(asked, what)| asked.then_some(what))
    }

    /// The server of a contract without feedback: its service in every T, or its fixed share in every P. `None` if
    /// feedback decides the budget.
    pub fn static_server(&self) -> Option<Reservation> {
        let (budget, period) = match (self.service, self.fixed) {
            (Some(service), _) => (service, self.period),
            (None, share) => (share?.budget_in(self.server_period), self.server_period),
        };
        Reservation::new(budget, period).ok()
    }

    /// The promise of one server of a contract without feedback: `(1 − x/y)·Q/P`, rounded up.
    pub fn promised(&self) -> Option<Share> {
        let share = self.static_server()?.share();
        Some(self.window.unwrap_or(Window::NONE).of_share(share))
    }

    /// The same contract with another T, and the default P for that T.
    pub fn with_period(&self, period: Nanos) -> Self {
        Contract { period, server_period: default_server_period(period), ..self.clone() }
            .reclaimed_as(self.reclaiming)
            .settled()
    }

    /// L = T/P.
    pub fn periods_per_job(&self) -> u64 {
        self.period.get() / self.server_period.get().max(1)
    }

    /// Q̄: the largest budget that this contract may ever request for one thread.
    pub fn max_budget(&self) -> Nanos {
        self.max_bandwidth.budget_in(self.server_period).min(self.server_period)
    }

    /// Checks all values. Call it before using a contract from outside.
    ///
    /// # Errors
    /// [`InvalidContract`], with the value and the accepted range.
    pub fn check(&self) -> Result<(), InvalidContract> {
        let length = self.name.chars().count();
        if !(1..=64).contains(&length) || !self.name.chars().all(crate::text::is_plain) {
            return Err(InvalidContract::Name { name: self.name.clone(), length });
        }
        if self.period < PERIOD_RANGE.0 || self.period > PERIOD_RANGE.1 {
            return Err(InvalidContract::Period { period: self.period });
        }
        let (period, server_period) = (self.period, self.server_period);
        if server_period.get() == 0 || !period.get().is_multiple_of(server_period.get()) {
            return Err(InvalidContract::ServerPeriod { server_period, period });
        }
        Reservation::new(self.max_budget(), server_period)?;
        self.check_service()?;
        self.check_window()?;
        self.check_fixed()?;
        self.check_controller()?;
        in_range("rho", self.rho, 0.0, 100.0, "0 to 100 standard deviations")?;
        in_range("early (e/T)", self.early, 0.0, 1.0, "0 to 1")?;
        in_range("late (E/T)", self.late, 0.0, 100.0, "0 to 100")?;
        in_range("recovery_jobs (h)", self.recovery_jobs.into(), 1.0, 1_000.0, "1 to 1000 jobs")?;
        in_range("deviation (Γ·P/T)", self.deviation, 0.0, 100.0, "0 to 100 periods")?;
        in_range("priority", self.priority.into(), 0.0, 9.0, "0 (last) to 9 (first)")?;
        in_range("weight", self.weight.into(), 1.0, 10_000.0, "1 to 10000")?;
        if self.memory > Bytes::MAX {
            return Err(InvalidContract::Memory { memory: self.memory });
        }
        self.utility.as_ref().map_or(Ok(()), Utility::check)?;
        if let Some(guaranteed) = self.guaranteed {
            in_range(
                "guaranteed",
                guaranteed.as_f64(),
                0.0,
                self.max_bandwidth.as_f64(),
                "0 to the maximum bandwidth",
            )?;
        }
        match &self.profile {
            Some(p) if p.costs.len() > Profile::MAX_JOBS || !(p.hints.is_empty() || p.hints.len() == p.costs.len()) => {
                Err(InvalidContract::Profile { jobs: p.costs.len(), hints: p.hints.len() })
            }
            _ => Ok(()),
        }
    }

    fn check_service(&self) -> Result<(), InvalidContract> {
        let Some(service) = self.service else { return Ok(()) };
        let Contract { period, server_period, max_bandwidth: most, .. } = *self;
        if service > period {
            return Err(InvalidContract::ServiceOverPeriod { service, period });
        }
        if server_period != period {
            return Err(InvalidContract::ServicePeriod { server_period, period });
        }
        let asked = Share::of_budget(service, period);
        if asked > most {
            return Err(InvalidContract::ServiceOverMaximum { service, period, asked, most });
        }
        Reservation::new(service, period).map(drop).map_err(InvalidContract::from)
    }

    fn check_window(&self) -> Result<(), InvalidContract> {
        match (self.window, self.reclaiming) {
            (Some(window), reclaiming @ (Reclaiming::Soft | Reclaiming::Iris)) => {
                Err(InvalidContract::MovedWindow { window, reclaiming })
            }
            _ => Ok(()),
        }
    }

    fn check_fixed(&self) -> Result<(), InvalidContract> {
        let Some(fixed) = self.fixed else { return Ok(()) };
        let most = self.max_bandwidth.min(Share::ONE);
        if let Some(service) = self.service {
            return Err(InvalidContract::FixedAndService { fixed, service });
        }
        if fixed > most {
            return Err(InvalidContract::FixedOverMaximum { fixed, most });
        }
        Reservation::new(fixed.budget_in(self.server_period), self.server_period).map(drop).map_err(Into::into)
    }

    fn check_controller(&self) -> Result<(), InvalidContract> {
        if self.controller == ControlPlace::User {
            return Ok(());
        }
        if self.service.is_some() {
            return Err(InvalidContract::Controller { what: "a fixed service", remedy: "the service" });
        }
        if self.fixed.is_some() {
            return Err(InvalidContract::Controller { what: "a fixed share", remedy: "the share" });
        }
        if matches!(self.jobs, JobSource::Consumption | JobSource::Auto) {
            return Err(InvalidContract::Controller { what: "an unknown period", remedy: "the job source" });
        }
        match self.predictor {
            PredictorSpec::MovingAverage { .. } | PredictorSpec::Interleaved { .. } => Ok(()),
            predictor => Err(InvalidContract::KernelPredictor { predictor }),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // called by serde
fn in_range(
    what: &'static str,
    value: f64,
    low: f64,
    high: f64,
    expected: &'static str,
) -> Result<(), InvalidContract> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(InvalidContract::OutOfRange { what, value, expected }) }
}

/// A quarter of the period if that is a whole number of nanoseconds: enough server periods for the law to control
/// the error, few enough context switches. The period itself if it is too short for a quarter.
fn default_server_period(period: Nanos) -> Nanos {
    let quarter = Nanos::new(period.get() / 4);
    if quarter >= PERIOD_RANGE.0 && period.get().is_multiple_of(4) { quarter } else { period }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_valid_contract() {
        assert_eq!(Contract::default().check(), Ok(()));
        assert_eq!(Contract::new("odd", Nanos::new(100_001)).check(), Ok(()));
    }

    #[test]
    fn a_copy_without_the_profile_has_all_else() {
        let mut contract = Contract { priority: 7, window: "1/4".parse().ok(), ..Contract::default() };
        contract.profile = Some(Profile { costs: vec![Nanos::from_millis(1)], hints: vec![] });
        let copy = contract.without_profile();
        assert_ne!(copy, contract);
        contract.profile = None;
        assert_eq!(copy, contract);
    }

    #[test]
    fn the_period_of_a_soft_server_is_that_of_the_jobs() {
        let of = |kind| Contract::new("player", Nanos::from_millis(40)).reclaimed_as(kind);
        assert_eq!((of(Reclaiming::Soft).periods_per_job(), of(Reclaiming::Iris).periods_per_job()), (1, 4));
        assert_eq!(of(Reclaiming::Soft).check(), Ok(()));
    }

    #[test]
    fn nonsense_is_refused_with_its_value() {
        type Change = fn(&mut Contract);
        let nonsense: [(Change, &str); 12] = [
            (|c| c.period = Nanos::ZERO, "period 0 ms"),
            (|c| c.server_period = Nanos::from_millis(7), "7 ms"),
            (|c| c.server_period = Nanos::ZERO, "server period 0 ms"),
            (|c| c.rho = f64::NAN, "rho is NaN"),
            (|c| c.early = 1.5, "1.5"),
            (|c| c.recovery_jobs = 0, "recovery_jobs (h) is 0"),
            (|c| c.deviation = -1.0, "deviation (Γ·P/T) is -1"),
            (|c| c.weight = 0, "weight is 0"),
            (|c| c.max_bandwidth = Share::ZERO, "budget 0 ms"),
            (|c| c.guaranteed = Some(Share::from_ppm(990_000)), "0.99"),
            (|c| c.name = "a\nb".into(), "control characters"),
            (|c| c.name = "a\u{202e}b".into(), "\\u{202e}"),
        ];
        for (change, named) in nonsense {
            let mut contract = Contract::default();
            change(&mut contract);
            let refusal = contract.check().unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal} does not name {named}");
        }
    }

    #[test]
    fn the_refusal_and_its_next_step_are_separate() {
        let (name, metric) = ("a\nb".to_owned(), "rate".to_owned());
        let (time, more) = (Nanos::from_millis(40), Nanos::from_millis(50));
        let (share, most) = (Share::from_ppm(990_000), Share::from_ppm(950_000));
        let (window, reclaiming) = (Window::NONE, Reclaiming::Iris);
        let predictor = PredictorSpec::Hint { n: 24 };
        let every: [(InvalidContract, &str); 17] = [
            (InvalidContract::Name { name, length: 3 }, "3 characters"),
            (InvalidContract::Period { period: time }, "40 ms"),
            (InvalidContract::ServerPeriod { server_period: more, period: time }, "50 ms"),
            (InvalidContract::OutOfRange { what: "rho", value: 7.5, expected: "0 to 5" }, "7.5"),
            (InvalidContract::Profile { jobs: 7, hints: 5 }, "7 jobs and 5 hints"),
            (InvalidContract::ServiceOverPeriod { service: more, period: time }, "50 ms"),
            (InvalidContract::ServiceOverMaximum { service: time, period: more, asked: share, most }, "0.99 CPU"),
            (InvalidContract::ServicePeriod { server_period: more, period: time }, "50 ms"),
            (InvalidContract::MovedWindow { window, reclaiming }, "0/1"),
            (InvalidContract::FixedAndService { fixed: share, service: time }, "0.99 CPU"),
            (InvalidContract::FixedOverMaximum { fixed: share, most }, "0.95 CPU"),
            (InvalidContract::Controller { what: "a fixed share", remedy: "the share" }, "a fixed share"),
            (InvalidContract::KernelPredictor { predictor }, "hint:24"),
            (InvalidContract::Memory { memory: Bytes::new(12) }, "12"),
            (InvalidReservation::BudgetOverPeriod { budget: more, period: time }.into(), "50 ms"),
            (InvalidReservation::PeriodOutOfRange { period: Nanos::ZERO }.into(), "0 ms"),
            (InvalidUtility::Step { name: metric, step: -3 }.into(), "-3"),
        ];
        for (refusal, value) in every {
            let Problem { code, message, next_step, .. } = refusal.problem();
            assert_eq!(code, "invalid_contract");
            assert!(message.contains(value) && !next_step.is_empty(), "{message} does not name {value}");
            assert!(!message.contains(&next_step), "{message} contains the next step");
            assert_eq!(refusal.to_string(), format!("{message}; {next_step}"));
        }
    }

    #[test]
    fn a_fixed_service_is_checked_with_its_numbers() {
        let fixed = |ms| Contract::fixed("test", Nanos::from_millis(40), Nanos::from_millis(ms));
        assert_eq!(fixed(10).check(), Ok(()));
        let kernel = Contract { controller: ControlPlace::Kernel, ..fixed(10) };
        let hint = Contract { predictor: PredictorSpec::Hint { n: 24 }, controller: ControlPlace::Kernel, ..default() };
        let short = Contract { server_period: Nanos::from_millis(10), ..fixed(10) };
        let moved = Contract { window: Window::new(1, 5).ok(), reclaiming: Reclaiming::Iris, ..fixed(10) };
        for (contract, named) in [
            (fixed(50), "service 50 ms is longer than the period 40 ms"),
            (fixed(0), "budget 0 ms"),
            (fixed(39), "0.975 CPU, above the maximum bandwidth 0.95 CPU"),
            (short, "server period 10 ms"),
            (kernel, "leave the service out"),
            (hint, "not hint:24"),
            (moved, "window 1/5 with reclaiming iris"),
        ] {
            let refusal = contract.check().unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal} does not name {named}");
        }
    }

    #[test]
    fn a_fixed_share_is_checked_with_its_numbers_and_works_with_any_mechanism() {
        let fixed = |percent: u32| Contract { fixed: Some(Share::from_ppm(percent * 10_000)), ..default() };
        assert_eq!((fixed(30).check(), fixed(30).needs()), (Ok(()), None));
        assert_eq!(fixed(30).static_server(), Reservation::new(Nanos::from_millis(3), Nanos::from_millis(10)).ok());
        assert_eq!(fixed(30).promised(), Some(Share::from_ppm(300_000)));
        let wide = Contract { max_bandwidth: Share::from_ppm(4_000_000), ..fixed(150) };
        let both = Contract { service: Some(Nanos::from_millis(4)), ..fixed(30) }.settled();
        let kernel = Contract { controller: ControlPlace::Kernel, ..fixed(30) };
        for (contract, named) in [
            (fixed(0), "budget 0 ms"),
            (fixed(96), "fixed 0.96 CPU is above 0.95 CPU"),
            (wide, "fixed 1.5 CPU is above 1 CPU"),
            (both, "leave one of them out"),
            (kernel, "leave the share out"),
        ] {
            let refusal = contract.check().unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal} does not name {named}");
        }
    }

    #[test]
    fn a_window_lowers_the_promised_share() {
        let mut contract = Contract::fixed("test", Nanos::from_millis(40), Nanos::from_millis(10));
        assert_eq!(contract.promised(), Some(Share::from_ppm(250_000)));
        contract.window = Some(Window::new(1, 5).unwrap());
        assert_eq!(contract.promised(), Some(Share::from_ppm(200_000)));
        assert_eq!(contract.needs(), Some("a window"));
        assert_eq!(Contract::default().promised(), None);
    }

    #[test]
    fn a_contract_without_the_field_window_still_parses() {
        let old = r#"{"name":"old","period_ns":40000000,"server_period_ns":10000000,"class":"A"}"#;
        let contract: Contract = serde_json::from_str(old).unwrap();
        assert_eq!((contract.check(), contract.needs(), contract.memory), (Ok(()), None, Bytes::ZERO));
    }

    #[test]
    fn memory_is_sent_only_if_it_is_asked_for_and_its_amount_is_bounded() {
        let sent = |contract: &Contract| serde_json::to_value(contract).unwrap().get("memory_bytes").cloned();
        let asking = Contract { memory: Bytes::from_mib(1), ..Contract::default() };
        assert_eq!((sent(&Contract::default()), sent(&asking)), (None, Some(1_048_576.into())));
        let endless = Contract { memory: Bytes::MAX + Bytes::new(1), ..Contract::default() };
        assert!(endless.check().unwrap_err().to_string().contains("1024 TiB"));
    }

    fn default() -> Contract {
        Contract { jobs: JobSource::Activations, ..Contract::default() }
    }
}
