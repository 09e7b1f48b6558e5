//! The thesis' figures of the cost of Q-channels (000 §4.4, §5.1.2), measured and drawn:
//! `cargo run --release -p qfabric-link --example figures [-- --short] [-- --out FOLDER]`
//!
//! Writes to `out/figures/`: Figure 29 (submission by the number of sinks), Table 2 (creation, opening, submission, polling),
//! Figure 30 (savings and cost of filters), Figure 33 (submission to a hundred sinks at 2 to 10 Hz; round trips beside a
//! disturber), each as SVG and as CSV. Takes about five minutes; the disturber is `stress-ng`, SCHED_FIFO needs root.

#[path = "../field/mod.rs"]
mod field;
mod plot;

use std::path::{Path, PathBuf};
use std::{env, fs};

use field::stage::{Policy, Process, disturb, fresh_net, round_trip, submission};
use field::{dear, foreign, play, stage};
use plot::{Curve, Panel};

/// A figure's name, and the function that measures it.
type Figure = (&'static str, fn(bool) -> Vec<Panel>);

fn main() {
    if let Ok(role) = env::var(stage::ROLE) {
        return play::play(&role);
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let short = arguments.iter().any(|argument| argument == "--short");
    let folder = after("--out").map_or("out/figures".into(), PathBuf::from);
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    let wanted = |part: &str| after("--only").is_none_or(|only| only.split(',').any(|only| only == part));
    let figures: [Figure; 4] =
        [("table-2", table_2), ("figure-29", figure_29), ("figure-30", figure_30), ("figure-33", figure_33)];
    for (name, measure) in figures.iter().filter(|(name, _)| wanted(name)) {
        write(&folder, name, &measure(short));
    }
    foreign::clean();
}

fn write(folder: &Path, name: &str, panels: &[Panel]) {
    for (end, text) in [("svg", plot::svg(panels)), ("csv", plot::csv(panels))] {
        let path = folder.join(format!("{name}.{end}"));
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        println!("{}", path.display());
    }
    print!("{}", plot::csv(panels));
}

/// The names in pictures.
fn label(rival: &str) -> &'static str {
    match rival {
        "link" => "Q-channel over Zenoh",
        "plain" => "Q-channel over sockets",
        "zenoh-1" => "bare Zenoh, one thread",
        "tcp" => "TCP, a write for each sink",
        "zmq" => "ZeroMQ",
        _ => "another",
    }
}

fn figure_29(short: bool) -> Vec<Panel> {
    let counts: &[usize] = if short { &[1, 8] } else { &[1, 2, 4, 6, 8] };
    let events = if short { 200 } else { 1000 };
    [100, 1024]
        .map(|size| {
            let curves = ["link", "plain", "zenoh-1", "tcp", "zmq"].map(|rival| {
                let cost = |sinks: &usize| Some((*sinks as f64, submission(rival, size, *sinks, events, 1000)?.cpu));
                Curve { name: label(rival).into(), points: counts.iter().filter_map(cost).collect() }
            });
            let title = format!("Submission of {size} B");
            Panel::lines(title, "sinks, each on a host of its own", "CPU time of an event, µs", curves.into())
        })
        .into()
}

fn table_2(_short: bool) -> Vec<Panel> {
    let bars = ["link", "plain", "zenoh-1"].map(|rival| {
        let net = fresh_net();
        let measured = Process::start(Policy::Normal, &["maker", rival, &net]).and_then(|mut maker| {
            maker.line("ready")?;
            Process::start(Policy::Normal, &["table", rival, &net])?.numbers()
        });
        let points = measured.unwrap_or_default().into_iter().enumerate();
        Curve { name: label(rival).into(), points: points.map(|(at, us)| (at as f64, us)).collect() }
    });
    let groups = ["creating a channel", "opening one", "submitting", "polling"];
    vec![Panel::bars("Operations (KECho: 182, 1,500,000, 95 and 40 µs)", &groups, "time of a call, µs", bars.into())]
}

fn figure_30(_short: bool) -> Vec<Panel> {
    let mosts = [99, 8, 1, 0];
    let groups = ["no filter", "8 sinks get it", "1 sink", "none"];
    let curve = |name: &str, cost: &dyn Fn(usize) -> Option<f64>| {
        let points = mosts.iter().enumerate().filter_map(|(at, most)| Some((at as f64, cost(*most)?)));
        Curve { name: name.into(), points: points.collect() }
    };
    let bars = vec![curve("handling, IN-filter", &handled), curve("submission, OUT-filter", &chosen)];
    let [out, within] = dear::filter_ns();
    let filters = vec![Curve { name: "of 8 sinks".into(), points: vec![(0.0, within), (1.0, out)] }];
    vec![
        Panel::bars("Events for 8 sinks, over Zenoh", &groups, "CPU time of an event, µs", bars),
        Panel::bars("The filter itself (KECho: 900, 1,000 ns)", &["IN-filter", "OUT-filter"], "time, ns", filters),
    ]
}

fn chosen(most: usize) -> Option<f64> {
    let net = fresh_net();
    let mut source = Process::start(Policy::Normal, &["chosen", "link", &net, &most.to_string()])?;
    source.line("ready")?;
    let _sinks = Process::start(Policy::Normal, &["sinks", "link", &net, "100", "8"])?;
    source.numbers()?.first().copied()
}

/// CPU time of receiving, at a thousand events a second.
fn handled(most: usize) -> Option<f64> {
    let net = fresh_net();
    let mut feed = Process::start(Policy::Normal, &["feed", "link", &net, "100", "1000", "8"])?;
    feed.line("ready")?;
    let mut handling = Process::start(Policy::Normal, &["handled", "link", &net, &most.to_string()])?;
    handling.numbers()?.first().copied()
}

fn figure_33(short: bool) -> Vec<Panel> {
    let mut shares = Vec::new();
    for rival in ["link", "plain", "zenoh-1"] {
        shares.extend(rates(rival, if short { ("8", "1") } else { ("100", "3") }).unwrap_or_default());
    }
    let loads: &[u32] = if short { &[0, 100] } else { &[0, 20, 40, 60, 80, 100] };
    let subjects = [
        ("link", Policy::Fifo, "Q-channel, SCHED_FIFO"),
        ("link", Policy::Normal, "Q-channel"),
        ("zenoh-1", Policy::Normal, "bare Zenoh, one thread"),
        ("tcp", Policy::Normal, "TCP"),
    ];
    let mut trips = subjects.map(|(_, _, name)| Curve { name: name.into(), points: Vec::new() });
    for load in loads {
        let _disturbers = disturb(*load);
        for ((rival, policy, _), curve) in subjects.iter().zip(&mut trips) {
            let trip = round_trip(rival, 100, if short { 300 } else { 1500 }, *policy);
            curve.points.extend(trip.map(|(_, most)| (f64::from(*load), most / 1e3)));
        }
    }
    vec![
        Panel::lines(
            format!("Submission to {} sinks", if short { 8 } else { 100 }),
            "events a second",
            "of a processor, %",
            shares,
        ),
        Panel::lines("Round trip of 100 B".into(), "load on every processor, %", "99 % within, ms", trips.into()),
    ]
}

/// With `sinks` sinks, for `seconds` seconds at each rate.
fn rates(rival: &str, (sinks, seconds): (&str, &str)) -> Option<Vec<Curve>> {
    let net = fresh_net();
    let mut source = Process::start(Policy::Normal, &["rates", rival, &net, sinks, seconds])?;
    source.line("ready")?;
    let _sinks = Process::start(Policy::Normal, &["sinks", rival, &net, "100", sinks])?;
    let mut curve = |size: usize| {
        let points = (0..6).map_while(|_| {
            let numbers = source.numbers()?;
            Some((*numbers.get(1)?, *numbers.get(2)?))
        });
        Curve { name: format!("{}, {size} B", label(rival)), points: points.collect() }
    };
    Some(vec![curve(100), curve(2048)])
}
