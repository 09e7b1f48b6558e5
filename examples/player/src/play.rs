//! The periodic task: one job decodes one packet, and jobs are released every T at absolute times.
//!
//! ```text
//!  open, warm up ── admission ── "ready" ── start ──> [ wait for r_k │ decode │ note f_k, c_k ] × jobs ── log
//! ```
//! A job that ends late delays the begin of the next job, never its release. Without `--skip`, a scheduler that
//! gives too little CPU time therefore shows as a growing error. Playback ends `--grace` after the last deadline;
//! frames that are not decoded then are missing in the log.

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{Context, Result};
use qfabric_types::{Foresight, Instant, JobRecord, Nanos};
use rustix::process::setpriority_process;

use crate::arriving::Arriving;
use crate::clip::{Clip, kind_of};
use crate::decoder::Stream;
use crate::foresight::{self, Oracle};
use crate::log::{self, JobLine};
use crate::marks::Marks;
use crate::options::{Options, Policy, Skip};
use crate::pace::{cpu_time, now};
use crate::skip::Skipper;
use crate::trace;

/// Time between the player's own choice of `start` and the first release: enough to go to sleep first.
const HEAD_START: Nanos = Nanos::from_millis(20);

/// Plays the clip according to the options and writes the log.
pub(crate) fn play(options: &Options) -> Result<()> {
    let (period, jobs) = (options.period()?, options.jobs()?);
    let clip = Clip::load(options.clip.as_deref().context("no clip is given; name a video file")?)?;
    let second = options.then.as_deref().map(Clip::load).transpose()?;
    let oracles = [(&options.oracle, Some(&clip)), (&options.then_oracle, second.as_ref())];
    let [oracle, then_oracle] = oracles.map(|(path, clip)| path.as_deref().zip(clip));
    let load = |(path, clip): (&Path, &Clip)| Oracle::load(path, clip.len());
    let oracles = [oracle.map(load).transpose()?, then_oracle.map(load).transpose()?];
    let first = Stream::open(&clip, options.start_at)?;
    let second = second.as_ref().map(|clip| Stream::open(clip, options.start_at)).transpose()?;
    apply(options.policy)?;
    let mut playback = Playback {
        streams: Streams { first, second, shift_at: options.shift_at },
        oracles,
        skipper: skipper(options)?,
        period,
        lines: Vec::new(),
    };
    playback.lines.reserve_exact(jobs);
    let mut marks = Marks::start(&options.contract, period)?;
    let start = if options.wait { wait_for_start()? } else { now() + HEAD_START };
    let stop = start + period.saturating_mul(jobs as u64) + Nanos::from_f64(options.grace * 1e9);
    match &options.packets {
        Some(fifo) => playback.run_arriving(fifo, start, stop, jobs as u64)?,
        None => playback.run(start, stop, jobs as u64, &mut marks)?,
    }
    drop(marks);
    report(options, &playback.lines, jobs)
}

fn skipper(options: &Options) -> Result<Skipper> {
    let contract = &options.contract;
    let profile = contract.profile.as_deref().filter(|_| options.skip == Skip::Predicted);
    let profile = profile.map(trace::read).transpose()?;
    Ok(Skipper::new(options.skip, contract.predictor, contract.rho, profile.as_ref()))
}

/// Applies the policy to this process.
pub(crate) fn apply(policy: Policy) -> Result<()> {
    match policy {
        Policy::None => Ok(()),
        Policy::Nice => setpriority_process(None, -20).context("cannot set nice -20; it needs root or CAP_SYS_NICE"),
    }
}

struct Streams<'a> {
    first: Stream<'a>,
    second: Option<Stream<'a>>,
    shift_at: Option<u64>,
}

impl<'a> Streams<'a> {
    /// Index of the stream that job `k` decodes: 0 for the first stream, 1 for the second one.
    fn index(&self, k: u64) -> usize {
        usize::from(self.second.is_some() && self.shift_at.is_some_and(|at| k >= at))
    }
    fn at(&mut self, k: u64) -> &mut Stream<'a> {
        match (self.index(k), &mut self.second) {
            (1, Some(second)) => second,
            _ => &mut self.first,
        }
    }
}

struct Playback<'a> {
    streams: Streams<'a>,
    /// The oracles of the first and the second stream.
    oracles: [Option<Oracle>; 2],
    skipper: Skipper,
    period: Nanos,
    lines: Vec<JobLine>,
}

impl Playback<'_> {
    fn run(&mut self, start: Instant, stop: Instant, jobs: u64, marks: &mut Marks) -> Result<()> {
        for k in 0..jobs {
            let known = self.foresight(k);
            let release = marks.wait(k, start, known)?;
            if now() >= stop {
                break;
            }
            let line = self.job(k, release, marks)?;
            self.lines.push(line);
        }
        Ok(())
    }

    /// Decodes frames as they arrive; a frame that does not arrive is missing in the log.
    fn run_arriving(&mut self, fifo: &Path, start: Instant, stop: Instant, jobs: u64) -> Result<()> {
        let mut arriving = Arriving::open(fifo)?;
        while let Some((k, packet)) = arriving.next()? {
            if now() >= stop {
                break;
            }
            if k >= jobs {
                continue;
            }
            let (before, bytes, kind) = (cpu_time(), packet.size(), kind_of(&packet));
            self.streams.first.decode_packet(&packet)?;
            let (cost, finish) = (cpu_time() - before, now());
            let release = start + self.period.saturating_mul(k);
            let job = JobRecord { k, release, finish, cost, next: Default::default() };
            let (budget_ns, server_period_ns) = (Nanos::ZERO, Nanos::ZERO);
            self.lines.push(JobLine { job, bytes, kind, budget_ns, server_period_ns, skipped: false });
        }
        Ok(())
    }

    fn job(&mut self, k: u64, release: Instant, marks: &mut Marks) -> Result<JobLine> {
        let deadline = release + self.period;
        let stream = self.streams.at(k);
        let (bytes, kind, grant) = (stream.next_bytes(), stream.next_kind(), marks.grant());
        let skipped = stream.next_is_disposable() && self.skipper.skips(now(), deadline, bytes);
        let before = cpu_time();
        if skipped {
            stream.skip()
        } else {
            stream.decode().map(drop)?
        }
        let (cost, finish) = (cpu_time() - before, now());
        let job = JobRecord { k, release, finish, cost, next: Default::default() };
        if skipped {
            self.skipper.skip();
        } else {
            self.skipper.observe(&job, deadline, bytes);
        }
        marks.end(k, release, self.foresight(k + 1));
        Ok(JobLine { job, bytes, kind, budget_ns: grant.budget, server_period_ns: grant.period, skipped })
    }

    fn foresight(&mut self, k: u64) -> Foresight {
        let index = self.streams.index(k);
        let stream = self.streams.at(k);
        let (position, bytes) = (stream.next_position(), stream.next_bytes());
        foresight::of_frame(self.oracles[index].as_ref(), &self.skipper, position, bytes)
    }
}

fn wait_for_start() -> Result<Instant> {
    println!("ready");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let start = line
        .trim()
        .parse()
        .with_context(|| format!("{:?} is no start time; expected nanoseconds of CLOCK_MONOTONIC", line.trim()))?;
    Ok(Instant::new(start))
}

fn report(options: &Options, lines: &[JobLine], jobs: usize) -> Result<()> {
    if let Some(path) = &options.log {
        return log::write(path, lines);
    }
    let period = options.period()?;
    let late = lines.iter().filter(|l| !l.skipped && l.job.finish > l.job.release + period).count();
    let skipped = lines.iter().filter(|l| l.skipped).count();
    let decoded = lines.len() - skipped;
    let mean = lines.iter().filter(|l| !l.skipped).map(|l| l.job.cost.as_f64()).sum::<f64>() / decoded.max(1) as f64;
    println!(
        "{decoded} of {jobs} frames decoded, {late} late, {skipped} skipped, {} of CPU time each",
        Nanos::from_f64(mean)
    );
    Ok(())
}
