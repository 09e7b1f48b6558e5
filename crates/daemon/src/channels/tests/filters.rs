//! Filters of root and of users under one name.

use qfabric_types::api::channel::HostAnswer;

use super::*;

fn guard() -> FilterId {
    FilterId { channel: "video".parse().unwrap(), direction: Direction::In, name: "guard".parse().unwrap() }
}

/// The other host would believe that this host's root replaces its filter.
#[test]
fn a_user_replaces_no_filter_that_root_installed_on_another_host() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let beta = HostAnswer { host: "beta".parse().unwrap(), refused: None, kernel_path: false };
    host.fabric.owned.installed_by_root(&guard(), std::slice::from_ref(&beta));
    let sink = alice.sink("video").unwrap().0.to_string();
    let (lease, code, to) = (Some(alice.lease), "return 1;".to_owned(), FilterScope::Hosts(vec![beta.host]));
    let request = FilterRequest { lease, code, sink: Some(sink), to, ..FilterRequest::default() };
    let problem = alice.fabric.install(alice.peer, guard(), &request).map(drop).unwrap_err();
    assert!(problem.code == "channel_forbidden" && problem.message.contains("root on host beta"), "{problem:?}");
}

#[test]
fn a_filter_that_root_has_replaced_is_roots() {
    let host = Host::start(Vec::new());
    let (alice, root) = (host.user(ALICE), host.user(0));
    alice.create("video").unwrap();
    root.open("video").unwrap();
    let sink = alice.sink("video").unwrap();
    let install = || alice.filter(Direction::In, "guard", "return 1;", Some(sink));
    install().unwrap();
    let request = FilterRequest { code: "return 0;".into(), ..FilterRequest::default() };
    root.fabric.install(root.peer, guard(), &request).map(drop).unwrap();
    assert_eq!(code(install()), forbidden());
    host.fabric.end_filters(alice.lease);
    let filters = host.fabric.network.look(|node| node.filters(&guard().channel));
    assert!(filters.iter().any(|(id, _)| *id == guard()), "it does not end with the user's connection");
    root.fabric.remove_filter(root.peer, &guard(), &FilterScope::Here).map(drop).unwrap();
    assert_eq!(code(install()), None);
}
