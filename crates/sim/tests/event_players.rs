//! Event-driven players beside endless loops, under modelled schedulers (000 §3.5.2, Figure 19): the display times of
//! the frames begin anywhere in the periods of the servers.
//!
//! One CPU. Each of n players has a frame every 100 ms, which costs 4 to 4.9 ms and must be ready before the next one
//! is due; a frame that comes while the one before is computed is dropped. The demand comes at the display time,
//! because the I/O module delays the notification until then. Times in µs; one seed.

use qfabric_sched::dwcs::{self, Choice, TaskIndex, Wake};
use qfabric_sched::{Machine, MachineConfig};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Window};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PERIOD: u64 = 100_000;
const SERVICE: u64 = 4_900;
const FRAMES: u64 = 200;
const END: u64 = FRAMES * PERIOD;
const LOOPS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Frame {
    player: usize,
    display: u64,
    cost: u64,
}

/// The frames of n players in the order of their display times.
fn frames(players: usize) -> Vec<Frame> {
    let mut random = ChaCha8Rng::seed_from_u64(19);
    let mut frames = Vec::new();
    for player in 0..players {
        let phase = random.random_range(0..PERIOD);
        let of_player = (0..FRAMES - 1).map(|k| phase + k * PERIOD);
        frames.extend(of_player.map(|display| Frame { player, display, cost: random.random_range(4_000..=SERVICE) }));
    }
    frames.sort_by_key(|frame| (frame.display, frame.player));
    frames
}

/// What a scheduler did with the frames: the times from their display times to their ends.
#[derive(Debug, Default)]
struct Row {
    all: usize,
    took: Vec<u64>,
}

impl Row {
    fn in_time(&self) -> f64 {
        100.0 * self.took.iter().filter(|took| **took <= PERIOD).count() as f64 / self.all as f64
    }

    fn mean_ms(&self) -> f64 {
        self.took.iter().sum::<u64>() as f64 / self.took.len().max(1) as f64 / 1e3
    }

    fn p99_ms(&self) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().unwrap_or_default() as f64 / 1e3
    }
}

/// Under the modelled kernel: with SCHED_DEADLINE, or with shares beside the loops.
fn under_kernel(players: usize, reserved: bool) -> Row {
    let frames = frames(players);
    let mut machine = Machine::new(MachineConfig { hogs: LOOPS, ..MachineConfig::default() });
    let tasks: Vec<_> = (0..players).map(|_| machine.spawn()).collect();
    let budget = Reservation::new(Nanos::from_micros(SERVICE), Nanos::from_micros(PERIOD)).unwrap();
    for task in tasks.iter().filter(|_| reserved) {
        machine.reserve(*task, Some((budget, Reclaiming::Hard))).unwrap();
    }
    let mut row = Row { all: frames.len(), ..Row::default() };
    let ends = frames.iter().map(|frame| (frame.display, Some(frame))).chain([(END, None)]);
    for (at, frame) in ends {
        while let Some(done) = machine.run_until(Instant::new(at * 1_000)) {
            row.took.push((done.finish.get() - done.release.get()) / 1_000);
        }
        if let Some(frame) = frame.filter(|frame| machine.backlog(tasks[frame.player]) == 0) {
            machine.release(tasks[frame.player], Nanos::from_micros(frame.cost));
        }
    }
    row
}

/// Under the modelled `ext`. `wake`: where the period of a player that wakes begins.
struct Ext {
    machine: dwcs::Machine,
    wake: Wake,
    events: bool,
    /// Of each player, the display time of the frame that it computes, and the rest of its cost.
    current: Vec<Option<(u64, u64)>>,
    row: Row,
}

impl Ext {
    fn run(players: usize, wake: Wake, events: bool) -> Row {
        let task = dwcs::Task::new(PERIOD, SERVICE, Window::new(1, 5).unwrap()).unwrap();
        let mut machine = dwcs::Machine::new(&vec![task; players], dwcs::Policy::Dwcs);
        (0..players).for_each(|player| machine.block(TaskIndex(player), 0));
        let frames = frames(players);
        let row = Row { all: frames.len(), ..Row::default() };
        let mut ext = Ext { machine, wake, events, current: vec![None; players], row };
        let (mut now, mut next) = (0, 0);
        while now < END {
            while let Some(frame) = frames.get(next).filter(|frame| frame.display <= now) {
                ext.come(frame, now);
                next += 1;
            }
            now = ext.slice(now, frames.get(next).map_or(END, |frame| frame.display));
        }
        ext.row
    }

    fn come(&mut self, frame: &Frame, now: u64) {
        if self.current[frame.player].is_none() {
            self.current[frame.player] = Some((frame.display, frame.cost));
            self.machine.wake(TaskIndex(frame.player), now, self.wake);
            self.favour(frame.player);
        }
    }

    /// The notification favours its player until the next frame is due.
    fn favour(&mut self, player: usize) {
        let Some((display, _)) = self.current[player].filter(|_| self.events) else { return };
        self.machine.raise(TaskIndex(player), Instant::new(display + PERIOD)).unwrap();
    }

    /// One decision from `now`, at most until `until`. Returns its end.
    fn slice(&mut self, now: u64, until: u64) -> u64 {
        let decision = self.machine.decide(now);
        let span = self.machine.horizon(&decision).min(until - now);
        let player = match decision.run {
            Choice::Regular(task) | Choice::Extra(task) => Some(task.0),
            Choice::TaskServer | Choice::BestEffort => None,
        };
        let work = player.and_then(|player| self.current[player]);
        let span = span.min(work.map_or(span, |(_, left)| left));
        self.machine.account(&decision, span);
        if let (Some(player), Some((display, left))) = (player, work) {
            self.current[player] = (left > span).then_some((display, left - span));
            if left == span {
                self.row.took.push(now + span - display);
                self.machine.block(TaskIndex(player), now + span);
            } else if decision.event.is_some() {
                // It was interrupted before its frame was ready.
                self.favour(player);
            }
        }
        now + span
    }
}

fn print(name: &str, players: usize, row: &Row) {
    let (in_time, mean, p99) = (row.in_time(), row.mean_ms(), row.p99_ms());
    println!("{players:>3} players  {name:<24} {in_time:>6.1} % in time  {mean:>6.1} ms mean  {p99:>6.1} ms p99");
}

#[test]
fn events_help_exactly_where_demand_does_not_begin_with_the_period() {
    for players in [5, 10, 15, 19] {
        let plain = under_kernel(players, false);
        let deadline = under_kernel(players, true);
        let own = [false, true].map(|events| Ext::run(players, Wake::Now, events));
        let grid = [false, true].map(|events| Ext::run(players, Wake::Aligned, events));
        print("plain", players, &plain);
        print("SCHED_DEADLINE", players, &deadline);
        print("ext", players, &own[0]);
        print("ext with events", players, &own[1]);
        print("ext on a grid", players, &grid[0]);
        print("ext on a grid, events", players, &grid[1]);
        assert!(grid[1].in_time() >= grid[0].in_time(), "{players} players");
        assert!(grid[1].mean_ms() < grid[0].mean_ms(), "{players} players");
        assert!(grid[1].in_time() >= plain.in_time(), "{players} players");
    }
}
