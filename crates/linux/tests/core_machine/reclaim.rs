//! Compares the four kinds of reclaiming with the model: for the same servers and jobs, every job must end at the same
//! time. Exact to the nanosecond except for GRUB, for which the kernel uses bandwidths in 2^-24 and the model in
//! millionths.

use std::collections::VecDeque;

use qfabric_linux::abi::*;
use qfabric_sched::{Machine, MachineConfig, TaskId};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::kernel::{self, Kernel, config};
use crate::number;

const MS: u64 = 1_000_000;
/// Largest difference of two end times under GRUB: one second at rates that differ by a millionth for each server.
const GRUB_TOLERANCE_NS: u64 = 8_000;

/// A server and its jobs: (release, cost) in nanoseconds.
#[derive(Clone, Debug)]
struct Drawn {
    kind: Reclaiming,
    period: u64,
    service: u64,
    jobs: Vec<(u64, u64)>,
}

fn mode(kind: Reclaiming) -> u8 {
    (match kind {
        Reclaiming::Hard => QF_MODE_HARD,
        Reclaiming::Soft => QF_MODE_SOFT,
        Reclaiming::Grub => QF_MODE_GRUB,
        Reclaiming::Iris => QF_MODE_IRIS,
    }) as u8
}

/// Servers with a total bandwidth of at most one CPU.
fn draw(rng: &mut ChaCha8Rng, kinds: &[Reclaiming]) -> Vec<Drawn> {
    let (mut left, mut drawn) = (1_000, Vec::new());
    for _ in 0..rng.random_range(1..8) {
        let share = rng.random_range(20..500).min(left);
        if share < 20 {
            break;
        }
        left -= share;
        let period = rng.random_range(2..30) * MS;
        let kind = kinds[rng.random_range(0..kinds.len())];
        let mut jobs: Vec<_> = (0..rng.random_range(1..12))
            .map(|_| (rng.random_range(0..400 * MS), rng.random_range(MS / 10..30 * MS)))
            .collect();
        jobs.sort_unstable();
        drawn.push(Drawn { kind, period, service: period / 1_000 * share, jobs });
    }
    drawn
}

/// (end, server) of every job, in the order of time.
type Ends = Vec<(u64, usize)>;

fn of_model(drawn: &[Drawn]) -> Ends {
    let mut machine = Machine::new(MachineConfig {
        bound: Share::ONE,
        reclaim_bound: Share::ONE,
        hogs: 1,
        ..MachineConfig::default()
    });
    let mut releases = Vec::new();
    for server in drawn {
        let task = machine.spawn();
        let reservation = Reservation::new(Nanos::new(server.service), Nanos::new(server.period)).unwrap();
        machine.reserve(task, Some((reservation, server.kind))).unwrap();
        releases.extend(server.jobs.iter().map(|&(release, cost)| (release, task, cost)));
    }
    releases.sort_unstable();
    let mut ends = Vec::new();
    let mut run = |machine: &mut Machine, to: u64| {
        while let Some(finished) = machine.run_until(Instant::new(to)) {
            ends.push((finished.finish.get(), finished.task.0));
        }
    };
    for (release, task, cost) in releases {
        run(&mut machine, release);
        machine.release(task, Nanos::new(cost));
    }
    run(&mut machine, u64::MAX / 4);
    assert!((0..drawn.len()).all(|task| machine.backlog(TaskId(task)) == 0));
    ends
}

/// The kernel's machine, driven by a program that releases and ends jobs.
struct Driven<'a> {
    kernel: &'a mut Kernel,
    releases: VecDeque<(u64, usize, u64)>,
    jobs: Vec<VecDeque<u64>>,
    ends: Ends,
}

impl<'a> Driven<'a> {
    fn new(kernel: &'a mut Kernel, drawn: &[Drawn]) -> Driven<'a> {
        kernel.reset();
        let mut releases: Vec<_> = Vec::new();
        for (index, server) in drawn.iter().enumerate() {
            let fresh = qf_config { ask: 0, mode: mode(server.kind), ..config(server.period, server.service, 0, 1) };
            kernel.add(0, index as u32 + 1, fresh).unwrap();
            releases.extend(server.jobs.iter().map(|&(release, cost)| (release, index, cost)));
        }
        releases.sort_unstable();
        Driven { kernel, releases: releases.into(), jobs: vec![VecDeque::new(); drawn.len()], ends: Vec::new() }
    }

    fn release(&mut self, now: u64) {
        while self.releases.front().is_some_and(|first| first.0 <= now) {
            let (_, index, cost) = self.releases.pop_front().expect("`front` has just returned it");
            self.jobs[index].push_back(cost);
            self.kernel.command(QF_TEST_WAKE, 0, index as u32 + 1, now, 0).unwrap();
        }
    }

    fn ran(&mut self, index: usize, time: u64, now: u64) {
        let left = self.jobs[index].front_mut().expect("a running server has a job");
        *left -= time;
        if *left > 0 {
            return;
        }
        self.jobs[index].pop_front();
        self.ends.push((now, index));
        if self.jobs[index].is_empty() {
            self.kernel.command(QF_TEST_BLOCK, 0, index as u32 + 1, now, 0).unwrap();
        }
    }

    fn run(mut self) -> Ends {
        let mut now = 0;
        loop {
            self.release(now);
            let decision = self.kernel.decide(0, now, 0).decision;
            let running = (decision.slot as usize).checked_sub(1);
            let end = running.map_or(u64::MAX, |index| now + self.jobs[index][0]);
            let next = end.min(decision.until_ns).min(self.releases.front().map_or(u64::MAX, |first| first.0));
            if next == u64::MAX {
                assert!(self.jobs.iter().all(VecDeque::is_empty), "work is lost");
                return self.ends;
            }
            self.kernel.account(0, next, next - now);
            if let Some(index) = running {
                self.ran(index, next - now, next);
            }
            now = next;
        }
    }
}

fn agree(kinds: &[Reclaiming], tolerance_ns: u64) {
    let (sets, first) = (number("QFABRIC_SETS", 200), number("QFABRIC_SEED", 1));
    let mut kernel = kernel::fresh();
    let mut worst = 0;
    for seed in first..first + sets {
        let drawn = draw(&mut ChaCha8Rng::seed_from_u64(seed), kinds);
        let (model, ours) = (of_model(&drawn), Driven::new(&mut kernel, &drawn).run());
        let of = |ends: &Ends, server| ends.iter().filter(|end| end.1 == server).map(|end| end.0).collect::<Vec<_>>();
        for server in 0..drawn.len() {
            let (model, ours) = (of(&model, server), of(&ours, server));
            let near = |(a, b): (&u64, &u64)| a.abs_diff(*b);
            let apart = model.iter().zip(&ours).map(near).max().unwrap_or(0);
            assert!(
                model.len() == ours.len() && apart <= tolerance_ns,
                "seed {seed}, server {server} ends jobs at\n{model:?} in the model and\n{ours:?} in the kernel\n{drawn:#?}"
            );
            worst = worst.max(apart);
        }
    }
    println!("{kinds:?}: {sets} sets, at most {worst} ns apart");
}

#[test]
fn hard_servers_end_their_jobs_as_in_the_model() {
    agree(&[Reclaiming::Hard], 0);
}

#[test]
fn soft_servers_end_their_jobs_as_in_the_model() {
    agree(&[Reclaiming::Soft, Reclaiming::Soft, Reclaiming::Hard], 0);
}

#[test]
fn iris_servers_end_their_jobs_as_in_the_model() {
    agree(&[Reclaiming::Iris, Reclaiming::Iris, Reclaiming::Hard], 0);
}

#[test]
fn grub_servers_end_their_jobs_as_in_the_model() {
    agree(&[Reclaiming::Grub, Reclaiming::Grub, Reclaiming::Hard], GRUB_TOLERANCE_NS);
}

#[test]
fn all_kinds_together_end_their_jobs_as_in_the_model() {
    agree(&Reclaiming::ALL, GRUB_TOLERANCE_NS);
}
