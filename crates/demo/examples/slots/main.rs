//! Six players under three mechanisms: `cargo run --release -p qfabric-demo --example slots [-- --cycles N] [-- --out FOLDER]`
//! Needs CAP_SYS_NICE. A cycle takes about 15 s.
//!
//! On each CPU there are three players (processes with two threads), one more process that always overruns, and one
//! hog without a reservation. The rows are the players, the columns the mechanisms:
//!
//! | mechanism | players | reservation |
//! |---|---|---|
//! | plain | pinned | none |
//! | deadline | not pinned, because SCHED_DEADLINE refuses pinned threads | the player's share, half of it for each thread |
//! | dispatcher | pinned | the player's slots, for both threads together |
//!
//! It first prints Table 2 of the paper (004, §3.2) and the dispatch table of this experiment, then the missed deadlines
//! with 95 % intervals. The mechanisms play short rounds, in another order in each cycle. A round is disturbed by the
//! steal and the foreign processes of page 0022; disturbed rounds are counted, and left out unless all are disturbed.

mod player;
#[path = "../../../link/examples/figures/plot.rs"]
mod plot;
mod round;
mod tables;

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Table, presets};
use plot::{Curve, Panel};
use qfabric_demo::stats::{Count, proportion};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::RandomNumbers;
use round::{Kind, Round};

/// Cycles for intervals that tell the mechanisms apart.
const CYCLES: usize = 6;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == player::ROLE) {
        return player::run(&arguments[1..]);
    }
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let cycles = after("--cycles").map_or(Ok(CYCLES), |number| number.parse()).context("--cycles takes a number")?;
    let folder = after("--out").map_or("out/slots".into(), PathBuf::from);
    tables::print()?;
    let _alone = live_lock();
    if !may_reserve() {
        return Ok(());
    }
    println!("a pinned player asks for SCHED_DEADLINE: {}", round::refusal_of_pinned()?);
    let rounds = play(cycles)?;
    println!("{}", table(&rounds));
    draw(&rounds, &folder)
}

/// The rounds of each mechanism, cycle by cycle; the order within a cycle is random with a printed seed.
fn play(cycles: usize) -> Result<[Vec<Round>; 3]> {
    let seed = u64::from(std::process::id());
    println!("{cycles} cycles, seed of the order {seed}");
    let (mut random, mut rounds) = (RandomNumbers::new(seed), <[Vec<Round>; 3]>::default());
    for cycle in 1..=cycles {
        let first = (random.draw() % 3) as usize;
        for at in (0..3).map(|step| (first + step) % 3) {
            let round = round::play(Kind::ALL[at])?;
            let (name, missed) = (Kind::ALL[at].name(), round.missed());
            let why = round.around.disturbance().map_or(String::new(), |why| format!("; disturbed: {why}"));
            println!("cycle {cycle}: {name:<10} {missed:>3} missed{why}");
            rounds[at].push(round);
        }
    }
    Ok(rounds)
}

/// The rounds that count.
fn calm(rounds: &[Round]) -> Vec<&Round> {
    let calm: Vec<&Round> = rounds.iter().filter(|round| !round.is_disturbed()).collect();
    if calm.is_empty() { rounds.iter().collect() } else { calm }
}

/// `missed / jobs (95 % interval)` of one player, or of all.
fn cell(rounds: &[Round], of: impl Fn(&Round) -> Count) -> String {
    let counts: Vec<Count> = calm(rounds).into_iter().map(of).collect();
    let (sum, interval) = (Count::sum(&counts), proportion(&counts));
    let (low, high) = (100.0 * interval.low, 100.0 * interval.high);
    format!("{} of {} ({low:.1} to {high:.1} %)", sum.misses, sum.jobs)
}

fn table(rounds: &[Vec<Round>; 3]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["missed deadlines"].into_iter().chain(Kind::ALL.map(Kind::name)));
    for (at, player) in round::PLAYERS.iter().enumerate() {
        let cells = rounds.each_ref().map(|rounds| cell(rounds, |round| round.players[at]));
        table.add_row([player.label()].into_iter().chain(cells));
    }
    let all = rounds.each_ref().map(|rounds| cell(rounds, |round| Count::sum(&round.players)));
    table.add_row(["all".to_owned()].into_iter().chain(all));
    let disturbed = |rounds: &Vec<Round>| rounds.iter().filter(|round| round.is_disturbed()).count();
    let rows = rounds.each_ref().map(|rounds| format!("{} of {}", disturbed(rounds), rounds.len()));
    table.add_row(["disturbed rounds".to_owned()].into_iter().chain(rows));
    table
}

/// Missed deadlines in percent.
fn percent(counts: &[Count]) -> f64 {
    let sum = Count::sum(counts);
    100.0 * sum.misses as f64 / sum.jobs.max(1) as f64
}

/// By player over all rounds that count, and by round over all players.
fn panels(rounds: &[Vec<Round>; 3]) -> [Panel; 2] {
    let labels: Vec<String> = round::PLAYERS.iter().map(round::Terms::label).collect();
    let names: Vec<&str> = labels.iter().map(String::as_str).collect();
    let by_player = |rounds: &Vec<Round>, at: usize| {
        let counts: Vec<Count> = calm(rounds).into_iter().map(|round| round.players[at]).collect();
        (at as f64, percent(&counts))
    };
    let curve = |kind: Kind, points| Curve { name: kind.name().into(), points };
    let both = || Kind::ALL.into_iter().zip(rounds);
    let players = both().map(|(kind, r)| curve(kind, (0..names.len()).map(|at| by_player(r, at)).collect()));
    let by_round =
        |rounds: &Vec<Round>| (1..).zip(rounds).map(|(at, r)| (f64::from(at), percent(&r.players))).collect();
    let cycles = both().map(|(kind, rounds)| curve(kind, by_round(rounds)));
    let up = "missed deadlines, %";
    [
        Panel::bars("Six players beside hogs and neighbours that overrun", &names, up, players.collect()),
        Panel::lines("All players, round by round".into(), "cycle", up, cycles.collect()),
    ]
}

fn draw(rounds: &[Vec<Round>; 3], folder: &Path) -> Result<()> {
    let panels = panels(rounds);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (end, text) in [("svg", plot::svg(&panels)), ("csv", plot::csv(&panels))] {
        let path = folder.join(format!("players.{end}"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}
