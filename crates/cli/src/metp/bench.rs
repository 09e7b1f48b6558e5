//! `qfabric metp bench`: METP beside other transports of video, over an emulated link.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_netlab::{Lab, LinkRate, LinkSettings, LossModel, QueueLimit, Scenario, enter_user_namespace};
use qfabric_transport_bench::{Engine, Experiment, MOST_FRAMES, Options};
use qfabric_types::{BitRate, Nanos, Share};

use crate::exit::{Done, Failure, Outcome};
use crate::{interrupt, lab, output};

/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "\
Examples: qfabric metp bench --loss 2% --rtt 40ms --rate 30M --frames 400
          qfabric metp bench --loss ge:1%,30% --engines metp,srt120 --rounds 5 --json
          qfabric metp bench --scenario 5.1 --engines metp,quic,tcp --rounds 1

An engine that is not installed is named with the command that installs it. Ctrl-C prints the results so far; the exit code \
is 130 then.";

/// Compares transports of video: frames of a real clip, each with a deadline, over an emulated link.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Loss of packets in both directions: a probability, or ge:P,R for bursts (Gilbert-Elliott) [default: 2%, and 0% with
    /// --beside]
    #[arg(long, value_name = "LOSS")]
    loss: Option<LossModel>,
    /// Time that a packet takes from one end to the other and back
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    rtt: Nanos,
    /// Rate of the link in both directions, in bits per second of IP packets
    #[arg(long, value_name = "RATE", default_value = "30M")]
    rate: BitRate,
    /// Size of the queue before the link, as a time or an amount
    #[arg(long, value_name = "SIZE", default_value = "100ms")]
    queue: QueueLimit,
    /// Test case of RFC 8867 with its link, media flows and TCP traffic: 5.1 to 5.8. No rate is granted; the report has a
    /// row for each flow
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["loss", "rtt", "rate", "queue", "frames", "granted", "beside", "loopback"])]
    scenario: Option<Scenario>,
    /// With --scenario: divides all times of the test case, which take 100 to 300 s
    #[arg(long, value_name = "N", default_value_t = 1, requires = "scenario", value_parser = clap::value_parser!(u32).range(1..=100))]
    shorten: u32,
    /// Number of frames of a run, 25 a second
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=i64::from(MOST_FRAMES)))]
    frames: u32,
    /// Time from when a frame is due at the sender until it must be at the receiver [default: 200ms; 400ms with --scenario]
    #[arg(long, value_name = "TIME")]
    deadline: Option<Nanos>,
    /// Rate that is reserved for the stream; engines that take a rate get it [default: nine tenths of --rate;
    /// half of it with --beside; 10G with --loopback]
    #[arg(long, value_name = "RATE")]
    granted: Option<BitRate>,
    /// Number of rounds; in each round all engines take turns in random order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seed of the losses and of the engines' order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Engines, separated by commas [default: all that this machine has]
    #[arg(long, value_name = "ENGINE", value_delimiter = ',')]
    engines: Vec<Engine>,
    /// A video file whose frames are sent [default: a clip of H.264, 1080p, groups of 12 frames]
    #[arg(long, value_name = "FILE")]
    clip: Option<PathBuf>,
    /// Send a TCP flow over the same link: HTB at the sender keeps the granted rate for the frames
    #[arg(long, value_name = "FLOW")]
    beside: Option<Beside>,
    /// Measure throughput on the loopback of this host: frames of 200,000 bytes without deadlines
    #[arg(long, conflicts_with_all = ["beside", "loss", "rtt", "rate", "queue", "clip", "deadline"])]
    loopback: bool,
    /// Run all processes with the default policy; otherwise at SCHED_FIFO, so that other programs do not delay them
    #[arg(long)]
    fair: bool,
    /// Print JSON: one row for each engine, and all runs
    #[arg(long)]
    json: bool,
}

/// A flow beside the frames.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Beside {
    /// TCP with Cubic, as fast as it can
    Tcp,
}

pub(crate) fn run(args: Args) -> Outcome {
    let stop = interrupt::interrupted()?;
    let is_json = args.json;
    let options = options(args, &stop)?;
    if options.experiment != Experiment::Loopback {
        check_link(&options)?;
    }
    let report = qfabric_transport_bench::run(&options).map_err(|error| Failure::fault(format!("{error:#}")))?;
    if is_json {
        output::print_json(&report)?;
    } else {
        output::print(&report.text())?;
    }
    Ok(Done(if stop.load(Ordering::Relaxed) { INTERRUPTED } else { 0 }))
}

/// Fails at once if links cannot be made, or if no link has these properties.
fn check_link(options: &Options) -> Result<(), Failure> {
    // Before any thread starts.
    enter_user_namespace().map_err(lab::failure)?;
    Lab::new(&options.lab(options.seed)).map(drop).map_err(lab::failure)
}

fn experiment(args: &Args) -> Experiment {
    match (args.scenario, args.beside) {
        (Some(case), _) => Experiment::Rfc8867 { case, shorten: args.shorten },
        _ if args.loopback => Experiment::Loopback,
        (None, Some(Beside::Tcp)) => Experiment::BesideTcp,
        (None, None) => Experiment::Deadlines,
    }
}

/// Rate and loss that fit the experiment, if the user names none.
fn defaults(args: &Args, experiment: Experiment) -> (BitRate, LossModel) {
    let of_rate = |tenths| BitRate::new(args.rate.get() / 10 * tenths);
    let two_percent = || LossModel::Random(Share::from_f64(0.02));
    match experiment {
        Experiment::Deadlines | Experiment::Rfc8867 { .. } => (of_rate(9), two_percent()),
        Experiment::BesideTcp => (of_rate(5), LossModel::None),
        Experiment::Loopback => (BitRate::new(10_000_000_000), LossModel::None),
    }
}

fn deadline(experiment: Experiment) -> Nanos {
    match experiment {
        Experiment::Rfc8867 { .. } => Options::RFC8867_DEADLINE,
        _ => Nanos::from_millis(200),
    }
}

fn options(args: Args, stop: &Arc<AtomicBool>) -> Result<Options, Failure> {
    let experiment = experiment(&args);
    let (granted, loss) = defaults(&args, experiment);
    let program = std::env::current_exe()?;
    Ok(Options {
        experiment,
        is_real_time: !args.fair,
        link: LinkSettings {
            rate: LinkRate::Constant(args.rate),
            queue: args.queue,
            delay: Nanos::new(args.rtt.get() / 2),
            loss: args.loss.unwrap_or(loss),
            ..LinkSettings::default()
        },
        frames: args.frames,
        deadline: args.deadline.unwrap_or(deadline(experiment)),
        granted: args.granted.unwrap_or(granted),
        rounds: args.rounds,
        seed: args.seed,
        engines: args.engines,
        clip: args.clip,
        player: (program, ["metp", "bench-player"].map(str::to_owned).to_vec()),
        stop: stop.clone(),
        progress: Box::new(|line| output::note(format_args!("{line}"))),
    })
}

/// A process of an engine.
pub(crate) fn play(words: &[String]) -> Outcome {
    qfabric_transport_bench::play(words).map_err(|error| Failure::fault(format!("{error:#}")))?;
    Ok(Done(0))
}
