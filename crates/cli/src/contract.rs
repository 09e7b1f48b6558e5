//! The options that say a contract, shared by the commands that ask for one.

use clap::ArgAction;
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use qfabric_types::{
    Choice, Class, Contract, ControlPlace, InvalidQuantity, JobSource, MechanismName, Nanos, PredictorSpec, Reclaiming,
    Share, Window,
};

use crate::exit::Failure;

/// A rate in jobs per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(f64);

impl std::str::FromStr for Rate {
    type Err = InvalidQuantity;
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        match text.parse::<f64>() {
            Ok(fps) if fps > 0.2 && fps <= 10_000.0 => Ok(Rate(fps)),
            _ => Err(InvalidQuantity {
                text: text.to_owned(),
                expected: "a number of jobs per second above 0.2 and up to 10000, such as 25 or 29.97",
            }),
        }
    }
}

impl Rate {
    /// The period in steps of 16 ns, so that T/16 and all wider server periods are whole.
    fn period(self) -> Nanos {
        Nanos::new((1e9 / self.0 / 16.0).round() as u64 * 16)
    }
}

/// How often jobs come.
#[derive(clap::Args, Debug, Clone)]
#[group(id = "rhythm", multiple = false)]
pub struct Rhythm {
    /// Jobs per second, such as the frame rate
    #[arg(long, value_name = "N", conflicts_with = "period")]
    pub fps: Option<Rate>,
    /// T: time from one job to the next, such as 40ms; without it and without --fps only consumption is
    /// looked at
    #[arg(long, value_name = "TIME")]
    pub period: Option<Nanos>,
}

impl Rhythm {
    /// T, if it was given.
    pub fn period(&self) -> Option<Nanos> {
        self.period.or(self.fps.map(Rate::period))
    }
}

/// What the program needs and how its budget is found.
#[derive(clap::Args, Debug, Clone)]
pub struct ContractArgs {
    #[command(flatten)]
    pub rhythm: Rhythm,
    /// Find the period in the program's activations while it runs, tell it, and watch for changes; until it is found,
    /// and where there is none, consumption decides
    #[arg(long, conflicts_with_all = ["rhythm", "server_period", "service", "fixed", "controller"])]
    pub auto: bool,
    /// P: period of the reservation; T must be a whole multiple [default: T/4; with --reclaiming soft: T]
    #[arg(long, value_name = "TIME")]
    pub server_period: Option<Nanos>,
    /// A and B: a part of the CPU is guaranteed; C: takes what is left over
    #[arg(long, default_value_t = Class::C)]
    pub class: Class,
    /// Never ask for more than this many CPUs
    #[arg(long, value_name = "CPUS", default_value = "0.95")]
    pub max_bandwidth: Share,
    /// Guaranteed part for class A and B [default: derived from the profile; without one, a --max-bandwidth you set]
    #[arg(long, value_name = "CPUS")]
    pub guaranteed: Option<Share>,
    /// h: within how many jobs class A is back in its target after a deviation
    #[arg(long, value_name = "JOBS", default_value_t = 10)]
    pub recovery_jobs: u32,
    /// Γ: the largest deviation to return from, as a fraction of the period
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, allow_negative_numbers = true)]
    pub deviation: f64,
    /// Weight inside the priority level under overload, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u32,
    /// Priority level under overload, 0 (last) to 9 (first)
    #[arg(long, value_name = "LEVEL", default_value_t = 5)]
    pub priority: u8,
    /// What says the next computation time: ma:N, mma:N,S, ol:TAPS,TRAINING, pct:N,PERCENT or hint:N
    #[arg(long, value_name = "SPEC", default_value_t = PredictorSpec::default())]
    pub predictor: PredictorSpec,
    /// Which budget of those that hold the target: left, middle, right, zero or cost
    #[arg(long, visible_alias = "choice", value_name = "END", default_value_t = Choice::Left)]
    pub choose: Choice,
    /// ρ: half-width of the predicted interval in standard deviations
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub rho: f64,
    /// e/T: how early a job may end, as a fraction of the period
    #[arg(long, value_name = "FRACTION", default_value_t = 0.2, allow_negative_numbers = true)]
    pub early: f64,
    /// E/T: how late a job may end, as a fraction of the period
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    pub late: f64,
    /// What happens at the end of the budget. hard: wait for the next period. soft: go on with a later deadline.
    /// grub: the budget lasts longer while others sleep. iris: idle time begins the next period early. soft and iris
    /// need the mechanism ext
    #[arg(long, value_name = "KIND", default_value_t = Reclaiming::Grub)]
    pub reclaiming: Reclaiming,
    /// The same as --reclaiming grub
    #[arg(long, conflicts_with_all = ["hard", "reclaiming"])]
    pub reclaim: bool,
    /// The same as --reclaiming hard: never run beyond the budget of a period
    #[arg(long, visible_alias = "no-reclaim", conflicts_with = "reclaiming")]
    pub hard: bool,
    /// Where jobs compete, keep only a part of the reservation between jobs (programs that
    /// mark their jobs, with GRUB; mechanism deadline): yes or no
    #[arg(long, value_name = "YES|NO", default_value = "yes", value_parser = BoolishValueParser::new(), action = ArgAction::Set)]
    pub give_back: bool,
    /// C: so much CPU time in every period, for all threads together, instead of what feedback finds out
    /// (mechanism ext)
    #[arg(long, value_name = "TIME", requires = "rhythm", conflicts_with_all = ["server_period", "controller"])]
    pub service: Option<Nanos>,
    /// A static reservation without feedback: this share of a CPU in every server period. deadline: one server per
    /// thread, the oldest threads first, up to --max-bandwidth in all; ext: one server for all threads
    #[arg(long, value_name = "CPUS", conflicts_with_all = ["service", "controller"])]
    pub fixed: Option<Share>,
    /// At most X of every Y periods may pass without their service (mechanism ext)
    #[arg(long, value_name = "X/Y")]
    pub window: Option<Window>,
    /// Get CPU time beyond the service before best effort does (mechanism ext)
    #[arg(long)]
    pub work_conserving: bool,
    /// Be favoured by pending events: those raised for it, and its wake-ups (mechanism ext)
    #[arg(long)]
    pub favour_events: bool,
    /// Where the budget of the next job is decided: user, or kernel (mechanism ext)
    #[arg(long, value_name = "PLACE", default_value_t = ControlPlace::User)]
    pub controller: ControlPlace,
    /// What to call it [default: the program's name]
    #[arg(long)]
    pub name: Option<String>,
}

impl ContractArgs {
    /// The contract for a program called `program`, checked.
    pub fn contract(&self, program: &str) -> Result<Contract, Failure> {
        let mut contract = match self.rhythm.period() {
            Some(period) => Contract::new(self.name(program), period),
            None => Contract { name: self.name(program).to_owned(), ..Contract::default() },
        };
        contract.jobs = match self.rhythm.period() {
            Some(_) => JobSource::Activations,
            None if self.auto => JobSource::Auto,
            None => JobSource::Consumption,
        };
        contract = contract.reclaimed_as(if self.hard { Reclaiming::Hard } else { self.reclaiming });
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
        let contract = contract.settled();
        contract.check().map_err(Failure::usage)?;
        Ok(contract)
    }

    fn name<'a>(&'a self, program: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(program)
    }
}

/// The parser of `--mechanism`.
pub fn mechanisms() -> impl TypedValueParser<Value = MechanismName> {
    PossibleValuesParser::new(MechanismName::ALL.map(MechanismName::name)).try_map(|name| name.parse::<MechanismName>())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        contract: ContractArgs,
    }

    fn contract(line: &str) -> Result<Contract, Failure> {
        let words = ["test"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(Failure::usage)?.contract.contract("prog")
    }

    #[test]
    fn the_line_of_the_guide_says_what_it_means() {
        let c = contract("--period 40ms --class A --max-bandwidth 0.4 --weight 2 --predictor mma:3,12").unwrap();
        assert_eq!((c.period, c.class, c.weight), (Nanos::from_millis(40), Class::A, 2));
        assert_eq!(c.predictor, PredictorSpec::Interleaved { n: 3, lanes: 12 });
        assert_eq!((c.max_bandwidth, c.jobs), (Share::from_ppm(400_000), JobSource::Activations));
        assert!(c.reclaiming == Reclaiming::Grub && c.name == "prog");
    }

    #[test]
    fn a_service_with_a_window_is_what_the_guide_says() {
        let c = contract("--period 40ms --service 10ms --window 1/5 --work-conserving --favour-events").unwrap();
        assert_eq!((c.service, c.server_period), (Some(Nanos::from_millis(10)), Nanos::from_millis(40)));
        assert_eq!((c.window, c.work_conserving, c.favour_events), (Window::new(1, 5).ok(), true, true));
        assert_eq!(c.promised(), Some(Share::from_ppm(200_000)));
        assert_eq!(contract("--fps 25 --controller kernel").unwrap().controller, ControlPlace::Kernel);
    }

    #[test]
    fn every_kind_of_reclaiming_has_its_name() {
        for kind in Reclaiming::ALL {
            assert_eq!(contract(&format!("--reclaiming {kind}")).unwrap().reclaiming, kind);
        }
        let soft = |line| contract(&format!("--period 40ms --reclaiming soft {line}")).unwrap().periods_per_job();
        assert_eq!((soft(""), soft("--server-period 10ms")), (1, 4));
        assert_eq!(contract("--hard").unwrap().reclaiming, Reclaiming::Hard);
        assert_eq!(contract("--no-reclaim").unwrap().reclaiming, Reclaiming::Hard);
        assert_eq!(contract("--reclaim").unwrap().reclaiming, Reclaiming::Grub);
    }

    #[test]
    fn a_fixed_share_is_a_static_server_on_every_mechanism() {
        let c = contract("--fixed 0.3 --hard").unwrap();
        assert_eq!((c.fixed, c.needs(), c.reclaiming), (Some(Share::from_ppm(300_000)), None, Reclaiming::Hard));
        assert_eq!(c.static_server().unwrap().budget(), Nanos::from_millis(3));
        let timed = contract("--fixed 0.3 --period 40ms --server-period 20ms").unwrap();
        assert_eq!(timed.static_server().unwrap().budget(), Nanos::from_millis(6));
    }

    #[test]
    fn an_unknown_period_means_that_only_consumption_is_looked_at() {
        assert_eq!(contract("").unwrap().jobs, JobSource::Consumption);
        assert_eq!(contract("--auto").unwrap().jobs, JobSource::Auto);
    }

    #[test]
    fn every_rate_has_a_sixteenth() {
        for fps in ["25", "29.97", "23.976", "59.94", "1000", "3"] {
            let c = contract(&format!("--fps {fps}")).unwrap();
            assert_eq!(c.period.get() % 16, 0, "{fps}");
            assert_eq!(c.periods_per_job(), 4, "{fps}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_value() {
        for (line, named) in [
            ("--fps 0", "\"0\""),
            ("--fps -3", "-3"),
            ("--period 40", "with its unit"),
            ("--period 0ms", "period 0 ms"),
            ("--period 40ms --server-period 7ms", "7 ms"),
            ("--predictor kalman:3", "mma:3,12"),
            ("--choose best", "left, middle"),
            ("--rho NaN", "NaN"),
            ("--rho -1", "-1"),
            ("--early 2", "2"),
            ("--recovery-jobs 0", "recovery_jobs (h) is 0"),
            ("--deviation -1", "deviation (Γ·P/T) is -1"),
            ("--weight 0", "weight is 0"),
            ("--priority 11", "11"),
            ("--class D", "\"D\""),
            ("--max-bandwidth 0", "budget 0 ms"),
            ("--fps 25 --period 40ms", "cannot be used with"),
            ("--hard --reclaim", "cannot be used with"),
            ("--hard --reclaiming soft", "cannot be used with"),
            ("--reclaiming cash", "use hard, soft, grub or iris"),
            ("--period 40ms --service 10ms --window 5/5", "5/5 lets every period be missed"),
            ("--period 40ms --service 10ms --window 6/5", "x must be below y"),
            ("--period 40ms --service 10ms --window 1/0", "1/0 counts over no period"),
            ("--period 40ms --service 10ms --window 1/256", "1/256 is longer than 255"),
            ("--period 40ms --service 10ms --window few", "\"few\" is not x/y"),
            ("--period 40ms --service 50ms", "service 50 ms is longer than the period 40 ms"),
            ("--period 40ms --service 39ms", "0.975 CPU, above the maximum bandwidth 0.95 CPU"),
            ("--period 40ms --service 0ms", "budget 0 ms"),
            ("--service 10ms", "--fps"),
            ("--fixed 0.3 --fps 25 --service 10ms", "cannot be used with"),
            ("--fixed 0.3 --fps 25 --controller kernel", "cannot be used with"),
            ("--auto --fps 25", "cannot be used with"),
            ("--auto --fixed 0.3", "cannot be used with"),
            ("--fixed 0.96", "fixed 0.96 CPU is above 0.95 CPU"),
            ("--fixed 0", "budget 0 ms"),
            ("--period 40ms --service 10ms --server-period 10ms", "cannot be used with"),
            ("--controller kernel", "no known period"),
            ("--period 40ms --controller kernel --predictor hint:24", "not hint:24"),
            ("--period 40ms --controller both", "user or kernel"),
        ] {
            let refusal = format!("{:?}", contract(line).unwrap_err());
            assert!(refusal.replace('\\', "").contains(named), "{line}: {refusal} does not name {named}");
        }
    }
}
