//! Figures 55 to 59: jobs with delays from outside, and the clock chosen again at checkpoints.
//!
//! The thesis does not print the lengths of its jobs and delays, so the numbers of misses cannot be those of the text.
//! The model: a job of 10 ms (at the highest clock, give or take 5 %) with a deadline of 30 ms begins at the level that
//! suffices without a delay. One job in four is preempted once, at a random place in its code: three quarters of them for
//! 1 to 9 ms, the others for 21 to 30 ms, which makes them infeasible at any clock (the text says 60 to 70 of 1000).

use qfabric_energy::{Cpu, Energy, Model, USABLE, checkpoint_level};

use super::device::Usage;
use super::report::Report;
use super::scenarios::Chance;

const JOBS: usize = 1_000;
const DEADLINE_S: f64 = 0.030;
const WORK_S: f64 = 0.010;
/// Least and most delay, s.
const SHORT_S: (f64, f64) = (0.001, 0.009);
const LONG_S: (f64, f64) = (0.021, 0.030);

/// A job: its work at the highest clock, and the place in its code and length of its preemption.
#[derive(Clone, Copy, Debug)]
struct Job {
    work_s: f64,
    place: f64,
    delay_s: f64,
}

/// Where the clock is chosen again.
#[derive(Clone, Debug)]
enum Checkpoints {
    /// At these parts of the code.
    Code(Vec<f64>),
    /// When the job gets the processor again.
    Scheduler,
}

pub(super) fn figure_56(mut report: Report, model: &Model, mut chance: Chance) -> Report {
    let jobs: Vec<Job> = (0..JOBS).map(|_| job(&mut chance)).collect();
    let infeasible = jobs.iter().filter(|job| job.work_s + job.delay_s > DEADLINE_S).count();
    let spread = |count: u32, over: f64| {
        Checkpoints::Code((1..=count).map(|at| over * f64::from(at) / f64::from(count + 1)).collect())
    };
    let mut ladder: Vec<(String, Checkpoints)> =
        (0..=4).map(|count| (format!("{count} code checkpoints"), spread(count, 1.0))).collect();
    ladder.push(("4 code checkpoints, first half".into(), spread(4, 0.5)));
    ladder.push(("scheduler checkpoints".into(), Checkpoints::Scheduler));
    for (policy, checkpoints) in ladder {
        report.add(&policy, 0.0, &usage(&model.cpu, &jobs, &checkpoints));
    }
    let fastest = Usage { misses: infeasible as u64, ..highest(&model.cpu, &jobs) };
    report.add("highest clock: infeasible jobs", 0.0, &fastest);
    report
}

fn job(chance: &mut Chance) -> Job {
    let work_s = WORK_S * (0.95 + 0.1 * chance.part());
    let place = chance.part();
    let (kind, part) = (chance.part(), chance.part());
    let delay = |(least, most): (f64, f64)| least + part * (most - least);
    let delay_s = match kind {
        kind if kind < 0.0625 => delay(LONG_S),
        kind if kind < 0.25 => delay(SHORT_S),
        _ => 0.0,
    };
    Job { work_s, place, delay_s }
}

fn highest(cpu: &Cpu, jobs: &[Job]) -> Usage {
    let work: f64 = jobs.iter().map(|job| job.work_s).sum();
    let joules = cpu.busy_w(cpu.highest()) * work + cpu.idle_w * DEADLINE_S * jobs.len() as f64;
    Usage { mean_mhz: cpu.levels[cpu.highest()].mhz, ..Usage::of(Energy::modelled(joules)) }
}

fn usage(cpu: &Cpu, jobs: &[Job], checkpoints: &Checkpoints) -> Usage {
    let (mut misses, mut joules, mut mhz_s, mut busy_s) = (0, 0.0, 0.0, 0.0);
    for job in jobs {
        let mut end_s = 0.0;
        for (level, time_s, delay_s) in stretches(cpu, job, checkpoints) {
            end_s += time_s + delay_s;
            joules += cpu.busy_w(level) * time_s;
            mhz_s += cpu.levels[level].mhz * time_s;
            busy_s += time_s;
        }
        misses += u64::from(end_s > DEADLINE_S);
        joules += cpu.idle_w * DEADLINE_S.max(end_s);
    }
    Usage { misses, mean_mhz: mhz_s / busy_s, ..Usage::of(Energy::modelled(joules)) }
}

/// The pieces of a job between checkpoints and its preemption: level, time at it, and the delay after it.
fn stretches(cpu: &Cpu, job: &Job, checkpoints: &Checkpoints) -> Vec<(usize, f64, f64)> {
    let mut stops: Vec<(f64, bool)> = match checkpoints {
        Checkpoints::Code(places) => places.iter().map(|&place| (place, false)).collect(),
        Checkpoints::Scheduler => Vec::new(),
    };
    stops.extend([(job.place, true), (1.0, false)]);
    stops.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = checkpoint_level(cpu, WORK_S, USABLE * DEADLINE_S, 0);
    let mut level = first;
    let (mut done, mut now_s, mut pieces) = (0.0, 0.0, Vec::with_capacity(stops.len()));
    for (place, is_preemption) in stops {
        let time_s = (place - done) * job.work_s * cpu.stretch(level);
        let delay_s = if is_preemption { job.delay_s } else { 0.0 };
        pieces.push((level, time_s, delay_s));
        (done, now_s) = (place, now_s + time_s + delay_s);
        let chooses = is_preemption == matches!(checkpoints, Checkpoints::Scheduler);
        if chooses && done < 1.0 {
            // Never below the first level: that would spend the slack which the next delay needs.
            level = checkpoint_level(cpu, WORK_S * (1.0 - done), USABLE * (DEADLINE_S - now_s), 0).max(first);
        }
    }
    pieces
}
