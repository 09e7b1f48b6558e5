//! Access rules, and the harm that strangers, false claims and other versions can do: none, but they are counted.

use qfabric_channel::testing::{EAGER, Memory, Settings, World};
use qfabric_channel::{
    Action, Config, Direction, Error, EventType, FilterCommand, FilterError, FilterId, FilterSpec, Lane, Limits,
    Notary, Notice, PROTOCOL, Payer, Policy, SinkId, SinkSpec, SourceId, SourceSpec, Spec, Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name, Plane};

/// `h1` may not send and not create; `h0` may install filters everywhere; `h3` may not join.
struct House;

impl Policy for House {
    fn allows(&self, host: &Name, action: Action, _: &ChannelId) -> bool {
        match action {
            Action::Create | Action::Send => host.as_str() != "h1",
            Action::Join => host.as_str() != "h3",
            Action::Install => host.as_str() == "h0",
        }
    }
}

fn house(config: Config) -> Config {
    // The hosts that are denied do not have the rules; the other hosts do.
    let policy: Box<dyn Policy> =
        if matches!(config.host.as_str(), "h1" | "h3") { Box::new(Open) } else { Box::new(House) };
    Config { policy, ..config }
}

struct Open;

impl Policy for Open {
    fn allows(&self, _: &Name, _: Action, _: &ChannelId) -> bool {
        true
    }
}

fn channel(name: &str) -> ChannelId {
    ChannelId { plane: Plane::Data, name: name.parse().expect("a name") }
}

fn spec() -> Spec {
    let types = parse_formats("struct one { int a; int b; };").expect("it compiles");
    Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() }
}

fn called() -> SinkSpec {
    SinkSpec { capacity: EAGER, ..SinkSpec::default() }
}

/// A channel of `h0` that all hosts hold.
fn world(settings: Settings, configure: fn(Config) -> Config) -> (Memory, Vec<Name>) {
    let mut world = Memory::configured(settings, configure);
    let hosts = world.hosts();
    world.with(&hosts[0], |node, now| node.create(&channel("v"), spec(), now)).expect("created");
    world.settle();
    for host in &hosts[1..] {
        world.with(host, |node, now| node.open(&channel("v"), now)).expect("opened");
    }
    world.settle();
    (world, hosts)
}

fn source(world: &mut Memory, host: &Name) -> SourceId {
    let made = world.with(host, |node, now| node.source_subscribe(&channel("v"), SourceSpec::default(), now));
    world.settle();
    made.expect("a source")
}

fn sink(world: &mut Memory, host: &Name, sink: SinkSpec) -> SinkId {
    let made = world.with(host, |node, now| node.sink_subscribe(&channel("v"), sink, now));
    world.settle();
    made.expect("a sink")
}

fn submit(world: &mut Memory, host: &Name, source: SourceId) -> qfabric_channel::Sent {
    let event = Submission { payload: &[0; 8], ..Submission::default() };
    world.with(host, |node, now| node.submit(source, &event, now)).expect("submitted")
}

#[test]
fn what_a_host_may_not_do_the_others_do_not_believe() {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, house);
    world.with(&hosts[1], |node, now| node.create(&channel("own"), spec(), now)).expect("it thinks so");
    world.settle();
    assert!(world.node(&hosts[0]).directory().channel(&channel("own")).is_none(), "h1 may not create");
    let denied =
        |notice: &Notice| matches!(notice, Notice::Forbidden { host, action: Action::Create, .. } if *host == hosts[1]);
    assert!(world.notices(&hosts[0]).iter().any(denied));
    let to = sink(&mut world, &hosts[2], called());
    let from = source(&mut world, &hosts[1]);
    submit(&mut world, &hosts[1], from);
    world.settle();
    assert!(world.delivered(&hosts[2]).is_empty(), "h1 may not send");
    assert!(world.node(&hosts[2]).counts().forbidden > 0);
    sink(&mut world, &hosts[3], called());
    let from = source(&mut world, &hosts[0]);
    assert_eq!(submit(&mut world, &hosts[0], from).remote, 1, "h3 may not join");
    world.settle();
    assert_eq!(world.delivered(&hosts[2]).iter().map(|event| event.sink).collect::<Vec<_>>(), [to]);
    let own = world.with(&hosts[2], |node, _| node.install(&filter("mine", "return 1;")));
    assert!(matches!(own, Err(FilterError::Channel(Error::Forbidden { .. }))), "{own:?}");
}

#[test]
fn other_rules_hold_for_what_was_told_before() {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, |config| config);
    sink(&mut world, &hosts[3], called());
    let from = source(&mut world, &hosts[0]);
    assert_eq!(submit(&mut world, &hosts[0], from).remote, 1);
    world.with(&hosts[0], |node, now| node.set_policy(Box::new(House), now));
    world.settle();
    assert_eq!(submit(&mut world, &hosts[0], from).remote, 0);
    world.with(&hosts[0], |node, now| node.set_policy(Box::new(Open), now));
    world.settle();
    assert_eq!(submit(&mut world, &hosts[0], from).remote, 1);
}

#[test]
fn other_rules_end_what_this_host_may_not_any_more_and_say_so() {
    let open = |config| Config { policy: Box::new(Open), ..config };
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, open);
    let rules = |world: &mut Memory, host: &Name, policy: Box<dyn Policy>| {
        world.with(host, |node, now| node.set_policy(policy, now));
        world.settle();
        let revoked =
            |notice| if let Notice::Revoked { channel, action } = notice { Some((channel, action)) } else { None };
        world.notices(host).into_iter().filter_map(revoked).collect::<Vec<_>>()
    };
    let (from, to) = (source(&mut world, &hosts[1]), sink(&mut world, &hosts[1], called()));
    let elsewhere = source(&mut world, &hosts[0]);
    let node = |world: &mut Memory| {
        world.with(&hosts[1], |node, _| (node.source_counts(from).is_ok(), node.sink_counts(to).is_ok()))
    };
    assert_eq!(rules(&mut world, &hosts[1], Box::new(Open)), [], "nothing has changed");
    assert_eq!(rules(&mut world, &hosts[1], Box::new(House)), [(channel("v"), Action::Send)]);
    assert_eq!(node(&mut world), (false, true));
    assert_eq!(submit(&mut world, &hosts[0], elsewhere).remote, 1, "its sink stays");
    let sits = sink(&mut world, &hosts[3], called());
    assert_eq!(rules(&mut world, &hosts[3], Box::new(House)), [(channel("v"), Action::Join)]);
    assert!(world.with(&hosts[3], |node, _| node.sink_counts(sits).is_err() && node.is_open(&channel("v"))));
    // Nothing is left of a channel whose creator was not allowed to create it.
    world.with(&hosts[1], |node, now| node.set_policy(Box::new(Open), now));
    world.with(&hosts[1], |node, now| node.create(&channel("w"), spec(), now)).expect("created");
    world.settle();
    world.with(&hosts[2], |node, now| node.open(&channel("w"), now)).expect("opened");
    assert_eq!(rules(&mut world, &hosts[2], Box::new(House)), [(channel("w"), Action::Create)]);
    assert!(!world.with(&hosts[2], |node, _| node.is_open(&channel("w"))));
}

#[test]
fn other_rules_take_away_filters_of_hosts_that_may_not_install_any_more() {
    let open = |config| Config { policy: Box::new(Open), ..config };
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, open);
    for (by, name) in [(0, "stays"), (1, "goes")] {
        let order = FilterCommand::Install(filter(name, "return 1;"));
        world.with(&hosts[by], |node, now| node.ship(&hosts[2..3], &order, now));
    }
    world.settle();
    world.with(&hosts[2], |node, _| node.install(&filter("own", "return 1;"))).expect("its own");
    world.with(&hosts[2], |node, now| node.set_policy(Box::new(House), now));
    let left = world.with(&hosts[2], |node, _| node.filters(&channel("v")));
    assert_eq!(left.iter().map(|(id, _)| id.name.as_str()).collect::<Vec<_>>(), ["own", "stays"]);
    let goes = Notice::FilterChanged { id: filter("goes", "").id, author: hosts[1].clone() };
    assert_eq!(
        world.notices(&hosts[2]).into_iter().filter(|notice| *notice == goes).count(),
        2,
        "it was installed, then removed"
    );
}

/// A host claims to hold `v`, without types, and that `h0` created it in 1970.
fn claim(world: &mut Memory, from: &Name, to: &Name) {
    claim_with(world, from, to, b'v', &[]);
}

/// The same claim for another channel, and with a proof.
fn claim_with(world: &mut Memory, from: &Name, to: &Name, channel: u8, proof: &[u8]) {
    let record = world.node(to).directory().host(from).expect("it is there");
    let prefix = [&[PROTOCOL, 2][..], &record.incarnation.0.to_le_bytes(), &record.version.to_le_bytes()].concat();
    let hold = [&[1, 0, 1, 0, 1, channel][..], &[0; 8], &[2, b'h', b'0', 0, 0, 0, 0]].concat();
    let frame = [&prefix[..], &hold, &(proof.len() as u16).to_le_bytes(), proof].concat();
    world.with(to, |node, now| node.arrive(from, Lane::Control, &frame, now));
}

#[test]
fn who_may_not_create_ends_no_channel_by_naming_an_earlier_creation() {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, house);
    let duplicate = |world: &mut Memory, host: &Name| {
        world.notices(host).iter().any(|notice| matches!(notice, Notice::DuplicateName { .. }))
    };
    for host in [&hosts[0], &hosts[2]] {
        claim(&mut world, &hosts[1], host);
        let said = world.node(host).directory().host(&hosts[1]).expect("it is there").channels[&channel("v")].clone();
        assert_eq!(said.origin.created_unix_ns, 0, "it was understood");
        assert!(!duplicate(&mut world, host));
        assert!(world.node(host).directory().host(host).expect("itself").channels.contains_key(&channel("v")));
    }
    claim(&mut world, &hosts[3], &hosts[2]);
    assert!(duplicate(&mut world, &hosts[2]), "h3 may create");
}

/// Signs with a secret number; only this test has the numbers of all hosts.
struct Seal(Name);

fn seal(host: &Name, statement: &[u8]) -> Vec<u8> {
    let secret = host.as_str().bytes().map(|byte| byte ^ 0x5a);
    let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    secret.chain(statement.iter().copied()).fold(0xcbf2_9ce4_8422_2325, mix).to_le_bytes().to_vec()
}

impl Notary for Seal {
    fn sign(&self, statement: &[u8]) -> Option<Vec<u8>> {
        Some(seal(&self.0, statement))
    }

    fn verifies(&self, creator: &Name, _: u64, statement: &[u8], proof: &[u8]) -> bool {
        proof == seal(creator, statement)
    }
}

fn sealed(config: Config) -> Config {
    Config { notary: Some(Box::new(Seal(config.host.clone()))), ..house(config) }
}

/// The channel `v`, whose creator `h0` is gone.
fn orphaned(configure: fn(Config) -> Config) -> (Memory, Vec<Name>) {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, configure);
    world.kill(&hosts[0]);
    world.detect();
    hosts.iter().for_each(|host| drop(world.is_up(host).then(|| world.notices(host))));
    (world, hosts)
}

fn is_ended(world: &mut Memory, host: &Name) -> bool {
    let told = world.notices(host).iter().any(|notice| matches!(notice, Notice::DuplicateName { .. }));
    assert_eq!(told, !world.node(host).is_open(&channel("v")));
    told
}

#[test]
fn without_proofs_a_claim_of_an_earlier_creation_by_a_host_that_is_gone_is_believed() {
    let (mut world, hosts) = orphaned(|config| Config { notary: None, policy: Box::new(Members), ..config });
    claim(&mut world, &hosts[1], &hosts[2]);
    assert!(is_ended(&mut world, &hosts[2]), "nobody is left who may create");
}

#[test]
fn a_host_that_may_not_create_and_claims_an_earlier_creation_by_a_host_that_is_gone_changes_nothing() {
    let (mut world, hosts) = orphaned(|config| Config { policy: Box::new(Members), ..sealed(config) });
    let stands = world.node(&hosts[2]).channel(&channel("v")).expect("it lives on");
    let own = seal(&hosts[1], b"v");
    for proof in [vec![], own, vec![7; Limits::PROOF]] {
        claim_with(&mut world, &hosts[1], &hosts[2], b'v', &proof);
        world.settle();
        assert!(!is_ended(&mut world, &hosts[2]));
        let after = world.node(&hosts[2]).channel(&channel("v")).expect("it lives on");
        assert_eq!((after.origin, after.spec), (stands.origin.clone(), stands.spec.clone()));
        // A channel that only such a claim names does not exist.
        claim_with(&mut world, &hosts[1], &hosts[2], b'w', &proof);
        let opened = world.with(&hosts[2], |node, now| node.open(&channel("w"), now));
        assert_eq!(opened, Err(Error::Unknown(channel("w"))));
    }
    assert!(world.node(&hosts[2]).channel(&channel("w")).is_none());
    let too_long = vec![7; Limits::PROOF + 1];
    let before = world.node(&hosts[2]).counts().malformed;
    claim_with(&mut world, &hosts[1], &hosts[2], b'v', &too_long);
    assert_eq!(world.node(&hosts[2]).counts().malformed, before + 1);
}

#[test]
fn who_may_create_takes_the_name_of_a_channel_that_only_an_unproved_claim_names() {
    let (mut world, hosts) = orphaned(sealed);
    claim_with(&mut world, &hosts[1], &hosts[2], b'w', &[]);
    world.with(&hosts[2], |node, now| node.create(&channel("w"), spec(), now)).expect("nobody has it");
    let view = world.node(&hosts[2]).channel(&channel("w")).expect("created");
    assert_eq!((view.origin.creator, &*view.spec), (hosts[2].clone(), &spec()));
}

#[test]
fn what_a_creator_that_is_gone_has_signed_is_believed_of_everybody_who_holds_it() {
    let (mut world, hosts) = orphaned(sealed);
    let origin = world.node(&hosts[2]).channel(&channel("v")).expect("it lives on").origin;
    // `h3` restarts without its record, and only `h2` and `h3`, neither of which is the creator, may create.
    world.kill(&hosts[3]);
    world.kill(&hosts[2]);
    world.detect();
    world.start(&hosts[3]);
    world.settle();
    world.with(&hosts[3], |node, now| node.open(&channel("v"), now)).expect("h1 has the proof");
    world.settle();
    let view = world.node(&hosts[3]).channel(&channel("v")).expect("opened");
    assert_eq!((view.origin, &*view.spec, view.hosts), (origin, &spec(), 2));
}

/// Believes nobody: the authority that certified all creators was replaced.
struct Renewed;

impl Notary for Renewed {
    fn sign(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn verifies(&self, _: &Name, _: u64, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

#[test]
fn a_channel_that_is_open_here_is_not_created_again_when_its_proof_is_no_longer_believed() {
    let (mut world, hosts) = orphaned(sealed);
    world.with(&hosts[2], |node, _| node.set_notary(Some(Box::new(Renewed))));
    let made = world.with(&hosts[2], |node, now| node.create(&channel("v"), spec(), now));
    assert!(matches!(made, Err(Error::Exists { .. })), "{made:?}");
    world.with(&hosts[2], |node, now| node.close(&channel("v"), now)).expect("its only opening");
    assert!(!world.node(&hosts[2]).is_open(&channel("v")));
    world.with(&hosts[2], |node, now| node.create(&channel("v"), spec(), now)).expect("nobody believed has it");
    world.node(&hosts[2]).assert_sound();
}

/// Only `h0` may create.
struct Members;

impl Policy for Members {
    fn allows(&self, host: &Name, action: Action, _: &ChannelId) -> bool {
        action != Action::Create || host.as_str() == "h0"
    }
}

fn filter(name: &str, text: &str) -> FilterSpec {
    let id = FilterId { channel: channel("v"), direction: Direction::Out, name: name.parse().expect("a name") };
    FilterSpec { id, sink: None, types: vec![], text: text.to_owned(), parameters: vec![] }
}

#[test]
fn a_shipped_filter_runs_where_it_is_allowed_and_answers_come_back() {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, house);
    sink(&mut world, &hosts[0], called());
    let from = source(&mut world, &hosts[2]);
    assert_eq!(submit(&mut world, &hosts[2], from).remote, 1);
    let ship = |world: &mut Memory, to: &[Name], order: &FilterCommand| {
        world.with(&hosts[0], |node, now| node.ship(to, order, now));
        world.run_for(Nanos::from_millis(3_000));
        let notices = world.notices(&hosts[0]).into_iter();
        notices
            .filter_map(|notice| if let Notice::Answered { result, .. } = notice { Some(result) } else { None })
            .collect()
    };
    let none = filter("none", "return input.a >= get_attribute(least);");
    let install =
        FilterCommand::Install(FilterSpec { parameters: vec![("least".parse().expect("a key"), 1)], ..none.clone() });
    let to = [hosts[2].clone()];
    let answers: Vec<Result<(), String>> = ship(&mut world, &to, &install);
    assert_eq!(answers, [Ok(())]);
    assert!(
        world.notices(&hosts[2]).contains(&Notice::FilterChanged { id: none.id.clone(), author: hosts[0].clone() })
    );
    assert_eq!(submit(&mut world, &hosts[2], from).filtered, 1);
    let turn = FilterCommand::Parameter(none.id.clone(), "least".parse().expect("a key"), 0);
    assert_eq!(ship(&mut world, &to, &turn), [Ok(())]);
    assert_eq!(submit(&mut world, &hosts[2], from).remote, 1);
    let wrong = ship(&mut world, &to, &FilterCommand::Install(filter("x", "return input.colour;")));
    assert!(wrong[0].as_ref().is_err_and(|why| why.contains("colour")), "{wrong:?}");
    assert_eq!(ship(&mut world, &to, &FilterCommand::Remove(none.id.clone())), [Ok(())]);
    world.cut(&hosts[0], &hosts[2]);
    let silent = ship(&mut world, &to, &FilterCommand::Remove(none.id));
    assert!(silent[0].as_ref().is_err_and(|why| why.contains("no answer within 2 s")), "{silent:?}");
}

#[test]
fn a_shipped_filter_is_its_authors_alone_and_goes_with_it() {
    let open = |config| Config { policy: Box::new(Open), ..config };
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, open);
    sink(&mut world, &hosts[0], called());
    let from = source(&mut world, &hosts[2]);
    let ship = |world: &mut Memory, by: &Name, order: FilterCommand| -> Vec<Result<(), String>> {
        world.with(by, |node, now| node.ship(&[hosts[2].clone()], &order, now));
        world.run_for(Nanos::from_millis(1_000));
        let answers = world.notices(by).into_iter();
        answers
            .filter_map(|notice| if let Notice::Answered { result, .. } = notice { Some(result) } else { None })
            .collect()
    };
    let (none, own) = (filter("none", "return 0;"), filter("own", "return 1;"));
    assert_eq!(ship(&mut world, &hosts[0], FilterCommand::Install(none.clone())), [Ok(())]);
    world.with(&hosts[2], |node, _| node.install(&own)).expect("its own");
    assert_eq!(submit(&mut world, &hosts[2], from).filtered, 1);
    for (order, by) in [
        (FilterCommand::Install(filter("none", "return 1;")), &hosts[0]),
        (FilterCommand::Remove(none.id.clone()), &hosts[0]),
        (FilterCommand::Remove(own.id.clone()), &hosts[2]),
    ] {
        let name = &order.id().name;
        let why = format!("the filter `{name}` was installed by {by}; choose another name");
        assert_eq!(ship(&mut world, &hosts[1], order), [Err(why)]);
    }
    assert_eq!(world.with(&hosts[2], |node, _| node.filter_author(&none.id).cloned()), Some(hosts[0].clone()));
    world.kill(&hosts[0]);
    world.run_for(Nanos::from_millis(3_000));
    let left = world.with(&hosts[2], |node, _| node.filters(&none.id.channel));
    assert_eq!(left.iter().map(|(id, _)| id.name.as_str()).collect::<Vec<_>>(), ["own"]);
}

/// A host's filter on another host executes more instructions there than its rate allows.
#[test]
fn a_filter_of_another_host_above_the_rate_is_suspended_and_drops_the_events_of_the_busiest_sender() {
    let slow = |config| Config { policy: Box::new(Open), filter_rate: 1_000_000, ..config };
    let (mut world, hosts) = world(Settings { hosts: 3, ..Settings::default() }, slow);
    sink(&mut world, &hosts[0], called());
    let from = source(&mut world, &hosts[0]);
    let passes = filter("passes", "long i; for (i = 0; i < 10000; i++) { } return 1;");
    world.with(&hosts[1], |node, now| node.ship(&hosts[..1], &FilterCommand::Install(passes.clone()), now));
    world.settle();
    let arrives = |world: &mut Memory| submit(world, &hosts[0], from).local == 1;
    let arrived = (0..1_000).find(|_| !arrives(&mut world)).expect("it is suspended");
    assert!((5..=100).contains(&arrived), "1 to 20 instructions for each turn, and the events of a second: {arrived}");
    let payer = Payer::Host(hosts[1].clone());
    let notices = world.notices(&hosts[0]).into_iter();
    let suspended = |notice: &Notice| matches!(notice, Notice::FiltersSuspended { payer: of, .. } if *of == payer);
    assert_eq!(notices.filter(suspended).count(), 1);
    let lasts =
        world.with(&hosts[0], |node, now| node.filter_suspended_until(&passes.id).map(|until| until.since(now)));
    assert!(lasts.is_some_and(|lasts| lasts > Nanos::from_millis(900)), "{lasts:?}");
    let counts = world.with(&hosts[0], |node, _| node.filters(&passes.id.channel)[0].1);
    assert_eq!((counts.calls, counts.skipped), (arrived, 1));
    world.run_for(Nanos::from_millis(2_000));
    assert!(arrives(&mut world), "the rate has covered the instructions");
}

#[test]
fn refusals_of_filters_say_where_and_why() {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, |config| config);
    let mut refused = |text: &str| {
        let refused = world.with(&hosts[0], |node, _| node.install(&filter("f", text)));
        refused.expect_err("refused").to_string()
    };
    assert!(refused("struct input { long a; }; return 1;").contains("`a` is long here, int in the event"));
    assert!(refused("struct input { int c; }; return 1;").contains("there is no `c` in the event; it has a, b"));
    assert!(refused("struct input { int a; int sink; }; return 1;").contains("`sink` is int, but must be an array"));
    assert!(
        refused("struct input { int a; }; struct output { int chosen[4]; }; return 1;").contains("`unsigned char`")
    );
    assert!(refused(&" ".repeat(1 << 16)).contains("65536 bytes of text, the limit is 65535"));
    for number in 0..Limits::FILTERS {
        let filter = filter(&format!("f{number}"), "return 1;");
        world.with(&hosts[0], |node, _| node.install(&filter)).expect("there is room");
    }
    let more = world.with(&hosts[0], |node, _| node.install(&filter("more", "return 1;"))).unwrap_err();
    assert_eq!(more.to_string(), "33 filters of one channel, the limit is 32; remove a filter, or combine two texts");
}

/// The room has no users: a quarter for each user of a host is the daemon's rule, so users of four hosts can take all.
#[test]
fn all_hosts_share_the_members_of_a_channel_and_the_next_one_is_refused() {
    let (mut world, hosts) = world(Settings { hosts: 5, ..Settings::default() }, |config| config);
    let join = |node: &mut qfabric_channel::Node, now| node.sink_subscribe(&channel("v"), SinkSpec::default(), now);
    for host in &hosts[..4] {
        for _ in 0..Limits::MEMBERS / 4 {
            world.with(host, |node, now| join(node, now)).expect("a place");
        }
        world.settle();
    }
    for host in [&hosts[0], &hosts[4]] {
        let refused = world.with(host, |node, now| join(node, now)).expect_err("there is no place").to_string();
        assert!(refused.contains("4097 members of one channel, the limit is 4096; share members"), "{refused}");
    }
}

/// A filter's longest call is known before the filter is installed.
#[test]
fn a_filter_that_may_take_too_long_is_refused_with_its_length_and_an_endless_loop_faults() {
    let (mut world, hosts) = world(Settings::default(), |config| Config { filter_instructions: 10_000, ..config });
    let sum = |turns: u32| format!("long i; long s; for (i = 0; i < {turns}; i++) s += i; return s >= 0;");
    let install = |world: &mut Memory, text: &str| {
        let (wanted, host) = (filter("f", text), &hosts[0]);
        let bound = world.with(host, |node, _| node.filter_instructions(&wanted));
        let installed = world.with(host, |node, _| node.install(&wanted));
        assert_eq!(bound.as_ref().err(), installed.as_ref().err(), "both judge alike");
        bound
    };
    let bound = install(&mut world, &sum(100)).expect("short");
    assert!((500..10_000).contains(&bound), "{bound}");
    let Err(refused) = install(&mut world, &sum(10_000)) else { panic!("installed") };
    assert!(matches!(refused, FilterError::TooLong { instructions: 50_000.., limit: 10_000 }), "{refused}");
    let refused = refused.to_string();
    assert!(refused.contains("instructions, the limit is 10000; do less work in each loop"), "{refused}");
    sink(&mut world, &hosts[1], called());
    let from = source(&mut world, &hosts[0]);
    let bound = install(&mut world, "long i = 1; while (i != 0) i = i * 3; return 1;").expect("bounded by fuel");
    assert!(bound < 10_000, "{bound}");
    assert_eq!(submit(&mut world, &hosts[0], from).remote, 0, "a filter that faulted chooses no sink");
    let counts = world.with(&hosts[0], |node, _| node.filters(&channel("v")));
    assert_eq!(counts[0].1.faults, 1);
}

#[test]
fn an_open_channel_is_opened_again_when_all_places_are_taken() {
    let (mut world, hosts) = world(Settings::default(), |config| config);
    let host = &hosts[0];
    let create = |world: &mut Memory, number: usize| {
        world.with(host, |node, now| node.create(&channel(&format!("c{number}")), spec(), now))
    };
    let taken = (0..).find(|number| create(&mut world, *number).is_err()).expect("there is a limit");
    assert_eq!(taken, Limits::CHANNELS / 2 - 1);
    world.with(host, |node, now| node.open(&channel("v"), now)).expect("it needs no place");
}

#[test]
fn strangers_nonsense_and_other_versions_are_counted() {
    let (mut world, hosts) = world(Settings { hosts: 4, ..Settings::default() }, |config| config);
    let stranger: Name = "stranger".parse().expect("a name");
    let arrive = |world: &mut Memory, from: &Name, frame: &[u8]| {
        world.with(&hosts[0], |node, now| node.arrive(from, Lane::Control, frame, now));
    };
    let digest = [&[PROTOCOL, 5][..], &u64::MAX.to_le_bytes(), &[0; 8]].concat();
    arrive(&mut world, &stranger, &digest);
    arrive(&mut world, &hosts[1], &[PROTOCOL, 5, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.node(&hosts[0]).counts().stranger, 2, "unknown, and an earlier start");
    arrive(&mut world, &hosts[1], &[]);
    arrive(&mut world, &hosts[1], &[PROTOCOL, 200]);
    arrive(&mut world, &hosts[1], &vec![PROTOCOL; Limits::FRAME + 1]);
    assert_eq!(world.node(&hosts[0]).counts().malformed, 3);
    for _ in 0..2 {
        arrive(&mut world, &hosts[1], &[9, 1, 2, 3]);
    }
    assert_eq!(world.node(&hosts[0]).counts().other_version, 2);
    let notices = world.notices(&hosts[0]).into_iter();
    let said: Vec<_> = notices.filter(|notice| matches!(notice, Notice::OtherVersion { .. })).collect();
    assert_eq!(said, [Notice::OtherVersion { host: hosts[1].clone(), theirs: 9, ours: PROTOCOL }], "once");
}

#[test]
fn deadlines_hold_between_clocks_that_differ() {
    let skew = Nanos::from_millis(60_000);
    let (mut world, hosts) = world(Settings { hosts: 4, seed: 3, skew, ..Settings::default() }, |config| config);
    let from = source(&mut world, &hosts[0]);
    let to = sink(&mut world, &hosts[1], SinkSpec::default());
    submit(&mut world, &hosts[0], from);
    world.run_for(Nanos::from_millis(2_000));
    let (ahead, error) = world.node(&hosts[1]).clock_offset(&hosts[0]).expect("it was pinged");
    let clocks: Vec<i64> = hosts[..2].iter().map(|host| world.with(host, |_, now| now.get() as i64)).collect();
    assert!((ahead - (clocks[0] - clocks[1])).unsigned_abs() <= error.get(), "{ahead} {error} {clocks:?}");
    assert!(ahead.unsigned_abs() > 1_000_000_000, "the seed makes clocks differ");
    let sent = world.with(&hosts[0], |node, now| {
        let deadline = Some(now + Nanos::from_millis(100));
        node.submit(from, &Submission { deadline, payload: &[0; 8], ..Submission::default() }, now).expect("sent");
        now
    });
    world.run_for(Nanos::from_millis(50));
    let mut taken = Taken::default();
    let mut take = |world: &mut Memory| {
        world.with(&hosts[1], |node, now| node.take(to, &mut taken, now)).expect("the sink is there")
            && taken.event().is_some_and(|event| {
                let there = event.sent.get() as i64 + ahead;
                (there - sent.get() as i64).unsigned_abs() < 2_000_000 || event.deadline.is_none()
            })
    };
    assert!(take(&mut world) && take(&mut world), "the first one, and the one in time");
    let late = world.with(&hosts[0], |node, now| {
        let deadline = Some(now + Nanos::from_millis(100));
        node.submit(from, &Submission { deadline, payload: &[0; 8], ..Submission::default() }, now)
    });
    late.expect("in time yet");
    world.run_for(Nanos::from_millis(110));
    assert!(!take(&mut world));
    assert_eq!(world.node(&hosts[1]).sink_counts(to).expect("the sink is there").late, 1);
}
