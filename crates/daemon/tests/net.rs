//! Tests of packet scheduling through the API: admission, refusals, streams that E-code changes, and the restored
//! queue. They use HTB classes, which every kernel has, on the loopback of a separate network namespace.

mod common;

use std::time::Duration;

use common::{call, eventually, quiet, service};
use qfabric_client::ecalls::{Ecalls, MemoryUp, SubscriptionBuilder};
use qfabric_client::{Client, ClientError, Nanos, Problem};
use qfabric_linux::net::testing::own_network;
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::net::{AttachRequest, NetMechanism, Selector, StreamChange, StreamSpec};

const SAMPLE: &str = "struct sample { long value; };";
const RATE: u64 = 10_000_000;

fn attach(client: &Client) {
    let request =
        AttachRequest { mechanism: Some(NetMechanism::Htb), rate_bps: Some(RATE), ..AttachRequest::default() };
    let info = client.attach("lo", &request).unwrap();
    assert_eq!((info.mechanism, info.rate_bps), (NetMechanism::Htb, RATE));
}

fn stream(mark: u32, bytes: u32) -> StreamSpec {
    let mut spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(40));
    spec.size = bytes;
    spec
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Err(ClientError::Refused(problem)) => problem,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn streams_are_admitted_up_to_the_link_and_refused_beyond_it_with_numbers() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    assert_eq!(refusal(client.interface("lo")).code, "net_not_found");
    attach(&client);
    let first = client.begin_stream("lo", &stream(7, 30_000)).unwrap();
    assert!((first.utilization - 0.6).abs() < 1e-6, "{first:?}");
    let over = refusal(client.begin_stream("lo", &stream(8, 30_000)));
    assert_eq!(over.code, "over_link");
    assert!(over.message.contains("= 120 %") && over.message.contains("10000000 bit/s"), "{over:?}");
    assert!(refusal(client.begin_stream("lo", &stream(7, 1_000))).message.contains("stream 0 of lo already has"));
    let changed = StreamChange { size: Some(60_000), ..StreamChange::default() };
    assert_eq!(refusal(client.change_stream("lo", first.id, &changed)).code, "over_link");
    assert_eq!(client.interface("lo").unwrap().streams[0].spec, stream(7, 30_000));
    client.end_stream("lo", first.id).unwrap();
    client.begin_stream("lo", &stream(8, 30_000)).unwrap();
    let (_, metrics) = call(client.socket(), "GET", "/metrics", "");
    assert!(
        metrics.contains("qfabric_net_stream_sent_total{interface=\"lo\",mechanism=\"htb\",stream=\"0\""),
        "{metrics}"
    );
    client.detach("lo").unwrap();
    assert!(client.interfaces().unwrap().is_empty());
}

#[test]
fn a_stream_follows_the_attributes_that_a_handler_sets() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    attach(&client);
    let id = client.begin_stream("lo", &stream(7, 5_000)).unwrap().id;
    let ecalls = Ecalls::connect(&client).unwrap();
    let own = ecalls.register_service("test.sample", "", SAMPLE, false).unwrap();
    let code = "attr.period_ns = input.value * 1000000; return 1;";
    let events =
        ecalls.subscribe(&SubscriptionBuilder::to("test.sample").code(code).memory_up(MemoryUp::default())).unwrap();
    let follow = StreamChange { follow: Some(events.id()), ..StreamChange::default() };
    client.change_stream("lo", id, &follow).unwrap();
    own.raise_event(-1, &20i64.to_le_bytes(), Nanos::ZERO, false).unwrap();
    let period = || client.interface("lo").unwrap().streams[0].spec.period;
    eventually("the stream follows", || period() == Nanos::from_millis(20));
    // 5,000 bytes each millisecond are four times the link.
    own.raise_event(-1, &1i64.to_le_bytes(), Nanos::ZERO, false).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(period(), Nanos::from_millis(20), "a change that the link does not carry is refused");
    drop(events);
    eventually("the stream follows no subscription any more", || {
        client.interface("lo").unwrap().streams[0].follows.is_none()
    });
}
