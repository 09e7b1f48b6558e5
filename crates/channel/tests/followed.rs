//! Parameters of filters that follow words, and private messages between hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    Action, Config, Direction, EventType, FilterId, FilterSpec, Limits, Policy, SourceId, SourceSpec, Spec, Submission,
    Word,
};
use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Name};

/// Any host may install filters, but `h2`.
struct NotH2;

impl Policy for NotH2 {
    fn allows(&self, host: &Name, action: Action, _channel: &ChannelId) -> bool {
        action != Action::Install || host.as_str() != "h2"
    }
}

/// Only this host may.
struct Nobody;

impl Policy for Nobody {
    fn allows(&self, _host: &Name, action: Action, _channel: &ChannelId) -> bool {
        action != Action::Install
    }
}

/// A number with its changes.
#[derive(Clone, Default)]
struct Shared(Arc<(AtomicU64, AtomicI64)>);

impl Shared {
    fn set(&self, value: i64) {
        self.0.1.store(value, Ordering::Relaxed);
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Word for Shared {
    fn read(&self) -> Option<(u64, i64)> {
        let changes = self.0.0.load(Ordering::Relaxed);
        (changes > 0).then(|| (changes, self.0.1.load(Ordering::Relaxed)))
    }
}

struct Stage {
    world: Memory,
    hosts: Vec<Name>,
    source: SourceId,
}

fn id() -> FilterId {
    let channel = ChannelId::data("v".parse().unwrap());
    FilterId { channel, direction: Direction::Out, name: "least".parse().unwrap() }
}

fn filter(text: &str) -> FilterSpec {
    FilterSpec { id: id(), sink: None, types: vec![], text: text.into(), parameters: vec![] }
}

/// Three hosts; `h0` has a source, and a filter that blocks events below `least`.
fn stage() -> Stage {
    let configure = |config| Config { policy: Box::new(NotH2), hears_private: true, ..config };
    let mut world = Memory::configured(Settings { hosts: 3, seed: 5, ..Settings::default() }, configure);
    let hosts = world.hosts();
    let types = parse_formats("struct one { int a; };").unwrap().into_iter().map(|format| EventType { format });
    let spec = Spec { types: types.collect(), ..Spec::default() };
    let source = world.with(&hosts[0], |node, now| {
        node.create(&id().channel, spec, now).unwrap();
        node.install(&filter("return input.a >= get_attribute(least);")).unwrap();
        node.source_subscribe(&id().channel, SourceSpec::default(), now).unwrap()
    });
    world.settle();
    Stage { world, hosts, source }
}

impl Stage {
    fn follow(&mut self, host: usize, word: &Shared) -> bool {
        let (host, word) = (self.hosts[host].clone(), Box::new(word.clone()));
        self.world.with(&self.hosts[0], |node, _| node.follow_parameter(&host, &id(), "least", word))
    }

    /// The number of events of this value that the filter has blocked.
    fn blocks(&mut self, value: i32) -> u64 {
        let blocked = |world: &Memory, host| world.node(host).filters(&id().channel)[0].1.blocked;
        let before = blocked(&self.world, &self.hosts[0]);
        let (source, payload) = (self.source, value.to_le_bytes());
        let event = Submission { payload: &payload, ..Submission::default() };
        self.world.with(&self.hosts[0], |node, now| node.submit(source, &event, now)).unwrap();
        blocked(&self.world, &self.hosts[0]) - before
    }

    fn value(&mut self) -> i64 {
        self.world.with(&self.hosts[0], |node, _| node.parameter(&id(), "least")).unwrap()
    }

    fn followed(&self) -> usize {
        self.world.node(&self.hosts[0]).followed(&id()).len()
    }
}

#[test]
fn the_next_event_sees_the_word_and_commands_and_words_take_effect_in_order() {
    let mut stage = stage();
    let word = Shared::default();
    word.set(99);
    assert!(stage.follow(1, &word));
    assert_eq!(stage.value(), 0, "what was there before is not followed");
    word.set(5);
    word.set(7);
    assert_eq!(stage.value(), 7);
    word.set(5);
    stage.world.with(&stage.hosts[0], |node, _| node.set_parameter(&id(), "least", 3)).unwrap();
    assert_eq!(stage.value(), 3, "the command came after the word");
    word.set(3);
    word.set(4);
    assert_eq!(stage.value(), 4);
    let host = stage.hosts[1].clone();
    assert_eq!(stage.world.node(&stage.hosts[0]).followed(&id()), [("least".to_owned(), host)]);
}

#[test]
fn an_event_is_enough_for_the_filter_to_see_the_word() {
    let mut stage = stage();
    let hosts = stage.hosts.clone();
    stage.world.with(&hosts[1], |node, now| {
        node.open(&id().channel, now).unwrap();
        node.sink_subscribe(&id().channel, qfabric_channel::SinkSpec::default(), now).unwrap();
    });
    stage.world.settle();
    let word = Shared::default();
    assert!(stage.follow(1, &word));
    assert_eq!(
        (
            stage.blocks(5),
            {
                word.set(6);
                stage.blocks(5)
            },
            {
                word.set(5);
                stage.blocks(5)
            }
        ),
        (0, 1, 0)
    );
}

#[test]
fn only_one_host_with_the_right_is_followed_and_only_an_existing_parameter() {
    let mut stage = stage();
    let word = Shared::default();
    assert!(!stage.follow(2, &word), "h2 may not install filters");
    assert!(stage.follow(1, &word) && stage.follow(1, &word));
    assert_eq!(stage.followed(), 1);
    let (own, stranger) = (stage.hosts[0].clone(), "stranger".parse::<Name>().unwrap());
    let mut other = |host: &Name, parameter: &str| {
        let word = Box::new(word.clone());
        stage.world.with(&own, |node, _| node.follow_parameter(host, &id(), parameter, word))
    };
    let h1 = "h1".parse::<Name>().unwrap();
    assert!(!other(&stranger, "least") && !other(&h1, "most"));
    let h2 = "h2".parse::<Name>().unwrap();
    let node = stage.world.node(&own);
    assert_eq!([h1, h2, stranger].map(|host| node.may_be_followed(&host, &id().channel)), [true, false, false]);
}

#[test]
fn a_replaced_filter_a_lost_right_and_a_host_that_is_gone_end_it_and_the_value_stays() {
    let mut stage = stage();
    let hosts = stage.hosts.clone();
    let text = "return input.a >= get_attribute(least) + 0;";
    let ends: [&dyn Fn(&mut Memory); 3] = [
        &|world| world.with(&hosts[0], |node, _| node.install(&filter(text))).unwrap(),
        &|world| world.with(&hosts[0], |node, now| node.set_policy(Box::new(Nobody), now)),
        &|world| world.with(&hosts[0], |node, now| node.vanished(&hosts[1], now)),
    ];
    for (round, end) in (1..).zip(ends) {
        let word = Shared::default();
        stage.world.with(&hosts[0], |node, now| node.set_policy(Box::new(NotH2), now));
        assert!(stage.follow(1, &word), "round {round}");
        word.set(round);
        end(&mut stage.world);
        assert_eq!((stage.value(), stage.followed()), (round, 0));
        word.set(100);
        assert_eq!(stage.value(), round);
    }
}

#[test]
fn private_messages_reach_the_program_of_one_host_if_both_sides_take_them() {
    let mut stage = stage();
    let hosts = stage.hosts.clone();
    let tell = |stage: &mut Stage, to: &Name, bytes: &[u8]| {
        let told = stage.world.with(&hosts[0], |node, _| node.tell(to, bytes));
        stage.world.settle();
        told
    };
    assert!(tell(&mut stage, &hosts[1], b"key") && tell(&mut stage, &hosts[1], &[7; Limits::PRIVATE]));
    let got = stage.world.private(&hosts[1]);
    assert_eq!(got, [(hosts[0].clone(), b"key".to_vec()), (hosts[0].clone(), vec![7; Limits::PRIVATE])]);
    assert!(stage.world.private(&hosts[2]).is_empty());
    assert!(!tell(&mut stage, &hosts[1], &[7; Limits::PRIVATE + 1]) && !tell(&mut stage, &"x".parse().unwrap(), b"k"));
    let some = |config: Config| Config { hears_private: config.host.as_str() != "h1", ..config };
    stage.world = Memory::configured(Settings { hosts: 3, seed: 5, ..Settings::default() }, some);
    stage.world.settle();
    assert!(!tell(&mut stage, &hosts[1], b"key") && tell(&mut stage, &hosts[2], b"key"));
}
