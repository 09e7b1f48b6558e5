//! What holds for every script of messages, switches and waits, over every link.

mod scenario;

use proptest::prelude::*;
use qfabric_metp::testing::{LinkSettings, Loss};
use qfabric_metp::{Config, FrameKind, Mode};
use qfabric_types::{BitRate, Bytes, Nanos};
use scenario::{Scenario, Step};

/// Losses up to 60 % in each direction, reordering and duplication.
fn any_link() -> impl Strategy<Value = LinkSettings> {
    let loss = prop_oneof![
        (0.0..0.6f64).prop_map(Loss::Bernoulli),
        (0.0..0.05f64, 0.1..0.9f64).prop_map(|(to_bad, to_good)| Loss::GilbertElliott { to_bad, to_good }),
    ];
    let disorder = prop_oneof![2 => Just((0.0, 0.0)), 1 => (0.0..0.3f64, 0.0..0.2f64)];
    (loss, disorder, 1u64..60, 2u64..50).prop_map(|(loss, (reordering, duplication), delay, mbit)| LinkSettings {
        loss,
        reordering,
        duplication,
        delay: Nanos::from_millis(delay),
        rate: BitRate::new(mbit * 1_000_000),
        ..LinkSettings::default()
    })
}

fn any_kind() -> impl Strategy<Value = FrameKind> {
    (0..FrameKind::ALL.len()).prop_map(|index| FrameKind::ALL[index])
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::TotallyReliable), Just(Mode::PartiallyReliable)]
}

fn any_send() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1usize..40, 1usize..3_000, 1usize..60_000];
    (any_kind(), bytes, 1u64..400).prop_map(|(kind, bytes, deadline_ms)| Step::Send { kind, bytes, deadline_ms })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_send(),
        4 => (1u64..60).prop_map(|ms| Step::Wait { ms }),
        1 => any_mode().prop_map(Step::SetMode),
        1 => (256u16..2_000).prop_map(|max_datagram| Step::SwitchCarrier { max_datagram }),
        1 => (300u16..1_400).prop_map(|mtu| Step::Shrink { mtu }),
        1 => (256u16..4_000).prop_map(Step::SetTpduSize),
    ]
}

fn config(mode: Mode, mbit: u64) -> Config {
    Config {
        tag: 0xbeef,
        mode,
        rate: BitRate::new(mbit * 1_000_000),
        largest_message: Bytes::new(100_000),
        send_memory: Bytes::new(400_000),
        receive_memory: Bytes::new(200_000),
        idle_limit: Nanos::from_millis(3_600_000),
        ..Config::default()
    }
}

fn run(scenario: &mut Scenario, steps: &[Step]) {
    steps.iter().for_each(|step| scenario.step(step));
    scenario.finish();
    scenario.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn totally_reliable_messages_arrive_under_any_loss(
        link in any_link(), mbit in 1u64..40, seed in any::<u64>(),
        steps in prop::collection::vec(prop_oneof![3 => any_send(), 1 => (1u64..60).prop_map(|ms| Step::Wait { ms })], 1..30),
    ) {
        run(&mut Scenario::new(config(Mode::TotallyReliable, mbit), link, seed), &steps);
    }

    #[test]
    fn any_script_keeps_order_deadlines_rate_and_reliable_messages(
        link in any_link(), mode in any_mode(), mbit in 1u64..40, seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        run(&mut Scenario::new(config(mode, mbit), link, seed), &steps);
    }

    #[test]
    fn an_application_that_pauses_loses_no_reliable_message(
        link in any_link(), mode in any_mode(), seed in any::<u64>(),
        steps in prop::collection::vec(prop_oneof![
            6 => any_send(), 1 => any_step(), 2 => (1u64..500).prop_map(|ms| Step::Pause { ms }),
        ], 1..40),
    ) {
        run(&mut Scenario::new(config(mode, 20), link, seed), &steps);
    }
}
