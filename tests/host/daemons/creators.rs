//! A channel whose creator is gone, where nobody else may create it.

use qfabric_client::channel::Spec;

use crate::host::{Host, Site, eventually};
use crate::talk::{FORMAT, enter};

/// Only the first host may create.
const RULES: &str = "hosts = ['h0', 'h1', 'h2']\n\
    [[rule]]\nchannels = ['*']\nhosts = ['h0']\nrights = ['create', 'join', 'send']\n\
    [[rule]]\nchannels = ['*']\nhosts = ['*']\nrights = ['join', 'send']\n";

fn creator(host: &Host) -> Option<(String, u64)> {
    host.show("video").map(|info| (info.creator.to_string(), info.created_unix_ns))
}

#[test]
fn who_comes_when_the_creator_is_gone_believes_its_signature_and_joins() {
    let Some(mut site) = Site::new(&[0, 0, 1]) else { return };
    site.access(RULES);
    (0..2).for_each(|host| site.start(host, ""));
    site.all_meet();
    let (first, second) = (site[0].channels(), site[1].channels());
    let _created = enter(&first, "video", &Spec::of(FORMAT));
    eventually("the channel is known", || creator(&site[1]).is_some());
    let _opened = second.open("video").unwrap();
    let created = creator(&site[0]);
    assert!(created.as_ref().is_some_and(|(creator, _)| creator == "h0"), "{created:?}");
    site.kill(0);
    eventually("the creator is gone", || site[1].sees() == ["h1"]);
    assert_eq!(creator(&site[1]), created, "who has it, believes it");

    site.start(2, "");
    eventually("the two meet", || site[1].sees() == ["h1", "h2"] && site[2].sees() == ["h1", "h2"]);
    eventually("who comes later believes it, too", || creator(&site[2]) == created);
    let third = site[2].channels();
    let _joined = third.open("video").unwrap();
    eventually("it is a holder", || site[1].show("video").is_some_and(|info| info.hosts.len() == 2));
}
