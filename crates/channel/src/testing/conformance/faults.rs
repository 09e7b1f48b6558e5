//! Crashes, partitions, and name conflicts.

use qfabric_types::Nanos;

use super::*;
use crate::Notice;

/// A crashed host is reported as gone, with its members; its channel stays open on the other hosts.
pub fn a_crashed_host_is_gone_and_its_channel_stays<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let to = sink(world, &hosts[1], &video, called());
    let from = source(world, &hosts[2], &video);
    sink(world, &hosts[0], &video, called());
    world.kill(&hosts[0]);
    world.detect();
    let rest = &hosts[1..];
    agree(world, rest);
    for host in rest {
        let notices = world.notices(host);
        assert!(notices.contains(&Notice::HostVanished(hosts[0].clone())), "{host}: {notices:?}");
        assert!(notices.iter().any(|notice| matches!(notice, Notice::SinkLeft(..))), "{host}: {notices:?}");
    }
    assert_eq!(submit_frame(world, &hosts[2], from, 0, 0).remote, 1);
    world.settle();
    assert_eq!(numbers(world, &hosts[1], to), [1]);
    let view = world.with(&hosts[3], |node, _| node.directory().channel(&video)).expect("it lives on");
    assert_eq!((view.origin.creator, view.hosts), (hosts[0].clone(), hosts.len() - 1));
}

/// A restarted host has no members, and can open its former channels.
pub fn a_restarted_host_is_another_member<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[1], &video);
    sink(world, &hosts[0], &video, called());
    let before = world.with(&hosts[0], |node, _| node.incarnation());
    world.kill(&hosts[0]);
    world.start(&hosts[0]);
    world.detect();
    assert!(world.with(&hosts[0], |node, _| node.incarnation()) > before);
    agree(world, &hosts);
    assert_eq!(submit_frame(world, &hosts[1], from, 0, 0).remote, 0, "its sink is gone");
    world.with(&hosts[0], |node, now| node.open(&video, now)).expect("others hold it");
    let to = sink(world, &hosts[0], &video, called());
    assert_eq!(submit_frame(world, &hosts[1], from, 0, 0).remote, 1);
    world.settle();
    assert_eq!(numbers(world, &hosts[0], to), [2]);
}

/// After a partition of some seconds in which both sides change, all hosts have the same directory.
pub fn what_was_changed_during_a_partition_is_known_after_it<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let to = sink(world, &hosts[1], &video, called());
    let from = source(world, &hosts[0], &video);
    let (here, there) = hosts.split_at(hosts.len() / 2 - 1);
    for (one, other) in here.iter().flat_map(|one| there.iter().map(move |other| (one, other))) {
        world.cut(one, other);
    }
    world.detect();
    assert_eq!(submit_frame(world, &hosts[0], from, 0, 0).remote, 0, "the other side is gone");
    let audio = data("audio");
    world.with(&there[1], |node, now| node.create(&audio, spec(), now)).expect("created");
    let new = sink(world, &hosts[0], &video, called());
    world.run_for(Nanos::from_millis(3_000));
    for (one, other) in here.iter().flat_map(|one| there.iter().map(move |other| (one, other))) {
        world.heal(one, other);
    }
    world.detect();
    agree(world, &hosts);
    assert!(world.with(&hosts[0], |node, _| node.directory().channel(&audio).is_some()));
    let sent = submit_frame(world, &hosts[0], from, 0, 0);
    assert_eq!((sent.remote, sent.local), (1, 1));
    world.quiet();
    assert_eq!(numbers(world, &hosts[1], to), [2]);
    assert_eq!(numbers(world, &hosts[0], new), [2]);
    balanced(world, &hosts[1], to);
}

/// A host takes another one for gone, which does not notice it: both begin anew, with complete accounts on both sides.
pub fn a_disappearance_that_one_host_notices_is_one_on_both<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let frames = |world: &mut W, count| {
        for number in 0..count {
            submit_frame(world, &hosts[0], from, 0, number);
            world.run_for(Nanos::from_millis(20));
        }
    };
    frames(world, 200);
    world.notices(&hosts[0]);
    world.with(&hosts[1], |node, now| node.vanished(&hosts[0], now));
    frames(world, 20);
    world.with(&hosts[1], |node, now| node.appeared(&hosts[0], now));
    world.settle();
    frames(world, 20);
    world.quiet();
    agree(world, &hosts);
    let notices = world.notices(&hosts[0]);
    let gone = Notice::HostVanished(hosts[1].clone());
    assert_eq!(notices.iter().filter(|notice| **notice == gone).count(), 1, "{notices:?}");
    let received = numbers(world, &hosts[1], to);
    assert!(received.ends_with(&(221..=240).collect::<Vec<_>>()), "all events after it arrive: {received:?}");
    let sink = balanced(world, &hosts[1], to);
    let crate::SourceCounts { sent, delivered, lost, .. } =
        world.with(&hosts[0], |node, _| node.source_counts(from)).expect("the source is there");
    assert_eq!((sent, sent - delivered), (240, lost), "each event has an outcome");
    assert!(delivered <= sink.delivered && sink.lost <= lost, "{sink:?}: no event is lost that was delivered");
}

/// Two hosts create one name at once with equal specifications: the result is one channel, and the earlier creation
/// wins.
pub fn of_two_creations_the_earlier_stands<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = world.hosts();
    world.at_once([&hosts[1], &hosts[0]], |_, node, now| {
        node.create(&video, spec(), now).expect("the other is not known yet");
    });
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    agree(world, &hosts);
    let origins = world.with(&hosts[2], |node, _| {
        node.directory().holders(&video).map(|(_, held)| held.origin.clone()).collect::<Vec<_>>()
    });
    assert_eq!((origins.len(), &origins[0]), (2, &origins[1]), "one origin");
    assert_eq!(submit_frame(world, &hosts[0], from, 0, 0).remote, 1);
    world.settle();
    assert_eq!(numbers(world, &hosts[1], to), [1]);
}

/// Two hosts create one name at once with different specifications: the host of the later creation gets a notice.
pub fn of_two_creations_that_differ_the_later_ends<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = world.hosts();
    world.at_once([&hosts[1], &hosts[0]], |number, node, now| {
        let spec = if number == 0 { spec() } else { spec_with(Pressure::DropNewest) };
        node.create(&video, spec, now).expect("the other is not known yet");
    });
    world.settle();
    agree(world, &hosts);
    let view = world.with(&hosts[2], |node, _| node.directory().channel(&video)).expect("one stands");
    assert_eq!(view.hosts, 1);
    let (stands, ended) = if *view.spec == spec() { (&hosts[1], &hosts[0]) } else { (&hosts[0], &hosts[1]) };
    assert_eq!(view.origin.creator, *stands);
    let notices = world.notices(ended);
    let told = Notice::DuplicateName { channel: video.clone(), stands: view.origin };
    assert!(notices.contains(&told), "{notices:?}");
    assert!(world.with(ended, |node, _| !node.is_open(&video) && !node.is_open(&quality("video"))));
    world.with(ended, |node, now| node.open(&video, now)).expect("it can be opened");
}

/// After a hundred joins and leaves, directories agree and are no larger than before.
pub fn joins_and_leaves_without_end_leave_nothing_behind<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let mut there = Vec::new();
    for round in 0..100_usize {
        let host = &hosts[1 + round % (hosts.len() - 1)];
        let id = world.with(host, |node, now| node.sink_subscribe(&video, called(), now)).expect("joined");
        there.push((host.clone(), id));
        if there.len() > 5 {
            let (host, id) = there.remove(0);
            world.with(&host, |node, now| node.leave_sink(id, now)).expect("left");
        }
        submit_frame(world, &hosts[0], from, 0, round as i32);
        world.run_for(Nanos::from_millis(10));
    }
    for (host, id) in there {
        world.with(&host, |node, now| node.leave_sink(id, now)).expect("left");
    }
    world.settle();
    agree(world, &hosts);
    let view = world.with(&hosts[1], |node, _| node.directory().channel(&video)).expect("known");
    assert_eq!((view.sinks, view.sources), (0, 1));
    assert_eq!(submit_frame(world, &hosts[0], from, 0, 0).remote, 0);
}
