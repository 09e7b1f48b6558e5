//! The QoS tree: a film and its sound go to three pupils in three roles. They share the bandwidth that the broker
//! leaves while another application of the same host takes more and more. For each pupil, picture and sound are
//! linked.

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_control::adapt::group::Want;
use qfabric_host::manager::policies::{Stream, StreamLink, TreeShare, connection_of};
use qfabric_host::manager::{Controller, ResourceRequest};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{App, Fabric, HostContext, Settings};
use super::film::{Asked, Role, Seen, Several, Sink, Source};
use super::{Curve, data, name, quality};

/// Bits per second that the broker of the source can grant.
const LINK: i64 = 1_000_000;
/// The resource that is divided.
const BANDWIDTH: AttributeId = AttributeId::of("net.bandwidth");
/// The applications that share the resource: all streams together, and the other application.
const STREAMS: AppId = AppId(1);
const OTHER: AppId = AppId(2);
/// Bandwidth that the other application requests from each second on, in bits per second.
const OTHER_WANTS: [(u64, i64); 6] = [(0, 0), (20, 300_000), (40, 500_000), (60, 700_000), (80, 400_000), (100, 0)];

/// The pupils, least important first, with the film's range of frames per second.
const PUPILS: [(&str, Role); 3] = [
    ("low", Role { min: 10, max: 15, importance: 0 }),
    ("medium", Role { min: 15, max: 20, importance: 1 }),
    ("high", Role { min: 20, max: 25, importance: 2 }),
];
/// Range of packets per second of the sound.
const SOUND: (i64, i64) = (25, 50);

/// For each channel: name, bytes of an event, and bits of an event on the wire.
const CHANNELS: [(&str, usize, f64); 2] = [("film", 1_000, 8.0 * 1_130.0), ("sound", 120, 8.0 * 250.0)];

/// The result of one phase. Rates are in events per second.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Phase {
    /// Second at which the phase begins.
    pub from: u64,
    /// Bandwidth granted to the streams, in bits per second.
    pub granted: i64,
    /// For each pupil, least important first: granted rates of film and sound.
    pub rates: Vec<(f64, f64)>,
    /// For each pupil: rates of film and sound that arrived.
    pub achieved: Vec<(f64, f64)>,
}

/// The result of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// One entry per phase of the other application.
    pub phases: Vec<Phase>,
    /// Events per second that arrived.
    pub curves: Vec<Curve>,
}

/// Registers the resource with the manager of its host.
struct Broker;

impl App for Broker {
    fn start(&mut self, here: &mut HostContext<'_>) {
        here.manager(|manager, now| manager.capacity(BANDWIDTH, LINK, now));
        want(STREAMS, (0, LINK), 0, here);
    }
}

fn want(application: AppId, (least, most): (i64, i64), importance: u32, here: &mut HostContext<'_>) {
    let request = ResourceRequest { application, attribute: BANDWIDTH, least, most, importance };
    here.manager(|manager, now| manager.admit(&request, now)).expect("the floor fits the capacity");
}

/// Runs the experiment. `linked`: film and sound of each pupil are linked.
pub fn run(seconds: u64, linked: bool, seed: u64) -> Outcome {
    let mut fabric = Fabric::new(Settings { seed, bandwidth: LINK as f64 * 1.1, ..Settings::default() });
    let channels = CHANNELS.map(|(channel, ..)| data(channel));
    let asked = add_source(&mut fabric, &channels, linked);
    let seen = add_pupils(&mut fabric, &channels);
    let mut changes = OTHER_WANTS.iter().peekable();
    for second in 0..seconds {
        while let Some((_, amount)) = changes.next_if(|(from, _)| *from <= second) {
            fabric.on(0, |here| want(OTHER, (*amount, *amount), 1, here));
        }
        fabric.run_until(Instant::new((second + 1) * 1_000_000_000));
    }
    Outcome { phases: phases(seconds, &asked, &seen), curves: curves(&seen) }
}

fn add_source(fabric: &mut Fabric, channels: &[ChannelId; 2], linked: bool) -> Vec<Asked> {
    let streams = CHANNELS.iter().zip(channels).map(|((_, _, bits), channel)| {
        let (channel, bits) = (quality(channel), *bits);
        Stream { channel, bits, weight: 1.0 }
    });
    let both = channels.iter().map(|channel| channel.name.clone()).collect();
    let links = if linked { vec![StreamLink::AtEachSink(both)] } else { Vec::new() };
    let mut tree: Vec<Box<dyn Controller>> =
        vec![Box::new(TreeShare::new(STREAMS, BANDWIDTH, streams.collect(), links))];
    let (mut asked, mut apps) = (Vec::new(), Vec::<Box<dyn App>>::new());
    for ((_, bytes, _), channel) in CHANNELS.iter().zip(channels) {
        let source = Source::new(channel, *bytes, 0.0, std::mem::take(&mut tree)).one_of_several();
        asked.push(source.asked());
        apps.push(Box::new(source));
    }
    apps.push(Box::new(Broker));
    fabric.add("source", Box::new(Several(apps)));
    asked
}

type SeenOfPupil = [Rc<RefCell<Seen>>; 2];

fn add_pupils(fabric: &mut Fabric, channels: &[ChannelId; 2]) -> Vec<SeenOfPupil> {
    let pupil = |(pupil, role): &(&str, Role)| {
        let seen: SeenOfPupil = Default::default();
        let sound = Role { min: SOUND.0, max: SOUND.1, ..*role };
        let period = Nanos::from_millis(1_000);
        let sinks = [*role, sound].into_iter().enumerate().map(|(number, role)| {
            let sink = Sink::new(&channels[number], role, period, period, seen[number].clone());
            Box::new(sink.one_of_several(number as u64)) as Box<dyn App>
        });
        fabric.add(pupil, Box::new(Several(sinks.collect())));
        seen
    };
    PUPILS.iter().map(pupil).collect()
}

/// The state at the end of each phase.
fn phases(seconds: u64, asked: &[Asked], seen: &[SeenOfPupil]) -> Vec<Phase> {
    let ends = OTHER_WANTS.iter().skip(1).map(|(from, _)| *from).chain([seconds]);
    let phase = |((from, other), end): (&(u64, i64), u64)| {
        let rate = |pupil: usize, channel: usize| granted(&asked[channel].borrow(), pupil, channel, end as f64 - 0.5);
        let got = |pupil: usize, channel: usize| arrived(&seen[pupil][channel].borrow(), end as f64 - 0.5);
        let rates = (0..PUPILS.len()).map(|pupil| (rate(pupil, 0), rate(pupil, 1))).collect();
        let achieved = (0..PUPILS.len()).map(|pupil| (got(pupil, 0), got(pupil, 1))).collect();
        Phase { from: *from, granted: LINK - other, rates, achieved }
    };
    OTHER_WANTS.iter().zip(ends).filter(|((from, _), end)| from < end && *end <= seconds).map(phase).collect()
}

fn granted(asked: &[(f64, u64, f64)], pupil: usize, channel: usize, before: f64) -> f64 {
    let AppId(number) = connection_of(&name(CHANNELS[channel].0), &name(PUPILS[pupil].0));
    let last = asked.iter().rev().find(|(at, of, _)| *of == number && *at < before);
    last.map_or(0.0, |(_, _, rate)| *rate)
}

/// The last report of the phase.
fn arrived(seen: &Seen, before: f64) -> f64 {
    seen.rates.iter().rev().find(|(at, _)| *at < before).map_or(0.0, |(_, rate)| *rate)
}

fn curves(seen: &[SeenOfPupil]) -> Vec<Curve> {
    let curve = |pupil: usize, channel: usize| Curve {
        name: format!("{}, {}", CHANNELS[channel].0, PUPILS[pupil].0),
        points: seen[pupil][channel].borrow().rates.clone(),
    };
    (0..2).flat_map(|channel| (0..PUPILS.len()).map(move |pupil| (pupil, channel))).map(|(p, c)| curve(p, c)).collect()
}

/// The quality of film and sound within a pupil's ranges; `None` if the stream is stopped.
pub fn quality_of(pupil: usize, (film, sound): (f64, f64)) -> [Option<f64>; 2] {
    let Role { min, max, .. } = PUPILS[pupil].1;
    let of = |min: i64, max: i64, rate: f64| Want::range(min as f64, max as f64, 0).quality(rate + 2e-3);
    [of(min, max, film), of(SOUND.0, SOUND.1, sound)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn film_and_sound_degrade_equally_and_stop_together() {
        let outcome = run(120, true, 1);
        assert_eq!(outcome.phases.len(), OTHER_WANTS.len());
        for phase in &outcome.phases {
            for (pupil, rates) in phase.rates.iter().enumerate() {
                let [film, sound] = quality_of(pupil, *rates);
                assert!(film.is_some() == sound.is_some(), "{phase:?}");
                assert!((film.unwrap_or(0.0) - sound.unwrap_or(0.0)).abs() < 0.01, "{phase:?}");
            }
            let bits: f64 = phase.rates.iter().map(|(film, sound)| film * CHANNELS[0].2 + sound * CHANNELS[1].2).sum();
            assert!(bits <= phase.granted as f64, "{phase:?}");
        }
    }

    #[test]
    fn roles_keep_their_order_and_all_recover() {
        let outcome = run(120, true, 2);
        let [before, after] = [&outcome.phases[0], &outcome.phases[5]];
        assert_eq!(before.rates, [(15.0, 50.0), (20.0, 50.0), (25.0, 50.0)], "{before:?}");
        assert_eq!(before.rates, after.rates);
        let worst = &outcome.phases[3];
        assert!(worst.rates[0].0 <= worst.rates[1].0 && worst.rates[1].0 <= worst.rates[2].0, "{worst:?}");
        assert!(worst.rates[0].0 == 0.0 && worst.rates[2].0 > 0.0, "{worst:?}");
        let near = |(granted, got): (&(f64, f64), &(f64, f64))| (granted.0 - got.0).abs() < 1.5;
        assert!(after.rates.iter().zip(&after.achieved).all(near), "{after:?}");
    }

    #[test]
    fn without_links_sound_is_not_degraded_with_its_film() {
        let outcome = run(60, false, 1);
        let differs = |phase: &Phase| {
            phase.rates.iter().enumerate().any(|(pupil, rates)| {
                let [film, sound] = quality_of(pupil, *rates);
                film != sound
            })
        };
        assert!(outcome.phases.iter().any(differs), "{outcome:?}");
    }
}
