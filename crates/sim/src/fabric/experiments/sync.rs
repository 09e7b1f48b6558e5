//! Synchronisation: four hosts with different clocks show a film at the same time although one of them becomes
//! slow. On one host, the picture stays with its sound although its clock runs fast and it is held up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use qfabric_channel::{SinkSpec, SourceId, SourceSpec, Submission};
use qfabric_control::adapt::{inter_media, inter_sink};
use qfabric_host::manager::policies::{MediaSync, NEED, POSITION, Relay, SHOW, SKIP, SPEED, SinkSync};
use qfabric_host::manager::{Controller, Recipient};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityKind, Reading, Unit};
use qfabric_types::{AppId, Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::{App, Fabric, HostContext, ReceivedEvent, Settings};
use super::film::{Several, spec};
use super::{Curve, data, quality};

const MS: fn(u64) -> Nanos = Nanos::from_millis;

/// The sinks, with the time in ms to decode a frame.
const SINKS: [(&str, u64); 4] = [("quick", 5), ("usual", 20), ("old", 45), ("busy", 12)];
/// The last sink is slow from the first to the second time (in seconds), with this decoding time in ms.
const SLOW: (u64, u64, u64) = (20, 50, 120);
/// Interval between frames.
const FRAME: Nanos = Nanos::from_millis(40);
/// Drift of the picture's clock: a bad crystal.
const FAST: f64 = 400e-6;
/// Times in seconds at which the picture stops, and for how long in ms.
const HELD_UP: [(u64, u64); 2] = [(30, 250), (70, 900)];
/// The players on the host of the last sink.
const VOICE: AppId = AppId(1);
const PICTURE: AppId = AppId(2);

/// The options of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Virtual seconds.
    pub seconds: u64,
    /// Whether controllers act.
    pub controlled: bool,
    /// Largest offset of a host's clock, in ms.
    pub offset_ms: u64,
    /// Largest drift of a host's clock, in millionths.
    pub drift_ppm: i64,
    /// Seed of all random values.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { seconds: 100, controlled: true, offset_ms: 5_000, drift_ppm: 200, seed: 1 }
    }
}

/// The result of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Frames that all sinks showed.
    pub frames: usize,
    /// Time between the first and the last sink that shows a frame, in ms: the median and the 99th percentile.
    pub spread_ms: (f64, f64),
    /// Frames that came too late to be shown together with the other sinks.
    pub late: u64,
    /// Fraction of the time in which picture and sound differed by more than 80 ms.
    pub out_of_step: f64,
    /// Largest difference after the picture had time to recover, in ms.
    pub skew_at_end_ms: f64,
    /// Values per second.
    pub curves: Vec<Curve>,
}

/// The virtual times in seconds at which the sinks showed a frame, by the number of the frame.
type Shown = Rc<RefCell<BTreeMap<u64, Vec<f64>>>>;

/// Sends every frame to all sinks.
struct Camera {
    channel: ChannelId,
    controller: Option<Box<dyn Controller>>,
    source: Option<SourceId>,
}

impl App for Camera {
    fn start(&mut self, here: &mut HostContext<'_>) {
        let channel = &self.channel;
        let source = here.with(|node, now| {
            node.create(channel, spec(), now)?;
            node.source_subscribe(channel, SourceSpec::default(), now)
        });
        self.source = Some(source.expect("the channel is new"));
        if let Some(controller) = self.controller.take() {
            here.manager(|manager, _| manager.add(controller));
        }
        here.after(FRAME, PLAY);
    }

    fn timer(&mut self, _tag: u64, here: &mut HostContext<'_>) {
        let event = Submission { payload: &[0; 1_000], ..Submission::default() };
        let source = self.source.expect("started");
        let sent = here.with(|node, now| node.submit(source, &event, now));
        sent.expect("the source exists");
        here.after(FRAME, PLAY);
    }
}

/// A sink that decodes and shows frames.
struct Viewer {
    channel: ChannelId,
    decoding: Nanos,
    slow: bool,
    open: bool,
    begun: Instant,
    /// Common delay from submission to display, as received from the source's host.
    common: Nanos,
    /// Longest time that a frame needed since the last report.
    needed: Nanos,
    shown: Shown,
    late: Rc<RefCell<u64>>,
    rng: ChaCha8Rng,
}

/// Timer tags, distinct from those of the players.
const OPEN: u64 = 10;
const REPORT: u64 = 11;
const PLAY: u64 = 12;

impl Viewer {
    fn open(&mut self, here: &mut HostContext<'_>) {
        let sink = SinkSpec::default();
        let opened = here.with(|node, now| {
            node.open(&self.channel, now)?;
            node.sink_subscribe(&self.channel, sink, now)
        });
        if opened.is_err() {
            return here.after(MS(100), OPEN);
        }
        self.open = true;
        here.after(MS(500), REPORT);
    }

    fn decoding(&mut self, here: &HostContext<'_>) -> Nanos {
        let second = here.now.since(self.begun).as_secs_f64() as u64;
        let (from, to, slow) = SLOW;
        let usual = if self.slow && (from..to).contains(&second) { MS(slow) } else { self.decoding };
        usual + Nanos::from_micros(self.rng.random_range(0..3_000))
    }

    fn report(&mut self, here: &mut HostContext<'_>) {
        let needed = std::mem::take(&mut self.needed);
        if needed > Nanos::ZERO {
            let reading = reading(NEED, HOST, needed.get() as i64, here.now);
            here.report(&reading, NEED, Some(&quality(&self.channel)), &Recipient::Sources);
        }
        here.after(MS(500), REPORT);
    }
}

fn reading(name: &str, application: AppId, value: i64, at: Instant) -> Reading {
    let attribute = AttributeId::of(name);
    Reading { attribute, application, value, at, over: Nanos::ZERO, cause: Cause::Poll, unit: Unit::Nanoseconds }
}

impl App for Viewer {
    fn start(&mut self, here: &mut HostContext<'_>) {
        self.begun = here.now;
        let relay = Relay::new(&quality(&self.channel), &[QualityKind::Level]);
        here.manager(|manager, _| manager.add(Box::new(relay)));
        here.after(MS(100), OPEN);
    }

    /// Shows the frame at its common time, or as soon as it is decoded, and records the virtual time of the
    /// display.
    fn event(&mut self, event: &ReceivedEvent, here: &mut HostContext<'_>) {
        let ready = here.now + self.decoding(here);
        let needs = ready.since(event.sent);
        self.needed = self.needed.max(needs);
        *self.late.borrow_mut() += u64::from(self.common > Nanos::ZERO && needs > self.common);
        let show = ready.max(event.sent + self.common);
        let at = here.virtual_now + show.since(here.now);
        let mut shown = self.shown.borrow_mut();
        shown.entry(event.number).or_default().push(at.since(Instant::ZERO).as_secs_f64());
    }

    fn applied(&mut self, _application: AppId, attribute: AttributeId, amount: i64, _here: &mut HostContext<'_>) {
        if attribute == AttributeId::of(SHOW) {
            self.common = Nanos::new(amount.max(0) as u64);
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        match tag {
            OPEN if !self.open => self.open(here),
            REPORT => self.report(here),
            _ => {}
        }
    }
}

/// Voice and picture on one host: the playing position of each, in ns.
struct Players {
    controlled: bool,
    begun: Instant,
    last: Instant,
    voice: f64,
    picture: f64,
    /// Difference between the picture's speed and the normal speed, as decided by the controller.
    speed: f64,
    held_until: Instant,
    /// Seconds, and the number of ms by which the picture is ahead.
    skew: Rc<RefCell<Vec<(f64, f64)>>>,
}

impl Players {
    /// Advances both players to the current time; the picture does not advance while it is held up.
    fn play(&mut self, here: &mut HostContext<'_>) {
        let passed = here.now.since(std::mem::replace(&mut self.last, here.now)).as_f64();
        let held = self.held_until.since(here.now - Nanos::from_f64(passed)).as_f64().min(passed);
        self.voice += passed;
        self.picture += (passed - held) * (1.0 + FAST + self.speed);
        let second = here.now.since(self.begun).as_secs_f64();
        let fresh = |(at, _): &&(u64, u64)| (second - passed * 1e-9..second).contains(&(*at as f64));
        if let Some((_, held)) = HELD_UP.iter().find(fresh) {
            self.held_until = here.now + MS(*held);
        }
        self.skew.borrow_mut().push((second, (self.picture - self.voice) / 1e6));
        for (player, position) in [(VOICE, self.voice), (PICTURE, self.picture)] {
            here.report(
                &reading(POSITION, player, position as i64, here.now),
                POSITION,
                Some(&data("none")),
                &Recipient::All,
            );
        }
        here.after(MS(100), PLAY);
    }
}

impl App for Players {
    fn start(&mut self, here: &mut HostContext<'_>) {
        (self.begun, self.last) = (here.now, here.now);
        if self.controlled {
            let controller = MediaSync::new(VOICE, PICTURE, inter_media::Terms::default());
            here.manager(|manager, _| manager.add(Box::new(controller)));
        }
        here.after(MS(100), PLAY);
    }

    fn applied(&mut self, application: AppId, attribute: AttributeId, amount: i64, _here: &mut HostContext<'_>) {
        if application == PICTURE && attribute == AttributeId::of(SPEED) {
            self.speed = amount as f64 * 1e-6;
        } else if application == PICTURE && attribute == AttributeId::of(SKIP) {
            self.picture += amount as f64;
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        if tag == PLAY {
            self.play(here);
        }
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> Outcome {
    let (offset, drift_ppm) = (MS(options.offset_ms), options.drift_ppm);
    let settings =
        Settings { seed: options.seed, offset, drift_ppm, jitter: MS(2), bandwidth: 1e9, ..Settings::default() };
    let mut fabric = Fabric::new(settings);
    let film = data("film");
    let sync = SinkSync::new(&quality(&film), inter_sink::Terms::default(), Instant::ZERO);
    let controller = options.controlled.then(|| Box::new(sync) as Box<dyn Controller>);
    fabric.add("camera", Box::new(Camera { channel: film, controller, source: None }));
    let (shown, late, skew) = (Shown::default(), Rc::new(RefCell::new(0)), Rc::new(RefCell::new(Vec::new())));
    add_sinks(&mut fabric, options, &shown, &late, &skew);
    fabric.run_for(MS(1_000 * options.seconds));
    let shown = shown.borrow();
    outcome(&shown, *late.borrow(), &skew.borrow())
}

fn add_sinks(
    fabric: &mut Fabric,
    options: &Options,
    shown: &Shown,
    late: &Rc<RefCell<u64>>,
    skew: &Rc<RefCell<Vec<(f64, f64)>>>,
) {
    for (number, (sink, decoding)) in SINKS.iter().enumerate() {
        let last = number + 1 == SINKS.len();
        let viewer = Viewer {
            channel: data("film"),
            decoding: MS(*decoding),
            slow: last,
            open: false,
            begun: Instant::ZERO,
            common: Nanos::ZERO,
            needed: Nanos::ZERO,
            shown: shown.clone(),
            late: late.clone(),
            rng: ChaCha8Rng::seed_from_u64(options.seed ^ number as u64),
        };
        let mut apps: Vec<Box<dyn App>> = vec![Box::new(viewer)];
        if last {
            let (zero, controlled) = (Instant::ZERO, options.controlled);
            let (begun, last, held_until, skew) = (zero, zero, zero, skew.clone());
            let (voice, picture, speed) = (0.0, 0.0, 0.0);
            apps.push(Box::new(Players { controlled, begun, last, voice, picture, speed, held_until, skew }));
        }
        fabric.add(sink, Box::new(Several(apps)));
    }
}

/// Counts frames that all sinks showed. The first two seconds, in which hosts find each other and measure clocks,
/// do not count.
fn outcome(shown: &BTreeMap<u64, Vec<f64>>, late: u64, skew: &[(f64, f64)]) -> Outcome {
    let whole = shown.values().filter(|times| times.len() == SINKS.len());
    let spread = |times: &Vec<f64>| {
        let (first, last) = times.iter().fold((f64::MAX, 0.0f64), |(a, b), at| (a.min(*at), b.max(*at)));
        (first, (last - first) * 1e3)
    };
    let points: Vec<(f64, f64)> = whole.map(spread).filter(|(at, _)| *at > 2.0).collect();
    let mut sorted: Vec<f64> = points.iter().map(|(_, spread)| *spread).collect();
    sorted.sort_by(f64::total_cmp);
    let part = |part: f64| sorted.get((sorted.len() as f64 * part) as usize).copied().unwrap_or(0.0);
    let apart = skew.iter().filter(|(_, ahead)| ahead.abs() > 80.0).count();
    let end = skew.last().map_or(0.0, |(at, _)| at - 5.0);
    let rest = skew.iter().filter(|(at, _)| *at >= end).map(|(_, ahead)| ahead.abs());
    Outcome {
        frames: points.len(),
        spread_ms: (part(0.5), part(0.99)),
        late,
        out_of_step: apart as f64 / skew.len().max(1) as f64,
        skew_at_end_ms: rest.fold(0.0, f64::max),
        curves: vec![
            Curve { name: "between first and last sink".into(), points },
            Curve { name: "picture from sound".into(), points: skew.iter().map(|(at, by)| (*at, by.abs())).collect() },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_different_clocks_show_a_frame_together() {
        for seed in 1..=3 {
            let with = run(&Options { seed, seconds: 60, ..Options::default() });
            let without = run(&Options { seed, seconds: 60, controlled: false, ..Options::default() });
            assert!(without.spread_ms.0 > 30.0, "{:?}", without.spread_ms);
            assert!(with.spread_ms.0 < 3.0, "{:?}", with.spread_ms);
            assert!(with.frames > 1_300 && with.late < 60, "{} frames, {} late", with.frames, with.late);
        }
    }

    #[test]
    fn the_picture_comes_back_to_its_sound() {
        let with = run(&Options::default());
        let without = run(&Options { controlled: false, ..Options::default() });
        assert!(with.out_of_step < 0.2 && with.skew_at_end_ms < 81.0, "{} {}", with.out_of_step, with.skew_at_end_ms);
        assert!(without.out_of_step > 0.5, "{}", without.out_of_step);
    }
}
