//! Readings of several hosts in few frames: the settings `slack` and `combiner` of real daemons.

use std::collections::BTreeMap;
use std::time::Duration;

use qfabric_client::channel::{Channel, Channels, Registration, Sink, SinkOptions, Source, SourceOptions, Spec};
use qfabric_types::monitor::{AttributeId, ReadingEvent};

use crate::host::{Host, OPEN, Site, eventually};
use crate::talk::{FORMAT, enter};

/// Readings in one burst of each reporting host: their sum fits into the queue of a sink.
const BURST: i64 = 100;
/// The receiver, the combiner, and the hosts that report.
const RECEIVER: usize = 0;
const COMBINER: usize = 1;
const REPORTING: [usize; 2] = [2, 3];
const NAMES: [&str; 2] = ["h2", "h3"];

/// The attribute that the hosts report. Without its name, a sink gets no readings of applications.
const READING: &str = "app.reading";

const PASSED_ON: &str = "qfabric_channels_passed_on_total";
const BUNDLES: &str = "qfabric_channels_bundles_out_total";

/// Four hosts, of which all believe the combiner about the others. `settings`: of the hosts that report.
fn site(settings: &str) -> Option<Site> {
    let mut site = Site::new(&[0, 0, 1, 1])?;
    site.access(&format!("hosts = {:?}\nrouters = ['h1']\n{OPEN}", names(&site)));
    [RECEIVER, COMBINER].iter().for_each(|host| site.start(*host, ""));
    REPORTING.iter().for_each(|host| site.start(*host, settings));
    site.all_meet();
    Some(site)
}

fn names(site: &Site) -> Vec<&str> {
    site.hosts().iter().map(|host| host.name.as_str()).collect()
}

/// An application that reports numbers, which go to the hosts that feed the channel.
struct Reporter {
    registration: Registration,
    next: i64,
    _open: (Channel, Channels),
}

impl Reporter {
    fn start(host: &Host) -> Reporter {
        let channels = host.channels();
        let channel = enter(&channels, "load", &Spec::of(FORMAT));
        let registration = channels.register("meter", "load", &[]).unwrap();
        Reporter { registration, next: 0, _open: (channel, channels) }
    }

    fn report(&mut self, times: i64) {
        for _ in 0..times {
            self.next += 1;
            self.registration.report(READING, self.next).unwrap();
        }
    }
}

/// An application that feeds the channel and receives the readings.
struct Receiver {
    sink: Sink,
    got: BTreeMap<String, Vec<i64>>,
    _open: (Source, Channel, Channel, Channels),
}

impl Receiver {
    fn start(host: &Host) -> Receiver {
        let channels = host.channels();
        let channel = enter(&channels, "load", &Spec::of(FORMAT));
        let source = channel.source_subscribe(&SourceOptions::default()).unwrap();
        let quality = channel.quality().unwrap();
        let attributes = BTreeMap::from([(AttributeId::of(READING).key(), 1)]);
        let sink = quality.sink(&SinkOptions { attributes, ..SinkOptions::default() }).unwrap();
        Receiver { sink, got: BTreeMap::new(), _open: (source, quality, channel, channels) }
    }

    /// Takes the readings that have arrived.
    fn take(&mut self) {
        while let Some(event) = self.sink.next(Duration::from_millis(20)).unwrap() {
            let event = event.event();
            let read = ReadingEvent::decode(event.payload).unwrap();
            self.got.entry(event.host.to_owned()).or_default().push(read.reading.value);
        }
    }

    /// Whether a reading of each host that reports has arrived that is later than `numbers`.
    fn has_later(&self, numbers: [i64; 2]) -> bool {
        let last = |host: &str| self.got.get(host).and_then(|got| got.last().copied());
        NAMES.iter().zip(numbers).all(|(host, number)| last(host).is_some_and(|last| last > number))
    }

    /// Takes readings until the last one of each host has arrived, and returns them by host.
    #[track_caller]
    fn take_all(&mut self, reporters: &[Reporter; 2]) -> BTreeMap<String, Vec<i64>> {
        eventually("the last readings arrive", || {
            self.take();
            self.has_later(reporters.each_ref().map(|reporter| reporter.next - 1))
        });
        std::mem::take(&mut self.got)
    }
}

/// Applications on the receiver and on the hosts that report, which know each other's members.
fn applications(site: &Site) -> (Receiver, [Reporter; 2]) {
    let receiver = Receiver::start(&site[RECEIVER]);
    let reporters = REPORTING.map(|host| Reporter::start(&site[host]));
    eventually("the reporting hosts know the sink", || {
        REPORTING.iter().all(|host| {
            let info = site[*host].show("quality:load");
            let there = info.iter().flat_map(|info| &info.hosts).find(|holding| holding.host.as_str() == "h0");
            // The manager of the receiver has the other one.
            there.is_some_and(|holding| holding.sinks.len() == 2)
        })
    });
    (receiver, reporters)
}

fn bursts(reporters: &mut [Reporter; 2]) {
    reporters.iter_mut().for_each(|reporter| reporter.report(BURST));
}

fn all_of(from: i64) -> BTreeMap<String, Vec<i64>> {
    BTreeMap::from(NAMES.map(|host| (host.to_owned(), (from..from + BURST).collect())))
}

/// Frames with several frames in them that a host has sent: far fewer than there were readings.
fn few_frames(host: &Host, before: f64) {
    let frames = host.metric(BUNDLES) - before;
    println!("{}: {frames} frames for {BURST} readings of each of two hosts", host.name);
    assert!((1.0..BURST as f64 / 4.0).contains(&frames), "{frames}");
}

/// Reports single readings until that is true.
fn again(receiver: &mut Receiver, reporters: &mut [Reporter; 2], is_true: impl Fn(&Receiver) -> bool) {
    eventually("readings arrive again", || {
        reporters.iter_mut().for_each(|reporter| reporter.report(1));
        receiver.take();
        is_true(receiver)
    });
}

#[test]
fn readings_travel_together_through_the_combiner_and_directly_while_it_is_absent() {
    let Some(mut site) = site("combiner = 'h1'\nslack = '500ms'") else { return };
    let (mut receiver, mut reporters) = applications(&site);
    bursts(&mut reporters);
    assert_eq!(receiver.take_all(&reporters), all_of(1));
    assert!(site[COMBINER].metric(PASSED_ON) >= 2.0 * BURST as f64);
    few_frames(&site[COMBINER], 0.0);

    site.kill(COMBINER);
    eventually("it is gone", || REPORTING.iter().all(|host| site[*host].sees() == ["h0", "h2", "h3"]));
    let before = site[REPORTING[0]].metric(BUNDLES);
    bursts(&mut reporters);
    assert_eq!(receiver.take_all(&reporters), all_of(BURST + 1));
    few_frames(&site[REPORTING[0]], before);

    site.start(COMBINER, "");
    site.all_meet();
    again(&mut receiver, &mut reporters, |_| site[COMBINER].metric(PASSED_ON) > 0.0);
    let before = reporters.each_ref().map(|reporter| reporter.next);
    again(&mut receiver, &mut reporters, |receiver| receiver.has_later(before));
    assert!([RECEIVER, COMBINER].iter().all(|host| site[*host].metric("qfabric_channels_forbidden_total") == 0.0));
    nobody_believes_it(&mut site, &mut receiver, &mut reporters);
}

/// The combiner is no longer among the routers of the access lists.
fn nobody_believes_it(site: &mut Site, receiver: &mut Receiver, reporters: &mut [Reporter; 2]) {
    site.access(&format!("hosts = {:?}\n{OPEN}", names(site)));
    site.hosts().iter().for_each(|host| host.run(&["channel", "reload"]).expect(0, &[]));
    site.all_meet();
    let before = reporters.each_ref().map(|reporter| reporter.next);
    again(receiver, reporters, |receiver| receiver.has_later(before));
    let (passed, first) = (site[COMBINER].metric(PASSED_ON), reporters[0].next + 1);
    receiver.take_all(reporters);
    bursts(reporters);
    let got = receiver.take_all(reporters);
    assert_eq!(got["h2"], (first..first + BURST).collect::<Vec<_>>());
    assert_eq!(site[COMBINER].metric(PASSED_ON), passed);
    site.kill(REPORTING[0]);
    site.refused_with(REPORTING[0], "combiner = 'h1'", &["channels.combiner h1 is not among the routers", "`routers`"]);
}
