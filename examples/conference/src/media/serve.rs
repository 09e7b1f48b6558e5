//! The server: captures, scales, codes and sends a picture once per period, and listens to its receivers.
//!
//! A picture that is late moves the following ones: none is made up for, so the rate falls as vic's does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use qfabric_client::channel::{
    Channels, Notice, Registration, Resource, SinkOptions, Source as EventSource, SourceOptions, Submission,
};
use qfabric_client::clock::{now, sleep_until, thread_cpu};
use qfabric_types::{Instant, Nanos};
use serde::Serialize;

use super::adapt::LevelLadder;
use super::camera::{Camera, Source};
use super::codec::{CodecProblem, CodedPicture, Encoder};
use super::decided::DecidedLevel;
use super::metp::{Audience, MetpReport, MetpServe};
use super::picture::Scaler;
use super::presets::PresetLadder;
use super::receivers::{Listener, Receivers};
use super::retry::{Ended, Rooms, Stop, client, event_type};
use super::service::{CpuTime, Service, is_amount};
use super::switch::LevelSwitch;
use crate::wire::{Feedback, FrameHeader};
use crate::{Codec, Level, wire};

const SECOND: Nanos = Nanos::from_millis(1_000);

/// What is served, and how.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// What is captured.
    pub source: Source,
    /// Name of the channel of pictures.
    pub channel: String,
    /// Time between two pictures.
    pub period: Nanos,
    /// A picture that has not arrived this long after it was coded is dropped.
    pub deadline: Nanos,
    /// Largest length of the data of one event ([`wire::FRAGMENT`]).
    pub fragment: usize,
    /// Sends pictures over METP instead of as events; none: as events.
    pub metp: Option<MetpServe>,
    /// Chooses the level by the rate at the median receiver; with [`CpuTime::ByPolicy`] it only counts what a level is
    /// worth. None: the policies of this host's daemon may choose.
    pub ladder: Option<LevelLadder>,
    /// Chooses the preset of an encoder of H.264; none: the fastest one.
    pub presets: Option<PresetLadder>,
    /// CPU time that is reserved for the thread that codes; none: nothing is reserved.
    pub cpu: Option<CpuTime>,
    /// The daemon's socket; none: the usual places.
    pub socket: Option<PathBuf>,
    /// Ends the server.
    pub stop: Stop,
}

impl ServeOptions {
    /// Whether the ladder here decides, and no policy.
    fn decides_level(&self) -> bool {
        self.ladder.is_some() && !matches!(self.cpu, Some(CpuTime::ByPolicy(_)))
    }
}

/// The server's last second. Rates in thousandths of a frame per second.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// End of the second, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Pictures captured and coded.
    pub generated: u32,
    /// Pictures handed to the channel, or to the connections over METP.
    pub sent: u32,
    /// Bytes of them.
    pub bytes: u64,
    /// The level in force.
    pub level: String,
    /// How often the level has changed.
    pub level_changes: u32,
    /// What the level in force is worth: [`LevelLadder::worth`]; 1 without a ladder.
    pub worth: f64,
    /// CPU time that is reserved in every period, in nanoseconds; 0: nothing is reserved.
    pub service_ns: u64,
    /// Receivers that cannot decode the level's codec, by host and number: they show nothing.
    pub left_out: Vec<String>,
    /// What receivers reported last, by host and number.
    pub receivers: BTreeMap<String, Feedback>,
    /// The connections, if pictures are sent over METP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metp: Option<MetpReport>,
}

/// Serves until the options' `stop` is set; goes on by itself when the daemon was away.
///
/// # Errors
/// The source cannot be captured, the daemon refuses the channel for good, or the certificate for METP cannot be used.
pub fn serve(options: &ServeOptions, switch: &LevelSwitch, report: &(dyn Fn(&Report) + Sync)) -> Result<()> {
    let mut sender = Sender::new(options, switch)?;
    options.stop.retry(|| session(options, &mut sender, report))
}

fn session(options: &ServeOptions, sender: &mut Sender<'_>, report: &(dyn Fn(&Report) + Sync)) -> Result<()> {
    sender.open_audience()?;
    let rooms = Rooms::enter(options.socket.as_ref(), &options.channel)?;
    let rate = (1_000_000_000 / options.period.get().max(1)) as i64;
    let registration = rooms.channels.register("server", &options.channel, &[("frame_rate", 1, rate)])?;
    let application = Some("server".to_owned());
    let source = rooms.frames.source_subscribe(&SourceOptions { application, ..SourceOptions::default() })?;
    let kind = event_type(&rooms.frames, "frame")?;
    let kinds = [event_type(&rooms.talk, "feedback")?, event_type(&rooms.talk, "level")?];
    let sink = rooms.talk.sink(&SinkOptions::default())?;
    let (receivers, ended) = (Receivers::default(), AtomicBool::new(false));
    let listener = Listener::new(sender.switch, &receivers, kinds);
    sender.take_decided(&rooms.channels)?;
    thread::scope(|scope| {
        let listening = scope.spawn(|| listener.listen(sink, || ended.load(Ordering::Relaxed)));
        let send = Outlet { source, kind, channels: &rooms.channels, registration };
        let sent = sender.send(&send, &receivers, report, || listening.is_finished());
        ended.store(true, Ordering::Relaxed);
        let listened = listening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and(listened)
    })
}

/// Where pictures go.
struct Outlet<'a> {
    source: EventSource,
    kind: u16,
    channels: &'a Channels,
    registration: Registration,
}

/// What lives longer than a connection.
struct Sender<'a> {
    options: &'a ServeOptions,
    switch: &'a LevelSwitch,
    camera: Camera,
    encoder: Option<(Encoder, Scaler)>,
    presets: Option<PresetLadder>,
    ladder: Option<LevelLadder>,
    decided: DecidedLevel,
    service: Option<Service>,
    /// The receivers, if pictures are sent over METP.
    audience: Option<Audience>,
    /// The last message about a level.
    said: String,
    /// How many receivers were left out in the last second.
    left_out: usize,
    coded: CodedPicture,
    event: Vec<u8>,
    stream: u32,
    number: u32,
    sent: u32,
    next: Instant,
    second: Second,
}

/// Counts of the second that runs.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    begin: Instant,
    /// CPU time of this thread.
    cpu: Nanos,
    number: u32,
    sent: u32,
    bytes: u64,
}

impl<'a> Sender<'a> {
    fn new(options: &'a ServeOptions, switch: &'a LevelSwitch) -> Result<Sender<'a>> {
        let (camera, begin) = (Camera::open(&options.source)?, now());
        // Two runs of a server have different times.
        let stream = (begin.get() / 1_000_000) as u32 | 1;
        let second = Second { begin, cpu: thread_cpu(), ..Second::default() };
        let (ladder, coded, event) = (options.ladder.clone(), CodedPicture::default(), Vec::new());
        Ok(Sender {
            options,
            switch,
            camera,
            encoder: None,
            presets: options.presets.clone(),
            ladder,
            decided: DecidedLevel::new(switch.level()),
            service: options.cpu.map(|cpu| Service::start(options.socket.as_ref(), options.period, cpu)),
            audience: None,
            said: String::new(),
            left_out: 0,
            coded,
            event,
            stream,
            number: 0,
            sent: 0,
            next: begin,
            second,
        })
    }

    /// Offers the pictures over METP, if that is wanted: once, also when the daemon was away in between.
    fn open_audience(&mut self) -> Result<()> {
        let options = self.options;
        if let Some(metp) = options.metp.as_ref().filter(|_| self.audience.is_none()) {
            self.audience = Some(Audience::open(metp, &options.channel, options.socket.as_ref())?);
        }
        Ok(())
    }

    fn send(
        &mut self,
        outlet: &Outlet<'_>,
        receivers: &Receivers,
        report: &dyn Fn(&Report),
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        while !self.options.stop.is_set() && !is_over() {
            while sleep_until(self.next).is_err() {}
            self.picture(outlet)?;
            self.notice(outlet.channels)?;
            if let Some(service) = &mut self.service {
                service.on_picture();
            }
            self.next = (self.next + self.options.period).max(now());
            if now() >= self.second.begin + SECOND {
                self.end_second(outlet, receivers, report)?;
            }
        }
        Ok(())
    }

    fn picture(&mut self, outlet: &Outlet<'_>) -> Result<()> {
        let (generated, order) = (now(), self.switch.take());
        let Some((mut encoder, mut scaler)) = self.encoder(order.level)? else { return Ok(()) };
        let picture = scaler.scale(self.camera.capture()?)?;
        let begin = thread_cpu();
        let done = encoder.encode(picture, order.key, &mut self.coded);
        if done.is_ok() {
            self.count_preset(encoder.level(), thread_cpu() - begin);
        }
        self.number = self.number.wrapping_add(1);
        let submitted = match done {
            Ok(()) => self.submit(outlet, encoder.level(), order.changes, generated),
            Err(problem) => self.complain(problem, encoder.level()),
        };
        self.encoder = Some((encoder, scaler));
        submitted
    }

    /// Tells the ladder of presets what the picture has cost.
    fn count_preset(&mut self, level: Level, run: Nanos) {
        let Some(presets) = self.presets.as_mut().filter(|_| level.codec() == Codec::H264) else { return };
        // Luma, and two planes of a quarter.
        let input = level.size().pixels() * 3 / 2;
        if let Some(preset) = presets.on_picture(input, self.coded.data.len(), run) {
            self.say(&format!("the preset {preset} needs the least energy by the model"));
        }
    }

    /// The encoder of this level, taken out. None: there is none, and the level is another one now.
    fn encoder(&mut self, level: Level) -> Result<Option<(Encoder, Scaler)>> {
        let last = self.encoder.take();
        let is_new = last.as_ref().is_some_and(|(encoder, _)| encoder.level() != level);
        self.presets.iter_mut().filter(|_| is_new).for_each(PresetLadder::begin_anew);
        let presets = self.presets.as_ref().filter(|_| level.codec() == Codec::H264);
        let preset = presets.map(PresetLadder::preset).unwrap_or_default();
        let is_open = |(encoder, _): &(Encoder, Scaler)| (encoder.level(), encoder.preset()) == (level, preset);
        if let Some(open) = last.filter(is_open) {
            return Ok(Some(open));
        }
        match Encoder::with_preset(level, preset) {
            Ok(encoder) => Ok(Some((encoder, Scaler::new(level.size())))),
            Err(problem) => self.complain(problem, level).map(|()| None),
        }
    }

    /// The conference goes on without the codec; not without JPEG.
    fn complain(&self, problem: CodecProblem, level: Level) -> Result<()> {
        if level.codec() == Codec::Jpeg {
            return Err(problem.into());
        }
        eprintln!("qfabric-conference: {problem}; going on with {}", self.switch.fall_back());
        Ok(())
    }

    fn submit(&mut self, outlet: &Outlet<'_>, setting: Level, level: u32, generated: Instant) -> Result<()> {
        let (coded, bytes) = (&self.coded, self.coded.data.len());
        let parts = match self.audience {
            // METP cuts pictures into parts by itself.
            Some(_) => (1..=wire::MAX_FRAME).contains(&bytes).then_some(1),
            None => FrameHeader::split(bytes, self.options.fragment),
        };
        let Some(parts) = parts else {
            let most = wire::MAX_FRAME;
            eprintln!(
                "qfabric-conference: a picture of {bytes} bytes, at most {most} are sent; choose a lower quality"
            );
            return Ok(());
        };
        let (stream, number, sent, key) = (self.stream, self.number, self.sent, coded.key);
        let bytes = bytes as u32;
        let mut header = FrameHeader { stream, number, sent, bytes, part: 0, parts, setting, key, level, generated };
        let (event_type, deadline) = (outlet.kind, Some(now() + self.options.deadline));
        for part in 0..parts {
            header.part = part;
            header.encode(&coded.data, &mut self.event);
            let payload = &self.event;
            match &mut self.audience {
                Some(audience) => audience.send(&header, payload, self.options.deadline),
                None => {
                    outlet.source.submit(&Submission { event_type, deadline, payload, ..Submission::default() })?;
                }
            }
        }
        self.sent = self.sent.wrapping_add(1);
        self.second.bytes += u64::from(bytes);
        Ok(())
    }

    fn end_second(&mut self, outlet: &Outlet<'_>, receivers: &Receivers, report: &dyn Fn(&Report)) -> Result<()> {
        let (now, cpu_now) = (now(), thread_cpu());
        let Second { begin, cpu, number, sent, bytes } = self.second;
        let elapsed = now.since(begin).get().max(1);
        let rate = |count: u32| (u64::from(count) * 1_000_000_000_000 / elapsed) as u32;
        let left = receivers.look_for(self.switch, now);
        let told = Report {
            at_ns: now.get(),
            generated: rate(self.number.wrapping_sub(number)),
            sent: rate(self.sent.wrapping_sub(sent)),
            bytes,
            level: self.switch.level().to_string(),
            level_changes: self.switch.changes(),
            worth: self.ladder.as_ref().map_or(1.0, |ladder| ladder.worth(self.switch.level())),
            service_ns: self.service.as_ref().map_or(0, |service| service.in_force().get()),
            left_out: receivers.without(self.switch.level().codec()),
            receivers: left,
            metp: self.audience.as_ref().map(Audience::report),
        };
        self.name_left_out(&told.left_out);
        if let Some(ladder) = &mut self.ladder {
            ladder.retain_receivers(|receiver| told.receivers.contains_key(receiver));
        }
        self.adapt(told.generated, receivers, now);
        let used = (cpu_now - cpu).get() as u128 * 1_000_000 / u128::from(elapsed);
        outlet.registration.report("app.cpu", used as i64)?;
        outlet.registration.report("app.generated_milli", told.generated.into())?;
        outlet.registration.report("app.sent_milli", told.sent.into())?;
        report(&told);
        self.second = Second { begin: now, cpu: cpu_now, number: self.number, sent: self.sent, bytes: 0 };
        Ok(())
    }
}

impl Sender<'_> {
    fn name_left_out(&mut self, names: &[String]) {
        if names.len() > self.left_out {
            let (some, codec) =
                (names.iter().take(4).map(String::as_str).collect::<Vec<_>>(), self.switch.level().codec());
            eprintln!(
                "qfabric-conference: {} of the receivers ({}) cannot decode {codec} and are left out; for them, set a level of \
                 jpeg",
                names.len(),
                some.join(", ")
            );
        }
        self.left_out = names.len();
    }

    /// CPU time first, while there is more of it; then one step of the ladder, if the rate at the median receiver asks
    /// for one.
    fn adapt(&mut self, generated: u32, receivers: &Receivers, now: Instant) {
        if let Some(level) = self.decided.again(self.switch.level(), now) {
            self.decide(level);
        }
        let wanted = 1e12 / self.options.period.as_f64();
        // Pictures that get lost behind this host need no CPU time here.
        let arrived = receivers.median(now, |feedback| feedback.arrived);
        let missing = 1.0 - f64::from(generated.max(arrived.unwrap_or(0))) / wanted;
        if self.service.as_mut().is_some_and(|service| service.on_second(missing)) {
            return;
        }
        let shown = receivers.median(now, |feedback| feedback.shown);
        let ladder = self.ladder.as_mut().filter(|_| self.options.decides_level());
        let (Some(ladder), Some(shown)) = (ladder, shown) else { return };
        receivers.take_delays().iter().for_each(|(receiver, delay)| ladder.on_delay(receiver, *delay, now));
        if let Some(level) = ladder.on_rate(f64::from(shown) / 1e3, self.switch.level(), now) {
            self.decide(level);
        }
    }

    fn decide(&mut self, level: Level) {
        if let Some(refused) = self.switch.decide(level) {
            self.say(&format!("jpeg instead of {level}: {refused:#}"));
        }
    }

    /// Each new message once.
    fn say(&mut self, text: &str) {
        if self.said != text {
            eprintln!("qfabric-conference: {text}");
            self.said = text.to_owned();
        }
    }

    /// What policies have decided before this server came: they tell each decision once.
    fn take_decided(&mut self, channels: &Channels) -> Result<()> {
        let options = self.options;
        let channel = options.channel.as_str();
        for policy in channels.policies()? {
            let is_ours = |one: &Resource| matches!(one, Resource::Levels(of) if of.as_str() == channel);
            if policy.policy.as_kind().decides().iter().any(is_ours) {
                for one in policy.decided {
                    self.on_decision(channel, &one.attribute, &one.subject, one.amount);
                }
            }
        }
        Ok(())
    }

    fn notice(&mut self, channels: &Channels) -> Result<()> {
        while let Some(notice) = channels.next_notice()? {
            match notice {
                Notice::SourceEnded { why, .. } | Notice::SinkEnded { why, .. } => return Err(Ended(why).into()),
                Notice::Decided { channel, attribute, subject, amount: Some(amount) } => {
                    self.on_decision(&channel, &attribute, &subject, amount);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn on_decision(&mut self, channel: &str, attribute: &str, subject: &str, amount: i64) {
        if is_amount(attribute)
            && let Some(service) = &mut self.service
        {
            service.leave_to_policy();
        }
        if attribute != "app.level" || channel != self.options.channel {
            return;
        }
        if !self.options.decides_level() {
            match self.decided.on_decision(subject, amount) {
                Ok(level) => self.decide(level),
                Err(refused) => self.say(&format!("the level stays {}: {refused:#}", self.switch.level())),
            }
        } else {
            self.say("a policy decides levels, but --adapt decides here; stop the policy, or add --by-policy");
        }
    }
}

/// Asks the server of a channel for a level, from any host that may send there. The server's next pictures have it;
/// a server that lacks the codec says so and keeps its level.
pub fn request_level(socket: Option<&PathBuf>, channel: &str, level: Level) -> Result<()> {
    let channels = Channels::connect(&client(socket)?)?;
    let talk = channels.open(&format!("{channel}.talk"))?;
    let event_type = event_type(&talk, "level")?;
    let source = talk.source_subscribe(&SourceOptions::default())?;
    source.submit_and_wait(&Submission { event_type, payload: &level.encode(), ..Submission::default() })?;
    Ok(())
}
