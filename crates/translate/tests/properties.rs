//! Properties of the translation in both directions.

use proptest::prelude::*;
use qfabric_translate::*;
use qfabric_types::{BitRate, Bytes, Nanos, Resource, Resources, Share};

prop_compose! {
    /// The text of a stream of picture and sound to a peer. At 1 frame/s a delay of 3 s and less is refused: two hosts
    /// and the sending take 1 s each.
    fn stream_text()(
        min in 1u32..30, more in 0u32..31, sizes in [1_000u32..60_000, 500u32..20_000, 100u32..9_000],
        pattern in "I[PB]{0,15}", degradation in 0u32..95, delay in prop::option::of(3_100u32..9_000),
        jitter in prop::option::of(1u32..500), skew in prop::option::of(1u32..500), measured in any::<bool>(),
        total in any::<bool>(), duplex in any::<bool>(), metp in any::<bool>(),
        computation in 1u32..15_000, sound in 1_000u32..48_000,
    ) -> String {
        let time = |key: &str, ms: Option<u32>| ms.map(|ms| format!("{key} = \"{ms}ms\"\n")).unwrap_or_default();
        let (max, reliability) = (min + more, if total { "total" } else { "partial" });
        let delayed = if measured { "delay = \"2ms\"\n" } else { "" };
        let network = format!("[network]\ntransport = \"{}\"\n{delayed}", if metp { "metp" } else { "other" });
        let transport = if metp { "{ message = \"9us\", megabyte = \"20ms\" }" } else { "\"10us\"" };
        let [i, p, b] = sizes;
        format!(
            "{}{}{}reliability = \"{reliability}\"\nduplex = {duplex}\n[video]\nframe_rate = {{ min = {min}, max = {max} }}\n\
             frame_size = {{ I = \"{i}B\", P = \"{p}B\", B = \"{b}B\" }}\npattern = \"{pattern}\"\n\
             degradation = 0.{degradation:02}\n[sound]\nsample_rate = {{ min = 1000, max = {sound} }}\nsample_size = \"4B\"\n\
             [local]\ninterface = \"eth0\"\ncomputation = {{ video = \"{computation}us\", sound = \"100us\" }}\n\
             [peer]\nhost = \"bob\"\ninterface = \"eth0\"\ntransport = {transport}\n{network}",
            time("delay", delay), time("jitter", jitter), time("skew", skew),
        )
    }
}

fn fits(asked: &[(Host, Resources)], granted: &[(Host, Resources)]) -> bool {
    asked.iter().zip(granted).all(|((_, asked), (_, granted))| {
        let links = asked.iter().all(|(resource, amount)| {
            granted.iter().any(|(found, granted)| found == resource && amount.value() <= granted.value())
        });
        links && asked.cpu <= granted.cpu && asked.memory <= granted.memory
    })
}

fn asked(stream: &Stream, quality: Quality) -> Vec<(Host, Resources)> {
    translate(stream, quality, &Profiles::new()).unwrap_or_else(|error| panic!("{error}: {stream:?}")).resources
}

proptest! {
    #[test]
    fn the_asked_amounts_offer_at_least_the_asked_quality(text in stream_text(), part in 0.0f64..=1.0) {
        let stream = Stream::parse(&text).unwrap();
        let (low, high) = (stream.quality(Level::Minimum), stream.quality(Level::Wanted));
        let (least, most) = (low.frame_rate.unwrap().micro(), high.frame_rate.unwrap().micro());
        let rate = FrameRate::from_micro(least + ((most - least) as f64 * part) as u64);
        let quality = Quality { frame_rate: rate, ..low };
        let granted = asked(&stream, quality);
        let Offer::Within(found) = offer(&stream, &granted, &Profiles::new()).unwrap() else { panic!("{text}") };
        prop_assert!(found.quality.frame_rate >= rate && found.quality.degradation <= low.degradation);
        prop_assert!(found.quality.sample_rate >= low.sample_rate);
        prop_assert!(fits(&found.resources, &granted));
    }

    #[test]
    fn the_wanted_amounts_offer_the_wanted_quality(text in stream_text()) {
        let stream = Stream::parse(&text).unwrap();
        let wanted = stream.quality(Level::Wanted);
        let granted = asked(&stream, wanted);
        let Offer::Within(found) = offer(&stream, &granted, &Profiles::new()).unwrap() else { panic!("{text}") };
        prop_assert_eq!(found.quality, wanted);
    }

    #[test]
    fn a_better_quality_never_needs_less(text in stream_text(), parts in [0.0f64..=1.0, 0.0f64..=1.0, 0.0f64..=1.0]) {
        let stream = Stream::parse(&text).unwrap();
        let (low, high) = (stream.quality(Level::Minimum), stream.quality(Level::Wanted));
        let between = |low: u64, high: u64, part: f64| low + ((high - low) as f64 * part) as u64;
        let rate = between(low.frame_rate.unwrap().micro(), high.frame_rate.unwrap().micro(), parts[0]);
        let quality = Quality {
            frame_rate: FrameRate::from_micro(rate),
            degradation: Fraction::from_f64(low.degradation.as_f64() * parts[1]).unwrap(),
            sample_rate: Some(between(low.sample_rate.unwrap(), high.sample_rate.unwrap(), parts[2])),
        };
        prop_assert!(fits(&asked(&stream, low), &asked(&stream, quality)));
        prop_assert!(fits(&asked(&stream, quality), &asked(&stream, high)));
    }

    #[test]
    fn less_than_the_minimum_is_refused_with_the_resource(text in stream_text()) {
        let stream = Stream::parse(&text).unwrap();
        let mut granted = asked(&stream, stream.quality(Level::Minimum));
        granted[0].1.cpu = granted[0].1.cpu - Share::from_ppm(1);
        let answer = offer(&stream, &granted, &Profiles::new()).unwrap();
        let is_cpu = matches!(answer, Offer::Outside { host: Host::Local, resource: Resource::Cpu, .. });
        prop_assert!(is_cpu);
    }

    /// U is counted in millionths, so a rate comes back exactly, or higher by what the rounding gave.
    #[test]
    fn a_counted_utilization_gives_back_at_least_the_rate(micro in 250_000u64..1_000_000_000, us in 1u64..4_000_000) {
        let (rate, computation) = (FrameRate::from_micro(micro).unwrap(), Nanos::from_micros(us));
        let utilization = Share::of_budget(computation, rate.period());
        prop_assert!(rate_within(utilization, computation).unwrap() >= rate);
        prop_assert!(computation_within(utilization, rate.period()) >= computation.saturating_sub(Nanos::new(1)));
        prop_assert!(rate_of_period(rate.period()) >= rate);
    }

    #[test]
    fn the_largest_group_needs_at_most_the_granted_bandwidth(
        sizes in prop::collection::vec(1u64..60_000, 1..20), packet in 64u64..65_536, overhead in prop::option::of(0.0f64..1.0)
    ) {
        let overhead = overhead.and_then(Fraction::from_f64);
        let network = Network { packet: Bytes::new(packet), overhead, delay: None, is_metp: false };
        let wire = |size: u64| match overhead {
            Some(overhead) => overhead.added_to(size),
            None => size + 110 * size.div_ceil(packet),
        };
        let (sent, time) = (sizes.iter().map(|size| wire(*size)).sum(), Nanos::from_millis(400));
        let largest = largest_group(BitRate::of(Bytes::new(sent), time), time, sizes.len() as u64, &network);
        // The inverse counts a packet that is not full for each frame, so it never promises more than fits.
        prop_assert!(largest.get() <= sizes.iter().sum::<u64>());
    }

    /// The delay that the translation leaves to a packet gives back the asked delay.
    #[test]
    fn the_allowed_packet_delay_gives_back_the_delay(rate in 1u32..60, delay in 4_000u64..60_000) {
        let text = format!(
            "delay = \"{delay}ms\"\n[video]\nframe_rate = {rate}\nframe_size = \"1kB\"\n[local]\ninterface = \"a\"\n\
             computation = \"1ms\"\n[peer]\nhost = \"b\"\ninterface = \"a\"\ncomputation = \"1ms\""
        );
        let steps = explain(&Stream::parse(&text).unwrap(), &Profiles::new()).unwrap().steps;
        let packet = steps.iter().find(|step| step.name.starts_with("E_N")).unwrap().value;
        let cycle = FrameRate::from_f64(rate.into()).unwrap().period();
        let back = delay_of(Nanos::from_f64(packet * 1e6), cycle, cycle, 2);
        prop_assert_eq!(back, Nanos::from_millis(delay));
    }

    #[test]
    fn any_text_is_accepted_or_refused_with_a_next_step(text in "\\PC{0,200}") {
        if let Err(error) = Stream::parse(&text) {
            prop_assert!(error.line >= 1 && error.column >= 1 && !error.problem().next_step.is_empty());
        }
    }
}
