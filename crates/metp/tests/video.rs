//! The frames of a video over links with loss, in virtual time: which arrive in time, and after how long.

use qfabric_metp::testing::{LinkSettings, Loss, Pair, Side, VideoFrame, video};
use qfabric_metp::{CarrierId, Config, FrameKind, Mode, Outcome, Outgoing};
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

const FRAMES: usize = 400;
const DEADLINE: Nanos = Nanos::from_millis(200);
const PERIOD: Nanos = Nanos::from_millis(40);
/// Bytes that the clip of the bench takes on a link without loss.
const SENT_WITHOUT_LOSS: f64 = 21.49e6;
const GILBERT_ELLIOTT: Loss = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.3 };

/// Results of a run; delays in ms, from the submission to the delivery.
#[derive(Debug)]
struct Run {
    in_time: usize,
    p50: f64,
    p99: f64,
    max: f64,
    duplicates: u64,
    retransmissions: u64,
    sent_bytes: u64,
    /// Outcomes by kind of frame.
    outcomes: Vec<(FrameKind, Outcome)>,
}

/// Sends the video over a link of 20 ms, with the same loss on the way back.
fn run(link: LinkSettings, granted: u64, seed: u64) -> Run {
    run_with_cpu_every(Nanos::ZERO, link, granted, seed)
}

/// The same, from a sender whose process has the CPU at multiples of a time only.
fn run_with_cpu_every(cpu_every: Nanos, link: LinkSettings, granted: u64, seed: u64) -> Run {
    run_of(&video(FRAMES, 3), 16_384, cpu_every, link, granted, seed)
}

fn run_of(frames: &[VideoFrame], bucket: u64, cpu_every: Nanos, link: LinkSettings, granted: u64, seed: u64) -> Run {
    let config = Config {
        mode: Mode::PartiallyReliable,
        rate: BitRate::new(granted),
        bucket: Bytes::new(bucket),
        ..Config::default()
    };
    let mut pair = Pair::new(config.clone(), config);
    let back = LinkSettings { loss: link.loss, ..LinkSettings::default() };
    pair.connect(CarrierId(0), [link, back], seed, 1_414);
    pair.run_for(Nanos::from_millis(1_000));
    pair.cpu_every = cpu_every;
    let (begin, data) = (pair.now, vec![7; 300_000]);
    for (index, frame) in frames.iter().enumerate() {
        let due = begin + PERIOD.saturating_mul(index as u64);
        pair.run_until(pair.runs_at(Side::A, due));
        let waited = pair.now.since(due);
        let outgoing = Outgoing { kind: frame.kind, deadline: Some(DEADLINE), data: &data[..frame.bytes] };
        pair.with(Side::A, |session, now| session.send_waited(now, waited, outgoing)).expect("accepted");
    }
    pair.run_for(Nanos::from_millis(1_000));
    results(&pair, begin, frames)
}

fn results(pair: &Pair, begin: Instant, frames: &[VideoFrame]) -> Run {
    let sent_at = |number: u64| begin + PERIOD.saturating_mul(number);
    let complete = pair.end(Side::B).arrivals.iter().filter(|arrival| arrival.received.is_complete());
    let mut delays: Vec<Nanos> = complete.map(|one| one.at.since(sent_at(one.received.number.get()))).collect();
    delays.sort();
    let at = |quantile: f64| delays[((delays.len() - 1) as f64 * quantile).round() as usize].as_secs_f64() * 1e3;
    let (sender, receiver) = (pair.end(Side::A).session.statistics(), pair.end(Side::B).session.statistics());
    let kinds: Vec<FrameKind> = frames.iter().map(|frame| frame.kind).collect();
    let outcomes = pair.end(Side::A).outcomes.iter();
    Run {
        in_time: delays.iter().filter(|delay| **delay <= DEADLINE).count(),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
        duplicates: receiver.duplicates + receiver.late_tpdus,
        retransmissions: sender.retransmissions,
        sent_bytes: sender.sent_bytes,
        outcomes: outcomes.map(|(number, outcome)| (kinds[number.get() as usize], *outcome)).collect(),
    }
}

/// Prints a row of the table in docs/design/0038-metp.md.
fn print(label: &str, seed: u64, run: &Run) {
    println!(
        "| {label} | {seed} | {} | {:.1} | {:.1} | {:.1} | {} | {} | {:.2} MB |",
        run.in_time,
        run.p50,
        run.p99,
        run.max,
        run.retransmissions,
        run.duplicates,
        run.sent_bytes as f64 / 1e6
    );
}

#[test]
fn the_series_has_the_rate_of_the_clip() {
    let frames = video(FRAMES, 3);
    let rate = frames.iter().map(|frame| frame.bytes).sum::<usize>() as f64 * 8.0 / (FRAMES as f64 / 25.0);
    assert!((10.4e6..11.4e6).contains(&rate), "{rate} bit/s");
    let largest = frames.iter().map(|frame| frame.bytes).max();
    assert!(largest.is_some_and(|largest| (270_000..=286_000).contains(&largest)), "{largest:?}");
}

#[test]
fn a_video_at_the_granted_rate_arrives_in_time_over_a_lossy_link() {
    let losses = [
        ("0 %", Loss::Bernoulli(0.0)),
        ("2 %", Loss::Bernoulli(0.02)),
        ("5 %", Loss::Bernoulli(0.05)),
        ("1 %/30 %", GILBERT_ELLIOTT),
    ];
    for (label, loss) in losses {
        for seed in 0..3 {
            let run = run(LinkSettings { loss, ..LinkSettings::default() }, 29_000_000, seed);
            print(label, seed, &run);
            let [in_time, p99, duplicates] = match label {
                "0 %" => [400, 110, 0],
                _ => [400, 150, run.retransmissions / 2 + 80],
            };
            assert!(run.in_time as u64 >= in_time && run.p99 <= p99 as f64 && run.duplicates <= duplicates, "{run:?}");
        }
    }
}

/// The clip of `qfabric metp bench`.
fn clip() -> Vec<VideoFrame> {
    let text = include_str!("../../../bench/transport/clip/h264.csv");
    let frame = |line: &str| {
        let (kind, bytes) = line.split_once(',')?;
        let kind = [FrameKind::I, FrameKind::P, FrameKind::B].into_iter().find(|one| format!("{one:?}") == kind)?;
        Some(VideoFrame { kind, bytes: bytes.parse().ok()? })
    };
    text.lines().filter_map(frame).take(FRAMES).collect()
}

/// At the granted rate of the bench, whose largest frame takes 86 ms. One repair takes 40 ms, and a second one must be rare.
#[test]
fn a_retransmission_that_is_lost_does_not_make_a_frame_late() {
    let losses = [("2 %", Loss::Bernoulli(0.02)), ("5 %", Loss::Bernoulli(0.05)), ("1 %/30 %", GILBERT_ELLIOTT)];
    let (bucket, granted) = (33_750, 27_000_000);
    for (label, loss) in losses {
        for seed in 0..3 {
            let link = LinkSettings { loss, ..LinkSettings::default() };
            let run = run_of(&clip(), bucket, Nanos::ZERO, link, granted, seed);
            print(&format!("clip, {label}"), seed, &run);
            assert!(run.in_time == FRAMES && run.p99 <= 150.0, "{run:?}");
            let extra = run.sent_bytes as f64 / SENT_WITHOUT_LOSS;
            assert!(extra <= 1.12, "copies cost {extra}");
        }
    }
}

/// Nobody tells the session that the path carries smaller datagrams only.
#[test]
fn a_path_that_shrinks_without_a_sign_costs_few_frames() {
    let config = Config { mode: Mode::PartiallyReliable, rate: BitRate::new(27_000_000), ..Config::default() };
    for seed in 0..3 {
        let mut pair = Pair::over(config.clone(), config.clone(), LinkSettings::default(), seed);
        pair.run_for(Nanos::from_millis(1_000));
        let (begin, data, frames) = (pair.now, vec![7; 300_000], clip());
        for (index, frame) in frames.iter().enumerate() {
            pair.run_until(begin + PERIOD.saturating_mul(index as u64));
            if index == 100 + 5 * seed as usize {
                pair.link(CarrierId(0), Side::A).settings.mtu = 1_194;
            }
            let outgoing = Outgoing { kind: frame.kind, deadline: Some(DEADLINE), data: &data[..frame.bytes] };
            pair.with(Side::A, |session, now| session.send(now, outgoing)).expect("accepted");
        }
        pair.run_for(Nanos::from_millis(1_000));
        let run = results(&pair, begin, &frames);
        print("shrinks", seed, &run);
        assert!(run.in_time >= FRAMES - 2, "{run:?}");
        assert!(pair.end(Side::A).session.statistics().largest_datagram <= 1_194);
    }
}

/// A machine under load, where the sender's thread waits for a CPU again and again.
#[test]
fn a_sender_that_is_woken_20_ms_late_sends_at_its_granted_rate() {
    for (cpu_every, p99) in [(17, 140), (20, 140), (37, 150)] {
        let late = Nanos::from_millis(cpu_every);
        let run = run_with_cpu_every(late, LinkSettings::default(), 27_000_000, 0);
        print(&format!("CPU every {cpu_every} ms"), 0, &run);
        assert!(run.in_time == 400 && run.p99 <= p99 as f64 && run.retransmissions == 0, "{run:?}");
    }
}

/// 10.9 Mbit/s over 8 Mbit/s. An I frame takes longer than its deadline, so only I frames may be cut.
#[test]
fn with_too_little_rate_whole_p_frames_are_dropped_before_their_first_byte() {
    let link = LinkSettings { rate: BitRate::new(8_000_000), queue: Bytes::new(500_000), ..LinkSettings::default() };
    let run = run(link, 7_800_000, 0);
    print("8 Mbit/s", 0, &run);
    let cut = |(kind, outcome): &&(FrameKind, Outcome)| {
        *kind != FrameKind::I && matches!(outcome, Outcome::Partly { .. } | Outcome::Expired)
    };
    assert_eq!(run.outcomes.iter().filter(cut).count(), 0);
    let is_dropped_i =
        |(kind, outcome): &(FrameKind, Outcome)| *kind == FrameKind::I && matches!(outcome, Outcome::Dropped(_));
    assert!(!run.outcomes.iter().any(is_dropped_i));
    assert!(run.in_time >= 220 && run.retransmissions <= 10, "{run:?}");
}
