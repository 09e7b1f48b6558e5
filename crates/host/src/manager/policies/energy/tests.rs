//! Two hosts whose batteries really empty, hosts that lie, and reports that are impossible.

use proptest::prelude::*;
use qfabric_energy::EnergySource;
use qfabric_types::monitor::{Cause, Unit};

use super::super::super::{Effect, Input, Manager, Output};
use super::*;

const PERIOD: Nanos = Nanos::from_millis(10_000);
const GAINS: Gains = Gains { teq_s: -0.03, teq_r: 0.01, e_rcvr: 0.04 };

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn video() -> ChannelId {
    "quality:video".parse().unwrap()
}

fn terms(directive: Option<Directive>, joules: f64) -> EnergyTerms {
    let battery = BatteryTerms { joules: Some(joules), drain_w: 1.0, supply: None };
    EnergyTerms { directive, rules: Rules::Corrected, battery, gains: Some(GAINS), period: PERIOD, floor: 0.1 }
}

/// A host with the policy, whose battery loses what the simulation takes.
struct Host {
    name: Name,
    manager: Manager,
    joules: f64,
    told: Vec<QualityEvent>,
    levels: Vec<i64>,
}

impl Host {
    fn new(host: &str, directive: Option<Directive>, joules: f64) -> Host {
        let mut manager = Manager::new(name(host));
        manager.add(Box::new(TranscoderPlace::new(&video(), terms(directive, joules), Instant::ZERO)));
        Host { name: name(host), manager, joules, told: Vec::new(), levels: Vec::new() }
    }

    fn handle(&mut self, input: Input, now: Instant) {
        self.manager.handle(input, now);
        while let Some(output) = self.manager.poll() {
            match output {
                Output::Tell(_, _, event) => self.told.push(event),
                Output::Effect(Effect::Apply(HOST, _, amount)) => self.levels.push(amount),
                _ => {}
            }
        }
    }

    fn reads(&mut self, attribute: &str, value: f64, now: Instant) {
        let (attribute, over) = (AttributeId::of(attribute), Nanos::ZERO);
        let (cause, unit) = (Cause::Poll, Unit::Microjoules);
        let reading = Reading { attribute, application: HOST, value: value as i64, at: now, over, cause, unit };
        self.handle(Input::Reading(None, self.name.clone(), reading), now);
    }

    /// Draws `power_w` for a period, and reads the meter.
    fn draws(&mut self, power_w: f64, now: Instant) {
        self.joules = (self.joules - power_w * PERIOD.as_secs_f64()).max(0.0);
        self.reads(BATTERY, self.joules * 1e6, now);
        self.reads(BATTERY_POWER, power_w * 1e6, now);
    }
}

/// Seconds until sender and receiver are empty: ten images a second beside 1.5 W.
fn lifetimes(directive: Directive, joules: [f64; 2]) -> [f64; 2] {
    let mut sender = Host::new("a", Some(directive), joules[0]);
    let mut receiver = Host::new("b", None, joules[1]);
    let mut ends = [0.0f64; 2];
    for second in (0..).step_by(PERIOD.as_secs_f64() as usize) {
        let now = Instant::new(second * 1_000_000_000);
        receiver.handle(Input::Wake, now);
        for event in receiver.told.drain(..) {
            sender.handle(Input::Control(video(), name("b"), event), now);
        }
        sender.handle(Input::Wake, now);
        let (sends, receives) = match sender.levels.last() {
            Some(1) => GAINS.at(Place::Receiver),
            _ => GAINS.at(Place::Sender),
        };
        for (at, (host, gain)) in [(&mut sender, sends), (&mut receiver, receives)].into_iter().enumerate() {
            if host.joules > 0.0 {
                ends[at] = second as f64;
            }
            host.draws(1.5 - 10.0 * gain, now);
        }
        if sender.joules + receiver.joules <= 0.0 {
            return ends;
        }
    }
    unreachable!("batteries empty")
}

#[test]
fn under_max_aot_both_hosts_empty_together_and_no_directive_keeps_the_application_longer() {
    let of = |directive| lifetimes(directive, [20_000.0, 18_000.0]);
    let aot = of(Directive::MaxAot);
    assert!((aot[0] / aot[1] - 1.0).abs() <= 0.05, "{aot:?}");
    let [sot, rot] = [of(Directive::MaxSot), of(Directive::MaxRot)];
    for other in [sot, rot, of(Directive::MinSec)] {
        assert!(aot[0].min(aot[1]) >= other[0].min(other[1]), "{other:?}, max-aot: {aot:?}");
        assert!(sot[0] >= other[0] && rot[1] >= other[1], "{other:?}, {sot:?}, {rot:?}");
    }
}

#[test]
fn the_printed_rules_can_be_chosen_and_the_explanation_names_them() {
    let gains = Gains { teq_s: -0.005, teq_r: 0.002, e_rcvr: 0.020 };
    let decided = |rules| {
        let terms = EnergyTerms { rules, gains: Some(gains), ..terms(Some(Directive::MinSec), 20_000.0) };
        let mut sender = TranscoderPlace::new(&video(), terms, Instant::ZERO);
        let (host, readings) = (name("a"), super::super::super::Readings::new(1));
        let view = View { host: &host, now: second(0), readings: &readings };
        sender.reported(&name("b"), &report(18_000_000, view.now), &view, &mut Vec::new());
        (sender.place(), sender.explanation().unwrap().cause)
    };
    let (corrected, printed) = (decided(Rules::Corrected), decided(Rules::Printed));
    assert_eq!((corrected.0, printed.0), (Some(Place::Sender), Some(Place::Receiver)));
    assert!(printed.1.contains("by the printed rules") && !corrected.1.contains("printed"), "{printed:?}");
}

fn with_supply() -> battery::OwnBattery {
    let terms = BatteryTerms { joules: Some(20_000.0), drain_w: 1.0, supply: Some("BAT0".into()) };
    battery::OwnBattery::new(&terms, Instant::ZERO)
}

fn reads(battery: &mut battery::OwnBattery, what: &str, value: i64, at: u64) -> BatteryState {
    assert!(battery.on_reading(AttributeId::of(&format!("battery.BAT0.{what}")), value, second(at)));
    battery.state(second(at))
}

#[test]
fn a_host_that_charges_is_on_mains_and_does_not_come_to_empty() {
    let mut battery = with_supply();
    reads(&mut battery, "power", 2_000_000, 0);
    assert_eq!(battery.state(second(100)).left_mj, 19_800_000);
    reads(&mut battery, "power", 0, 100);
    let charging = reads(&mut battery, "charge", 990_000, 100);
    assert!(charging.is_on_mains, "{charging:?}");
    assert_eq!(battery.state(second(1_000)).left_mj, charging.left_mj);
    let unplugged = reads(&mut battery, "power", 3_000_000, 1_000);
    assert_eq!((unplugged.is_on_mains, unplugged.drain_uw), (false, 3_000_000));
}

#[test]
fn an_absolute_energy_counts_before_per_cent_of_a_typed_capacity() {
    let mut battery = with_supply();
    assert_eq!(reads(&mut battery, "charge", 500_000, 0).left_mj, 10_000_000);
    let state = reads(&mut battery, "energy", 60_000_000_000, 1);
    assert_eq!((state.left_mj, state.capacity_mj), (60_000_000, 120_000_000));
    assert_eq!(reads(&mut battery, "charge", 490_000, 2).left_mj, 60_000_000 - 1_000);
}

#[test]
fn a_battery_that_is_no_longer_read_is_no_longer_measured() {
    let mut battery = with_supply();
    assert_eq!(battery.state(second(0)).source, EnergySource::Model);
    assert_eq!(reads(&mut battery, "energy", 9_000_000_000, 1).source, EnergySource::Battery);
    assert_eq!(battery.state(second(100)).source, EnergySource::Battery);
    assert_eq!(battery.state(second(182)).source, EnergySource::Model);
    assert_eq!(reads(&mut battery, "energy", 8_000_000_000, 200).source, EnergySource::Battery);
}

fn report(left_mj: i64, at: Instant) -> QualityEvent {
    let state = BatteryState { is_on_mains: false, left_mj: 1, capacity_mj: 18_000_000, ..BatteryState::MAINS };
    QualityEvent { value: left_mj, request: 1_000_000, ..state.event("energy", at) }
}

fn second(at: u64) -> Instant {
    Instant::new(at * 1_000_000_000)
}

#[test]
fn a_sudden_loss_that_the_drain_does_not_explain_is_not_believed_and_is_visible() {
    let mut sender = TranscoderPlace::new(&video(), terms(Some(Directive::MaxAot), 20_000.0), Instant::ZERO);
    let (host, readings) = (name("a"), super::super::super::Readings::new(1));
    let hear = |sender: &mut TranscoderPlace, at: u64, left_mj: i64| {
        let view = View { host: &host, now: second(at), readings: &readings };
        let what = ChangeKind::Control(report(left_mj, view.now));
        sender.changed(&Change { channel: Some(video()), host: name("b"), what }, &view, &mut Vec::new());
        sender.woken(&view, &mut Vec::new());
        sender.explanation()
    };
    let first = hear(&mut sender, 0, 18_000_000).unwrap();
    assert!(first.cause.contains("b empties in 18000 s (model)"), "{first:?}");
    assert!(first.cause.contains("J (model), receivers ") && first.cause.contains("J (model); this host"), "{first:?}");
    assert_eq!((sender.place(), first.decision.as_str()), (Some(Place::Sender), "transcoders run at the sender"));
    let lie = hear(&mut sender, 10, 100_000).unwrap();
    assert!(lie.cause.contains("(as min-sec)") && lie.cause.contains("such as b"), "{lie:?}");
    let impossible = hear(&mut sender, 20, -5).unwrap();
    assert!(impossible.cause.contains("-5 mJ left"), "{impossible:?}");
    assert_eq!(sender.ignored(), 1);
}

#[test]
fn below_its_floor_a_host_is_spared_whatever_others_report() {
    let mut sender = Host::new("a", Some(Directive::MaxAot), 20_000.0);
    sender.handle(Input::Control(video(), name("b"), report(1_000_000, second(0))), second(0));
    assert_eq!(sender.levels, [0], "the receiver empties first");
    sender.reads(BATTERY, 1.5e9, second(20));
    sender.handle(Input::Control(video(), name("b"), report(980_000, second(20))), second(20));
    sender.handle(Input::Wake, second(20));
    assert_eq!(sender.levels, [0, 1], "1.5 kJ of 20 kJ are left");
}

#[test]
fn gains_of_the_application_replace_the_options_and_hosts_beyond_the_bound_are_ignored() {
    let mut sender = Host::new("a", Some(Directive::MinSec), 20_000.0);
    sender.reads(TEQ_SENDER, -90_000.0, second(0));
    for host in 0..200 {
        let event = report(18_000_000, second(0));
        sender.handle(Input::Control(video(), name(&format!("b{host}")), event), second(0));
    }
    assert_eq!(sender.levels, [1], "the sender would lose 90 mJ; one receiver spends 40 mJ");
    sender.handle(Input::Wake, second(10));
    assert_eq!(sender.levels, [1, 0], "64 receivers would spend more");
    let mut alone = TranscoderPlace::new(&video(), terms(Some(Directive::MinSec), 1.0), Instant::ZERO);
    let (host, readings) = (name("a"), super::super::super::Readings::new(1));
    let view = View { host: &host, now: second(0), readings: &readings };
    (0..200).for_each(|at| alone.reported(&name(&format!("b{at}")), &report(1, view.now), &view, &mut Vec::new()));
    assert_eq!((alone.receivers.len(), alone.ignored()), (MOST_RECEIVERS, 200 - MOST_RECEIVERS as u64));
}

#[test]
fn a_silent_receiver_is_forgotten_and_a_new_one_is_told_the_place() {
    let mut sender = Host::new("a", Some(Directive::MaxRot), 20_000.0);
    sender.handle(Input::Control(video(), name("b"), report(18_000_000, second(0))), second(0));
    let of_b = sender.told.len();
    sender.handle(Input::Control(video(), name("c"), report(18_000_000, second(1))), second(1));
    assert_eq!((of_b, sender.told.len(), sender.told[1].value), (1, 2, 0));
    sender.handle(Input::Wake, second(100));
    sender.handle(Input::Control(video(), name("b"), report(18_000_000, second(101))), second(101));
    assert_eq!(sender.told.len(), 3, "b was forgotten, so it is told again");
}

#[test]
fn a_source_that_starts_later_is_told_the_place() {
    let mut sender = Host::new("a", Some(Directive::MinSec), 20_000.0);
    sender.handle(Input::SourceJoined(video()), second(0));
    assert_eq!(sender.levels, [0_i64; 0], "nothing is decided yet");
    sender.handle(Input::Control(video(), name("b"), report(18_000_000, second(0))), second(0));
    let place = sender.levels.clone();
    sender.handle(Input::SourceJoined("quality:other".parse().unwrap()), second(1));
    sender.handle(Input::SourceJoined(video()), second(1));
    assert_eq!((place.len(), sender.levels), (1, [place.clone(), place].concat()));
}

proptest! {
    #[test]
    fn a_state_survives_its_event(left in 0u64..=1_000_000, more in 1u64..1_000_000, drain in 0u64..1 << 39, mains: bool) {
        let state = BatteryState { left_mj: left, capacity_mj: left + more, drain_uw: drain, is_on_mains: mains, ..BatteryState::MAINS };
        prop_assert_eq!(BatteryState::parse(&state.event("energy", Instant::ZERO)), Ok(state));
    }

    #[test]
    fn arbitrary_reports_are_refused_or_within_their_bounds(value: i64, other: i64, request: u64, text in "\\PC{0,60}") {
        let event = QualityEvent { value, other, request, subject: qfabric_types::monitor::QualityText::new(&text), ..report(1, Instant::ZERO) };
        if let Ok(state) = BatteryState::parse(&event) {
            prop_assert!(state.left_mj <= state.capacity_mj && state.battery().time_to_empty().is_finite());
        }
    }
}
