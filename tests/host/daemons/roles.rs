//! Figure 35 on real hosts: three viewers behind one link that somebody else takes more and more of, and gives back.
//!
//! Takes three minutes, so only where it is said where the figure goes:
//! `QFABRIC_OUT=out cargo test -p qfabric-cli --test hosts figure_35 -- --nocapture`

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use qfabric_sim::fabric::experiments::Curve;
use qfabric_sim::fabric::{Chart, svg};

use crate::host::{Host, Site};
use crate::talk::Sender;

/// Bits per second of the source's uplink: 60 frames per second take 9/10 of it.
const LINK: f64 = 600e3;
/// What is left of it while the disturber is greatest: resource managers still have to hear of each other.
const LEAST: f64 = 60e3;
/// Bytes of a frame, and bits on the way with all headers.
const FRAME: usize = 1_000;
const FRAME_BITS: &str = "9040";
/// Forty frames per second; nobody wants more than 25.
const PERIOD: Duration = Duration::from_millis(25);
/// The disturber begins, is greatest, begins to go, is gone; and the end: in seconds.
const DISTURBER: [f64; 5] = [15.0, 85.0, 95.0, 165.0, 185.0];
/// Who wants what, the least important first.
const ROLES: [(&str, f64, f64); 3] = [("low", 10.0, 15.0), ("medium", 15.0, 20.0), ("high", 20.0, 25.0)];

/// What the disturber leaves of the link at a time.
fn left(at: f64) -> f64 {
    let [begins, greatest, goes, gone, _] = DISTURBER;
    let taken = ((at - begins) / (greatest - begins)).clamp(0.0, 1.0) - ((at - goes) / (gone - goes)).clamp(0.0, 1.0);
    LINK - taken * (LINK - LEAST)
}

/// `qfabric channel sub`, and how many frames it has printed.
struct Viewer {
    command: Child,
    frames: Arc<AtomicU64>,
}

impl Viewer {
    fn start(host: &Host, role: usize) -> Viewer {
        let (_, least, most) = ROLES[role];
        let wants = [format!("frame_rate={least}:{most}"), format!("importance={role}")];
        let words = ["channel", "sub", "video", "--wait", "--json", "--wants", &wants[0], "--wants", &wants[1]];
        let mut command = host.command(&words).stdout(Stdio::piped()).spawn().unwrap();
        let (output, frames) = (command.stdout.take().unwrap(), Arc::<AtomicU64>::default());
        let counted = frames.clone();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines.map_while(Result::ok).for_each(|_| _ = counted.fetch_add(1, Ordering::Relaxed));
        });
        Viewer { command, frames }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

/// A second: frames that each got, and the rate that was decided for it.
#[derive(Clone, Copy, Debug)]
struct Second {
    got: [f64; 3],
    decided: [f64; 3],
}

/// What the policy has decided for each.
fn decided(site: &Site) -> [f64; 3] {
    let list = site[0].run(&["policy", "ls", "--json"]).json();
    let all = list[0]["decided"].as_array().cloned().unwrap_or_default();
    [1, 2, 3].map(|host| {
        let one = all.iter().find(|one| one["subject"] == site[host].name.as_str());
        one.map_or(f64::NAN, |one| one["amount"].as_f64().unwrap() / 1e3)
    })
}

fn film(site: &Site, viewers: &[Viewer]) -> Vec<Second> {
    let (since, mut seconds, mut before) = (Instant::now(), Vec::new(), [0; 3]);
    while since.elapsed().as_secs_f64() < DISTURBER[4] {
        site.lan.shape_uplink(0, left(since.elapsed().as_secs_f64()));
        let next = since + Duration::from_secs(seconds.len() as u64 + 1);
        let decided = decided(site);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = [0, 1, 2].map(|viewer| viewers[viewer].frames.load(Ordering::Relaxed));
        seconds.push(Second { got: [0, 1, 2].map(|viewer| (now[viewer] - before[viewer]) as f64), decided });
        before = now;
    }
    seconds
}

/// The figure, and its numbers.
fn draw(folder: &Path, seconds: &[Second]) {
    let curve = |name: String, value: &dyn Fn(usize) -> f64| Curve {
        name,
        points: (0..seconds.len()).map(|second| (second as f64, value(second))).collect(),
    };
    let got = |role: usize| {
        let (name, least, most) = ROLES[role];
        curve(format!("{name} ({least}–{most})"), &|second| mean(seconds, role, second.saturating_sub(2)))
    };
    let curves = [got(0), got(1), got(2), curve("link, frames/s".into(), &|second| left(second as f64) / 9040.0)];
    let title = "Figure 35 on four hosts: what arrives while somebody else takes the source's link";
    let chart = Chart { title, across: "seconds", up: "frames per second, mean of 5 s", curves: &curves };
    let mut table = "second,link_bits_per_s,low,medium,high,low_decided,medium_decided,high_decided\n".to_owned();
    for (at, Second { got: [a, b, c], decided: [d, e, f] }) in seconds.iter().enumerate() {
        writeln!(table, "{at},{:.0},{a},{b},{c},{d},{e},{f}", left(at as f64)).unwrap();
    }
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("figure35-hosts.svg"), svg(&chart)).unwrap();
    std::fs::write(folder.join("figure35-hosts.csv"), table).unwrap();
}

/// Frames per second over five seconds from there.
fn mean(seconds: &[Second], role: usize, from: usize) -> f64 {
    let some = &seconds[from..(from + 5).min(seconds.len())];
    some.iter().map(|second| second.got[role]).sum::<f64>() / some.len() as f64
}

/// When that was first decided, from a second on.
fn when(seconds: &[Second], from: usize, role: usize, wanted: impl Fn(f64) -> bool) -> usize {
    let found = (from..seconds.len()).find(|at| wanted(seconds[*at].decided[role]));
    found.unwrap_or(seconds.len())
}

#[test]
fn figure_35_the_least_important_viewer_suffers_first_and_recovers_last() {
    let Some(out) = std::env::var_os("QFABRIC_OUT") else {
        return qfabric_linux::testing::skip("takes three minutes; set QFABRIC_OUT to the folder for the figure");
    };
    let Some(site) = Site::started(&[0, 1, 1, 1]) else { return };
    let _film = Sender::start(&site[0], "video", FRAME, PERIOD);
    let viewers = [0, 1, 2].map(|role| Viewer::start(&site[role + 1], role));
    site[0].run(&["policy", "start", "roles", "--channel", "video", "--event-bits", FRAME_BITS]).expect(0, &[]);
    let seconds = film(&site, &viewers);
    draw(Path::new(&out), &seconds);
    println!("{}", site[0].run(&["channel", "show", "video"]).out);
    let (worst, roles) = (DISTURBER[1] as usize, [0, 1, 2]);
    let before = roles.map(|role| mean(&seconds, role, 8));
    let degraded = roles.map(|role| when(&seconds, 10, role, |rate| rate <= ROLES[role].2 - 1.0));
    let stopped = roles.map(|role| when(&seconds, 10, role, |rate| rate == 0.0));
    let resumed = roles.map(|role| when(&seconds, worst, role, |rate| rate >= ROLES[role].1));
    let after = roles.map(|role| mean(&seconds, role, seconds.len() - 5));
    println!("low, medium, high: before {before:?}, degraded at {degraded:?} s, stopped at {stopped:?} s");
    println!("resumed at {resumed:?} s, after {after:?}");
    assert!(degraded.is_sorted() && stopped.is_sorted(), "{degraded:?} {stopped:?}");
    assert!(resumed.iter().rev().is_sorted(), "{resumed:?}");
    for rates in [before, after] {
        assert!(roles.iter().all(|role| rates[*role] > ROLES[*role].2 - 1.5), "{rates:?}");
    }
}
