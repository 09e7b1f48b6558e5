use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use qfabric_types::{Choice, Class, Nanos, PredictorSpec, Reclaiming, Share};

/// Decode a video stream frame by frame at a fixed rate, and log when each frame was ready and how much CPU time
/// it cost.
#[derive(Parser, Debug)]
#[command(
    version,
    args_override_self = true,
    after_help = "Example:\n  qfabric-player clip.mkv --seconds 10 --qfabric --predictor hint:24 --log jobs.jsonl"
)]
pub(crate) struct Options {
    /// The file to decode; repeated if it is shorter than the duration.
    #[arg(required_unless_present = "hog")]
    pub clip: Option<PathBuf>,
    /// Frames per second, from 1 to 1000.
    #[arg(long, default_value_t = 25.0)]
    pub fps: f64,
    /// Time between two frames, from 1ms to 1s; replaces --fps.
    #[arg(long = "period", value_name = "TIME", conflicts_with = "fps")]
    pub frame_period: Option<Nanos>,
    /// Seconds to play. For frames that are not ready at the end, the player waits at most --grace.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of frames to play; replaces --seconds.
    #[arg(long = "jobs", value_name = "N", conflicts_with = "seconds")]
    pub job_count: Option<usize>,
    /// Seconds after the last deadline during which late frames are still decoded.
    #[arg(long, default_value_t = 1.0)]
    pub grace: f64,
    /// Frame of the clip to start with.
    #[arg(long, default_value_t = 0)]
    pub start_at: usize,
    /// Load shift: decode this file from job --shift-at on.
    #[arg(long, value_name = "CLIP", requires = "shift_at")]
    pub then: Option<PathBuf>,
    /// The job at which the load shift happens.
    #[arg(long, value_name = "JOB")]
    pub shift_at: Option<u64>,
    /// Which B frames to skip; no other frame needs a B frame. `predicted` uses --predictor and --profile.
    #[arg(long, value_enum, default_value_t = Skip::None)]
    pub skip: Skip,
    /// A trace of the whole clip. The player states the cost of each frame from this trace as foresight, instead
    /// of a hint.
    #[arg(long, value_name = "TRACE", requires = "qfabric", conflicts_with = "skip")]
    pub oracle: Option<PathBuf>,
    /// A trace of the clip of --then, used like that of --oracle.
    #[arg(long, value_name = "TRACE", requires = "oracle")]
    pub then_oracle: Option<PathBuf>,
    /// Scheduling of the player without Q-Fabric.
    #[arg(long, value_enum, default_value_t = Policy::None)]
    pub policy: Policy,
    /// Write one JSON object per job to this file, after the last job.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Decode the clip once at full speed and write one line `c_ns bytes` per job: input for `qfabric sim
    /// control`.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Decode the frames that another process writes into this FIFO, each when it comes, instead of those of the clip,
    /// which then only describes them. Each frame is its number and size (4 bytes each, big endian) and its packet.
    #[arg(long, value_name = "FIFO", conflicts_with_all = ["then", "oracle", "skip", "qfabric", "event_driven"])]
    pub packets: Option<PathBuf>,
    /// Print `ready`, then read the start time from standard input: one line, in nanoseconds of CLOCK_MONOTONIC.
    #[arg(long)]
    pub wait: bool,
    /// Process id of the parent. The kernel kills the player when the parent ends; the player does not start if it
    /// has another parent.
    #[arg(long, value_name = "PARENT")]
    pub die_with_parent: Option<i32>,
    /// Decode nothing; only use CPU time until killed.
    #[arg(long)]
    pub hog: bool,
    #[command(flatten)]
    pub contract: ContractOptions,
}

/// The contract under which the frames are decoded.
#[derive(clap::Args, Debug)]
pub(crate) struct ContractOptions {
    /// Request a contract from the daemon and report each frame to it.
    #[arg(long)]
    pub qfabric: bool,
    /// The daemon's socket; searched in the usual places if not given.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Sleep until the daemon announces each frame at its display time, which it computes from the rate, the frame
    /// counter and the last display time that the player writes to shared memory. Under `ext`, with --qfabric, these events
    /// favour the player.
    #[arg(long)]
    pub event_driven: bool,
    /// Name of the application in the daemon's reports.
    #[arg(long, default_value = "player")]
    pub name: String,
    /// Class of the guarantee: A, B or C.
    #[arg(long, default_value = "C")]
    pub class: Class,
    /// Period of the reservation; the frame period must be a whole multiple of it.
    #[arg(long, value_name = "TIME")]
    pub server_period: Option<Nanos>,
    /// Algorithm that predicts the next computation time; hint:N uses the size of the frame.
    #[arg(long, default_value = "hint:24")]
    pub predictor: PredictorSpec,
    /// Which point of the interval of budgets to use.
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
    /// The largest share of one CPU to request.
    #[arg(long, default_value = "0.95")]
    pub max_bandwidth: Share,
    /// What happens when the budget is used up: hard, soft, grub or iris.
    #[arg(long, value_name = "KIND", default_value_t = Reclaiming::Grub)]
    pub reclaiming: Reclaiming,
    /// Same as --reclaiming hard.
    #[arg(long, conflicts_with = "reclaiming")]
    pub hard: bool,
    /// Static reservation: this share of one CPU in every period of the reservation, instead of a budget found by
    /// feedback.
    #[arg(long, value_name = "CPUS")]
    pub fixed: Option<Share>,
    /// If applications compete for the CPU, keep only a part of the reservation between frames: yes or no.
    #[arg(long, value_name = "YES|NO", default_value = "yes", value_parser = clap::builder::BoolishValueParser::new(),
        action = clap::ArgAction::Set)]
    pub give_back: bool,
    /// Trace of a trial execution (one line `c_ns bytes` per job); the predictor starts with its costs.
    #[arg(long, value_name = "TRACE")]
    pub profile: Option<PathBuf>,
}

/// Scheduling of the player without Q-Fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Do not change the scheduling.
    None,
    /// Run with nice −20.
    Nice,
}

/// Which B frames the player skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Skip {
    /// Decode every frame, even if it is late.
    None,
    /// Skip frames whose deadline has passed before they are decoded.
    Late,
    /// Skip frames that would end after their deadline according to the predicted cost.
    Predicted,
}

impl Options {
    /// T. Fails outside 1 to 1000 frames per second.
    pub(crate) fn period(&self) -> Result<Nanos> {
        if let Some(period) = self.frame_period {
            let fits = (Nanos::from_millis(1)..=Nanos::from_millis(1_000)).contains(&period);
            ensure!(fits, "--period {period} is not between 1ms and 1s");
            return Ok(period);
        }
        ensure!((1.0..=1000.0).contains(&self.fps), "--fps {} is not between 1 and 1000", self.fps);
        Ok(Nanos::from_f64(1e9 / self.fps))
    }

    /// Number of jobs whose deadlines lie within the duration. Fails if the duration is longer than a day or holds
    /// no job.
    pub(crate) fn jobs(&self) -> Result<usize> {
        ensure!((0.0..=86_400.0).contains(&self.seconds), "--seconds {} is not between 0 and 86400", self.seconds);
        ensure!((0.0..=3_600.0).contains(&self.grace), "--grace {} is not between 0 and 3600", self.grace);
        let jobs = self.job_count.unwrap_or((self.seconds * 1e9 / self.period()?.as_f64()).round() as usize);
        ensure!(
            jobs > 0,
            "{} s are too short for one frame of {}; increase --seconds or use --jobs",
            self.seconds,
            self.period()?
        );
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
    fn a_value_out_of_range_is_refused_and_named() {
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
