//! A conference of five clients of which one has a bad downlink, and one whose server shares its CPU with programs that
//! spin. Seconds in which the load of the machine disturbs the good clients do not count.

use std::process::{Child, Command, Stdio};

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
    site.lan.shape(1, "400kbit");
    let rate = |second: &Value, host: &str| told(second, host).map(shown);
    let is_whole = |second: &Value| OTHERS.iter().all(|host| rate(second, host) >= Some(10.0 * KEPT));
    let is_bad = |second: &Value| rate(second, "h1").is_some_and(|rate| rate < 5.0);
    // A lower level would stay, because the bad client never shows the rate.
    let reports = server.in_a_row("the best level for the others beside a bad link", REPORTS, |second| {
        second["worth"] == 1.0 && is_bad(second) && is_whole(second)
    });
    let (first, last) = (&reports[0], &reports[REPORTS - 1]);
    assert_eq!(first["level_changes"], last["level_changes"], "{first} {last}");
    for host in OTHERS {
        let lost = |second: &Value| told(second, host).map(|told| told["lost"].clone());
        assert_eq!(lost(first), lost(last), "all pictures arrive at {host}: {first} {last}");
    }
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
    let is_kept = |second: &Value| shown(second) >= 20.0 * KEPT;
    client.in_a_row("the rate before", 3, is_kept);
    let spinning = Spinning::start(SPINNING, 0);
    client.in_a_row("the rate while programs spin", 5, is_kept);
    let second = server.until("a report", |_| true);
    assert_eq!((&second["level"], &second["level_changes"]), (&"jpeg:75:1280x720".into(), &0.into()), "{second}");
    drop(spinning);
}
