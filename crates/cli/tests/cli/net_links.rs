//! `net link` and the terms of `net stream`: links that root opens to all users.

use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;

use qfabric_linux::net::testing::{Interface, own_network};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Answer, answer, qfabric};
use crate::live::{Daemon, live, wait_until};

fn ask(folder: &Path, line: &str) -> Answer {
    Answer::of(qfabric(folder).args(line.split_whitespace()))
}

#[test]
fn wrong_options_of_links_and_terms_are_refused_with_an_example() {
    for (line, said) in [
        ("net link add eth0", "--rate"),
        ("net link add eth0 --rate fast", "100M"),
        ("net link add eth0 --rate 1M --user 1000", "NUMBER=BITS"),
        ("net link add eth0 --rate 1M --group video=5M", "1000=20M"),
        ("net stream add eth0 --mark 7 --period 40ms --delay 5ms", "--traffic"),
        ("net stream add eth0 --mark 7 --period 40ms --traffic 5M,1", "RATE,BUCKET,PEAK,LARGEST"),
        ("net stream add eth0 --mark 7 --period 40ms --lease 5", "40ms"),
        ("net stream add eth0 --mark 7 --period 40ms --holder me", "--holder"),
        ("net stream add eth0 --mark 7 --period 40ms --measured beta", "--message"),
        ("net profile 127.0.0.1 --sizes 2M", "1048576 (1 MiB)"),
        ("net profile 127.0.0.1 --rates 1k", "use at least 12.112 kbit/s"),
        ("net profile 127.0.0.1 --count 0", "1..=10000"),
    ] {
        answer(line).expect(2, &[said]);
    }
    answer("net link add --help").expect(0, &["[net.links]", "--user-cap", "CAP_NET_ADMIN"]);
    answer("net stream add --help").expect(0, &["--least", "--upgrade", "--lease", "Users without CAP_NET_ADMIN"]);
}

#[test]
fn a_link_is_opened_shown_used_in_part_and_closed() {
    let Some(_alone) = live() else { return };
    own_network().unwrap();
    let link = Interface::veth("qf0", "qf0-far").unwrap();
    link.address("10.77.0.1".parse().unwrap()).unwrap();
    let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
    let flow = format!("udp,{},10.77.0.9:9", socket.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "[log]\nfilter = \"error\"\n");
    let ask = |line: &str| ask(folder.path(), line);
    ask("net link ls").expect(0, &["no link is open", "qfabric net link add"]);
    ask("net link rm qf0").expect(3, &["is not under packet scheduling"]);
    let opened = ask("net link add qf0 --rate 10M --user-cap 2M --user 7=3M --htb");
    opened.expect(0, &["qf0 out: open to all users: 0 bit/s of 9.5 Mbit/s promised", "each user: at most 2 Mbit/s"]);
    ask("net stream add qf0 --mark 7 --period 40ms --size 25000").expect(0, &["5 Mbit/s"]);
    let over = ask(&format!("net stream add qf0 --flow {flow} --period 40ms --size 25000"));
    over.expect(3, &["asked for 5 Mbit/s, 4.5 Mbit/s of 9.5 Mbit/s is free", "held by mark 7", "at most 4.5 Mbit/s"]);
    let partly = format!("net stream add qf0 --flow {flow} --period 40ms --size 25000 --least 5000 --lease 600s");
    ask(&partly).expect(0, &["promised", "ends in", "wants 25000 B instead of"]);
    ask("net show qf0").expect(0, &["user 0:", "stream 1 of user 0", "wants 25000 B"]);
    let shown = ask("net link ls --json").json();
    assert_eq!(shown["qf0"]["limits"]["users"]["7"], 3_000_000);
    assert_eq!(shown["qf0"]["holders"].as_array().unwrap().len(), 2);
    ask("status").expect(0, &["qf0 out: open to all users", "  user 0: "]);
    assert!(ask("status --json").json()["links"]["qf0"]["users_bps"]["0"].as_u64() > Some(5_000_000));
    ask("net stream rm qf0 0").expect(0, &["has ended"]);
    ask("net show qf0").expect(0, &["25000 B are free for it"]);
    ask("net stream change qf0 1 --size 25000 --lease 50ms").expect(0, &["at a rate of 5 Mbit/s"]);
    wait_until(|| ask("net show qf0 --json").json()[0]["streams"].as_array().unwrap().is_empty());
    ask("net link rm qf0").expect(0, &["closed"]);
    ask("net show").expect(0, &["no interface is under packet scheduling"]);
}

#[test]
fn sighup_changes_links_of_the_configuration_and_the_log_names_who_holds_what_cannot_be_lowered() {
    let Some(_alone) = live() else { return };
    own_network().unwrap();
    let _link = Interface::veth("qf0", "qf0-far").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let config = |rate: &str| format!("[log]\nfilter = \"error\"\n[net.links.qf0]\nrate = \"{rate}\"\n");
    let daemon = Daemon::start_logging(folder.path(), &config("10M"), File::create(&log).unwrap().into());
    let hang_up = |text: &str| {
        std::fs::write(folder.path().join("daemon.toml"), text).unwrap();
        kill_process(Pid::from_child(&daemon.0), Signal::HUP).unwrap();
    };
    let is = |limit: &str| ask(folder.path(), "net link ls").out.contains(limit);
    wait_until(|| is("qf0 out: open to all users: 0 bit/s of 9.5 Mbit/s promised"));
    hang_up(&config("8M\"\nrate_in = \"4M"));
    wait_until(|| is("(the link has 8 Mbit/s)") && is("(the link has 4 Mbit/s)"));
    let added = ask(folder.path(), "net stream add qf0 --mark 7 --period 40ms --size 25000");
    added.expect(0, &["5 Mbit/s"]);
    hang_up(&config("5M"));
    let said = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    wait_until(|| said("5 Mbit/s are promised, more than the 4.75 Mbit/s that would remain to promise"));
    assert!(said("held by mark 7 (stream 0 of user 0): 5 Mbit/s") && is("(the link has 8 Mbit/s)"));
    hang_up("[log]\nfilter = \"error\"\n");
    wait_until(|| said("the link of qf0 stays open, because it has promises: mark 7"));
    ask(folder.path(), "net stream rm qf0 0").expect(0, &[]);
    hang_up("[log]\nfilter = \"error\"\n");
    wait_until(|| is("no link is open"));
}
