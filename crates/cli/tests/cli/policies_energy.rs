//! The policy `energy` on two real daemons: batteries travel to the source's host, the place of the transcoders back.

use std::time::Instant;

use qfabric_client::channel::{Channels, SinkOptions, SourceOptions, Spec};

use crate::channels::{FORMAT, Host, PATIENCE, live, two_hosts};
use crate::policies::connect;
use crate::policies_together::decided_amount;

/// Waits for a decision about `video`; calls `again` before each look.
fn wait_for(channels: &Channels, (attribute, subject): (&str, &str), amount: i64, again: &dyn Fn()) {
    let end = Instant::now() + PATIENCE;
    while decided_amount(channels, ("video", attribute, subject), again) != amount {
        assert!(Instant::now() < end, "{attribute} for {subject} is not {amount}");
    }
}

fn start(host: &Host, words: &[&str]) -> crate::harness::Answer {
    host.run(&[&["policy", "start", "energy", "--channel", "video", "--period", "200ms"], words].concat())
}

#[test]
fn the_transcoders_move_to_the_receiver_when_the_gains_change_and_both_ends_are_told() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (ours, theirs) = (connect(&alpha), connect(&beta));
    let video = ours.create("video", &Spec::of(FORMAT)).unwrap();
    let _source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let opened = theirs.open("video").unwrap();
    let _sink = opened.sink(&SinkOptions::default()).unwrap();
    let camera = ours.register("camera", "video", &[]).unwrap();
    start(&beta, &["--battery", "18000", "--drain", "2"])
        .expect(0, &["energy.video runs: shares the state", "18000 J"]);
    start(&alpha, &["--battery", "0.5"]).expect(3, &["battery is 0.5 J", "1 to 1000000000 J"]);
    let decides = ["--directive", "max-rot", "--battery", "20000", "--gains=-30,10,40"];
    start(&alpha, &decides).expect(0, &["energy.video runs: max-rot decides where transcoders run"]);
    let rival = start(&alpha, &["--directive", "min-sec", "--name", "other"]);
    rival.expect(3, &["energy.video", "where the transcoders of `video` run"]);
    wait_for(&ours, ("app.level", "transcoders"), 0, &|| {});
    let costly = || {
        camera.report("app.teq_receiver", -50_000).unwrap();
        camera.report("app.receiver_cost", 10_000).unwrap();
    };
    wait_for(&ours, ("app.level", "transcoders"), 1, &costly);
    wait_for(&theirs, ("app.transcoders", "beta"), 1, &|| {});
    let why = alpha.run(&["policy", "why", "video"]);
    why.expect(0, &["transcoders run at the sender", "transcoders run at the receivers", "max-rot", "beta empties in"]);
    alpha.run(&["policy", "ls"]).expect(0, &["energy.video: app.level for transcoders: 1"]);
}
