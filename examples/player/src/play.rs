//! The periodic task: one job is one packet, released every T at absolute moments.
//!
//! ```text
//!  open, warm up ── admission ── "ready" ── start ──> [ wait for r_k │ decode │ note f_k, c_k ] × jobs ── log
//! ```
//! A job that ends late delays the next one's begin, never its release: nothing is skipped, so a scheduler
//! that gives too little shows as a growing error. Playing ends `--grace` after the last deadline; what is
//! not decoded by then is missing in the log, and whoever reads the log counts it.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use qfabric_types::{Instant, JobRecord, Nanos};
use rustix::process::setpriority_process;

use crate::clip::Clip;
use crate::decoder::Stream;
use crate::log::{self, JobLine};
use crate::marks::Marks;
use crate::options::{Options, Policy};
use crate::pace::{cpu_time, now};

/// Time between `start` given by ourselves and the first release: enough to go to sleep.
const HEAD_START: Nanos = Nanos::from_millis(20);

/// Plays what the options say and writes the log.
pub fn play(options: &Options) -> Result<()> {
    let (period, jobs) = (options.period()?, options.jobs()?);
    let clip = Clip::load(options.clip.as_deref().context("no clip was named")?)?;
    let second = options.then.as_deref().map(Clip::load).transpose()?;
    let first = Stream::open(&clip, options.start_at)?;
    let second = second.as_ref().map(|clip| Stream::open(clip, options.start_at)).transpose()?;
    apply(options.policy)?;
    let mut playing =
        Playing { streams: Streams { first, second, shift_at: options.shift_at }, period, lines: Vec::new() };
    playing.lines.reserve_exact(jobs);
    let mut marks = Marks::start(&options.contract, period)?;
    let start = if options.wait { wait_for_start()? } else { now() + HEAD_START };
    let stop = start + period.saturating_mul(jobs as u64) + Nanos::from_f64(options.grace * 1e9);
    playing.run(start, stop, jobs as u64, &mut marks)?;
    drop(marks);
    report(options, &playing.lines, jobs)
}

/// Puts this process under the policy.
pub fn apply(policy: Policy) -> Result<()> {
    match policy {
        Policy::None => Ok(()),
        Policy::Nice => setpriority_process(None, -20).context("nice -20 was refused; it needs root or CAP_SYS_NICE"),
    }
}

struct Streams<'a> {
    first: Stream<'a>,
    second: Option<Stream<'a>>,
    shift_at: Option<u64>,
}

impl<'a> Streams<'a> {
    /// The stream that job `k` decodes.
    fn at(&mut self, k: u64) -> &mut Stream<'a> {
        match &mut self.second {
            Some(second) if self.shift_at.is_some_and(|at| k >= at) => second,
            _ => &mut self.first,
        }
    }
}

struct Playing<'a> {
    streams: Streams<'a>,
    period: Nanos,
    lines: Vec<JobLine>,
}

impl Playing<'_> {
    fn run(&mut self, start: Instant, stop: Instant, jobs: u64, marks: &mut Marks) -> Result<()> {
        for k in 0..jobs {
            marks.wait(k, start, self.streams.at(k).next_bytes());
            if now() >= stop {
                break;
            }
            let line = self.job(k, start + self.period.saturating_mul(k), marks)?;
            self.lines.push(line);
        }
        Ok(())
    }

    fn job(&mut self, k: u64, release: Instant, marks: &mut Marks) -> Result<JobLine> {
        let stream = self.streams.at(k);
        let (bytes, kind, grant) = (stream.next_bytes(), stream.next_kind(), marks.grant());
        let before = cpu_time();
        stream.decode()?;
        let (cost, finish) = (cpu_time() - before, now());
        marks.end(self.streams.at(k + 1).next_bytes());
        let job = JobRecord { k, release, finish, cost, next: Default::default() };
        Ok(JobLine { job, bytes, kind, budget_ns: grant.budget, server_period_ns: grant.period })
    }
}

fn wait_for_start() -> Result<Instant> {
    println!("ready");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let start = line.trim().parse().with_context(|| format!("{:?} is no moment to start at", line.trim()))?;
    Ok(Instant::new(start))
}

fn report(options: &Options, lines: &[JobLine], jobs: usize) -> Result<()> {
    if let Some(path) = &options.log {
        return log::write(path, lines);
    }
    let late = lines.iter().filter(|l| l.job.finish > l.job.release + options.period().unwrap_or_default()).count();
    let mean = lines.iter().map(|l| l.job.cost.as_f64()).sum::<f64>() / lines.len().max(1) as f64;
    println!("{} of {jobs} frames decoded, {late} late, {} of CPU time each", lines.len(), Nanos::from_f64(mean));
    Ok(())
}
