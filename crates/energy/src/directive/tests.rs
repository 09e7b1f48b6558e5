//! The directives against brute force, and lifetimes of two batteries that are drained.

use proptest::prelude::*;

use super::*;

const FULL: Battery = Battery { joules: 1_000.0, load_w: 1.0, charge_mah: 100.0 };
const PLACES: [Place; 2] = [Place::Sender, Place::Receiver];

fn gains() -> impl Strategy<Value = Gains> {
    (-0.05..0.05f64, -0.05..0.05f64, 0.0..0.05f64).prop_map(|(teq_s, teq_r, e_rcvr)| Gains { teq_s, teq_r, e_rcvr })
}

/// The largest value of `goal` over both places.
fn best(gains: &Gains, goal: impl Fn((f64, f64)) -> f64) -> f64 {
    PLACES.map(|place| goal(gains.at(place))).into_iter().fold(f64::MIN, f64::max)
}

proptest! {
    #[test]
    fn each_directive_is_that_of_brute_force(gains in gains()) {
        type Goal = fn((f64, f64)) -> f64;
        let goals: [(Directive, Goal); 3] = [
            (Directive::MaxSot, |(sender, _)| sender),
            (Directive::MaxRot, |(_, receiver)| receiver),
            (Directive::MinSec, |(sender, receiver)| sender + receiver),
        ];
        for (directive, goal) in goals {
            let chosen = place(directive, &gains, [FULL; 2], Rules::Corrected);
            prop_assert_eq!(goal(gains.at(chosen)), best(&gains, goal), "{}", directive);
        }
    }
}

/// Sum of the gains as MIN-SEC is printed: a receiver that runs the transcoder itself counts +E_rcvr.
fn printed_sum(gains: &Gains, place: Place) -> f64 {
    match place {
        Place::Sender => gains.teq_s + gains.teq_r,
        Place::Receiver => gains.e_rcvr,
    }
}

proptest! {
    #[test]
    fn each_printed_directive_is_that_of_brute_force_over_the_printed_numbers(gains in gains(), charges in (1.0..9.0f64, 1.0..9.0f64)) {
        let batteries = [charges.0, charges.1].map(|charge_mah| Battery { charge_mah, ..FULL });
        let of = |directive, rules| place(directive, &gains, batteries, rules);
        let sum = |place| { let (sender, receiver) = gains.at(place); sender + receiver };
        let chosen = of(Directive::MinSec, Rules::Printed);
        let most = PLACES.map(|place| printed_sum(&gains, place)).into_iter().fold(f64::MIN, f64::max);
        prop_assert_eq!(printed_sum(&gains, chosen), most);
        prop_assert!(sum(chosen) <= sum(of(Directive::MinSec, Rules::Corrected)), "the printed rule never saves more");
        for directive in [Directive::MaxSot, Directive::MaxRot] {
            prop_assert_eq!(of(directive, Rules::Printed), of(directive, Rules::Corrected));
        }
        let spared = if charges.0 > charges.1 { Directive::MaxRot } else { Directive::MaxSot };
        prop_assert_eq!(of(Directive::MaxAot, Rules::Printed), of(spared, Rules::Printed));
    }
}

#[test]
fn the_printed_rule_of_min_sec_wastes_energy() {
    let gains = Gains { teq_s: -0.005, teq_r: 0.002, e_rcvr: 0.020 };
    assert_eq!(place(Directive::MinSec, &gains, [FULL; 2], Rules::Printed), Place::Receiver);
    assert_eq!(place(Directive::MinSec, &gains, [FULL; 2], Rules::Corrected), Place::Sender);
}

/// Lifetimes in seconds of sender and receiver: ten images a second, decided once a minute.
fn lifetimes(directive: Directive, gains: &Gains, base_w: [f64; 2], joules: [f64; 2]) -> [f64; 2] {
    const RATE: f64 = 10.0;
    const PERIOD_S: f64 = 60.0;
    let (mut left, mut used, mut time) = (joules, base_w, 0.0f64);
    let mut ends = [f64::NAN; 2];
    while ends.iter().any(|end| end.is_nan()) {
        let battery = |host: usize| Battery { joules: left[host], load_w: used[host], charge_mah: left[host] };
        let (sender, receiver) = gains.at(place(directive, gains, [battery(0), battery(1)], Rules::Corrected));
        for (host, gain) in [sender, receiver].into_iter().enumerate() {
            let power = base_w[host] - RATE * gain;
            if ends[host].is_nan() && left[host] <= power * PERIOD_S {
                ends[host] = time + left[host] / power;
            }
            left[host] -= power * PERIOD_S;
            used[host] += 0.05 * (power - used[host]);
        }
        time += PERIOD_S;
    }
    ends
}

#[test]
fn under_max_aot_both_batteries_empty_together() {
    let gains = Gains { teq_s: -0.03, teq_r: 0.01, e_rcvr: 0.04 };
    let of = |directive| lifetimes(directive, &gains, [1.5, 1.5], [20_000.0, 18_000.0]);
    let aot = of(Directive::MaxAot);
    assert!((aot[0] / aot[1] - 1.0).abs() <= 0.05, "{aot:?}");
    for directive in [Directive::MaxSot, Directive::MaxRot, Directive::MinSec] {
        let other = of(directive);
        assert!(aot[0].min(aot[1]) >= other[0].min(other[1]), "{directive}: {other:?}, max-aot: {aot:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Within two periods of decision and two per cent.
    #[test]
    fn max_aot_lives_as_long_as_any_other_directive(gains in gains(), joules in (8_000.0..30_000.0f64, 8_000.0..30_000.0f64)) {
        let of = |directive| {
            let [sender, receiver] = lifetimes(directive, &gains, [1.5, 1.4], [joules.0, joules.1]);
            sender.min(receiver)
        };
        let aot = of(Directive::MaxAot);
        for directive in [Directive::MaxSot, Directive::MaxRot, Directive::MinSec] {
            prop_assert!(aot >= 0.98 * of(directive) - 120.0, "{}: {} > {}", directive, of(directive), aot);
        }
    }
}

#[test]
fn impossible_batteries_count_as_empty() {
    for joules in [f64::NAN, -1.0, f64::INFINITY] {
        assert_eq!(Battery { joules, ..FULL }.time_to_empty(), 0.0);
    }
    for load_w in [f64::NAN, -1.0, f64::INFINITY] {
        assert_eq!(Battery { load_w, ..FULL }.time_to_empty(), 0.0);
    }
    assert!(Battery { load_w: 0.0, ..FULL }.time_to_empty() > 1e6);
}

#[test]
fn directives_are_read_as_they_are_printed() {
    for (directive, name) in NAMES {
        assert_eq!(name.parse(), Ok(directive));
        assert_eq!(directive.to_string(), name);
    }
    assert!("max".parse::<Directive>().unwrap_err().to_string().contains("max-sot, max-rot"));
}
