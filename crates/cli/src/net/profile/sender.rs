//! The side that sends: the delay of messages, from the first byte sent to the last byte received.
//!
//! E = (t₂ − t₁) − RTT/2, where the acknowledgment of a whole message arrives at t₂ and RTT is the shortest time of a
//! small message (QualMan §5.1.2). So the two clocks need not agree.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_daemon::answer::{LONGEST, MessageId, Part, is_for_a_moment};
use qfabric_types::{BitRate, Bytes, DelayPoint, Nanos};

use crate::exit::Failure;

/// Messages that measure the shortest round trip.
const SMALL: u32 = 50;
/// Interval at which a wait checks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);
/// Room for waiting packets in the socket, in bytes; Linux doubles it for its own data. It is less than the 128 packets
/// of a stream's queue, so that a long message waits in the socket and is not dropped.
const ROOM: usize = 96 * 1024;
/// A message is lost if it takes this long beyond the time at its rate.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sender of messages to one answerer.
pub(super) struct Sender<'a> {
    socket: UdpSocket,
    to: SocketAddr,
    run: u32,
    sent: u32,
    stop: &'a AtomicBool,
}

/// The person stopped the command.
pub(super) struct Stopped;

/// Why there is no delay.
pub(super) enum NoAnswer {
    Stopped,
    Lost,
    Failed(Failure),
}

impl<'a> Sender<'a> {
    pub(super) fn to(to: SocketAddr, stop: &'a AtomicBool) -> Result<Sender<'a>, Failure> {
        let failed = |error: std::io::Error| Failure::fault(format!("cannot send to {to}: {error}"));
        let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).map_err(failed)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, ROOM).map_err(|error| failed(error.into()))?;
        let prepared = socket.connect(to).and_then(|()| socket.set_read_timeout(Some(LOOK)));
        prepared.and_then(|()| socket.set_write_timeout(Some(LOOK))).map_err(failed)?;
        Ok(Sender { socket, to, run: std::process::id(), sent: 0, stop })
    }

    /// The local address of the flow.
    pub(super) fn from(&self) -> Result<SocketAddr, Failure> {
        Ok(self.socket.local_addr()?)
    }

    /// The address of the answerer.
    pub(super) fn to_address(&self) -> SocketAddr {
        self.to
    }

    /// The shortest time of a message of one byte and its acknowledgment.
    pub(super) fn shortest_round_trip(&mut self) -> Result<Nanos, NoAnswer> {
        let mut shortest = None;
        for _ in 0..SMALL {
            match self.exchange(1, PATIENCE) {
                Ok(time) => shortest = Some(shortest.unwrap_or(time).min(time)),
                Err(NoAnswer::Lost) if shortest.is_some() => {}
                Err(why) => return Err(why),
            }
        }
        shortest.ok_or(NoAnswer::Lost)
    }

    /// Sends `count` messages, no faster than `rate` on average, and measures their delays.
    pub(super) fn measure(
        &mut self,
        size: Bytes,
        rate: BitRate,
        count: u32,
        shortest: Nanos,
    ) -> Result<DelayPoint, NoAnswer> {
        // A ninth more for headers, which are less for all but the smallest messages.
        let at_rate = Duration::from_secs_f64(size.as_f64() * 8.0 * 10.0 / 9.0 / rate.as_f64().max(1.0));
        let (mut delays, mut lost) = (Vec::new(), 0);
        for _ in 0..count {
            let begun = Instant::now();
            match self.exchange(size.get(), at_rate * 4 + PATIENCE) {
                Ok(time) => delays.push(time.saturating_sub(Nanos::new(shortest.get() / 2))),
                Err(NoAnswer::Lost) => lost += 1,
                Err(why) => return Err(why),
            }
            self.pause(at_rate.saturating_sub(begun.elapsed())).map_err(|Stopped| NoAnswer::Stopped)?;
        }
        delays.sort_unstable();
        let [p50, p99] = [0.5, 0.99].map(|part| quantile(&delays, part));
        Ok(DelayPoint { message_bytes: size, rate_bps: rate, p50, p99, arrived: delays.len() as u32, lost })
    }

    /// The time from the first part to the acknowledgment.
    fn exchange(&mut self, bytes: u64, longest: Duration) -> Result<Nanos, NoAnswer> {
        self.sent += 1;
        let of = MessageId { run: self.run, number: self.sent };
        let (begun, mut datagram) = (Instant::now(), [0; LONGEST]);
        let until = begun + longest;
        for (part, length) in Part::all(of, bytes) {
            part.write(&mut datagram);
            self.until_done(until, |socket| socket.send(&datagram[..length]).map(|_| Some(())))?;
        }
        let mut answer = [0; LONGEST];
        self.until_done(until, |socket| {
            let length = socket.recv(&mut answer)?;
            Ok((MessageId::acknowledged_by(&answer[..length]) == Some(of)).then_some(()))
        })?;
        Ok(Nanos::new(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Repeats a call that waits for at most [`LOOK`], until it returns something.
    fn until_done(
        &self,
        until: Instant,
        mut act: impl FnMut(&UdpSocket) -> std::io::Result<Option<()>>,
    ) -> Result<(), NoAnswer> {
        loop {
            match act(&self.socket) {
                Ok(Some(())) => return Ok(()),
                Ok(None) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    return Err(NoAnswer::Failed(self.nobody()));
                }
                Err(error) if is_for_a_moment(&error) => {}
                Err(error) => {
                    return Err(NoAnswer::Failed(Failure::fault(format!("cannot send to {}: {error}", self.to))));
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(NoAnswer::Stopped);
            }
            if Instant::now() >= until {
                return Err(NoAnswer::Lost);
            }
        }
    }

    /// The failure if no program answers.
    pub(super) fn nobody(&self) -> Failure {
        Failure::refused(format!(
            "nobody answers at {}; run `qfabric net answer` on that host first, or set `answer` in `[net]` of its daemon",
            self.to
        ))
    }

    fn pause(&self, time: Duration) -> Result<(), Stopped> {
        let until = Instant::now() + time;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// A quantile of sorted delays (nearest rank); 0 if there are none.
fn quantile(sorted: &[Nanos], part: f64) -> Nanos {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qfabric_daemon::answer::Answerer;

    use super::*;

    #[test]
    fn messages_of_all_sizes_are_acknowledged_and_their_delay_is_measured() {
        let (answers, stop) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Arc::new(AtomicBool::new(false)));
        let (to, end) = (answers.local_addr().unwrap(), stop.clone());
        let answering = std::thread::spawn(move || Answerer::default().run(&answers, &end).unwrap());
        let mut sender = Sender::to(to, &stop).unwrap_or_else(|why| panic!("{why:?}"));
        let Ok(shortest) = sender.shortest_round_trip() else { panic!("no answer") };
        assert!(shortest > Nanos::ZERO && shortest < Nanos::from_millis(1_000));
        for size in [1, 1_436, 1_437, 60_000] {
            let Ok(point) = sender.measure(Bytes::new(size), BitRate::new(1 << 40), 5, shortest) else {
                panic!("{size}")
            };
            assert_eq!(point.arrived + point.lost, 5);
            assert!(point.arrived > 0 && point.p50 <= point.p99, "{point:?}");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(sender.measure(Bytes::new(1), BitRate::new(1), 1, shortest), Err(NoAnswer::Stopped)));
        assert!(answering.join().unwrap() >= u64::from(SMALL));
    }

    #[test]
    fn a_host_that_does_not_answer_is_named_with_the_command_to_run_there() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let mut sender = Sender::to(closed, &stop).unwrap_or_else(|why| panic!("{why:?}"));
        let Err(NoAnswer::Failed(why)) = sender.shortest_round_trip() else { panic!("somebody answered") };
        assert!(format!("{why:?}").contains("qfabric net answer"), "{why:?}");
    }

    #[test]
    fn a_quantile_is_one_of_the_delays() {
        let delays: Vec<_> = (1..=100).map(Nanos::new).collect();
        assert_eq!((quantile(&delays, 0.5).get(), quantile(&delays, 0.99).get()), (50, 99));
        assert_eq!((quantile(&delays[..3], 0.99).get(), quantile(&[], 0.5)), (3, Nanos::ZERO));
    }
}
