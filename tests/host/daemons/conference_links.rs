//! A conference of five clients of which one has a bad downlink, and one whose server shares its CPU with programs that
//! spin. Seconds in which the load of the machine disturbs the good clients do not count.

use std::process::{Child, Command, Stdio};

use qfabric_linux::testing::skip;
use serde_json::Value;

use crate::conference::Talker;
use crate::host::Site;

/// The ladder lowers the level when a smaller part of the wanted rate is shown.
const KEPT: f64 = 0.85;
/// The clients whose downlinks are good; that of `h1` is bad.
const OTHERS: [&str; 4] = ["h2", "h3", "h4", "h5"];
/// Reports in a row in which the bad link, and nothing else, disturbs the conference. The ladder needs two.
const REPORTS: usize = 15;
/// Programs that spin at the server.
const SPINNING: usize = 6;

/// Number of times that the strain begins, if the expected seconds came only without it: the load of the machine may
/// have changed meanwhile.
const ATTEMPTS: usize = 3;

/// Whether `count` seconds in a row fulfil a condition without a strain, and then also under it. False: other programs
/// need so much of the machine that such seconds do not come without the strain either, so nothing is decided. Panics
/// if they come only without it.
#[track_caller]
fn is_decided(
    talker: &Talker,
    count: usize,
    mut strain: impl FnMut(bool),
    condition: impl Fn(bool, &Value, &Value) -> bool,
) -> bool {
    for _ in 0..ATTEMPTS {
        strain(false);
        if !talker.in_a_row(count, |first, second| condition(false, first, second)) {
            skip("other programs need too much of the machine");
            return false;
        }
        strain(true);
        if talker.in_a_row(count, |first, second| condition(true, first, second)) {
            return true;
        }
    }
    panic!("{count} seconds in a row come without the strain only");
}

/// What the receiver of a host told last, as the server reports it.
fn told<'a>(second: &'a Value, host: &str) -> Option<&'a Value> {
    let receivers = second["receivers"].as_object()?;
    receivers.iter().find(|(name, _)| name.split('/').next() == Some(host)).map(|(_, told)| told)
}

/// Pictures per second that a client shows.
fn shown(second: &Value) -> f64 {
    second["shown"].as_f64().unwrap_or(0.0) / 1e3
}

#[test]
fn one_bad_downlink_of_five_changes_nothing_for_the_others() {
    let Some(site) = Site::started(&[0, 0, 0, 0, 1, 1]) else { return };
    site.lan.shape(2, "20mbit");
    site.lan.shape(3, "50mbit");
    let levels = ["--level", "jpeg:80:640x480", "--adapt", "quality=80,60,40", "--adapt", "size=640x480,352x288"];
    let server = Talker::serve(&site[0], &[&levels[..], &["--fps", "10", "--deadline", "3s"]].concat());
    let clients = [1, 2, 3, 4, 5].map(|host| Talker::start(&site[host], &["join", "h0", "--fps", "10"]));
    for client in &clients {
        client.until("pictures", |second| shown(second) > 0.0);
    }
    // A picture has more than 20 kB, so at most 2.5 of 10 pass in a second.
    let strain = |is_bad: bool| site.lan.shape(1, if is_bad { "400kbit" } else { "100mbit" });
    let rate = |second: &Value, host: &str| told(second, host).map(shown);
    let is_whole = |second: &Value| OTHERS.iter().all(|host| rate(second, host) >= Some(10.0 * KEPT));
    let is_bad = |second: &Value| rate(second, "h1").is_some_and(|rate| rate < 5.0);
    let lost = |second: &Value| OTHERS.map(|host| told(second, host).map(|told| told["lost"].clone()));
    // A lower level would stay, because the bad client never shows the rate.
    is_decided(&server, REPORTS, strain, |is_strained, first, second| {
        let is_same = first["level_changes"] == second["level_changes"] && lost(first) == lost(second);
        second["worth"] == 1.0 && is_whole(second) && is_same && (!is_strained || is_bad(second))
    });
}

/// Programs that take all time of a CPU that fair scheduling gives them.
struct Spinning(Vec<Child>);

impl Spinning {
    fn start(count: usize, cpu: usize) -> Spinning {
        let start = |_| {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            command.spawn().unwrap()
        };
        Spinning((0..count).map(start).collect())
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        for program in &mut self.0 {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// Scenario C of the demo, which measures how long the recovery takes: here the rate has to be back while the programs
/// still spin. Without the policy, fair scheduling leaves the server a seventh of its CPU.
#[test]
fn a_disturbed_server_has_its_rate_back_by_cpu_time_at_the_same_level() {
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    // It has fixed services, and serves programs that are bound to a CPU.
    (0..2).for_each(|host| site.start(host, "[mechanism]\nname = 'dispatcher'\nslot = '5ms'"));
    site.all_meet();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let contract = ["--by-policy", "--cpu", "0.8"];
    let level = ["serve", "test", "--level", "jpeg:75:1280x720"];
    let server = Talker::start_on(&site[0], 0, &[&level[..], &contract].concat());
    let client = Talker::start_on(&site[1], cpus - 1, &[&["join", "h0"][..], &contract].concat());
    client.until("pictures", |second| shown(second) > 0.0);
    for host in site.hosts() {
        let policy = ["policy", "start", "cpu", "--channel", "video", "--rate", "20", "--most", "0.8"];
        host.run(&policy).expect(0, &["cpu"]);
    }
    let mut spinning = None;
    let strain = |is_on: bool| spinning = is_on.then(|| Spinning::start(SPINNING, 0));
    if is_decided(&client, 5, strain, |_, _, second| shown(second) >= 20.0 * KEPT) {
        let second = server.until("a report", |_| true);
        assert_eq!((&second["level"], &second["level_changes"]), (&"jpeg:75:1280x720".into(), &0.into()), "{second}");
    }
    drop(spinning);
}
