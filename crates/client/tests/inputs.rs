//! Handlers with several inputs: the events of several channels, in queues of E-code.

mod common;

use std::time::Duration;

use common::Host;
use qfabric_client::ClientError;
use qfabric_client::channel::{Channel, Channels, Source, SourceOptions, Spec, Submission};
use qfabric_client::ecalls::{Ecalls, MemoryUp, SubscriptionBuilder};
use qfabric_daemon::{Config, EngineName};

const PATIENCE: Duration = Duration::from_secs(120);

fn with_channels(config: &mut Config) {
    config.channels.enabled = true;
    config.channels.engine = EngineName::None;
    config.channels.host = Some("alpha".parse().unwrap());
    config.channels.priority = 0;
}

/// The channels `fast`, of an `int`, and `slow-1`, of the type `load`, a `long`.
fn channels(channels: &Channels) -> [Channel; 2] {
    let formats = [("fast", "struct tick { int v; };"), ("slow-1", "struct load { long w; };")];
    formats.map(|(name, format)| channels.create(name, &Spec::of(format)).unwrap())
}

fn send(source: &Source, payload: &[u8]) {
    source.submit_and_wait(&Submission { payload, ..Submission::default() }).unwrap();
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_handler_of_two_channels_waits_for_an_event_of_each() {
    let Some(host) = Host::with(with_channels) else { return };
    let connected = Channels::connect(&host.client).unwrap();
    let opened = channels(&connected);
    let [fast, slow] = opened.each_ref().map(|one| one.source_subscribe(&SourceOptions::default()).unwrap());
    let text = "struct output { long sum; };
        if (EVcount_fast() == 0 || EVcount_load() == 0) return 0;
        output.sum = EVdata_fast(0).v + EVdata_load(0).w;
        EVdiscard_fast(0);
        EVdiscard_load(0);
        return 1;";
    let ecalls = Ecalls::connect(&host.client).unwrap();
    let wanted = SubscriptionBuilder::to("channel:fast+slow-1/load").code(text).memory_up(MemoryUp::default());
    let mut sums = ecalls.subscribe(&wanted).unwrap();
    send(&fast, &1i32.to_le_bytes());
    send(&fast, &2i32.to_le_bytes());
    send(&slow, &10i64.to_le_bytes());
    send(&slow, &20i64.to_le_bytes());
    for expected in [11i64, 22] {
        assert_eq!(sums.next(PATIENCE).unwrap().unwrap().data, expected.to_le_bytes());
    }
}

#[test]
fn inputs_that_cannot_be_joined_are_refused_and_leave_no_member() {
    let Some(host) = Host::with(with_channels) else { return };
    let connected = Channels::connect(&host.client).unwrap();
    let [fast, _slow] = channels(&connected);
    let ecalls = Ecalls::connect(&host.client).unwrap();
    let refused = |service: &str| refusal(ecalls.subscribe(&SubscriptionBuilder::to(service).code("return 1;")));
    let many = format!("channel:fast{}", "+fast".repeat(8));
    for (service, said) in [
        ("channel:fast+fast", "two members `fast`"),
        ("channel:fast+none", "none"),
        ("channel:fast+slow-1/none", "load"),
        (&*many, "9 channels, 8 is the limit"),
    ] {
        let message = refused(service);
        assert!(message.contains(said), "{service}: {message}");
    }
    assert!(fast.look().unwrap().hosts.iter().all(|host| host.sinks.is_empty()));
    let back = SubscriptionBuilder::to("channel:fast+slow-1").code("return 1;").channel("fast".parse().unwrap());
    let message = refusal(ecalls.subscribe(&back));
    assert!(message.contains("to the same channel"), "{message}");
}

#[test]
fn queues_count_as_memory_of_their_user() {
    let limited = |config: &mut Config| {
        with_channels(config);
        config.ecalls.max_memory = 100;
    };
    let Some(host) = Host::with(limited) else { return };
    let connected = Channels::connect(&host.client).unwrap();
    let _opened = channels(&connected);
    let ecalls = Ecalls::connect(&host.client).unwrap();
    // A queue has 24 bytes and 16 events, here of 4 bytes.
    let one = SubscriptionBuilder::to("channel:fast+slow-1").code("return EVcount_fast() > 1;");
    let _first = ecalls.subscribe(&one).unwrap();
    let message = refusal(ecalls.subscribe(&one));
    assert!(message.contains("176 bytes of shared memory and queues"), "{message}");
}
