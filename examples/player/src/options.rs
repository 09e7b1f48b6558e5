//! Options of the player.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use qfabric_types::{Choice, Class, Nanos, PredictorSpec, Reclaiming, Share};

/// Decode a video stream frame by frame at a fixed rate, and log what each frame cost and when it was ready.
#[derive(Parser, Debug)]
#[command(
    version,
    args_override_self = true,
    after_help = "Example:\n  qfabric-player clip.mkv --seconds 10 --qfabric --predictor hint:24 --log jobs.jsonl"
)]
pub struct Options {
    /// The stream to decode; loops when it is shorter than the duration.
    #[arg(required_unless_present = "hog")]
    pub clip: Option<PathBuf>,
    /// Frames per second.
    #[arg(long, default_value_t = 25.0)]
    pub fps: f64,
    /// Frame period, instead of frames per second.
    #[arg(long = "period", value_name = "TIME", conflicts_with = "fps")]
    pub frame_period: Option<Nanos>,
    /// How long to play; frames not ready by then are not waited for longer than --grace.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of frames to play, instead of a duration.
    #[arg(long = "jobs", value_name = "N", conflicts_with = "seconds")]
    pub job_count: Option<usize>,
    /// Seconds after the last deadline in which late frames are still decoded.
    #[arg(long, default_value_t = 1.0)]
    pub grace: f64,
    /// Frame of the clip to start at.
    #[arg(long, default_value_t = 0)]
    pub start_at: usize,
    /// Load shift: from job --shift-at on decode this stream instead.
    #[arg(long, value_name = "CLIP", requires = "shift_at")]
    pub then: Option<PathBuf>,
    /// The job at which the load shifts.
    #[arg(long, value_name = "JOB")]
    pub shift_at: Option<u64>,
    /// Which B frames are not decoded; no other frame needs them. `predicted` uses --predictor and --profile.
    #[arg(long, value_enum, default_value_t = Skip::None)]
    pub skip: Skip,
    /// A trace of the whole clip: its costs are told to the daemon as foresight, instead of hints.
    #[arg(long, value_name = "TRACE", requires = "qfabric", conflicts_with = "skip")]
    pub oracle: Option<PathBuf>,
    /// The same for the clip of --then.
    #[arg(long, value_name = "TRACE", requires = "oracle")]
    pub then_oracle: Option<PathBuf>,
    /// Scheduling without Q-Fabric.
    #[arg(long, value_enum, default_value_t = Policy::None)]
    pub policy: Policy,
    /// Write one JSON object per job, after the last one.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Decode the clip once at full speed and write `c_ns bytes` per job: input for `qfabric sim control`.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print `ready`, then wait for a line on standard input: the CLOCK_MONOTONIC nanosecond to start at.
    #[arg(long)]
    pub wait: bool,
    /// Be killed when the parent process ends; not even start where PARENT is not the parent any more.
    #[arg(long, value_name = "PARENT")]
    pub die_with_parent: Option<i32>,
    /// Decode nothing; burn CPU time until killed.
    #[arg(long)]
    pub hog: bool,
    #[command(flatten)]
    pub contract: ContractOptions,
}

/// Under which contract the frames are decoded.
#[derive(clap::Args, Debug)]
pub struct ContractOptions {
    /// Ask the daemon for a contract and report each frame to it.
    #[arg(long)]
    pub qfabric: bool,
    /// The daemon's socket; found by itself when not given.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Name of the application.
    #[arg(long, default_value = "player")]
    pub name: String,
    /// What is guaranteed: A, B or C.
    #[arg(long, default_value = "C")]
    pub class: Class,
    /// Period of the reservation, a whole part of the frame period.
    #[arg(long, value_name = "TIME")]
    pub server_period: Option<Nanos>,
    /// What says the next computation time; hint:N uses the bytes of the frame.
    #[arg(long, default_value = "hint:24")]
    pub predictor: PredictorSpec,
    /// Which point of the interval of budgets is taken.
    #[arg(long, default_value = "left")]
    pub choose: Choice,
    /// Half-width of the predicted interval in standard deviations.
    #[arg(long, default_value_t = 1.0)]
    pub rho: f64,
    /// How early a frame may be, as a fraction of the frame period.
    #[arg(long, default_value_t = 0.2)]
    pub early: f64,
    /// How late a frame may be, as a fraction of the frame period.
    #[arg(long, default_value_t = 0.0)]
    pub late: f64,
    /// Never ask for more than this share of one CPU.
    #[arg(long, default_value = "0.95")]
    pub max_bandwidth: Share,
    /// What happens at the end of the budget: hard, soft, grub or iris.
    #[arg(long, value_name = "KIND", default_value_t = Reclaiming::Grub)]
    pub reclaiming: Reclaiming,
    /// The same as --reclaiming hard.
    #[arg(long, conflicts_with = "reclaiming")]
    pub hard: bool,
    /// Where jobs compete, keep only a part of the reservation between frames: yes or no.
    #[arg(long, value_name = "YES|NO", default_value = "yes", value_parser = clap::builder::BoolishValueParser::new(),
        action = clap::ArgAction::Set)]
    pub give_back: bool,
    /// A trace (`c_ns bytes` per line) of a trial execution, to start from.
    #[arg(long, value_name = "TRACE")]
    pub profile: Option<PathBuf>,
}

/// Scheduling without Q-Fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// As the process was started.
    None,
    /// nice −20.
    Nice,
}

/// Which B frames a player does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Skip {
    /// None: every frame is decoded, however late.
    None,
    /// Those whose deadline has passed when their turn comes.
    Late,
    /// Those that would end after their deadline, by the predicted cost.
    Predicted,
}

impl Options {
    /// T. Refused outside 1 to 1000 frames per second.
    pub fn period(&self) -> Result<Nanos> {
        if let Some(period) = self.frame_period {
            let fits = (Nanos::from_millis(1)..=Nanos::from_millis(1_000)).contains(&period);
            ensure!(fits, "--period {period} is not between 1ms and 1s");
            return Ok(period);
        }
        ensure!((1.0..=1000.0).contains(&self.fps), "--fps {} is not between 1 and 1000", self.fps);
        Ok(Nanos::from_f64(1e9 / self.fps))
    }

    /// Jobs whose deadlines lie inside the duration. Refused outside one job to one day.
    pub fn jobs(&self) -> Result<usize> {
        ensure!((0.0..=86_400.0).contains(&self.seconds), "--seconds {} is not between 0 and 86400", self.seconds);
        ensure!((0.0..=3_600.0).contains(&self.grace), "--grace {} is not between 0 and 3600", self.grace);
        let jobs = self.job_count.unwrap_or((self.seconds * 1e9 / self.period()?.as_f64()).round() as usize);
        ensure!(jobs > 0, "{} s hold no frame of {}; use --seconds or --jobs", self.seconds, self.period()?);
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn nonsense_is_refused_with_its_value() {
        for (line, named) in
            [("p c.mkv --fps 0", "0"), ("p c.mkv --fps NaN", "NaN"), ("p c.mkv --seconds 1e9", "1000000000")]
        {
            let options = parsed(line).unwrap();
            let refusal = options.period().map(drop).and_then(|()| options.jobs().map(drop)).unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
        assert!(parsed("p").is_err() && parsed("p c.mkv --predictor kalman:3").is_err());
    }

    #[test]
    fn ten_seconds_at_25_frames_are_250_jobs_of_40_ms() {
        let options = parsed("p c.mkv").unwrap();
        assert_eq!((options.jobs().unwrap(), options.period().unwrap()), (250, Nanos::from_millis(40)));
        let options = parsed("p c.mkv --period 50ms --jobs 7").unwrap();
        assert_eq!((options.jobs().unwrap(), options.period().unwrap()), (7, Nanos::from_millis(50)));
        assert!(parsed("p c.mkv --period 2s").unwrap().period().unwrap_err().to_string().contains("--period"));
    }
}
