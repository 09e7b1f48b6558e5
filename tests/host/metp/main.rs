//! `qfabric metp send` and `recv` as people run them: two hosts in network namespaces, certificates that the terminal
//! made, a real video. Needs root, `ip` and ffmpeg; elsewhere it says so and passes.

#[path = "../daemons/lan.rs"]
#[allow(dead_code)] // made for more hosts than two
mod lan;
mod site;

use std::fs;
use std::process::Output;
use std::thread;
use std::time::Duration;

use qfabric_types::{Bytes, DelayProfile, Nanos};
use site::{Daemon, Site, json};

/// What the sender says when the watchdog takes the granted rate back, because a starving machine delays packets.
const DELAYED: &str = "the granted rate is revoked: the delay";

#[test]
fn what_is_sent_reliably_arrives_byte_by_byte() {
    let Some(site) = Site::new() else { return };
    for (file, engine) in [("video.264", "metp"), ("video.m2v", "metp"), ("video.264", "streams")] {
        let receiver = site.receive("wall", &["--json"]);
        let sent = site.send("cam", &receiver, file, &["--mode", "reliable", "--fast", "--json", "--engine", engine]);
        assert!(sent.status.success(), "{}", site::said(&sent));
        let received = receiver.end();
        assert!(received.status.success(), "{}", site::said(&received));
        assert!(received.stdout == fs::read(site.file(file)).unwrap(), "{file} changed on its way ({engine})");
        let (sent, received) = (json(&sent.stdout), json(&received.stderr));
        assert_eq!((&sent["end"], &sent["delivered"]), (&"both sides finished".into(), &sent["frames"]));
        assert_eq!((&received["frames"], &received["with_holes"]), (&sent["frames"], &0.into()));
    }
}

#[test]
fn frames_with_deadlines_arrive_at_the_frame_rate() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--json"]);
    let sent = site.send("cam", &receiver, "video.264", &["--json"]);
    assert!(sent.status.success(), "{}", site::said(&sent));
    let received = receiver.end();
    assert!(received.status.success(), "{}", site::said(&received));
    let said = site::said(&sent);
    assert!(said.contains("nothing is reserved"), "{said}");
    let (sent, received) = (json(&sent.stdout), json(&received.stderr));
    assert_eq!(sent["frames"], 100);
    // On a busy machine most frames may be late. Late frames are dropped and counted.
    assert!(received["in_time"].as_u64().unwrap() > 0, "{received}");
    assert!(sent["seconds"].as_f64().unwrap() > 3.0, "100 frames at 25 per second: {sent}");
}

/// Whether the rate was granted, to the end or until this machine delayed packets.
fn was_granted(sent: &Output) -> bool {
    let granted = json(&sent.stdout)["granted_bps"].as_u64();
    granted.is_some_and(|rate| rate > 1_000_000) || site::said(sent).contains(DELAYED)
}

#[test]
fn a_reserved_rate_is_granted_and_given_back() {
    let Some(site) = Site::new() else { return };
    let _alone = qfabric_linux::testing::live_lock();
    let daemon = site.daemon();
    let receiver = site.receive("wall", &["--json"]);
    let sent = daemon.send(&site, &receiver, "video.264", &["--json"]);
    assert!(sent.status.success() && site::said(&sent).contains("are reserved"), "{}", site::said(&sent));
    assert!(receiver.end().status.success());
    assert!(was_granted(&sent), "{}", site::said(&sent));
    let link = daemon.link(&site);
    assert_eq!(link["streams"].as_array().map(Vec::len), Some(0), "{link}");
    // More than the link has: refused, and nothing is sent.
    daemon.narrow(&site);
    let receiver = site.receive("wall", &[]);
    let refused = daemon.send(&site, &receiver, "video.264", &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", site::said(&refused));
}

/// Sends the video under a joint contract. Returns whether the condition was true before the end.
fn while_sending(site: &Site, daemon: &Daemon, mut condition: impl FnMut() -> bool) -> bool {
    let receiver = site.receive("wall", &["--json"]);
    let words = ["video.264", "--joint", "--mode", "reliable", "--json"];
    let (sent, is_met) = thread::scope(|scope| {
        let sending = scope.spawn(|| daemon.send_with(site, &receiver, "joint.toml", &words));
        while !sending.is_finished() && !condition() {}
        let is_met = !sending.is_finished();
        (sending.join().unwrap(), is_met)
    });
    assert!(sent.status.success(), "{}", site::said(&sent));
    assert!(site::said(&sent).contains("contract cam:"), "{}", site::said(&sent));
    assert!(receiver.end().status.success());
    is_met
}

#[test]
fn a_sender_with_a_joint_contract_has_cpu_memory_and_rate_of_both_hosts_while_it_sends() {
    let Some(site) = Site::new() else { return };
    let _alone = qfabric_linux::testing::live_lock();
    let daemons = site.partners();
    let promised = || daemons.each_ref().map(|daemon| daemon.promises(&site));
    let is_held = |looks: &mut Vec<String>| {
        let (all, covers) = (promised(), daemons[0].covers_sender(&site));
        looks.push(format!("{all:?} {covers}"));
        covers && matches!(all, [(c1, m1, 1, 1), (c2, m2, 0, 1)] if c1.min(c2).min(m1).min(m2) > 0.0)
    };
    // On a starving machine, a look may take longer than the video.
    let mut looks = Vec::new();
    let is_seen = (0..5).any(|_| {
        let is_seen = while_sending(&site, &daemons[0], || is_held(&mut looks));
        while promised() != [(0.0, 0.0, 0, 0); 2] {
            thread::sleep(Duration::from_millis(20));
        }
        is_seen
    });
    assert!(is_seen, "{looks:?}");
    // The receiver's link has too little: nothing is sent, and nothing is held.
    daemons[1].narrow(&site);
    let receiver = site.receive("wall", &[]);
    let refused = daemons[0].send_with(&site, &receiver, "joint.toml", &["video.264", "--joint"]);
    assert_eq!(refused.status.code(), Some(3), "{}", site::said(&refused));
    assert!(
        ["wall", "network eth0"].iter().all(|part| site::said(&refused).contains(part)),
        "{}",
        site::said(&refused)
    );
    assert_eq!(promised(), [(0.0, 0.0, 0, 0); 2]);
}

#[test]
fn the_packets_of_a_reserved_stream_carry_the_code_point_that_was_asked_for() {
    let Some(site) = Site::new() else { return };
    let _alone = qfabric_linux::testing::live_lock();
    let daemon = site.daemon();
    for (options, expected) in [(&["--json", "--dscp", "46"][..], 46), (&["--json"], 0)] {
        let receiver = site.receive("wall", &["--json"]);
        let packets = site.watch_receiver();
        let sent = daemon.send(&site, &receiver, "video.264", options);
        assert!(sent.status.success() && site::said(&sent).contains("are reserved"), "{}", site::said(&sent));
        assert!(receiver.end().status.success());
        let seen = packets.end();
        assert!(
            seen.values().sum::<usize>() > 100 && seen.keys().all(|dscp| *dscp == expected),
            "{expected}: {seen:?}"
        );
    }
    let refused = daemon.send_with(&site, &site.receive("wall", &[]), "stream.toml", &["video.264", "--dscp", "64"]);
    assert!(refused.status.code() == Some(2) && site::said(&refused).contains("0..=63"), "{}", site::said(&refused));
}

#[test]
fn an_ordinary_user_reserves_the_rate_of_a_connection_on_an_open_link() {
    let Some(site) = Site::new() else { return };
    let _alone = qfabric_linux::testing::live_lock();
    let daemon = site.daemon();
    let receiver = site.receive("wall", &["--json"]);
    let sent = daemon.send_as_nobody(&site, &receiver, "video.264", &["--json"]);
    assert!(sent.status.success() && site::said(&sent).contains("are reserved"), "{}", site::said(&sent));
    assert!(receiver.end().status.success());
    assert!(was_granted(&sent), "{}", site::said(&sent));
    assert_eq!(daemon.link(&site)["streams"].as_array().map(Vec::len), Some(0));
}

#[test]
fn frames_at_a_reserved_rate_renew_the_profile_that_admits_streams() {
    let Some(site) = Site::new() else { return };
    let _alone = qfabric_linux::testing::live_lock();
    let (daemon, largest, profile) = (site.daemon(), site.write_pictures(), site.empty_profile());
    let refused = daemon.admit_by_delay(&site, largest);
    assert_eq!(refused.status.code(), Some(3), "{}", site::said(&refused));
    let receiver = site.receive("wall", &["--json"]);
    let sent = daemon.send_with(&site, &receiver, "pictures.toml", &["pictures.m2v", "--mode", "reliable", "--json"]);
    assert!(sent.status.success() && site::said(&sent).contains("renewing"), "{}", site::said(&sent));
    assert!(receiver.end().status.success());
    if site::said(&sent).contains(DELAYED) {
        return println!("{}", site::said(&sent));
    }
    let sent = json(&sent.stdout);
    assert!(sent["profile_renewals"].as_u64().unwrap() >= 1, "{sent}");
    let profile: DelayProfile = serde_json::from_slice(&fs::read(profile).unwrap()).unwrap();
    let [point] = &profile.points[..] else { panic!("{profile:?}") };
    assert_eq!(
        (point.message_bytes, point.rate_bps.get()),
        (Bytes::new(largest as u64), sent["granted_bps"].as_u64().unwrap())
    );
    assert!(point.arrived >= 100 && point.p50 <= point.p99 && profile.min_rtt > Nanos::ZERO, "{profile:?}");
    let admitted = daemon.admit_by_delay(&site, largest);
    assert!(admitted.status.success(), "{}", site::said(&admitted));
}

#[test]
fn a_path_that_shrinks_loses_nothing() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--json"]);
    let sent = thread::scope(|scope| {
        let before = site.received_packets();
        let sending = scope.spawn(|| site.send("cam", &receiver, "video.264", &["--mode", "reliable", "--json"]));
        site.until_frames_flow(before);
        site.set_mtu(1_280);
        sending.join().unwrap()
    });
    assert!(sent.status.success(), "{}", site::said(&sent));
    let received = receiver.end();
    assert!(received.status.success(), "{}", site::said(&received));
    assert!(received.stdout == fs::read(site.file("video.264")).unwrap(), "the video changed on its way");
    let sent = json(&sent.stdout);
    assert!(sent["largest_datagram"].as_u64().unwrap() < 1_250, "{sent}");
}

#[test]
fn a_receiver_that_is_away_for_a_second_loses_nothing() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--json"]);
    let before = site.received_packets();
    let sender = site.start_send("cam", &receiver, "video.264", &["--mode", "reliable", "--json"]);
    site.until_frames_flow(before);
    site.cut_receiver(true);
    thread::sleep(Duration::from_secs(1));
    site.cut_receiver(false);
    let sent = sender.end();
    assert!(sent.status.success(), "{}", site::said(&sent));
    assert!(json(&sent.stdout)["retransmissions"].as_u64().unwrap() > 0, "{}", site::said(&sent));
    let received = receiver.end();
    assert!(received.status.success(), "{}", site::said(&received));
    assert!(received.stdout == fs::read(site.file("video.264")).unwrap(), "the video changed on its way");
}

#[test]
fn a_killed_receiver_is_named_and_the_next_one_is_served() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--json"]);
    let before = site.received_packets();
    let sender = site.start_send("cam", &receiver, "video.264", &["--mode", "reliable", "--json"]);
    site.until_frames_flow(before);
    receiver.kill();
    let sent = sender.end();
    assert_eq!(sent.status.code(), Some(1), "{}", site::said(&sent));
    assert!(site::said(&sent).contains("the other side is silent"), "{}", site::said(&sent));
    let receiver = site.receive("wall", &["--json"]);
    let sent = site.send("cam", &receiver, "video.264", &["--mode", "reliable", "--fast"]);
    assert!(sent.status.success() && receiver.end().status.success(), "{}", site::said(&sent));
}

#[test]
fn who_may_not_connect_is_told_why() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &[]);
    let refused = site.send("stranger", &receiver, "video.264", &["--fast"]);
    assert_eq!(refused.status.code(), Some(1), "{}", site::said(&refused));
    assert!(site::said(&refused).contains("another authority"), "{}", site::said(&refused));
    let refused = site.send("guest", &receiver, "video.264", &["--fast"]);
    assert_eq!(refused.status.code(), Some(3), "{}", site::said(&refused));
    assert!(site::said(&refused).contains("`connect`"), "{}", site::said(&refused));
    let sent = site.send("cam", &receiver, "video.264", &["--mode", "reliable", "--fast"]);
    assert!(sent.status.success(), "the receiver still waits: {}", site::said(&sent));
    assert!(receiver.end().status.success());
}

#[test]
fn bad_input_is_refused_with_the_next_step() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--largest", "2000B"]);
    fs::write(site.file("text"), "no video").unwrap();
    let refused = site.send("cam", &receiver, "text", &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", site::said(&refused));
    let small = site.send_with("cam", &receiver, "video.264", "small.toml", &[]);
    assert_eq!(small.status.code(), Some(2), "{}", site::said(&small));
    assert!(site::said(&small).contains("larger frame_size"), "{}", site::said(&small));
    let nobody = site.send_to("cam", "10.78.0.9:7800", "video.264", &[]);
    assert_eq!(nobody.status.code(), Some(1), "{}", site::said(&nobody));
    assert!(site::said(&nobody).contains("qfabric metp recv"), "{}", site::said(&nobody));
}

#[test]
fn a_receiver_that_takes_only_smaller_frames_ends_the_sender_with_the_option_that_changes_it() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--largest", "2000B"]);
    let refused = site.send("cam", &receiver, "video.264", &["--mode", "reliable", "--fast"]);
    assert_eq!(refused.status.code(), Some(3), "{}", site::said(&refused));
    assert!(site::said(&refused).contains("metp recv --largest"), "{}", site::said(&refused));
}

#[test]
fn ctrl_c_ends_both_sides_cleanly() {
    let Some(site) = Site::new() else { return };
    let receiver = site.receive("wall", &["--json"]);
    let before = site.received_packets();
    let sender = site.start_send("cam", &receiver, "video.264", &["--json"]);
    site.until_frames_flow(before);
    let sent = sender.interrupt();
    assert_eq!(sent.status.code(), Some(1), "{}", site::said(&sent));
    assert!(site::said(&sent).contains("interrupted"), "{}", site::said(&sent));
    let received = receiver.end();
    assert_eq!(received.status.code(), Some(1), "{}", site::said(&received));
    assert!(site::said(&received).contains("the other side closed it"), "{}", site::said(&received));
}
