//! The options that describe a contract.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ArgAction;
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use qfabric_types::{
    Bytes, Choice, Class, Contract, ContractOptions, ControlPlace, JobRate, MechanismName, Nanos, PredictorSpec,
    Reclaiming, Share, Utility, Window,
};

use crate::exit::{Advice, Failure};

/// Number of bytes that are read of a file with utility functions: more than the texts of four metrics need.
const MOST_FILE: u64 = 65_536;

#[derive(clap::Args, Debug, Clone)]
#[group(id = "rhythm", multiple = false)]
pub(crate) struct Rhythm {
    /// Number of jobs per second, such as 25 for a film, from 0.2385 to 10000; the period T is 1/N, rounded to 16 ns
    #[arg(long, value_name = "N", conflicts_with = "period")]
    pub fps: Option<JobRate>,
    /// T: time from the release of a job to the next, such as 40ms; from 100us to 4.19s
    ///
    /// If neither --period nor --fps is given, `run` adapts the budget to the consumption and counts no jobs; `probe`
    /// looks for a period.
    #[arg(long, value_name = "TIME")]
    pub period: Option<Nanos>,
}

impl Rhythm {
    pub(crate) fn period(&self) -> Option<Nanos> {
        self.period.or(self.fps.map(JobRate::period))
    }
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ContractArgs {
    #[command(flatten)]
    pub rhythm: Rhythm,
    /// Find the period T in the activations of the program while it runs, and follow its changes
    ///
    /// Prints a period that is found, changed or lost. As long as no period is known, the budget follows the
    /// consumption.
    #[arg(long, conflicts_with_all = ["rhythm", "server_period", "service", "fixed", "controller"])]
    pub auto: bool,
    /// P: period of the reservation; T must be a whole multiple of P [default: T/4; with --reclaiming soft: T]
    ///
    /// A shorter P gives finer control and more context switches.
    #[arg(long, value_name = "TIME")]
    pub server_period: Option<Nanos>,
    /// Guarantee: A and B have a guaranteed part of the CPU, C shares the capacity that remains
    ///
    /// A keeps the target interval and returns to it within --recovery-jobs jobs. B returns to it at some time. C
    /// guarantees nothing. If the guaranteed part is not free, the contract is refused with exit code 3.
    #[arg(long, default_value_t = Class::C)]
    pub class: Class,
    /// Largest bandwidth to request, in CPUs; use more than 1 for a program with several busy threads
    #[arg(long, value_name = "CPUS", default_value = "0.95")]
    pub max_bandwidth: Share,
    /// Guaranteed part for class A and B, in CPUs, at most --max-bandwidth [default: derived from --profile, else a
    /// --max-bandwidth that you set]
    #[arg(long, value_name = "CPUS")]
    pub guaranteed: Option<Share>,
    /// h: number of jobs within which class A returns to its target interval, 1 to 1000
    #[arg(long, value_name = "JOBS", default_value_t = 10)]
    pub recovery_jobs: u32,
    /// Γ: largest deviation from which class A returns within --recovery-jobs, as a fraction of T, 0 to 100
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, allow_negative_numbers = true)]
    pub deviation: f64,
    /// Weight inside the priority level when the capacity does not suffice for all, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u32,
    /// Priority level when the capacity does not suffice for all, 0 (last) to 9 (first)
    #[arg(long, value_name = "LEVEL", default_value_t = 5)]
    pub priority: u8,
    /// Predictor of the next computation time: ma:N, mma:N,S, ol:TAPS,TRAINING, pct:N,PERCENT or hint:N
    ///
    /// ma: average of the last N jobs. mma: S interleaved averages of N jobs each, for a pattern that repeats every S
    /// jobs. ol: TAPS coefficients found by least squares over TRAINING jobs, at most 64,512. pct: percentile, 50 to
    /// 100, of the last N jobs. hint: regression of the last N jobs on the hints of the application. N is at most 4096.
    #[arg(long, value_name = "SPEC", default_value_t = PredictorSpec::default())]
    pub predictor: PredictorSpec,
    /// Budget to choose among those that keep the target interval: left, middle, right, zero or cost
    ///
    /// left: least bandwidth. right: most tolerant of jobs longer than predicted. middle: mean of both. zero:
    /// scheduling error zero if possible. cost: least expected cost of bandwidth and of the uncertainty of the next
    /// error.
    #[arg(long, visible_alias = "choice", value_name = "END", default_value_t = Choice::Left)]
    pub choose: Choice,
    /// ρ: half-width of the predicted interval in standard deviations, 0 to 100; a larger value reserves more
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub rho: f64,
    /// e/T: time before its deadline at which a job may end and be on target, as a fraction of T, 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t = 0.2, allow_negative_numbers = true)]
    pub early: f64,
    /// E/T: time after its deadline at which a job may end and be on target, as a fraction of T, 0 to 100
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    pub late: f64,
    /// Rule for a server that has used its budget: hard, soft, grub or iris
    ///
    /// hard: wait for the next period. soft: continue with a new budget and a deadline one period later. grub: the
    /// budget lasts longer while other servers sleep. iris: the next period begins early when the CPU would idle. soft
    /// and iris need the mechanism ext, and cannot be combined with --window.
    #[arg(long, value_name = "KIND", default_value_t = Reclaiming::Grub)]
    pub reclaiming: Reclaiming,
    /// Same as --reclaiming grub
    #[arg(long, conflicts_with_all = ["hard", "reclaiming"])]
    pub reclaim: bool,
    /// Same as --reclaiming hard: never use more than the budget of a server period
    #[arg(long, visible_alias = "no-reclaim", conflicts_with = "reclaiming")]
    pub hard: bool,
    /// Keep only a part of the reservation between jobs when applications compete for the capacity: yes or no
    ///
    /// Has an effect only for programs that mark their jobs, with GRUB, the mechanism deadline and a period of at least
    /// 10 ms.
    #[arg(long, value_name = "YES|NO", default_value = "yes", value_parser = BoolishValueParser::new(), action = ArgAction::Set)]
    pub give_back: bool,
    /// C: fixed CPU time in every period for all threads together, at most T; needs the mechanism ext or dispatcher
    ///
    /// Replaces the budget that feedback finds. Needs --period or --fps. C/T must not exceed --max-bandwidth.
    #[arg(long, value_name = "TIME", requires = "rhythm", conflicts_with_all = ["server_period", "controller"])]
    pub service: Option<Nanos>,
    /// Static reservation without feedback: this share of one CPU in every server period, at most --max-bandwidth
    ///
    /// Mechanism deadline: one server for each thread, the oldest threads first, up to --max-bandwidth in total.
    /// Mechanisms ext and dispatcher: one server for all threads.
    #[arg(long, value_name = "CPUS", conflicts_with_all = ["service", "controller"])]
    pub fixed: Option<Share>,
    /// At most X of every Y periods may pass without their service, Y at most 255; needs the mechanism ext
    #[arg(long, value_name = "X/Y")]
    pub window: Option<Window>,
    /// Use CPU time beyond the service, before best effort does; needs the mechanism ext
    #[arg(long)]
    pub work_conserving: bool,
    /// Run before others when an event was raised for the program or woke it; needs the mechanism ext
    #[arg(long)]
    pub favour_events: bool,
    /// Place where the budget of the next job is decided: user or kernel
    ///
    /// kernel needs the mechanism ext, a known period, and the predictor ma:N or mma:N,S.
    #[arg(long, value_name = "PLACE", default_value_t = ControlPlace::User)]
    pub controller: ControlPlace,
    /// Memory of the program that stays resident under memory pressure, such as 64M; 0 for none
    ///
    /// Counted against memory.global_reserve of the daemon. Keeping the promise needs the memory controller of cgroup v2;
    /// `qfabric doctor` shows whether this host has it.
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub memory: Bytes,
    /// TOML file with utility functions: what each level of a metric is worth, and the CPU time it takes
    ///
    /// Under overload, programs of one user with equal --priority and a utility share the CPU so that the sum of their
    /// utilities times --weight is the highest, and `qfabric status` shows the best levels. The file has a table
    /// [[metrics]] for each of up to 4 metrics: name, min, max, step, and E-code in utility and cpu (millionths of a
    /// CPU). Both must not fall as the level rises.
    #[arg(long, value_name = "FILE")]
    pub utility: Option<PathBuf>,
    /// Name of the application, 1 to 64 characters [default: the name of the program's file]
    #[arg(long)]
    pub name: Option<String>,
}

impl ContractArgs {
    /// The contract that the options describe. Its name is `program` unless `--name` is given.
    ///
    /// # Errors
    /// A value is out of range, or two options contradict each other.
    pub(crate) fn contract(&self, program: &str) -> Result<Contract, Failure> {
        self.options()?.contract(program).map_err(|error| Failure::usage(Advice(&error.problem())))
    }

    fn options(&self) -> Result<ContractOptions, Failure> {
        Ok(ContractOptions {
            name: self.name.clone(),
            period: self.rhythm.period,
            fps: self.rhythm.fps,
            auto: self.auto,
            server_period: self.server_period,
            class: self.class,
            max_bandwidth: self.max_bandwidth,
            guaranteed: self.guaranteed,
            recovery_jobs: self.recovery_jobs,
            deviation: self.deviation,
            weight: self.weight,
            priority: self.priority,
            predictor: self.predictor,
            choose: self.choose,
            rho: self.rho,
            early: self.early,
            late: self.late,
            reclaiming: if self.hard { Reclaiming::Hard } else { self.reclaiming },
            give_back: self.give_back,
            service: self.service,
            fixed: self.fixed,
            window: self.window,
            work_conserving: self.work_conserving,
            favour_events: self.favour_events,
            controller: self.controller,
            memory: self.memory,
            utility: self.utility.as_deref().map(read_utility).transpose()?,
        })
    }
}

/// Reads the utility functions of a file.
fn read_utility(path: &Path) -> Result<Utility, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::usage(format!("--utility {}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| about(&error))?;
    let mut text = String::new();
    let read = file.take(MOST_FILE + 1).read_to_string(&mut text).map_err(|error| about(&error))?;
    if read as u64 > MOST_FILE {
        return Err(about(&format!("the file is longer than {MOST_FILE} bytes")));
    }
    toml::from_str(&text).map_err(|error| about(&error))
}

pub(crate) fn mechanisms() -> impl TypedValueParser<Value = MechanismName> {
    PossibleValuesParser::new(MechanismName::ALL.map(MechanismName::name)).try_map(|name| name.parse::<MechanismName>())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use qfabric_types::JobSource;

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
    fn the_example_of_the_guide_gives_the_contract_that_it_describes() {
        let c = contract("--period 40ms --class A --max-bandwidth 0.4 --weight 2 --predictor mma:3,12").unwrap();
        assert_eq!((c.period, c.class, c.weight), (Nanos::from_millis(40), Class::A, 2));
        assert_eq!(c.predictor, PredictorSpec::Interleaved { n: 3, lanes: 12 });
        assert_eq!((c.max_bandwidth, c.jobs), (Share::from_ppm(400_000), JobSource::Activations));
        assert!(c.reclaiming == Reclaiming::Grub && c.name == "prog");
    }

    #[test]
    fn a_service_with_a_window_gives_the_contract_that_the_guide_describes() {
        let c = contract("--period 40ms --service 10ms --window 1/5 --work-conserving --favour-events").unwrap();
        assert_eq!((c.service, c.server_period), (Some(Nanos::from_millis(10)), Nanos::from_millis(40)));
        assert_eq!((c.window, c.work_conserving, c.favour_events), (Window::new(1, 5).ok(), true, true));
        assert_eq!(c.promised(), Some(Share::from_ppm(200_000)));
        assert_eq!(contract("--fps 25 --controller kernel").unwrap().controller, ControlPlace::Kernel);
    }

    #[test]
    fn every_kind_of_reclaiming_is_parsed_by_its_name() {
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
    fn a_fixed_share_needs_no_special_mechanism() {
        let c = contract("--fixed 0.3 --hard").unwrap();
        assert_eq!((c.fixed, c.needs(), c.reclaiming), (Some(Share::from_ppm(300_000)), None, Reclaiming::Hard));
        assert_eq!(c.static_server().unwrap().budget(), Nanos::from_millis(3));
        let timed = contract("--fixed 0.3 --period 40ms --server-period 20ms").unwrap();
        assert_eq!(timed.static_server().unwrap().budget(), Nanos::from_millis(6));
    }

    #[test]
    fn without_a_period_the_jobs_are_unknown() {
        assert_eq!(contract("").unwrap().jobs, JobSource::Consumption);
        assert_eq!(contract("--auto").unwrap().jobs, JobSource::Auto);
    }

    #[test]
    fn the_period_of_every_rate_is_a_multiple_of_16_ns() {
        for fps in ["25", "29.97", "23.976", "59.94", "1000", "3", "0.2385"] {
            let c = contract(&format!("--fps {fps}")).unwrap();
            assert_eq!(c.period.get() % 16, 0, "{fps}");
            assert_eq!(c.periods_per_job(), 4, "{fps}");
        }
    }

    #[test]
    fn a_file_with_utility_functions_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("utility.toml");
        std::fs::write(&file, "#".repeat(70_000)).unwrap();
        let refusal = format!("{:?}", read_utility(&file).unwrap_err());
        assert!(refusal.contains("longer than 65536 bytes"), "{refusal}");
    }

    #[test]
    fn an_amount_of_memory_is_parsed_with_its_unit() {
        assert_eq!(contract("--memory 64M").unwrap().memory, Bytes::from_mib(64));
        assert_eq!(contract("").unwrap().memory, Bytes::ZERO);
    }

    /// Invalid options, and words of their refusals.
    const INVALID: [(&str, &str); 45] = [
        ("--fps 0", "\"0\" is not a number of jobs per second from 0.2385 to 10000; choose one"),
        ("--fps -3", "-3"),
        ("--fps NaN", "NaN"),
        ("--fps 0.21", "\"0.21\" is not a number of jobs per second from 0.2385"),
        ("--fps 0.2384", "\"0.2384\" is not a number of jobs per second from 0.2385"),
        ("--fps 1e-300", "from 0.2385"),
        ("--fps 10001", "to 10000"),
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
        ("--period 40ms --service 10ms --window 6/5", "use x below y"),
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
        ("--memory 64Q", "such as 64M"),
        ("--controller kernel", "an unknown period"),
        ("--period 40ms --controller kernel --predictor hint:24", "not hint:24"),
        ("--period 40ms --controller both", "user or kernel"),
    ];

    #[test]
    fn an_invalid_option_is_refused_with_its_value() {
        for (line, named) in INVALID {
            let refusal = format!("{:?}", contract(line).unwrap_err());
            assert!(refusal.replace('\\', "").contains(named), "{line}: {refusal} does not name {named}");
        }
    }
}
