//! The numbers that QualMan prints, and streams calculated by hand.

use qfabric_translate::*;
use qfabric_types::{BitRate, Bytes, Direction, LinkEnd, Nanos, Resources, Share};

const FILM: &str = r#"
name = "film"
delay = "200ms"
jitter = "10ms"
[video]
frame_rate = { min = 20, max = 25 }
frame_size = { I = "20kB", P = "10kB", B = "4kB" }
pattern = "IBBPBB"
degradation = 0.2
[local]
interface = "eth0"
memory = "8MiB"
computation = "5ms"
[peer]
host = "bob"
interface = "eth1"
computation = "8ms"
transport = "1ms"
"#;

fn end(interface: &str, direction: Direction) -> LinkEnd {
    LinkEnd { interface: interface.parse().unwrap(), direction }
}

fn of(host: &str, translation: &Translation) -> Resources {
    let found = translation.resources.iter().find(|(found, _)| found.to_string() == host);
    found.unwrap_or_else(|| panic!("{host} is missing")).1.clone()
}

fn at(text: &str, level: Level) -> Translation {
    let stream = Stream::parse(text).unwrap_or_else(|error| panic!("{error}"));
    translate(&stream, stream.quality(level), &Profiles::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// §6.3: 10 Mbit/s of the user are 12 Mbit/s with 20 % overhead; acknowledgments have one fifth.
#[test]
fn ten_megabits_of_a_user_are_twelve_on_the_link() {
    let text = r#"
        [video]
        frame_rate = 25
        frame_size = "50kB"
        [network]
        overhead = 0.2
        [local]
        interface = "atm0"
        [peer]
        host = "viewer"
        interface = "atm0""#;
    let local = of("local", &at(text, Level::Wanted));
    assert_eq!(local.network(&end("atm0", Direction::Out)), BitRate::new(12_000_000));
    assert_eq!(local.network(&end("atm0", Direction::In)), BitRate::new(2_400_000));
    let peer = of("viewer", &at(text, Level::Wanted));
    assert_eq!(peer.network(&end("atm0", Direction::In)), BitRate::new(12_000_000));
    assert_eq!(peer.network(&end("atm0", Direction::Out)), BitRate::new(2_400_000));
}

/// §6.3, note 11: the peak is that of a stream of I frames; 17 Mbit/s where the mean is 12 Mbit/s.
#[test]
fn the_peak_bandwidth_is_that_of_the_largest_frames() {
    let text = r#"
        [video]
        frame_rate = 25
        frame_size = { I = "70833B", P = "29167B" }
        pattern = "IP"
        [network]
        overhead = 0.2
        [local]
        interface = "atm0"
        [peer]
        host = "viewer"
        interface = "atm0""#;
    let stream = Stream::parse(text).unwrap();
    let steps = explain(&stream, &Profiles::new()).unwrap().steps;
    let value = |name: &str| steps.iter().find(|step| step.name.starts_with(name)).unwrap().value;
    assert!((value("B_mean") - 12e6).abs() < 1e3, "{}", value("B_mean"));
    assert!((value("B_peak") - 17e6).abs() < 1e3, "{}", value("B_peak"));
}

/// §3.4: C = 40 ms in T = 100 ms is U = 40 %.
#[test]
fn forty_of_a_hundred_milliseconds_are_forty_per_cent() {
    let text = "[video]\nframe_rate = 10\nframe_size = \"1kB\"\n[local]\ncomputation = \"40ms\"";
    assert_eq!(of("local", &at(text, Level::Wanted)).cpu, Share::from_ppm(400_000));
    assert_eq!(computation_within(Share::from_ppm(400_000), Nanos::from_millis(100)), Nanos::from_millis(40));
    assert_eq!(rate_within(Share::from_ppm(400_000), Nanos::from_millis(40)), FrameRate::from_f64(10.0));
}

/// GOP: 20 + 10 + 4·4 = 46 kB in 240 ms.
#[test]
fn a_film_needs_the_calculated_amounts() {
    let wanted = at(FILM, Level::Wanted);
    let (local, bob) = (of("local", &wanted), of("bob", &wanted));
    assert_eq!((local.cpu, bob.cpu), (Share::from_ppm(125_000), Share::from_ppm(225_000)));
    // The sender works with two frames of 20 kB beside its 8 MiB.
    assert_eq!(local.memory, Bytes::new((8 << 20) + 40_000).round_up(4096));
    // The delay varies by two periods of 50 ms, 90 ms beyond the jitter: three more frames of 40 ms.
    assert_eq!(bob.memory, Bytes::new(5 * 20_000).round_up(4096));
    // An I frame of 15 packets leaves within one period of 40 ms.
    assert_eq!(
        local.network(&end("eth0", Direction::Out)),
        BitRate::of(Bytes::new(20_000 + 15 * 110), Nanos::from_millis(40))
    );
}

/// A METP stream adds its tasks and its messages (§5.1.2): 60 ns per byte of an I frame of 20 kB are 1.2 ms in 40 ms.
#[test]
fn a_metp_stream_adds_the_cpu_and_the_memory_of_its_transport() {
    let (plain, metp) = (at(FILM, Level::Wanted), at(&format!("{FILM}[network]\ntransport = \"metp\""), Level::Wanted));
    let (local, bob) = (of("local", &metp), of("bob", &metp));
    // The peer states 1 ms for each frame.
    assert_eq!((local.cpu, bob.cpu), (Share::from_ppm(125_000 + 30_000), Share::from_ppm(225_000)));
    // t_out is 200 ms: five messages of 40 ms wait, and one is in work.
    assert_eq!(local.memory, Bytes::new((8 << 20) + 8 * 20_000).round_up(4096));
    assert_eq!(bob.memory, Bytes::new(11 * 20_000).round_up(4096));
    let out = end("eth0", Direction::Out);
    assert_eq!(local.network(&out), of("local", &plain).network(&out), "the bytes on the link are the same");
}

#[test]
fn the_cost_of_a_message_and_of_its_bytes_is_explained() {
    let cost = "{ message = \"100us\", megabyte = \"50ms\" }";
    let text = format!("{}\n[network]\ntransport = \"metp\"", FILM.replace("\"1ms\"", cost));
    let bob = of("bob", &at(&text, Level::Wanted));
    // 8 ms of the application, and 0.1 + 1 ms of the transport, in 40 ms.
    assert_eq!(bob.cpu, Share::from_ppm(200_000 + 27_500));
    let steps = explain(&Stream::parse(&text).unwrap(), &Profiles::new()).unwrap().steps;
    let named = |name: &str| steps.iter().find(|step| step.name.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
    let step = named("C transport of video on bob");
    let inputs: Vec<_> = step.inputs.iter().map(|input| (input.name.as_str(), input.value, input.unit)).collect();
    assert_eq!(step.value, 1.1);
    let expected = [
        ("directions", 1.0, "1"),
        ("message", 0.1, "ms"),
        ("byte", 50.0, "ns/byte"),
        ("largest M_A", 20_000.0, "bytes"),
    ];
    assert_eq!(inputs, expected);
    assert_eq!(named("C transport of video on local").value, 1.2);
    assert_eq!(named("buffers video on local").value, 8.0);
    let twice = at(&format!("duplex = true\n{text}"), Level::Wanted);
    assert_eq!(of("bob", &twice).cpu, Share::from_ppm(200_000 + 55_000), "a duplex stream sends a message each way");
}

#[test]
fn the_worst_accepted_quality_has_the_lowest_rate_and_drops_b_frames() {
    let minimum = at(FILM, Level::Minimum);
    assert_eq!(minimum.quality.frame_rate, FrameRate::from_f64(20.0));
    let steps = explain(&Stream::parse(FILM).unwrap(), &Profiles::new()).unwrap().steps;
    assert!(steps.iter().any(|step| step.name == "least cpu on bob" && step.value == 0.18));
    // 20 % of 46 kB are two B frames of 4 kB.
    assert_eq!(degradation_of(Bytes::new(38_000), Bytes::new(46_000)).millionths(), 173_914);
}

#[test]
fn sound_is_blocks_of_samples() {
    let text = "[sound]\nsample_rate = 44100\nsample_size = \"4B\"\n[local]\ncomputation = \"1ms\"";
    let local = of("local", &at(text, Level::Wanted));
    assert_eq!(local.cpu, Share::from_ppm(50_000));
    assert_eq!(local.memory, Bytes::new(2 * 882 * 4).round_up(4096));
}

#[test]
fn a_longer_delay_needs_less_bandwidth_down_to_the_mean() {
    let rate = |delay: &str| {
        let text = FILM.replace("200ms", delay) + "[network]\ndelay = \"1ms\"";
        of("local", &at(&text, Level::Wanted)).network(&end("eth0", Direction::Out))
    };
    assert!(rate("120ms") > rate("150ms") && rate("150ms") > rate("400ms"));
    let packets = 15 + 8 + 4 * 3;
    assert_eq!(rate("20s"), BitRate::of(Bytes::new(46_000 + packets * 110), Nanos::from_millis(240)));
}

#[test]
fn impossible_streams_are_refused_with_value_limit_and_next_step() {
    let refused = |text: &str| {
        let stream = Stream::parse(text).unwrap();
        explain(&stream, &Profiles::new()).unwrap_err().problem().to_string()
    };
    assert!(refused(&FILM.replace("200ms", "90ms")).contains("150 ms"), "two hosts and the sending take 50 ms each");
    assert!(refused(&FILM.replace("\"8ms\"", "\"60ms\"")).contains("more than one CPU"));
    let profile = FILM.replace("computation = \"8ms\"", "profile = \"mpv\"");
    assert!(refused(&profile).contains("qfabric probe"), "{}", refused(&profile));
}

#[test]
fn a_region_names_the_parameter_outside_and_the_hardware() {
    let stream = Stream::parse(FILM).unwrap();
    let (region, profiles) = (Region::of(&stream), Profiles::new());
    let good = [
        (Parameter::FrameRate, 20.0),
        (Parameter::Degradation, 0.0),
        (Parameter::Delay, 1e8),
        (Parameter::Jitter, 0.0),
    ];
    assert_eq!(region.test(&good), Verdict::Acceptable);
    let Verdict::Unacceptable(outside) = region.test(&good[1..]) else { panic!("a value is missing") };
    assert_eq!(outside[0].0, Parameter::FrameRate);
    let wanted = stream.quality(Level::Wanted);
    let hardware = translate(&stream, wanted, &profiles).unwrap().resources;
    let test = |quality| region.test_quality(&stream, quality, &hardware, &profiles).unwrap();
    assert_eq!(test(wanted), Verdict::Acceptable);
    let faster = Quality { frame_rate: FrameRate::from_f64(30.0), ..wanted };
    assert!(matches!(test(faster), Verdict::BeyondHardware { .. }));
    let slower = Quality { frame_rate: FrameRate::from_f64(1.0), ..wanted };
    assert!(matches!(test(slower), Verdict::Unacceptable(_)));
}
