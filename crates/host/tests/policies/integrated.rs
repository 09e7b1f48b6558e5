//! Integrated control at one host of a stream, by the reports of its applications.

use qfabric_channel::Registration;
use qfabric_control::ladder::{Dimension, Ladder, Terms as LadderTerms};
use qfabric_host::manager::policies::{
    ARRIVED, CPU_GRANTED, CPU_GUARANTEED, CPU_OWN, CPU_USED, GENERATED, Integrated, IntegratedTerms, RATE, SATURATED,
    SENT, SHOWN, member_of, told,
};
use qfabric_host::manager::{Effect, Input, Manager, Output};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityEvent, QualityKind, Reading, Unit};
use qfabric_types::{AppId, Instant, Nanos};

/// One second of reports: attribute, host, value; the application of the host, or the host itself.
type Reports<'r> = &'r [(&'r str, &'r str, f64)];

struct Stream {
    channel: ChannelId,
    manager: Manager,
    at: u64,
    /// The clocks of the other hosts less that of the manager's host, in seconds.
    ahead: i64,
    /// Control events to other hosts.
    told: Vec<QualityEvent>,
}

/// Attributes of a stream of packets.
const PACKETS: &str = "net.eth0.stream0.packets";
const LATE: &str = "net.eth0.stream0.late";
/// When the manager's host starts its policy, by its clock, in seconds.
const BEGIN: u64 = 7_200;

impl Stream {
    fn at_host(host: &str) -> Stream {
        Stream::with(host, |policy| policy)
    }

    fn with(host: &str, change: impl FnOnce(Integrated) -> Integrated) -> Stream {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let dimensions = vec![Dimension::new("quality", &[80, 60, 40]), Dimension::new("size", &[640, 320])];
        let ladder = Ladder::new(dimensions, LadderTerms::new(20.0)).unwrap();
        let mut manager = Manager::new(host.parse().unwrap());
        let policy = Integrated::new(&channel, ladder, IntegratedTerms::default());
        manager.add(Box::new(change(policy)));
        let mut stream = Stream { channel, manager, at: BEGIN, ahead: 0, told: Vec::new() };
        ["a", "b"].iter().for_each(|host| stream.join(host));
        stream
    }

    fn join(&mut self, host: &str) {
        let now = self.now();
        self.manager.handle(Input::Joined(host.parse().unwrap(), self.registration()), now);
    }

    fn registration(&self) -> Registration {
        let (application, group) = ("conference".parse().unwrap(), self.channel.name.clone());
        Registration { application, group, parent: None, level: 2, qos: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::new(self.at * 1_000_000_000)
    }

    /// The host `b` states that it has no larger contract.
    fn saturated(&mut self) {
        let event = told("cpu", QualityKind::Own, SATURATED, 1, Instant::ZERO);
        let (channel, now) = (self.channel.clone(), self.now());
        self.manager.handle(Input::Control(channel, "b".parse().unwrap(), event), now);
    }

    fn member(&self) -> AppId {
        member_of(&self.channel.name, &"conference".parse().unwrap())
    }

    /// The amounts that are applied in this second.
    fn second(&mut self, reports: Reports<'_>) -> Vec<(AttributeId, i64)> {
        self.at += 1;
        let now = self.now();
        for (name, host, value) in reports {
            let (attribute, application) = match *name {
                "cpu.pressure" | RATE | PACKETS | LATE => (AttributeId::of(name), HOST),
                name => (AttributeId::of(name), self.member()),
            };
            let scale = match *name {
                "cpu.pressure" | CPU_USED => 1e6,
                PACKETS | LATE => 1.0,
                _ => 1e3,
            };
            // Only `a` has the clock of the manager in the tests with other clocks.
            let ahead = if *host == "a" { 0 } else { self.ahead };
            let at = Instant::new(self.at.saturating_add_signed(ahead) * 1_000_000_000);
            let (value, over) = ((value * scale) as i64, Nanos::from_millis(1_000));
            let reading = Reading { attribute, application, value, at, over, cause: Cause::Poll, unit: Unit::Count };
            let channel = Some(self.channel.clone());
            self.manager.handle(Input::Reading(channel, host.parse().unwrap(), reading), now);
        }
        while let Some(due) = self.manager.next_wakeup().filter(|due| *due < now + Nanos::from_millis(1_000)) {
            self.manager.handle(Input::Wake, due);
        }
        self.applied()
    }

    fn applied(&mut self) -> Vec<(AttributeId, i64)> {
        let mut applied = Vec::new();
        while let Some(output) = self.manager.poll() {
            match output {
                Output::Effect(Effect::Apply(_, attribute, amount)) => applied.push((attribute, amount)),
                Output::Tell(_, _, event) => self.told.push(event),
                _ => {}
            }
        }
        applied
    }

    /// The host tells what the contract guarantees, in millionths of a CPU: the owner's part, and all.
    fn grant(&mut self, host: &str, own: i64, granted: i64) {
        let now = Instant::new(self.at * 1_000_000_000 + 600_000_000);
        for (name, value) in [(CPU_OWN, own), (CPU_GRANTED, granted)] {
            let (attribute, application) = (AttributeId::of(name), self.member());
            let (cause, unit) = (Cause::Asked, Unit::Millionths);
            let reading = Reading { attribute, application, value, at: now, over: Nanos::ZERO, cause, unit };
            self.manager.handle(Input::Reading(None, host.parse().unwrap(), reading), now);
        }
    }

    fn seconds(&mut self, count: usize, reports: Reports<'_>) -> Vec<(AttributeId, i64)> {
        (0..count).flat_map(|_| self.second(reports)).collect()
    }
}

/// Reports of the source `a`, and of the sink `b` that shows all.
fn source(rate: f64, used: f64, pressure: f64) -> [(&'static str, &'static str, f64); 7] {
    [
        (GENERATED, "a", rate),
        (SENT, "a", rate),
        (CPU_USED, "a", used),
        ("cpu.pressure", "a", pressure),
        (RATE, "b", rate),
        (SHOWN, "b", rate),
        ("cpu.pressure", "b", 0.0),
    ]
}

fn levels(applied: &[(AttributeId, i64)]) -> Vec<i64> {
    applied
        .iter()
        .filter(|(attribute, _)| *attribute != AttributeId::of(CPU_GUARANTEED))
        .map(|(_, amount)| *amount)
        .collect()
}

fn guarantees(applied: &[(AttributeId, i64)]) -> Vec<i64> {
    applied
        .iter()
        .filter(|(attribute, _)| *attribute == AttributeId::of(CPU_GUARANTEED))
        .map(|(_, amount)| *amount)
        .collect()
}

#[test]
fn the_contract_comes_before_the_levels_and_is_given_back() {
    let mut stream = Stream::at_host("a");
    assert_eq!(levels(&stream.seconds(5, &source(20.0, 0.5, 0.0))), [80, 640], "the levels at the beginning");
    let busy = stream.seconds(1, &source(8.0, 0.2, 0.9));
    assert_eq!((levels(&busy), guarantees(&busy)), (vec![], vec![575_000]), "20/s of 25 ms, and 15 %");
    assert_eq!(stream.seconds(9, &source(20.0, 0.5, 0.9)), []);
    assert_eq!(guarantees(&stream.seconds(14, &source(20.0, 0.5, 0.0))), [0]);
}

#[test]
fn a_contract_that_is_not_kept_lowers_the_levels() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    let busy = stream.seconds(8, &source(8.0, 0.2, 0.9));
    assert_eq!(guarantees(&busy)[0], 575_000);
    assert!(!levels(&busy).is_empty(), "{busy:?}");
}

#[test]
fn a_narrow_link_lowers_the_levels_and_no_contract() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    let mut reports = source(20.0, 0.5, 0.0);
    (reports[4].2, reports[5].2) = (11.0, 11.0);
    let narrow = stream.seconds(3, &reports);
    assert!(guarantees(&narrow).is_empty() && levels(&narrow)[0] < 80, "{narrow:?}");
}

#[test]
fn late_packets_of_the_named_stream_lower_the_levels_before_the_sinks_report_it() {
    let packets = |late: f64| [&source(20.0, 0.5, 0.0)[..], &[(PACKETS, "a", 50.0), (LATE, "a", late)][..]].concat();
    let lowered = |mut stream: Stream, late: f64| {
        stream.seconds(5, &packets(0.0));
        let applied = stream.seconds(4, &packets(late));
        assert!(guarantees(&applied).is_empty(), "no contract makes a link wider: {applied:?}");
        !levels(&applied).is_empty()
    };
    let named = || Stream::with("a", |policy| policy.with_stream("eth0", 0));
    assert!(lowered(named(), 30.0));
    assert!(!lowered(named(), 1.0), "2 % are late");
    assert!(!lowered(Stream::at_host("a"), 30.0), "it may be a stream of another program");
}

#[test]
fn a_sink_that_lies_about_its_rate_changes_nothing_for_two_others() {
    for lie in [0.0, -1e9, 1e12] {
        let mut stream = Stream::at_host("a");
        ["c", "d"].iter().for_each(|host| stream.join(host));
        let honest = source(20.0, 0.5, 0.0);
        let others = [(RATE, "c", 20.0), (SHOWN, "c", 20.0), (RATE, "d", 20.0), (SHOWN, "d", 20.0)];
        let mut reports = [&honest[..], &others[..]].concat();
        stream.seconds(5, &reports);
        let lies = reports.iter_mut().filter(|(_, host, _)| *host == "d");
        lies.for_each(|(.., value)| *value = lie);
        assert_eq!(stream.seconds(15, &reports), [], "{lie}");
    }
}

#[test]
fn a_sink_without_cpu_time_lowers_the_levels_only_when_its_host_is_saturated() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    let mut reports = source(20.0, 0.5, 0.0).to_vec();
    (reports[5].2, reports[6].2) = (9.0, 0.9);
    reports.push((CPU_USED, "b", 0.3));
    assert_eq!(stream.seconds(5, &reports), [], "its own host acts");
    stream.saturated();
    assert!(!levels(&stream.seconds(3, &reports)).is_empty());
}

/// Reports of a sink that shows few of the events that arrive, without CPU time.
fn busy_sink() -> Vec<(&'static str, &'static str, f64)> {
    let mut reports = source(20.0, 0.5, 0.0).to_vec();
    (reports[5].2, reports[6].2) = (9.0, 0.9);
    reports.push((ARRIVED, "b", 20.0));
    reports
}

#[test]
fn clocks_that_differ_by_an_hour_change_no_decision() {
    for ahead in [0, 3_600, -3_600] {
        let mut stream = Stream { ahead, ..Stream::at_host("a") };
        stream.seconds(5, &source(20.0, 0.5, 0.0));
        stream.saturated();
        let lowered = levels(&stream.seconds(3, &busy_sink()));
        assert!(!lowered.is_empty(), "the pressure at the sink is known; {ahead} s");
        // The sink does not report its pressure and what it shows any more: only the arrivals count, and all arrive.
        let after = levels(&stream.seconds(100, &source(20.0, 0.5, 0.0)[..5]));
        assert!(!after.is_empty(), "levels return, because old reports end; {ahead} s");
    }
}

#[test]
fn a_sink_whose_host_does_not_act_lowers_the_levels_after_ten_seconds() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    assert_eq!(stream.seconds(9, &busy_sink()), []);
    assert!(!levels(&stream.seconds(4, &busy_sink())).is_empty());
}

#[test]
fn saturation_is_repeated_for_sources_that_come_later_and_ends_without_repetition() {
    let mut sink = Stream::at_host("b");
    let busy = [(ARRIVED, "b", 20.0), (SHOWN, "b", 4.0), (CPU_USED, "b", 0.5), ("cpu.pressure", "b", 0.9)];
    let told = |sink: &mut Stream, seconds| {
        sink.told.clear();
        sink.seconds(seconds, &busy);
        sink.told
            .iter()
            .filter(|event| event.attribute == AttributeId::of(SATURATED))
            .map(|event| event.value)
            .collect()
    };
    let first: Vec<i64> = told(&mut sink, 5);
    assert_eq!(first, [1, 1, 1], "at once, and every 2 s");
    let later: Vec<i64> = told(&mut sink, 6);
    assert_eq!(later, [1, 1, 1]);

    let mut source_host = Stream::at_host("a");
    source_host.seconds(5, &source(20.0, 0.5, 0.0));
    source_host.saturated();
    source_host.seconds(8, &source(20.0, 0.5, 0.0));
    assert_eq!(source_host.seconds(5, &busy_sink()), [], "the statement is too old, and its host acts");
}

/// As [`source`], without the CPU time.
fn silent_source(rate: f64, pressure: f64) -> Vec<(&'static str, &'static str, f64)> {
    source(rate, 0.0, pressure).into_iter().filter(|(name, ..)| *name != CPU_USED).collect()
}

#[test]
fn without_cpu_time_the_contract_follows_the_error_of_the_rate() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &silent_source(20.0, 0.0));
    let (mut share, mut all) = (0.0, Vec::new());
    for _ in 0..20 {
        // 30 ms per event, beside four other programs.
        let rate: f64 = ((share + (1.0 - share) / 5.0) / 0.03_f64).min(20.0);
        let decided = stream.second(&silent_source(rate, 0.9));
        assert!(levels(&decided).is_empty(), "{decided:?}");
        all.extend(guarantees(&decided));
        share = all.last().map_or(0.0, |ppm| *ppm as f64 / 1e6);
    }
    assert!(all.len() >= 2 && (0.3..0.7).contains(&share), "{all:?}");
    assert_eq!(guarantees(&stream.seconds(14, &silent_source(20.0, 0.0))), [0]);
}

#[test]
fn without_cpu_time_a_contract_that_does_not_help_leads_to_lower_levels() {
    for knows_better_times in [true, false] {
        let mut stream = Stream::at_host("a");
        if knows_better_times {
            stream.seconds(5, &silent_source(20.0, 0.0));
        }
        let decided = stream.seconds(25, &silent_source(8.0, 0.9));
        assert!(!levels(&decided).is_empty(), "{decided:?}");
    }
}

#[test]
fn small_losses_that_are_large_together_lower_the_levels() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    let mut reports = source(18.4, 0.46, 0.0).to_vec();
    (reports[4].2, reports[5].2) = (16.9, 15.6);
    reports.push((ARRIVED, "b", 16.9));
    assert!(!levels(&stream.seconds(5, &reports)).is_empty());
}

#[test]
fn a_source_that_starts_again_gets_the_levels_and_its_contract_is_decided_anew() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    assert_eq!(guarantees(&stream.seconds(1, &source(8.0, 0.2, 0.9))), [575_000]);
    let mut reports = source(20.0, 0.5, 0.9);
    (reports[4].2, reports[5].2) = (11.0, 11.0);
    let lowered = levels(&stream.seconds(5, &reports));
    assert!(!lowered.is_empty());
    let (now, gone) = (stream.now(), stream.registration());
    stream.manager.handle(Input::Left("a".parse().unwrap(), gone), now);
    stream.join("a");
    stream.manager.handle(Input::SourceJoined(stream.channel.clone()), now);
    let again = stream.applied();
    assert_eq!(levels(&again).len(), 2, "both levels: {again:?}");
    let quality = levels(&again)[0];
    assert_eq!(quality, *lowered.iter().rfind(|level| **level <= 80).unwrap());
    assert_eq!(guarantees(&stream.seconds(5, &source(8.0, 0.2, 0.9))).len(), 1, "the new process has no contract");
}

#[test]
fn the_host_of_a_sink_raises_the_contract_of_its_sink_for_the_rate_that_arrives() {
    let mut stream = Stream::at_host("b");
    let busy = [(ARRIVED, "b", 10.0), (SHOWN, "b", 4.0), (CPU_USED, "b", 0.1), ("cpu.pressure", "b", 0.9)];
    let decided = stream.seconds(1, &busy);
    assert_eq!(guarantees(&decided), [287_500], "10/s of 25 ms, and 15 %");
}

#[test]
fn a_refused_contract_lowers_the_levels_and_the_owners_guarantee_is_what_remains() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    let busy = stream.seconds(1, &source(8.0, 0.2, 0.9));
    assert_eq!((levels(&busy), guarantees(&busy)), (vec![], vec![575_000]));
    stream.grant("a", 150_000, 150_000);
    let refused = stream.seconds(4, &source(8.0, 0.2, 0.9));
    assert!(guarantees(&refused).is_empty() && !levels(&refused).is_empty(), "{refused:?}");
}

#[test]
fn the_owners_guarantee_is_given_back_to() {
    let mut stream = Stream::at_host("a");
    stream.seconds(5, &source(20.0, 0.5, 0.0));
    assert_eq!(guarantees(&stream.seconds(1, &source(8.0, 0.2, 0.9))), [575_000]);
    stream.grant("a", 150_000, 575_000);
    assert_eq!(guarantees(&stream.seconds(14, &source(20.0, 0.5, 0.0))), [150_000]);
}

#[test]
fn a_sink_whose_contract_is_refused_is_saturated_and_asks_again() {
    let mut stream = Stream::at_host("b");
    let busy = [(ARRIVED, "b", 10.0), (SHOWN, "b", 4.0), (CPU_USED, "b", 0.1), ("cpu.pressure", "b", 0.9)];
    let mut asked = Vec::new();
    for second in 0..13 {
        if !guarantees(&stream.second(&busy)).is_empty() {
            asked.push(second);
            stream.grant("b", 0, 0);
        }
    }
    assert_eq!(asked.len(), 3, "at first, and every 5 s: {asked:?}");
}
