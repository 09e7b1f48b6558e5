//! The kinds of reclaiming while the kernel schedules: jobs must end when the model in `sched` says. Run with one CPU
//! in the test machine, time by instructions.

mod ext_shared;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ext_shared::{Servers, about, hogs, loaded, ms, server, sleep_ms};
use qfabric_linux::clock;
use qfabric_linux::ext::ServerSpec;
use qfabric_linux::testing::{Worker, burn};
use qfabric_sched::{Machine, MachineConfig, TaskId};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn kind(reclaiming: Reclaiming, period_ms: u64, service_ms: u64) -> ServerSpec {
    ServerSpec { reclaiming, ..server(period_ms, service_ms) }
}

#[test]
fn a_lone_server_beside_hogs_gets_what_its_kind_says() {
    let Some(mut ext) = loaded() else { return };
    let _hogs = hogs(4);
    // GRUB: 0.2 of the active 0.25, which includes best effort's 0.05. Soft and IRIS: all time except best effort's
    // part.
    for (reclaiming, expected) in
        [(Reclaiming::Hard, 0.2), (Reclaiming::Soft, 0.95), (Reclaiming::Grub, 0.8), (Reclaiming::Iris, 0.95)]
    {
        let mut servers = Servers::of(&mut ext);
        let (id, _hog) = servers.hog(&kind(reclaiming, 10, 2));
        sleep_ms(50);
        let before = servers.ext.cpu_statistics(0).unwrap();
        let (used, extra) = servers.share_over(id, 500);
        let rest = servers.ext.cpu_statistics(0).unwrap().best_effort - before.best_effort;
        let rest = rest.as_f64() / 5e8;
        eprintln!("{reclaiming} 2/10 ms beside 4 hogs: {used:.3}, best effort {rest:.3}; {:?}", servers.stats(id));
        about(used, expected, 0.03);
        assert!(rest > 0.045, "best effort is guaranteed 0.05, and had {rest}");
        assert_eq!((servers.stats(id).missed, extra), (0, 0.0));
    }
}

#[test]
fn two_servers_share_the_unused_time_of_a_third_in_proportion() {
    let Some(mut ext) = loaded() else { return };
    let _hogs = hogs(2);
    for (reclaiming, best_effort) in [(Reclaiming::Grub, 0.05 / 0.65), (Reclaiming::Iris, 0.05)] {
        let mut servers = Servers::of(&mut ext);
        let _sleeper = servers.create(&server(10, 3));
        let (large, _first) = servers.hog(&kind(reclaiming, 10, 4));
        let (small, _second) = servers.hog(&kind(reclaiming, 20, 4));
        sleep_ms(50);
        let before = servers.stats(small).used;
        let (used, _) = servers.share_over(large, 600);
        let of_small = (servers.stats(small).used - before).as_f64() / 6e8;
        eprintln!("{reclaiming}: {used:.3} for 0.4, {of_small:.3} for 0.2");
        about(used / of_small, 2.0, 0.05);
        about(used + of_small, 1.0 - best_effort, 0.03);
        assert_eq!((servers.stats(large).missed, servers.stats(small).missed), (0, 0));
    }
}

#[test]
fn no_kind_takes_the_budget_of_a_hard_server() {
    let Some(mut ext) = loaded() else { return };
    let _hogs = hogs(2);
    for reclaiming in Reclaiming::ALL {
        let mut servers = Servers::of(&mut ext);
        let (promised, _hard) = servers.hog(&server(20, 8));
        let (_, _hog) = servers.hog(&kind(reclaiming, 10, 4));
        sleep_ms(50);
        let (used, _) = servers.share_over(promised, 400);
        about(used, 0.4, 0.01);
        assert_eq!(servers.stats(promised).missed, 0, "beside {reclaiming}");
    }
}

#[test]
fn a_job_that_ends_by_yield_waits_for_its_next_period_whatever_is_idle() {
    let Some(mut ext) = loaded() else { return };
    for reclaiming in Reclaiming::ALL {
        let mut servers = Servers::of(&mut ext);
        let worker = Worker::start(|| {
            burn(Nanos::from_micros(500));
            std::thread::yield_now();
        });
        let id = servers.create(&kind(reclaiming, 10, 4));
        servers.ext.join(id, worker.thread, false).unwrap();
        sleep_ms(20);
        let before = worker.turns();
        sleep_ms(300);
        let turns = worker.turns() - before;
        assert!((29..=31).contains(&turns), "{reclaiming}: {turns} jobs in 30 periods");
    }
}

/// Period of the jobs of each player.
const T: Nanos = Nanos::from_millis(40);
const JOBS: usize = 40;
const PLAYERS: usize = 3;

/// Costs of a player's jobs: `least` plus up to 12 ms, 10 or 12 ms on average. 12 ms are reserved in every 40 ms.
fn costs(player: usize, least: Nanos) -> Vec<Nanos> {
    let mut rng = ChaCha8Rng::seed_from_u64(player as u64 + 1);
    (0..JOBS).map(|_| least + Nanos::from_micros(rng.random_range(0..12_000))).collect()
}

const CALM: Nanos = Nanos::from_millis(4);
const SATURATED: Nanos = Nanos::from_millis(6);

/// Release of a player's job, relative to the common start.
fn release(player: usize, job: usize) -> Nanos {
    T.saturating_mul(job as u64) + Nanos::from_micros(player as u64 * 7_300)
}

/// 0.3 of the CPU for each player, with a server period of T/4; T for soft servers.
fn reservation(reclaiming: Reclaiming) -> Reservation {
    let (budget, period) = if reclaiming == Reclaiming::Soft { (12, 40) } else { (3, 10) };
    Reservation::new(ms(budget), ms(period)).unwrap()
}

/// End of each job, relative to the common start; `None` for a skipped job.
type Ends = Vec<Vec<Option<Nanos>>>;

/// The end times in the model, in which best effort's server is always busy.
fn modelled(reclaiming: Reclaiming) -> Ends {
    let mut machine = Machine::new(MachineConfig {
        bound: Share::ONE,
        reclaim_bound: Share::ONE,
        hogs: 1,
        ..MachineConfig::default()
    });
    let players: Vec<TaskId> = (0..PLAYERS).map(|_| machine.spawn()).collect();
    for &player in &players {
        machine.reserve(player, Some((reservation(reclaiming), reclaiming))).unwrap();
    }
    let best_effort = machine.spawn();
    machine.reserve(best_effort, Some((Reservation::new(ms(1), ms(20)).unwrap(), Reclaiming::Hard))).unwrap();
    machine.release(best_effort, Nanos::from_millis(1_000_000));
    let jobs = |player| {
        costs(player, CALM).into_iter().enumerate().map(move |(job, cost)| (release(player, job), player, cost))
    };
    let mut releases: Vec<_> = (0..PLAYERS).flat_map(jobs).collect();
    releases.sort_unstable();
    let mut ends: Ends = vec![Vec::new(); PLAYERS];
    let mut run = |machine: &mut Machine, to: Instant| {
        while let Some(finished) = machine.run_until(to) {
            ends[finished.task.0].push(Some(finished.finish.since(Instant::ZERO)));
        }
    };
    for (at, player, cost) in releases {
        run(&mut machine, Instant::ZERO + at);
        machine.release(players[player], cost);
    }
    run(&mut machine, Instant::ZERO + ms(20_000));
    ends
}

/// The end times under the real scheduler.
fn measured(servers: &mut Servers<'_>, reclaiming: Reclaiming, least: Nanos, skip: bool) -> Ends {
    let start = clock::now() + ms(100);
    let mut play = |player| {
        let jobs = Jobs { costs: costs(player, least), player, start, skip };
        play(servers, reclaiming, jobs)
    };
    let players: Vec<_> = (0..PLAYERS).map(&mut play).collect();
    while players.iter().any(|(_, ends)| ends.lock().unwrap().len() < JOBS) {
        sleep_ms(20);
    }
    players.into_iter().map(|(_, ends)| ends.lock().unwrap().clone()).collect()
}

type Player = (Worker, Arc<Mutex<Vec<Option<Nanos>>>>);

/// Jobs of a player. A late job begins at once, or is skipped if its deadline has passed.
struct Jobs {
    costs: Vec<Nanos>,
    player: usize,
    start: Instant,
    skip: bool,
}

fn play(servers: &mut Servers<'_>, reclaiming: Reclaiming, jobs: Jobs) -> Player {
    let Jobs { costs, player, start, skip } = jobs;
    let ends = Arc::new(Mutex::new(Vec::with_capacity(JOBS)));
    let (log, mut job) = (ends.clone(), 0);
    let worker = Worker::start(move || {
        let Some(&cost) = costs.get(job) else { return std::thread::sleep(Duration::from_millis(5)) };
        let released = start + release(player, job);
        let early = released.since(clock::now());
        if early > Nanos::ZERO {
            std::thread::sleep(Duration::from_nanos(early.get()));
        }
        let skipped = skip && clock::now() > released + T;
        if !skipped {
            burn(cost);
        }
        log.lock().unwrap().push((!skipped).then(|| clock::now().since(start)));
        job += 1;
    });
    let reservation = reservation(reclaiming);
    let spec = ServerSpec::new(reservation.period(), reservation.budget());
    let id = servers.create(&ServerSpec { cpu: Some(0), reclaiming, ..spec });
    servers.ext.join(id, worker.thread, false).unwrap();
    (worker, ends)
}

/// Number of jobs that ended after their deadlines or were skipped.
fn misses(ends: &Ends) -> usize {
    let late = |player: usize, job: usize, end: &Option<Nanos>| end.is_none_or(|end| end > release(player, job) + T);
    let of = |(player, ends): (usize, &Vec<Option<Nanos>>)| {
        ends.iter().enumerate().filter(|(job, end)| late(player, *job, end)).count()
    };
    ends.iter().enumerate().map(of).sum()
}

/// Number of jobs that ended more than 1 ms before or after the model's end. A switch takes about 25 µs that the model
/// does not include. If a job needs about the remaining budget, this decides whether the job, and the jobs after it,
/// need another period.
fn elsewhere(a: &Ends, b: &Ends) -> usize {
    let far = |(a, b): (&Option<Nanos>, &Option<Nanos>)| {
        let end = |end: &Option<Nanos>| end.expect("no job is skipped").get();
        end(a).abs_diff(end(b)) > ms(1).get()
    };
    let of = |(a, b): (&Vec<_>, &Vec<_>)| a.iter().zip(b).filter(|&pair| far(pair)).count();
    a.iter().zip(b).map(of).sum()
}

#[test]
fn jobs_of_every_kind_end_when_the_model_says() {
    let Some(mut ext) = loaded() else { return };
    let _hogs = hogs(3);
    let all = PLAYERS * JOBS;
    for reclaiming in Reclaiming::ALL {
        let mut servers = Servers::of(&mut ext);
        let (model, real) = (modelled(reclaiming), measured(&mut servers, reclaiming, CALM, false));
        let (expected, missed, elsewhere) = (misses(&model), misses(&real), elsewhere(&model, &real));
        eprintln!(
            "{reclaiming}: {missed} of {all} jobs late, {expected} in the model; {elsewhere} differ by more than 1 ms"
        );
        assert!(elsewhere <= all / 5, "{reclaiming}: {elsewhere} of {all} differ by more than 1 ms");
        assert!(missed.abs_diff(expected) <= all / 20, "{reclaiming}: {missed} late, {expected} in the model");
    }
}

/// If players need all reserved time, backlogs build up: servers under GRUB wait for their next periods, soft servers
/// do not.
#[test]
fn soft_servers_miss_less_than_grub_when_the_cpu_is_saturated() {
    let Some(mut ext) = loaded() else { return };
    let _hogs = hogs(3);
    let mut missed = |kind, skip| misses(&measured(&mut Servers::of(&mut ext), kind, SATURATED, skip));
    let (grub, grub_skips) = (missed(Reclaiming::Grub, false), missed(Reclaiming::Grub, true));
    let (soft, soft_skips) = (missed(Reclaiming::Soft, false), missed(Reclaiming::Soft, true));
    let all = PLAYERS * JOBS;
    eprintln!("late or skipped of {all}: GRUB {grub}, skipping {grub_skips}; soft {soft}, skipping {soft_skips}");
    assert!(soft < grub, "soft {soft}, GRUB {grub}");
}
