//! Channels, members and groups.

use super::*;
use crate::{Attributes, Error, Key, Notice, Registration};

/// A channel that one host creates is in every directory, and every host can open it.
pub fn what_one_host_creates_all_know_and_can_open<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    agree(world, &hosts);
    let view = world.with(&hosts[2], |node, _| node.directory().channel(&video)).expect("known");
    assert_eq!((view.origin.creator, view.hosts, &*view.spec), (hosts[0].clone(), hosts.len(), &spec()));
}

/// A refusal names the error and changes nothing.
pub fn refusals_change_nothing<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let h1 = &hosts[1];
    let exists = world.with(h1, |node, now| node.create(&video, spec(), now)).unwrap_err();
    assert_eq!(exists.to_string(), format!("the channel `video` exists, created by {}; open it", hosts[0]));
    let unknown = world.with(h1, |node, now| node.open(&data("audio"), now)).unwrap_err();
    assert_eq!(unknown, Error::Unknown(data("audio")));
    let hidden = world.with(h1, |node, now| node.create(&quality("x"), spec(), now));
    assert_eq!(hidden, Err(Error::Hidden));
    let wrong = SinkSpec { types: vec!["sound".to_owned()], ..called() };
    let no_type = world.with(h1, |node, now| node.sink_subscribe(&video, wrong, now)).unwrap_err();
    assert_eq!(no_type.to_string(), "`video` has no events of type `sound`; it has `frame`, `mark`");
    let formats = parse_formats("struct frame { int kind; long size; };").expect("it compiles");
    let other = SinkSpec { formats, ..called() };
    let format = world.with(h1, |node, now| node.sink_subscribe(&video, other, now)).unwrap_err();
    assert_eq!(
        format.to_string(),
        "events of type `frame` cannot be read with this format: `size` is long at byte 8 here, but int at byte 4 there; \
         take the channel's format"
    );
    let empty = world.with(h1, |node, now| node.sink_subscribe(&video, queued(0), now));
    assert_eq!(empty, Err(Error::Capacity { asked: 0 }));
    world.settle();
    let view = world.with(&hosts[2], |node, _| node.directory().channel(&video)).expect("known");
    assert_eq!((view.sources, view.sinks), (0, 0));
    agree(world, &hosts);
}

/// Creating, opening and closing a data channel does the same with its Q-channel.
pub fn a_data_channel_brings_its_q_channel_and_takes_it_along<W: World>(world: &mut W) {
    let (video, hidden) = (data("video"), quality("video"));
    let hosts = everywhere(world, &video, &spec());
    for host in &hosts {
        assert!(world.with(host, |node, _| node.is_open(&hidden)), "{host}");
        let notices = world.notices(host);
        assert!(notices.contains(&Notice::Opened(hidden.clone())), "{notices:?}");
    }
    world.with(&hosts[0], |node, now| node.close(&video, now)).expect("closed");
    world.settle();
    let view = world.with(&hosts[1], |node, _| node.directory().channel(&hidden)).expect("it lives on");
    assert_eq!((view.hosts, view.origin.creator), (hosts.len() - 1, hosts[0].clone()));
    assert!(world.notices(&hosts[0]).contains(&Notice::Closed(hidden.clone())));
    for host in &hosts[1..] {
        world.with(host, |node, now| node.close(&video, now)).expect("closed");
    }
    world.settle();
    assert!(world.with(&hosts[0], |node, _| node.directory().channels().is_empty()));
    agree(world, &hosts);
}

/// Applications register in groups; their hosts open the groups' Q-channels.
pub fn groups_are_known_to_all<W: World>(world: &mut W) {
    let hosts = world.hosts();
    let group: Name = "lecture".parse().expect("a name");
    let registration = |application: &str| Registration {
        application: application.parse().expect("a name"),
        group: group.clone(),
        parent: None,
        level: 3,
        qos: vec![],
    };
    let register = |world: &mut W, host: &Name, application: &str| {
        let registration = registration(application);
        world.with(host, |node, now| node.register(registration, now)).expect("registered")
    };
    let teacher = register(world, &hosts[0], "teacher");
    register(world, &hosts[1], "student");
    world.settle();
    let channel = quality("group.lecture");
    let members = world.with(&hosts[2], |node, _| {
        let groups = node.directory().groups();
        groups[&group].iter().map(|(host, have)| ((*host).clone(), have.application.to_string())).collect::<Vec<_>>()
    });
    assert_eq!(members, [(hosts[0].clone(), "teacher".to_owned()), (hosts[1].clone(), "student".to_owned())]);
    let holders = |world: &mut W| world.with(&hosts[2], |node, _| node.directory().holders(&channel).count());
    assert_eq!(holders(world), 2);
    world.with(&hosts[0], |node, now| node.unregister(teacher, now)).expect("it was registered");
    world.settle();
    assert_eq!(holders(world), 1);
    agree(world, &hosts);
}

/// Changed attributes of members reach all directories.
pub fn attributes_are_known_to_all<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let id = sink(world, &hosts[1], &video, with_attributes(called(), &[("role", 2)]));
    let key = |name: &str| name.parse::<Key>().expect("a key");
    world.with(&hosts[1], |node, now| node.set_sink_attribute(id, key("load"), Some(70), now)).expect("set");
    world.with(&hosts[1], |node, now| node.set_sink_attribute(id, key("role"), None, now)).expect("taken");
    world.settle();
    let seen = world.with(&hosts[3], |node, _| node.directory().host(&hosts[1]).cloned()).expect("known");
    let expected: Attributes = [(key("load"), 70)].into_iter().collect();
    assert_eq!(seen.channels[&video].sinks[&id].attributes, expected);
    agree(world, &hosts);
}

pub fn members_leave_and_the_others_go_on<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let leaves = sink(world, &hosts[1], &video, called());
    let stays = sink(world, &hosts[2], &video, called());
    assert_eq!(submit_frame(world, &hosts[0], from, 1, 1).remote, 2);
    world.settle();
    world.with(&hosts[1], |node, now| node.leave_sink(leaves, now)).expect("it was there");
    world.with(&hosts[1], |node, now| node.close(&video, now)).expect("it was open");
    world.settle();
    assert_eq!(submit_frame(world, &hosts[0], from, 1, 2).remote, 1);
    world.settle();
    assert_eq!(numbers(world, &hosts[1], leaves), [1]);
    assert_eq!(numbers(world, &hosts[2], stays), [1, 2]);
    agree(world, &hosts);
}
