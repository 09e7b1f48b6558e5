//! The printed tables, in microseconds if no other unit is stated; `–` if a rival is not installed or did not finish.

use std::thread;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::field::play;
use crate::field::stage::{
    Cost, Policy, Process, broker, disturb, fresh_net, median, round_trip, submission as submit,
};

const COUNTS: [usize; 3] = [1, 8, 100];
const SIZES: [usize; 2] = [100, 1024];

fn cell(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") })
}

fn ratio(one: Option<f64>, other: Option<f64>) -> String {
    match (one, other) {
        (Some(one), Some(other)) if other > 0.0 => format!("{:.2}x", one / other),
        _ => "–".into(),
    }
}

/// Pause between events such that the sinks, which share the machine, keep up.
fn pause_us(sinks: usize) -> usize {
    1000.max(100 * sinks)
}

pub(crate) fn submission(effort: Effort) {
    const RIVALS: [&str; 7] = ["tcp", "plain", "zenoh-1", "link", "nats", "zmq", "dds"];
    println!("CPU of the submitting process for one event, by sinks on as many hosts (NATS: without its broker's);");
    println!("at rest: what it takes without any, with a hundred hosts, percent of a processor");
    println!("{:10} {:>24} {:>24} {:>8}", "", "100 B: 1 / 8 / 100", "1 KiB: 1 / 8 / 100", "at rest");
    let mut costs = vec![vec![Vec::new(); 6]; RIVALS.len()];
    for _ in 0..effort.rounds {
        for cell in 0..6 {
            let (size, sinks) = (SIZES[cell / 3], COUNTS[cell % 3]);
            for (rival, costs) in RIVALS.iter().zip(&mut costs) {
                costs[cell].extend(submit(rival, size, sinks, effort.events * 10 / (10 + sinks), pause_us(sinks)));
            }
        }
    }
    let cpu = |runs: &Vec<Cost>| median(runs.iter().map(|cost| cost.cpu));
    let medians: Vec<Vec<_>> = costs.iter().map(|row| row.iter().map(cpu).collect()).collect();
    for ((rival, row), costs) in RIVALS.iter().zip(&medians).zip(&costs) {
        let cells: Vec<String> = row.iter().map(|value| cell(*value)).collect();
        let rest = median(costs[2].iter().chain(&costs[5]).map(|cost| cost.rest));
        let rest = rest.map_or("–".into(), |rest| format!("{rest:.2} %"));
        println!("{rival:10} {:>24} {:>24} {rest:>8}", cells[..3].join(" / "), cells[3..].join(" / "));
    }
    let ratios: Vec<String> = (0..6).map(|at| ratio(medians[3][at], medians[2][at])).collect();
    println!("{:10} {:>24} {:>24}\n", "link/zenoh", ratios[..3].join(" / "), ratios[3..].join(" / "));
}

pub(crate) fn trips(effort: Effort) {
    const RIVALS: [&str; 8] = ["tcp", "plain", "zenoh", "zenoh-1", "link", "nats", "zmq", "dds"];
    const PLACES: [(&str, u32, Policy); 5] = [
        ("idle", 0, Policy::Normal),
        ("idle, FIFO", 0, Policy::Fifo),
        ("100 % load", 100, Policy::Normal),
        ("load, FIFO", 100, Policy::Fifo),
        ("load, pinned", 100, Policy::Pinned),
    ];
    let mut found = vec![vec![(Vec::new(), Vec::new()); PLACES.len()]; RIVALS.len()];
    for _ in 0..effort.rounds {
        for (place, (_, load, policy)) in PLACES.iter().enumerate() {
            let _disturbers = disturb(*load);
            for (rival, found) in RIVALS.iter().zip(&mut found) {
                if let Some((half, most)) = round_trip(rival, 100, effort.trips, *policy) {
                    found[place].0.push(half);
                    found[place].1.push(most);
                }
            }
        }
    }
    println!("round trip of 100 B: p50 / p99");
    print!("{:10}", "");
    PLACES.iter().for_each(|(name, ..)| print!(" {name:>15}"));
    println!(" {:>22}", "p99 load FIFO to idle");
    for (rival, row) in RIVALS.iter().zip(found) {
        let row: Vec<_> = row.into_iter().map(|(half, most)| (median(half), median(most))).collect();
        print!("{rival:10}");
        row.iter().for_each(|(half, most)| print!(" {:>15}", format!("{} / {}", cell(*half), cell(*most))));
        println!(" {:>22}", ratio(row[3].1, row[0].1));
    }
    println!();
}

/// Events of 16 KiB at 500 Hz to two healthy sinks and a stopped or slow one; the values are of a healthy sink.
pub(crate) fn sinks(effort: Effort) {
    println!("a healthy sink beside another: events that came in a second, p99, latest; longest submission");
    for rival in ["tcp", "zenoh-1", "plain", "link"] {
        for (what, pause_ms, stop) in
            [("healthy", 0, false), ("slow (20 ms an event)", 20, false), ("stopped", 0, true)]
        {
            let runs: Vec<_> =
                (0..effort.rounds).filter_map(|_| beside(rival, pause_ms, stop, effort.seconds)).collect();
            let [count, most, all, call] = [0, 1, 2, 3].map(|at| median(runs.iter().map(|run: &[f64; 4]| run[at])));
            let line = format!("{:>6} /s {:>8} {:>8} {:>8}", cell(count), cell(most), cell(all), cell(call));
            println!("{rival:10} {what:24} {line}");
        }
    }
    println!();
}

fn beside(rival: &str, pause_ms: u64, stop: bool, seconds: u64) -> Option<[f64; 4]> {
    let net = fresh_net();
    let mut feed = Process::start(Policy::Fifo, &["feed", rival, &net, "16384", "2000", "2"])?;
    feed.line("ready")?;
    let mut healthy = Process::start(Policy::Fifo, &["reader", rival, &net, "1", "0"])?;
    let other = Process::start(Policy::Normal, &["reader", rival, &net, "2", &pause_ms.to_string()])?;
    feed.line("all")?;
    thread::sleep(Duration::from_millis(1500));
    if stop {
        other.signal("STOP");
    }
    feed.tell()?;
    healthy.tell()?;
    thread::sleep(Duration::from_secs(seconds));
    let (calls, seen) = (feed.tell()?, healthy.tell()?);
    other.signal("CONT");
    Some([seen[0] / seconds as f64, seen[2], seen[3], calls[3]])
}

pub(crate) fn flood(effort: Effort) {
    println!("control events beside a bulk flood to the same host: delivered, p50 / p99 / latest; longest submission;");
    println!("what of the flood came, megabytes a second");
    let count = effort.seconds as usize * 100;
    // The kernel stops a thread at SCHED_FIFO that never pauses for 50 ms in each second.
    let floods =
        [("unpaced", 0, Policy::Normal), ("~150 MB/s", 50, Policy::Normal), ("~150 MB/s, FIFO", 50, Policy::Fifo)];
    for (what, pause_us, policy) in floods {
        for rival in ["tcp", "zenoh-1", "plain", "link"] {
            let runs: Vec<_> = (0..effort.rounds).filter_map(|_| flooded(rival, count, pause_us, policy)).collect();
            let [came, half, most, all, call, bulk] =
                [0, 1, 2, 3, 4, 5].map(|at| median(runs.iter().map(|run: &[f64; 6]| run[at])));
            let came = came.map_or("–".into(), |came| format!("{:.1} %", 100.0 * came / count as f64));
            let times = [half, most, all].map(cell).join(" / ");
            println!("{rival:10} {what:16} {came:>8} {times:>24} {:>10} {:>6}", cell(call), cell(bulk));
        }
    }
    println!();
}

fn flooded(rival: &str, count: usize, pause_us: usize, policy: Policy) -> Option<[f64; 6]> {
    let net = fresh_net();
    let mut flood = Process::start(policy, &["flood", rival, &net, &count.to_string(), &pause_us.to_string()])?;
    flood.line("ready")?;
    let mut flooded = Process::start(policy, &["flooded", rival, &net])?;
    let begin = Instant::now();
    flood.line("done")?;
    let (seen, calls) = (flooded.tell()?, flood.tell()?);
    let bulk = seen[4] * play::BULK as f64 / begin.elapsed().as_secs_f64() / 1e6;
    Some([seen[0], seen[1], seen[2], seen[3], calls[3], bulk])
}

pub(crate) fn valve(effort: Effort) {
    println!(
        "a reading turns a parameter of a Q-filter: from its submission elsewhere, and from its frame here; p50 / p99"
    );
    let count = (effort.seconds * 400).to_string();
    for (what, load, policy) in
        [("idle", 0, Policy::Normal), ("100 % load", 100, Policy::Normal), ("100 % load, FIFO", 100, Policy::Fifo)]
    {
        let _disturbers = disturb(load);
        for rival in ["plain", "link"] {
            let runs: Vec<_> = (0..effort.rounds).filter_map(|_| turned(rival, &count, policy)).collect();
            let part = |at: usize| cell(median(runs.iter().map(|run| run[at])));
            println!("{rival:10} {what:18} {:>6} / {:<6} {:>6} / {:<6}", part(1), part(2), part(5), part(6));
        }
    }
    println!();
}

fn turned(rival: &str, count: &str, policy: Policy) -> Option<Vec<f64>> {
    let net = fresh_net();
    let mut valve = Process::start(policy, &["valve", rival, &net])?;
    valve.line("ready")?;
    let mut turner = Process::start(policy, &["turner", rival, &net, count])?;
    turner.line("done")?;
    valve.tell()
}

/// A host reports once for all its sinks on a channel.
pub(crate) fn reports(effort: Effort) {
    println!("a hundred sinks, on a hundred hosts and on ten, each of which reports ten times a second, evenly:");
    println!("percentage of a processor where they are received");
    for rival in ["tcp", "zenoh-1", "plain", "link", "nats"] {
        let cells = [100, 10].map(|hosts| {
            let runs: Vec<_> = (0..effort.rounds).filter_map(|_| reported(rival, hosts)).collect();
            let [rate, share] = [0, 1].map(|at| median(runs.iter().map(|run| run[at])));
            format!("{:>6} /s {:>6} %", cell(rate), share.map_or("–".into(), |share| format!("{share:.2}")))
        });
        println!("{rival:10} {}", cells.join(" "));
    }
    println!();
}

fn reported(rival: &str, hosts: usize) -> Option<Vec<f64>> {
    let (net, hosts) = (fresh_net(), hosts.to_string());
    let _broker = broker(rival, &net, Policy::Normal);
    let mut collector = Process::start(Policy::Normal, &["collector", rival, &net, &hosts])?;
    collector.line("ready")?;
    let _reporters = Process::start(Policy::Normal, &["reporters", rival, &net, &hosts, "10"])?;
    collector.numbers()
}
