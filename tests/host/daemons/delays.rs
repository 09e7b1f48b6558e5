//! `qfabric net profile` between two hosts: the delays of messages under granted rates, and the streams that they admit.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Answer, Host, Site, eventually};

/// `qfabric net answer` on a host, until dropped.
struct Answerer(Child);

impl Answerer {
    fn on(host: &Host) -> Answerer {
        Answerer(host.inside(&["net", "answer"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(site: &Site, more: &[&str]) -> Command {
    let address = site.lan.address(1);
    let words = [&["net", "profile", &address, "--interface", "eth0", "--count", "5"], more].concat();
    let mut command = site[0].inside(&words);
    command.arg("--socket").arg(site[0].socket()).env("XDG_DATA_HOME", site.folder.path());
    command
}

#[test]
fn delays_are_measured_by_size_and_rate_and_admit_streams() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    site[0].run(&["net", "link", "add", "eth0", "--rate", "10M", "--htb"]).expect(0, &["eth0 in:"]);
    let grid = ["--sizes", "1kB,60kB", "--rates", "2M,8M", "--json"];
    Answer::of(&mut measure(&site, &grid)).expect(3, &["nobody answers", "qfabric net answer"]);
    let _answerer = Answerer::on(&site[1]);
    // On a starving machine, the delays of a measurement may be the machine's.
    eventually("the delays grow with the size and fall with the rate", || {
        let answer = Answer::of(&mut measure(&site, &grid));
        if answer.err.contains("nobody answers") {
            return false;
        }
        answer.expect(0, &[]);
        let answer = answer.json();
        let points = answer["profile"]["points"].as_array().unwrap();
        let p50 = |at: usize| points[at]["p50_ns"].as_f64().unwrap() / 1e6;
        // 60 kB at 2 Mbit/s are 240 ms, less C, which HTB sends at once.
        assert!(points.len() == 4 && p50(1) > 120.0, "{points:?}");
        p50(1) > 2.0 * p50(3) && p50(0) < p50(1)
    });
    let shown = site[0].run(&["net", "show", "eth0", "--json"]).json();
    assert!(shown[0]["streams"].as_array().unwrap().is_empty(), "the streams are removed");
    check_admission(&site);
}

/// A stream is admitted by the measured delay of the closest larger message.
fn check_admission(site: &Site) {
    let address = site.lan.address(1);
    let ask = |message: &str, delay: &str| {
        let stream = ["net", "stream", "add", "eth0", "--mark", "7", "--period", "40ms", "--size", "40000"];
        let terms = ["--measured", &address, "--message", message, "--delay", delay];
        Answer::of(site[0].command(&[&stream[..], &terms].concat()).env("XDG_DATA_HOME", site.folder.path()))
    };
    ask("50kB", "1ms").expect(3, &["messages of", "took up to", "asked for 1 ms"]);
    ask("70kB", "10s").expect(3, &["has no message of", "qfabric net profile"]);
    ask("50kB", "10s").expect(0, &["measured delay of a message"]);
}

#[test]
fn the_daemon_of_the_other_host_answers_if_its_configuration_says_so() {
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    site.start(0, "");
    site.start(1, "[net]\nanswer = 59714");
    site[0].run(&["net", "link", "add", "eth0", "--rate", "10M", "--htb"]).expect(0, &["eth0 in:"]);
    // On a starving machine, the answers may come too late.
    eventually("it answers", || {
        let answer = Answer::of(&mut measure(&site, &["--sizes", "1kB", "--rates", "2M", "--json"]));
        answer.code == 0 && answer.json()["profile"]["points"].as_array().unwrap().len() == 1
    });
    // The port is taken: the next daemon says which key to change.
    let mut more = site[1].inside(&["net", "answer"]);
    Answer::of(&mut more).expect(1, &["cannot answer at port 59714"]);
}

#[test]
fn a_stopped_measurement_removes_its_stream_and_stores_nothing() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    site[0].run(&["net", "link", "add", "eth0", "--rate", "10M", "--htb"]).expect(0, &[]);
    let _answerer = Answerer::on(&site[1]);
    let streams = || site[0].run(&["net", "show", "eth0", "--json"]).json()[0]["streams"].as_array().unwrap().len();
    for signal in [Signal::INT, Signal::KILL] {
        let mut measuring = None;
        eventually("it measures", || {
            let running = measuring.get_or_insert_with(|| slow(&site));
            if running.try_wait().unwrap().is_some() {
                measuring = None; // Nobody answered yet.
            }
            streams() == 1
        });
        let mut measuring = measuring.unwrap();
        kill_process(Pid::from_child(&measuring), signal).unwrap();
        assert!(!measuring.wait().unwrap().success());
        eventually("its stream is over", || streams() == 0);
    }
    assert!(!site.folder.path().join("qfabric/profiles").exists());
}

/// A measurement that takes minutes.
fn slow(site: &Site) -> Child {
    let mut command = measure(site, &["--sizes", "200kB", "--rates", "100k"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
