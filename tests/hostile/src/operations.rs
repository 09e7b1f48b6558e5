//! Properties of sequences of operations on the nodes of four hosts.

use qfabric_channel::Pressure;
use qfabric_channel::testing::Settings;
use qfabric_channel::testing::operations::{CHANNELS, HOSTS, Op, Run};
use qfabric_types::Nanos;

use crate::Script;

/// Largest number of operations in one input. Longer inputs find no other errors.
const MAX_OPERATIONS: usize = 100;

/// For any operations and any network, the rosters are consistent after each operation. At the end, all hosts have
/// the same state, events arrived in order and once, and `sent = delivered + filtered + dropped + late + lost +
/// queued` at each sink.
pub fn channel_operations(bytes: &[u8]) {
    let mut script = Script(bytes);
    let (settings, pressure) = (settings(&mut script), pressure(&mut script));
    let mut run = Run::new(settings, pressure);
    for _ in 0..MAX_OPERATIONS {
        if script.is_over() {
            break;
        }
        run.act(&operation(&mut script));
        run.assert_sound();
    }
    run.end();
}

fn settings(script: &mut Script<'_>) -> Settings {
    Settings {
        hosts: HOSTS,
        seed: u64::from(script.byte()),
        delay: (Nanos::from_micros(50), Nanos::from_millis(1 + script.below(50) as u64)),
        data_loss: u32::from(script.byte()),
        control_loss: u32::from(script.byte()) / 3,
        disorder: script.byte() % 2 == 1,
        skew: Nanos::from_millis(u64::from(script.byte()) * 2),
        ..Settings::default()
    }
}

fn pressure(script: &mut Script<'_>) -> Pressure {
    match script.byte() % 3 {
        0 => Pressure::DropOldest,
        1 => Pressure::DropNewest,
        _ => Pressure::Block { patience: Nanos::from_millis(200) },
    }
}

fn operation(script: &mut Script<'_>) -> Op {
    let kind = script.byte() % 19;
    let (host, number) = (script.below(HOSTS), script.byte());
    let (channel, other) = (usize::from(number) % CHANNELS, usize::from(number) % HOSTS);
    let which = usize::from(number);
    match kind {
        0 => Op::Open(host, channel),
        1 => Op::Close(host, channel),
        2 | 3 => Op::Source(host, channel),
        4 | 5 => Op::Sink(host, channel, u32::from(number) / 2 % 5),
        6 => Op::LeaveSource(which),
        7 => Op::LeaveSink(which),
        8 => Op::Attribute(which, i64::from(script.byte().cast_signed())),
        9 => Op::Filter(host, channel, number & 2 != 0, which / 4 % 5),
        10..=12 => Op::Submit(which, script.byte() % 8, u64::from(script.byte()) / 4),
        13 => Op::Take(which),
        14 => Op::Run(u64::from(script.half()) % 5_000),
        15 if host == other => Op::Kill(host),
        15 => Op::Cut(host, other),
        16 => Op::Heal(host, other),
        18 => Op::Large(which, 1 + usize::from(script.byte())),
        _ => Op::Start(host),
    }
}
