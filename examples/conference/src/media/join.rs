//! A receiver: assembles, decodes and shows pictures, and tells the server once per second how it goes.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use qfabric_client::channel::{
    Channels, Event, Notice, Registration, Sink, SinkOptions, Source, SourceOptions, Submission,
};
use qfabric_client::clock::{now, sleep_until, thread_cpu};
use qfabric_types::{Instant, Nanos};
use serde::Serialize;

use super::codec::{CodecProblem, Decoder};
use super::meter::Meter;
use super::metp::{MetpJoin, Pictures};
use super::playout::Playout;
use super::retry::{Ended, Rooms, Stop, event_type};
use super::service::{CpuTime, Service, is_amount};
use crate::wire::{Feedback, FrameHeader};
use crate::{Assembler, Codec, Frame};

const SECOND: Nanos = Nanos::from_millis(1_000);
/// Pictures that wait for the decoder, at least and at most; a further one replaces the oldest. As many as come in twice
/// the delay, and some.
const QUEUE: (usize, usize) = (8, 64);
/// Bytes of the pictures that wait; the oldest are dropped. These are four pictures of the largest length.
const QUEUE_BYTES: usize = 16 << 20;
/// How often the receiver looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// Events of the channel that are let go at once while pictures come over METP.
const EVENTS: usize = 64;
/// Pictures of another run of a server are taken after this silence.
const SILENCE: Nanos = Nanos::from_millis(1_000);

/// What is received, and how.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The host that serves; pictures of other hosts are ignored.
    pub host: String,
    /// Name of the channel of pictures.
    pub channel: String,
    /// Time between two pictures, for the jitter.
    pub period: Nanos,
    /// How long the first picture waits before it is shown.
    pub delay: Nanos,
    /// Codecs that are decoded; pictures of others are reported as missing.
    pub codecs: Vec<Codec>,
    /// Gets pictures over METP instead of as events; none: as events.
    pub metp: Option<MetpJoin>,
    /// CPU time that is reserved for the thread that decodes and shows; none: nothing is reserved.
    pub cpu: Option<CpuTime>,
    /// The daemon's socket; none: the usual places.
    pub socket: Option<PathBuf>,
    /// Ends the receiver.
    pub stop: Stop,
}

/// The receiver's last second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JoinReport {
    /// End of the second, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// CPU time that is reserved in every period, in nanoseconds; 0: nothing is reserved.
    pub service_ns: u64,
    /// What the server was told.
    #[serde(flatten)]
    pub feedback: Feedback,
}

/// Receives until the options' `stop` is set; goes on by itself when the daemon or the server was away. `report` is
/// called once per second, and `log` gets a line of JSON for each picture that is shown.
///
/// # Errors
/// The daemon refuses the channel, or the server the connection over METP, for good.
pub fn join(options: &JoinOptions, log: Option<&mut (dyn Write + Send)>, report: &dyn Fn(&JoinReport)) -> Result<()> {
    let shared = Shared::new(options);
    thread::scope(|scope| {
        let player = scope.spawn(|| Player::new(options, &shared, log).run());
        let mut receiver = Receiver::new(options, &shared);
        let done = options.stop.retry(|| receiver.session(report, || player.is_finished()));
        shared.is_over.store(true, Ordering::Relaxed);
        shared.arrived.notify_all();
        let played = player.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.and(played)
    })
}

/// Between the thread that receives and the one that shows.
struct Shared {
    /// Limit of the queue.
    most: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
    meter: Mutex<Meter>,
    /// Sum of [`Codec::bit`].
    missing: AtomicU32,
    wants_key: AtomicBool,
    /// The part of the rate of arrivals, 0 to 1, whose pictures were not shown in the last second; the player takes it.
    missing_rate: Mutex<Option<f64>>,
    service_ns: AtomicU64,
    /// CPU time of the player.
    cpu_ns: AtomicU64,
    /// A policy has decided about the contract.
    is_by_policy: AtomicBool,
    is_over: AtomicBool,
}

/// Pictures that wait for the decoder.
#[derive(Debug, Default)]
struct Queue {
    pictures: VecDeque<(Frame, Instant)>,
    bytes: usize,
}

impl Queue {
    /// Drops the oldest pictures until there are at most `most`, of at most [`QUEUE_BYTES`].
    fn put(&mut self, frame: Frame, now: Instant, most: usize) {
        self.bytes += frame.data.len();
        self.pictures.push_back((frame, now));
        while self.pictures.len() > most || self.bytes > QUEUE_BYTES {
            self.take();
        }
    }

    fn take(&mut self) -> Option<(Frame, Instant)> {
        let picture = self.pictures.pop_front()?;
        self.bytes -= picture.0.data.len();
        Some(picture)
    }
}

impl Shared {
    fn new(options: &JoinOptions) -> Shared {
        let most = (2 * options.delay.get() / options.period.get().max(1)).saturating_add(4);
        Shared {
            most: (most as usize).clamp(QUEUE.0, QUEUE.1),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            meter: Mutex::new(Meter::new(options.period, now())),
            missing: AtomicU32::new(0),
            wants_key: AtomicBool::new(false),
            missing_rate: Mutex::default(),
            service_ns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            is_by_policy: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, frame: Frame, now: Instant) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.put(frame, now, self.most);
        self.arrived.notify_all();
    }

    /// Moves the service once per second.
    fn reserve(&self, service: &mut Service) {
        if self.is_by_policy.load(Ordering::Relaxed) {
            service.leave_to_policy();
        }
        let missing = self.missing_rate.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(missing) = missing {
            service.on_second(missing);
            self.service_ns.store(service.in_force().get(), Ordering::Relaxed);
        }
    }

    /// The oldest picture. None: none for a while.
    fn take(&self) -> Option<(Frame, Instant)> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.arrived.wait_timeout_while(queue, LOOK, |queue| queue.pictures.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// The thread that receives.
struct Receiver<'a> {
    options: &'a JoinOptions,
    shared: &'a Shared,
    assembler: Assembler,
    /// The stream that is shown, and when a part of it came last.
    current: Option<(u32, Instant)>,
    /// Events that were no parts of pictures.
    bad: u64,
    /// The time of the last report, and the player's CPU time then.
    told: Instant,
    cpu_ns: u64,
}

impl<'a> Receiver<'a> {
    fn new(options: &'a JoinOptions, shared: &'a Shared) -> Receiver<'a> {
        let (assembler, cpu_ns) = (Assembler::default(), shared.cpu_ns.load(Ordering::Relaxed));
        Receiver { options, shared, assembler, current: None, bad: 0, told: now(), cpu_ns }
    }

    fn session(&mut self, report: &dyn Fn(&JoinReport), is_over: impl Fn() -> bool) -> Result<()> {
        let options = self.options;
        let connect = |metp| Pictures::open(metp, &options.host, &options.channel, options.socket.as_ref());
        let pictures = options.metp.as_ref().map(connect).transpose()?;
        let rooms = Rooms::enter(options.socket.as_ref(), &options.channel)?;
        let rate = (1_000_000_000 / options.period.get().max(1)) as i64;
        let application = Some("receiver".to_owned());
        let mut sink = rooms.frames.sink(&SinkOptions { application, ..SinkOptions::default() })?;
        // The number distinguishes the receivers of a host, so their reports do not overwrite each other.
        let name = format!("receiver-{}", sink.number());
        let registration = rooms.channels.register(&name, &options.channel, &[("frame_rate", 1, rate)])?;
        let source = rooms.talk.source_subscribe(&SourceOptions::default())?;
        let (kind, receiver) = (event_type(&rooms.talk, "feedback")?, sink.number());
        let back = Back { source, kind, receiver, registration, channels: &rooms.channels };
        while !options.stop.is_set() && !is_over() {
            match &pictures {
                Some(pictures) => self.take_picture(pictures, &mut sink)?,
                None => {
                    if let Some(received) = sink.next(LOOK)? {
                        self.take(&received.event());
                    }
                }
            }
            if now() >= self.told + SECOND {
                let told = now();
                let service_ns = self.shared.service_ns.load(Ordering::Relaxed);
                report(&JoinReport { at_ns: told.get(), service_ns, feedback: self.tell(&back, told)? });
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) {
        if event.host == self.options.host {
            self.take_part(event.payload);
        }
    }

    /// Takes the next picture that comes over METP. Events of the channel come from other servers; they are let go, so
    /// that they do not wait for this receiver.
    fn take_picture(&mut self, pictures: &Pictures, sink: &mut Sink) -> Result<()> {
        if let Some(message) = pictures.next(LOOK)? {
            self.take_part(&message.data);
        }
        for _ in 0..EVENTS {
            if sink.next(Duration::ZERO)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Takes a part of a picture with its header.
    fn take_part(&mut self, part: &[u8]) {
        let parsed = FrameHeader::parse(part);
        let Ok((header, data)) = parsed.inspect_err(|error| self.complain(error)) else { return };
        let now = now();
        let other = |(stream, at): (u32, Instant)| stream != header.stream && now.since(at) < SILENCE;
        if self.current.is_some_and(other) {
            return;
        }
        self.current = Some((header.stream, now));
        if let Some(frame) = self.assembler.push(header, data) {
            self.shared.meter().on_arrived(&frame.header, now);
            self.shared.put(frame, now);
        }
    }

    fn complain(&mut self, error: &crate::wire::BadEvent) {
        self.bad += 1;
        if self.bad.is_power_of_two() {
            eprintln!("qfabric-conference: {} events of {} are no pictures: {error}", self.bad, self.options.host);
        }
    }

    fn tell(&mut self, back: &Back<'_>, now: Instant) -> Result<Feedback> {
        self.notice(back.channels)?;
        let feedback = {
            let mut meter = self.shared.meter();
            let rates = meter.read(now);
            meter.feedback(&rates)
        };
        let feedback = Feedback {
            receiver: back.receiver,
            lost: self.assembler.lost().min(u32::MAX.into()) as u32,
            missing: self.shared.missing.load(Ordering::Relaxed),
            want_key: self.shared.wants_key.load(Ordering::Relaxed),
            ..feedback
        };
        let expected = f64::from(feedback.arrived).min(1e12 / self.options.period.as_f64());
        let missing = if expected > 0.0 { 1.0 - f64::from(feedback.shown) / expected } else { 0.0 };
        *self.shared.missing_rate.lock().unwrap_or_else(PoisonError::into_inner) = Some(missing);
        back.send(&feedback, self.used(now))?;
        Ok(feedback)
    }

    fn notice(&self, channels: &Channels) -> Result<()> {
        while let Some(notice) = channels.next_notice()? {
            match notice {
                Notice::SourceEnded { why, .. } | Notice::SinkEnded { why, .. } => return Err(Ended(why).into()),
                Notice::Decided { attribute, .. } if is_amount(&attribute) => {
                    self.shared.is_by_policy.store(true, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// CPU time that the player has used since the last call, in millionths of a CPU.
    fn used(&mut self, now: Instant) -> i64 {
        let cpu_ns = self.shared.cpu_ns.load(Ordering::Relaxed);
        let used = u128::from(cpu_ns - self.cpu_ns) * 1_000_000 / u128::from(now.since(self.told).get().max(1));
        (self.cpu_ns, self.told) = (cpu_ns, now);
        used as i64
    }
}

/// The way back to the server, and to the managers.
struct Back<'a> {
    source: Source,
    kind: u16,
    receiver: u32,
    registration: Registration,
    channels: &'a Channels,
}

impl Back<'_> {
    /// `used`: CPU time in millionths of a CPU.
    fn send(&self, feedback: &Feedback, used: i64) -> Result<()> {
        self.registration.report("app.cpu", used)?;
        for (attribute, value) in [
            ("app.arrived_milli", feedback.arrived),
            ("app.decoded_milli", feedback.decoded),
            ("app.shown_milli", feedback.shown),
            ("app.jitter_us", feedback.jitter_us),
        ] {
            self.registration.report(attribute, value.into())?;
        }
        let payload = &feedback.encode();
        Ok(self.source.submit(&Submission { event_type: self.kind, payload, ..Submission::default() })?)
    }
}

/// The thread that decodes and shows.
struct Player<'a, 'l> {
    options: &'a JoinOptions,
    shared: &'a Shared,
    decoder: Option<Decoder>,
    /// The last picture that was decoded: its stream and its number.
    last: Option<(u32, u32)>,
    playout: Playout,
    log: Option<&'l mut (dyn Write + Send)>,
}

impl<'a, 'l> Player<'a, 'l> {
    fn new(options: &'a JoinOptions, shared: &'a Shared, log: Option<&'l mut (dyn Write + Send)>) -> Player<'a, 'l> {
        Player { options, shared, decoder: None, last: None, playout: Playout::new(options.delay), log }
    }

    fn run(&mut self) -> Result<()> {
        let options = self.options;
        let mut service = options.cpu.map(|cpu| Service::start(options.socket.as_ref(), options.period, cpu));
        while !self.shared.is_over.load(Ordering::Relaxed) {
            self.shared.cpu_ns.store(thread_cpu().get(), Ordering::Relaxed);
            if let Some(service) = &mut service {
                self.shared.reserve(service);
            }
            let Some((frame, arrived)) = self.shared.take() else { continue };
            match self.decode(&frame) {
                Ok(true) => self.show(&frame, arrived)?,
                Ok(false) => {}
                Err(problem) => self.fail(&frame.header, &problem),
            }
            if let Some(service) = &mut service {
                service.on_picture();
            }
        }
        Ok(())
    }

    /// False: it refers to pictures that are not here.
    fn decode(&mut self, frame: &Frame) -> Result<bool, CodecProblem> {
        let FrameHeader { stream, number, setting, key, .. } = frame.header;
        let codec = setting.codec();
        if !self.options.codecs.contains(&codec) {
            return Err(CodecProblem::Missing { what: "decoder", codec });
        }
        let follows = self.last == Some((stream, number.wrapping_sub(1)));
        let same = self.decoder.as_ref().is_some_and(|decoder| decoder.fits(setting));
        if codec.refers_back() && !key && !(follows && same) {
            self.shared.wants_key.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        if !same || !follows {
            self.decoder = None;
        }
        if self.decoder.is_none() {
            self.decoder = Some(Decoder::open(codec, setting.size())?);
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.decode(&frame.data)?;
        }
        self.last = Some((stream, number));
        self.shared.wants_key.store(false, Ordering::Relaxed);
        self.shared.missing.fetch_and(!codec.bit(), Ordering::Relaxed);
        self.shared.meter().on_decoded();
        Ok(true)
    }

    /// Nothing is drawn: the picture is shown when its time has come.
    fn show(&mut self, frame: &Frame, arrived: Instant) -> Result<()> {
        let due = self.playout.due(&frame.header, now());
        while sleep_until(due).is_err() {}
        let shown = now();
        self.shared.meter().on_shown(&frame.header, shown);
        let FrameHeader { number, generated, setting, bytes, .. } = frame.header;
        if let Some(log) = &mut self.log {
            let line = serde_json::json!({"number": number, "generated_ns": generated.get(), "arrived_ns": arrived.get(),
                "shown_ns": shown.get(), "level": setting.to_string(), "bytes": bytes});
            writeln!(log, "{line}")?;
        }
        Ok(())
    }

    fn fail(&mut self, header: &FrameHeader, problem: &CodecProblem) {
        self.last = None;
        match problem {
            CodecProblem::Missing { codec, .. } => {
                if self.shared.missing.fetch_or(codec.bit(), Ordering::Relaxed) & codec.bit() == 0 {
                    eprintln!(
                        "qfabric-conference: {problem}; the server is told, and goes on with JPEG if most hosts lack it"
                    );
                }
            }
            CodecProblem::Failed { .. } => {
                self.shared.wants_key.store(header.setting.codec().refers_back(), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MAX_FRAME;

    #[test]
    fn pictures_that_wait_are_bounded_by_number_and_by_bytes() {
        let setting = "jpeg:50:small".parse().unwrap();
        let (stream, sent, part, parts, key, level, generated) = (1, 0, 0, 1, true, 0, Instant::ZERO);
        let frame = |number: u32, bytes: usize| {
            let header =
                FrameHeader { stream, number, sent, bytes: bytes as u32, part, parts, setting, key, level, generated };
            Frame { header, data: vec![0; bytes] }
        };
        let mut queue = Queue::default();
        (0..20).for_each(|number| queue.put(frame(number, MAX_FRAME), Instant::ZERO, 64));
        assert_eq!((queue.pictures.len(), queue.bytes), (QUEUE_BYTES / MAX_FRAME, QUEUE_BYTES));
        assert_eq!(queue.take().unwrap().0.header.number, 16, "the oldest were dropped");
        (20..90).for_each(|number| queue.put(frame(number, 10), Instant::ZERO, 64));
        assert_eq!((queue.pictures.len(), queue.bytes), (64, 640));
    }
}
