//! Runs a session over its carriers: one task in the connection's thread.
//!
//! ```text
//!   application --Handover--> Driver --> Session --Output--> carriers
//!   application <--Handover-- Driver <-- Session <--datagrams--
//! ```
//! The driver decides nothing about messages. It passes inputs and the time to the session, carries out its outputs,
//! and tells it what the carriers can take.

mod carriers;
mod commands;
pub(crate) mod grants;
mod rates;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use qfabric_metp::{CarrierId, EndReason, Outgoing, Output, Received, SendRefusal, Session};
use qfabric_types::{BitRate, Instant, Nanos};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use crate::Error;
use crate::carrier::Sent;
use crate::handover::{Event, Handover, Message, Submitted};
use crate::options::{Options, Secured, nanos};
use crate::quic::Authenticated;
use crate::recording::{self, Recording};
use crate::statistics::ConnectionStatistics;
use carriers::Attached;
use grants::Grants;

/// How often paths and rates are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Datagrams that are taken from one carrier before the others, the application and the timer are served.
const BATCH: usize = 64;
/// How long an ended session answers the other side's last datagrams.
const LINGER: Nanos = Nanos::from_millis(400);
/// While the driver sleeps for this time, the task of the socket sends what was handed to it.
const SENDING: Duration = Duration::from_millis(1);
/// Connections that wait to become carriers.
pub(crate) const MOST_ATTACHMENTS: usize = 4;

/// Connections that become carriers of a session.
pub(crate) type Attachments = mpsc::Sender<Attachment>;

/// A connection that becomes a carrier, and who wants to know its number.
pub(crate) struct Attachment {
    pub(crate) path: Result<Authenticated, Error>,
    pub(crate) reply: Option<crate::handover::Reply<u32>>,
}

pub(crate) struct Driver {
    session: Session,
    carriers: BTreeMap<u32, Attached>,
    next_carrier: u32,
    /// The carrier of the data of this side; rates follow its path.
    sending: u32,
    handover: Arc<Handover>,
    attachments: mpsc::Receiver<Attachment>,
    attach: Attachments,
    connector: Option<Connector>,
    wanted_rate: BitRate,
    rate: BitRate,
    grants: Grants,
    recording: Option<Recording>,
    is_delivering: bool,
    is_finishing: bool,
    ended: Option<(EndReason, Instant)>,
    has_parted: bool,
    ticked: Instant,
    buffer: Vec<u8>,
}

/// Makes further connections of a client's session.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) expected: qfabric_types::channel::Name,
    pub(crate) session: crate::hello::SessionKey,
    pub(crate) secured: Secured,
}

impl Driver {
    pub(crate) fn new(
        options: &Options,
        tag: u16,
        handover: Arc<Handover>,
        connector: Option<Connector>,
    ) -> Result<Driver, Error> {
        let now = now();
        let refused = |error: qfabric_metp::InvalidConfig| Error::Refused(Box::new(error.problem()));
        let session = Session::new(rates::config(options, tag), now).map_err(refused)?;
        let (attach, attachments) = mpsc::channel(MOST_ATTACHMENTS);
        Ok(Driver {
            session,
            carriers: BTreeMap::new(),
            next_carrier: 0,
            sending: 0,
            handover,
            attachments,
            attach,
            connector,
            wanted_rate: options.rate,
            rate: options.rate,
            grants: Grants::default(),
            recording: None,
            is_delivering: true,
            is_finishing: false,
            ended: None,
            has_parted: false,
            ticked: now,
            buffer: Vec::new(),
        })
    }

    /// The way for further carriers into the session.
    pub(crate) fn attachments(&self) -> Attachments {
        self.attach.clone()
    }

    /// Runs until the session has ended. Must run in a `LocalSet`.
    pub(crate) async fn run(mut self) {
        loop {
            self.serve_application();
            self.carry_out();
            self.part().await;
            if self.is_over() {
                break;
            }
            self.wait().await;
        }
        let end = self.ended.map_or(crate::End::Closed, |(reason, _)| reason.into());
        for attached in self.carriers.values_mut() {
            attached.carrier.close("the session has ended");
        }
        let mut statistics = self.statistics();
        if let Some(recording) = self.recording.take() {
            let finished = tokio::task::spawn_blocking(|| recording.finish()).await;
            (statistics.renewals, statistics.renewal_failure) = finished.unwrap_or_default();
        }
        self.grants.release().await;
        self.handover.end(end, statistics);
    }

    /// After the end: lets the last datagrams leave this host. When they have, tells the application, whose process may
    /// end now.
    async fn part(&mut self) {
        if self.ended.is_none() || self.has_parted {
            return;
        }
        tokio::time::sleep(SENDING).await;
        let is_drained = self.carriers.values().all(|attached| attached.carrier.is_drained());
        if is_drained && !self.session.is_closing() {
            self.has_parted = true;
            self.handover.part();
        }
    }

    /// Until something can be done.
    async fn wait(&mut self) {
        let due = self.session.next_wakeup().map_or(Nanos::new(u64::MAX), |at| at.since(now()));
        let tick = nanos(TICK).saturating_sub(now().since(self.ticked));
        let (handover, sleep) = (self.handover.clone(), Duration::from_nanos(due.min(tick).get()));
        let woken = {
            let carriers =
                poll_fn(|context| poll_carriers(&mut self.session, &mut self.carriers, &mut self.buffer, context));
            tokio::select! {
                _ = tokio::time::sleep(sleep), if !sleep.is_zero() => Woken::Time,
                () = carriers => Woken::Carriers,
                () = handover.woken() => Woken::Application,
                Some(attachment) = self.attachments.recv() => Woken::Attachment(Box::new(attachment)),
                () = std::future::ready(()), if sleep.is_zero() => Woken::Time,
            }
        };
        let now = now();
        if let Woken::Attachment(attachment) = woken {
            self.attach_connection(*attachment);
        }
        self.session.on_timer(now);
        if now.since(self.ticked) >= nanos(TICK) {
            self.tick(now);
        }
    }

    fn serve_application(&mut self) {
        while let Some(command) = self.handover.take_command() {
            self.obey(command);
        }
        self.resume_delivery();
        let handover = self.handover.clone();
        while let Some(taken) = handover.offer(|message| submit(&mut self.session, message)) {
            if let Some(mode) = taken.mode_behind {
                self.session.set_mode(now(), mode);
                // The other side learns of this change before the next one replaces it.
                self.carry_out();
            }
        }
        self.finish_when_drained();
    }

    fn resume_delivery(&mut self) {
        if !self.is_delivering && self.handover.has_room() {
            self.is_delivering = true;
            self.session.set_receiving(now(), true);
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Datagram { carrier } => self.send(carrier),
                Output::Received(received) => self.deliver(&received),
                Output::Skipped { first, count } => {
                    self.handover.report(Event::Skipped { first: first.get(), count });
                }
                Output::Outcome { number, kind, size, first_sent, outcome } => {
                    let number = number.get();
                    if let Some(recording) = &self.recording {
                        let sent = recording::Sent { number, size, first_sent, outcome };
                        recording.note(now(), sent, self.session.min_rtt());
                    }
                    self.handover.report(Event::Outcome { number, kind, outcome });
                }
                Output::ModeChanged { mode, from } => {
                    self.handover.report(Event::ModeChanged { mode, from: from.get() });
                }
                Output::PeerFinished => self.handover.report(Event::PeerFinished),
                Output::Ended(reason) => {
                    self.ended.get_or_insert((reason, now()));
                }
            }
        }
    }

    fn send(&mut self, id: CarrierId) {
        let Some(attached) = self.carriers.get_mut(&id.0) else { return };
        let sent = attached.carrier.send(self.session.datagram());
        match sent {
            Sent::Yes | Sent::Full | Sent::Closed => {}
            // The path shrank since the last look; METP repeats the datagram in smaller parts.
            Sent::TooLarge => self.look_at_path(id.0),
        }
        self.stop_if_full(id.0);
    }

    fn deliver(&mut self, received: &Received) {
        let message = Message {
            number: received.number.get(),
            kind: received.kind,
            data: self.session.message().to_vec(),
            holes: self.session.holes().collect(),
            late_by: received.late_by,
            delay: received.delay,
        };
        if !self.handover.deliver(message) {
            self.is_delivering = false;
            self.session.set_receiving(now(), false);
        }
    }

    /// The session has ended, and the other side knows it or had time to.
    fn is_over(&self) -> bool {
        self.ended.is_some_and(|(_, at)| now().since(at) >= LINGER || self.carriers.is_empty())
    }

    fn statistics(&mut self) -> ConnectionStatistics {
        let granted = self.carriers.get(&self.sending).and_then(|sending| sending.carrier.governor()?.granted());
        let (renewals, renewal_failure) = self.recording.as_ref().map(Recording::written).unwrap_or_default();
        ConnectionStatistics {
            session: self.session.statistics(),
            carriers: self.carriers.values().map(|attached| attached.statistics(self.sending)).collect(),
            rate: self.rate,
            granted,
            revocations: self.grants.revocations(),
            dropped_events: 0,
            renewals,
            renewal_failure,
        }
    }
}

enum Woken {
    Time,
    Carriers,
    Application,
    Attachment(Box<Attachment>),
}

/// Returns whether the session took the message or refused it for good.
fn submit(session: &mut Session, message: &Submitted) -> bool {
    let deadline = message.deadline.map(|at| nanos(at.saturating_duration_since(message.at)));
    let outgoing = Outgoing { kind: message.kind, deadline, data: &message.data };
    match session.send_waited(now(), nanos(message.at.elapsed()), outgoing) {
        Ok(_) => true,
        Err(SendRefusal::TooManyMessages { .. } | SendRefusal::NoMemory { .. }) => false,
        // Sizes are checked when the application submits; a finished session takes nothing.
        Err(error) => {
            tracing::warn!(%error, "a message was refused");
            true
        }
    }
}

/// Passes arrived datagrams to the session. Ready if anything changed.
fn poll_carriers(
    session: &mut Session,
    carriers: &mut BTreeMap<u32, Attached>,
    buffer: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<()> {
    let mut is_changed = false;
    let now = now();
    for (id, attached) in carriers {
        is_changed |= attached.poll(session, *id, now, buffer, context);
    }
    if is_changed { Poll::Ready(()) } else { Poll::Pending }
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant::new(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use qfabric_metp::{FrameKind, Mode};
    use qfabric_types::Bytes;

    use super::*;
    use crate::connection::Connection;
    use crate::handover::Command;
    use crate::memory::memory_pair;
    use crate::{End, runtime};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Both ends of a session over a queue in this process.
    fn pair(options: &Options, max_datagram: usize) -> [Connection; 2] {
        let handovers = [0, 1].map(|_| Arc::new(Handover::new(options.memory().get()).unwrap()));
        let (inner, options, largest_message) = (handovers.clone(), options.clone(), options.largest_message);
        let begin = move || async move {
            let (one, other) = memory_pair(max_datagram);
            let [mut first, mut second] =
                [Driver::new(&options, 7, inner[0].clone(), None)?, Driver::new(&options, 7, inner[1].clone(), None)?];
            first.attach(Box::new(one))?;
            second.attach(Box::new(other))?;
            let both = async move {
                tokio::join!(first.run(), second.run());
            };
            Ok(((), both))
        };
        let ((), _thread) = runtime::start(begin).unwrap();
        handovers.map(|handover| Connection { handover, peer: "peer".parse().unwrap(), largest_message })
    }

    #[test]
    fn messages_cross_a_queue_in_both_directions_and_both_sides_finish() {
        let options = Options { rate: BitRate::new(200_000_000), ..Options::default() };
        let [one, other] = pair(&options, 600);
        for number in 0..40u8 {
            let data = vec![number; 1 + 700 * usize::from(number)];
            for connection in [&one, &other] {
                connection.send(FrameKind::Other, data.clone(), None, PATIENCE).unwrap();
            }
            for connection in [&other, &one] {
                assert_eq!(connection.receive(PATIENCE).unwrap().data, data);
            }
        }
        one.finish().unwrap();
        other.finish().unwrap();
        assert_eq!([&one, &other].map(|end| end.wait_for_end(PATIENCE).unwrap()), [End::Finished, End::Finished]);
        assert_eq!(one.statistics().session.delivered, 40);
    }

    #[test]
    fn the_application_waits_until_a_full_carrier_has_taken_the_close() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let handover = Arc::new(Handover::new(1 << 20).unwrap());
            let mut driver = Driver::new(&Options::default(), 7, handover, None).unwrap();
            let (one, _other) = memory_pair(600);
            let carrier = CarrierId(driver.attach(Box::new(one)).unwrap());
            driver.session.set_writable(now(), carrier, false).unwrap();
            driver.obey(Command::Close);
            driver.carry_out();
            driver.part().await;
            assert!(!driver.has_parted);
            driver.session.set_writable(now(), carrier, true).unwrap();
            driver.carry_out();
            driver.part().await;
            assert!(driver.has_parted);
        });
    }

    #[test]
    fn a_receiver_that_does_not_read_holds_a_bounded_number_of_messages() {
        let options = Options {
            rate: BitRate::new(200_000_000),
            largest_message: Bytes::new(10_000),
            messages_in_flight: 8,
            mode: Mode::TotallyReliable,
            ..Options::default()
        };
        let [one, other] = pair(&options, 1_400);
        let send = || one.send(FrameKind::Other, vec![1; 10_000], None, Duration::from_millis(800));
        let sent = (0..500).take_while(|_| send().is_ok()).count();
        // Twice the memory for received messages (METP's and the application's), once for sent ones, and the queue.
        let most = 3 * options.memory().get() as usize / 10_000 + 5;
        assert!(sent <= most, "{sent} of at most {most}");
        assert!((0..sent).all(|_| other.receive(PATIENCE).is_ok()));
    }
}
