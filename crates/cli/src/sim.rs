//! `qfabric sim …`: without a kernel. Here `control`, the closed loop on a trace of computation times.

mod dwcs;
mod fabric;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use qfabric_sim::control_loop::{self, Options, Output, Summary};
use qfabric_types::{Choice, Nanos, PredictorSpec};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// A longer file is refused before it is read: a million jobs or tasks of 64 characters.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Runs real controllers without a kernel.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Control(Control),
    Dwcs(dwcs::Args),
    Fabric(fabric::Args),
}

const EXAMPLE: &str = "\
Example: qfabric sim control --trace film.trace --period 40ms --server-period 2.5ms --predictor mma:3,12

A trace has one job per line: its computation time in ns and, optionally, a hint known before it ran (such as
the bytes of a frame). Jobs before the predictor has its samples run at the maximum and count in no statistic.
Fractions are of the period, of jobs, or of one CPU.";

/// The closed loop of predictor and feedback law on a trace of computation times.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
struct Control {
    /// The trace; - for stdin
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// T: time from one job to the next
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    period: Nanos,
    /// P: period of the reservation; T must be a whole multiple
    #[arg(long, value_name = "TIME", default_value = "2.5ms")]
    server_period: Nanos,
    /// What says the next computation time: ma:N, mma:N,S, ol:TAPS,TRAINING, pct:N,PERCENT or hint:N
    #[arg(long, value_name = "SPEC", default_value_t = PredictorSpec::default())]
    predictor: PredictorSpec,
    /// ρ: half-width of the predicted interval in standard deviations
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    rho: f64,
    /// Which budget of those that hold the target: left, middle, right, zero or cost
    #[arg(long, visible_alias = "choice", value_name = "END", default_value_t = Choice::Left)]
    choose: Choice,
    /// e/T: how early a job may end, as a fraction of the period
    #[arg(long, value_name = "FRACTION", default_value_t = 0.2, allow_negative_numbers = true)]
    early: f64,
    /// E/T: how late a job may end, as a fraction of the period
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    late: f64,
    /// Never ask for more than this share of one CPU
    #[arg(long, value_name = "CPUS", default_value_t = 0.4, allow_negative_numbers = true)]
    max_bandwidth: f64,
    /// Every job and the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.what {
        What::Control(args) => control(&args),
        What::Dwcs(args) => dwcs::run(&args),
        What::Fabric(args) => fabric::run(&args),
    }
}

fn control(args: &Control) -> Outcome {
    let shown = args.trace.display().to_string();
    let text = read(&args.trace)?;
    let refused = |error: control_loop::Refused| Failure::usage(error).context(&shown);
    let trace = control_loop::parse(&text).map_err(refused)?;
    let output = control_loop::run(&trace, &args.options()).map_err(Failure::usage)?;
    if args.json {
        output::print(&json(&output)?)?;
    } else {
        output::print(&text_of(&output.summary, output.jobs.len(), args))?;
    }
    Ok(Done(0))
}

impl Control {
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

/// One job per line: a trace of a million jobs stays readable by line tools.
fn json(output: &Output) -> Result<String, Failure> {
    let mut text = String::from("{\"jobs\":[");
    for (i, job) in output.jobs.iter().enumerate() {
        text += if i == 0 { "\n" } else { ",\n" };
        text += &serde_json::to_string(job).map_err(Failure::fault)?;
    }
    let summary = serde_json::to_string(&output.summary).map_err(Failure::fault)?;
    Ok(text + "\n],\"summary\":" + &summary + "}\n")
}

fn text_of(summary: &Summary, jobs: usize, args: &Control) -> String {
    let percent = |fraction: f64| format!("{:.2} %", 100.0 * fraction);
    let spread = |mean: f64, sd: f64| format!("{} ± {}", percent(mean), percent(sd));
    let warm_up = jobs as u64 - summary.jobs;
    [
        format!("{} jobs every {} under {}, {warm_up} more to warm up", summary.jobs, args.period, args.predictor),
        format!("in target         {}", percent(summary.in_target)),
        format!("error / period    {}", spread(summary.mean_error, summary.sd_error)),
        format!("bandwidth         {} of one CPU", spread(summary.mean_bandwidth, summary.sd_bandwidth)),
        format!("mean demand       {} of one CPU", percent(summary.mean_demand)),
        format!("misses            {} jobs", summary.misses),
        format!("back in target    after {:.2} jobs on average\n", summary.recovery_jobs_mean),
    ]
    .join("\n")
}
