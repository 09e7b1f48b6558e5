//! `qfabric sim`: simulations without a kernel. This file has `control`, the closed loop on a trace of computation
//! times.

mod compare;
mod conference;
mod dwcs;
mod energy;
mod fabric;
mod grid;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use qfabric_sim::control_loop::{self, Job, Options, Output, Summary};
use qfabric_sim::streams;
use qfabric_types::{Choice, Nanos, PredictorSpec, Share};

use self::compare::{Controller, Row};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Largest input file. It holds a million jobs or tasks of 64 characters each.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Simulates controllers, schedulers and networks of hosts without a kernel.
///
/// The simulations run the same code as production.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Conference(conference::Args),
    Control(Control),
    Dwcs(dwcs::Args),
    Energy(energy::Args),
    Fabric(fabric::Args),
    Grid(grid::Args),
}

const EXAMPLE: &str = "\
Examples: qfabric sim control --trace film.trace --period 40ms --server-period 2.5ms --predictor mma:3,12
          qfabric sim control --stream 1 --server-period 1ms --max-bandwidth 0.25 --choose middle \\
              --predictor mma:3,12 --against ol:36,60 --against ol:45,120 --against 20% \\
              --against 25% --svg figure8.svg

A trace has one line for each job: its computation time in ns and, optionally, a hint that was known before the job ran, \
such as the bytes of a video frame. Jobs of the warm-up, before the predictor has its samples, run with the largest budget \
and count in no statistic. Fractions are of the period, of the number of jobs, or of one CPU.";

/// Simulates the closed loop of predictor and feedback law on a trace of computation times.
///
/// Ends with 2 if the trace or an option is invalid.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
struct Control {
    /// File with the trace, at most 64 MiB; - is the standard input
    #[arg(long, value_name = "FILE", required_unless_present = "stream")]
    trace: Option<PathBuf>,
    /// Use 8000 jobs with the statistics of the paper's first or second video stream, instead of a trace
    #[arg(long, value_name = "1|2", conflicts_with = "trace", value_parser = clap::value_parser!(u8).range(1..=2))]
    stream: Option<u8>,
    /// T: time from the release of a job to the next
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    period: Nanos,
    /// P: period of the reservation; T must be a whole multiple of P
    #[arg(long, value_name = "TIME", default_value = "2.5ms")]
    server_period: Nanos,
    /// Predictor of the next computation time: ma:N, mma:N,S, ol:TAPS,TRAINING, pct:N,PERCENT or hint:N
    #[arg(long, value_name = "SPEC", default_value_t = PredictorSpec::default())]
    predictor: PredictorSpec,
    /// ρ: half-width of the predicted interval in standard deviations; a larger value reserves more
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    rho: f64,
    /// Budget to choose among those that keep the target interval: left, middle, right, zero or cost
    #[arg(long, visible_alias = "choice", value_name = "END", default_value_t = Choice::Left)]
    choose: Choice,
    /// e/T: time before its deadline at which a job may end and be on target, as a fraction of T
    #[arg(long, value_name = "FRACTION", default_value_t = 0.2, allow_negative_numbers = true)]
    early: f64,
    /// E/T: time after its deadline at which a job may end and be on target, as a fraction of T
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    late: f64,
    /// Largest bandwidth to request, as a share of one CPU, at most 1
    #[arg(long, value_name = "CPUS", default_value_t = 0.4, allow_negative_numbers = true)]
    max_bandwidth: f64,
    /// Fixed share of one CPU instead of feedback
    #[arg(long, value_name = "CPUS", conflicts_with = "predictor")]
    fixed: Option<Share>,
    /// Rival controller to run on the same trace: a predictor, or a fixed share such as 25%; may be repeated
    #[arg(long, value_name = "CONTROLLER")]
    against: Vec<Controller>,
    /// Draw the distribution of the scheduling errors of all controllers into this file (AQuoSA, Figure 8)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the distribution and the autocorrelation of the costs into this file (AQuoSA, Figure 7)
    #[arg(long, value_name = "FILE")]
    trace_svg: Option<PathBuf>,
    /// Print every job and the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Conference(args) => conference::run(&args),
        Command::Control(args) => control(&args),
        Command::Dwcs(args) => dwcs::run(&args),
        Command::Energy(args) => energy::run(&args),
        Command::Fabric(args) => fabric::run(&args),
        Command::Grid(args) => grid::run(&args),
    }
}

fn control(args: &Control) -> Outcome {
    compare::check_writable([&args.svg, &args.trace_svg])?;
    let (name, trace) = args.jobs()?;
    let options = args.options();
    let output = control_loop::run(&trace, &options).map_err(Failure::usage)?;
    let rivals = compare::rivals(&args.against, &trace, &options)?;
    if args.json {
        output::print(&json(&output, &rivals)?)?;
    } else {
        output::print(&text_of(&output.summary, output.jobs.len(), args))?;
    }
    let mut rows = vec![Row::of(args.controller(), &output, &options)];
    rows.extend(rivals);
    if rows.len() > 1 && !args.json {
        output::print(&compare::table(&rows))?;
    }
    if let Some(path) = &args.svg {
        compare::draw_errors(path, &rows, &options)?;
    }
    if let Some(path) = &args.trace_svg {
        compare::draw_trace(path, &name, &trace, &options)?;
    }
    Ok(Done(0))
}

/// Jobs of a stream: the number in the paper's overhead experiments.
const STREAM_JOBS: usize = 8_000;

impl Control {
    /// The name of the trace, and the trace.
    fn jobs(&self) -> Result<(String, Vec<Job>), Failure> {
        let make = match self.stream {
            Some(1) => streams::stream_1,
            Some(_) => streams::stream_2,
            None => return self.read_jobs(),
        };
        let name = format!("stream {}", self.stream.unwrap_or_default());
        Ok((name, make(STREAM_JOBS, streams::SHOWN_SEED)))
    }

    fn read_jobs(&self) -> Result<(String, Vec<Job>), Failure> {
        let path = self.trace.as_deref().unwrap_or(Path::new("-"));
        let shown = path.display().to_string();
        let refused = |error: control_loop::Refused| Failure::usage(error).context(&shown);
        let trace = control_loop::parse(&read(path)?).map_err(refused)?;
        Ok((shown, trace))
    }

    fn controller(&self) -> Controller {
        self.fixed.map_or(Controller::Feedback(self.predictor), Controller::Fixed)
    }

    fn options(&self) -> Options {
        Options {
            period: self.period,
            server_period: self.server_period,
            predictor: self.predictor,
            rho: self.rho,
            choice: self.choose,
            early: self.early,
            late: self.late,
            max_bandwidth: self.max_bandwidth,
            fixed: self.fixed.map(Share::as_f64),
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let failure = |error: io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let source: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(failure)?) };
    let mut text = String::new();
    let length = source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failure)?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(Failure::usage(format!("{} is longer than {MAX_FILE_BYTES} bytes; split it", path.display())));
    }
    Ok(text)
}

/// JSON with one line for each job, so that line tools can read a trace of a million jobs.
fn json(output: &Output, rivals: &[Row]) -> Result<String, Failure> {
    let mut text = String::from("{\"jobs\":[");
    for (i, job) in output.jobs.iter().enumerate() {
        text += if i == 0 { "\n" } else { ",\n" };
        text += &serde_json::to_string(job).map_err(Failure::fault)?;
    }
    let summary = serde_json::to_string(&output.summary).map_err(Failure::fault)?;
    text += &format!("\n],\"summary\":{summary}");
    if !rivals.is_empty() {
        text += &format!(",\"against\":{}", serde_json::to_string(rivals).map_err(Failure::fault)?);
    }
    Ok(text + "}\n")
}

fn text_of(summary: &Summary, jobs: usize, args: &Control) -> String {
    let percent = |fraction: f64| format!("{:.2} %", 100.0 * fraction);
    let spread = |mean: f64, sd: f64| format!("{} ± {}", percent(mean), percent(sd));
    let warm_up = jobs as u64 - summary.jobs;
    let under = args.controller().name();
    [
        format!("{} jobs every {} under {under}, {warm_up} more to warm up", summary.jobs, args.period),
        format!("in target         {}", percent(summary.in_target)),
        format!("error / period    {}", spread(summary.mean_error, summary.sd_error)),
        format!("bandwidth         {} of one CPU", spread(summary.mean_bandwidth, summary.sd_bandwidth)),
        format!("mean demand       {} of one CPU", percent(summary.mean_demand)),
        format!("misses            {} jobs", summary.misses),
        format!("back in target    after {:.2} jobs on average\n", summary.recovery_jobs_mean),
    ]
    .join("\n")
}
