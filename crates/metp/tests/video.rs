//! The frames of a video over links with loss, in virtual time: which arrive in time, and after how long.

use qfabric_metp::testing::{LinkSettings, Loss, Pair, Side, video};
use qfabric_metp::{Config, DeliveryOrder, Mode, Outgoing};
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

const FRAMES: usize = 400;
const DEADLINE: Nanos = Nanos::from_millis(200);
const PERIOD: Nanos = Nanos::from_millis(40);

/// Results of a run; delays in ms from the submission to the delivery.
#[derive(Debug)]
struct Run {
    in_time: usize,
    p50: f64,
    p99: f64,
    max: f64,
    duplicates: u64,
    retransmissions: u64,
    sent: u64,
    statistics: [qfabric_metp::Statistics; 2],
}

fn run(link: LinkSettings, rate: u64, seed: u64) -> Run {
    let config = Config {
        mode: Mode::PartiallyReliable,
        rate: BitRate::new(rate),
        bucket: Bytes::new(16_384),
        order: DeliveryOrder::InOrder,
        ..Config::default()
    };
    let mut pair = Pair::new(config.clone(), config);
    pair.connect(
        qfabric_metp::CarrierId(0),
        [link, LinkSettings { loss: link.loss, ..LinkSettings::default() }],
        seed,
        1_414,
    );
    pair.run_for(Nanos::from_millis(1_000));
    let begin = pair.now;
    let data = vec![7; 300_000];
    for (index, frame) in video(FRAMES, 3).iter().enumerate() {
        pair.run_until(begin + PERIOD.saturating_mul(index as u64));
        let outgoing = Outgoing { kind: frame.kind, deadline: Some(DEADLINE), data: &data[..frame.bytes] };
        pair.with(Side::A, |session, now| session.send(now, outgoing)).expect("accepted");
    }
    pair.run_for(Nanos::from_millis(1_000));
    results(&pair, begin)
}

fn results(pair: &Pair, begin: Instant) -> Run {
    let sent_at = |number: u64| begin + PERIOD.saturating_mul(number);
    let complete = pair.end(Side::B).arrivals.iter().filter(|arrival| arrival.received.is_complete());
    let mut delays: Vec<Nanos> = complete.map(|one| one.at.since(sent_at(one.received.number.get()))).collect();
    delays.sort();
    let at = |quantile: f64| delays[((delays.len() - 1) as f64 * quantile).round() as usize].as_secs_f64() * 1e3;
    let (sender, receiver) = (pair.end(Side::A).session.statistics(), pair.end(Side::B).session.statistics());
    Run {
        in_time: delays.iter().filter(|delay| **delay <= DEADLINE).count(),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
        duplicates: receiver.duplicates + receiver.late_tpdus,
        retransmissions: sender.retransmissions,
        sent: sender.sent_bytes,
        statistics: [sender, receiver],
    }
}

const GILBERT_ELLIOTT: Loss = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.3 };

#[test]
fn a_video_at_the_granted_rate_arrives_in_time_over_a_lossy_link() {
    let sizes: usize = video(FRAMES, 3).iter().map(|frame| frame.bytes).sum();
    println!("{:.1} Mbit/s", sizes as f64 * 8.0 / (FRAMES as f64 / 25.0) / 1e6);
    for seed in 0..3 {
        for loss in [Loss::Bernoulli(0.0), Loss::Bernoulli(0.02), Loss::Bernoulli(0.05), GILBERT_ELLIOTT] {
            println!(
                "{loss:?}, seed {seed}: {:?}",
                run(LinkSettings { loss, ..LinkSettings::default() }, 29_000_000, seed)
            );
        }
        let slow =
            LinkSettings { rate: BitRate::new(8_000_000), queue: Bytes::new(500_000), ..LinkSettings::default() };
        println!("8 Mbit/s: {:?}", run(slow, 7_800_000, seed));
    }
}
