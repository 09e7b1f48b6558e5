//! How many channels a user makes active in a time.

use super::*;

#[test]
fn a_user_who_opens_ever_new_channels_is_refused_and_others_are_not() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    let cycle = |user: User<'_>, number: usize| {
        let name = format!("channel-{number}");
        user.create(&name)?;
        host.fabric.close(user.peer, &name.parse().unwrap(), user.lease)
    };
    let refused = (0..1_000_000).find_map(|number| cycle(alice, number).err()).unwrap();
    assert!(refused.message.contains("has opened 1024 channels"), "{refused:?}");
    bob.create("video").unwrap();
    (0..2_000).for_each(|number| cycle(root, number).unwrap());
    alice.open("video").expect("it is open here already");
}

#[test]
fn a_user_who_joins_and_leaves_without_end_is_refused_and_further_sinks_are_free() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    bob.create("video").unwrap();
    alice.open("video").unwrap();
    let cycle = || {
        let sink = alice.sink("video")?;
        host.fabric.leave_sink(alice.peer, sink)
    };
    let refused = (0..1_000_000).find_map(|_| cycle().err()).unwrap();
    assert!(refused.message.contains("no sink here"), "{refused:?}");
    bob.sink("video").unwrap();
    (0..2_000).for_each(|_| cycle().expect("the channel has a sink here"));
}
