//! The thread that moves packets between two devices through the [`EmulatedPath`].
//!
//! ```text
//!        ┌─ order ── begin, change, report ─┐
//!  wait ─┼─ packets of a device ── arrive ──┼─ deliver what is due, record the lateness ─ wait until the next wake-up
//!        └─ time ───────────────────────────┘
//! ```
//! The thread runs as SCHED_FIFO if it may. A packet counts as arrived when the thread was woken for it, not when the
//! thread got a CPU: the kernel tells the time in between (`schedstat`). So waiting for a CPU shows as lateness of the
//! emulator instead of as delay of the link. Time that a hypervisor takes shows at the deliveries that it delays.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender};

use qfabric_linux::clock;
use qfabric_linux::sched_attr::{RESET_ON_FORK, SchedAttr};
use qfabric_linux::tun::Tun;
use qfabric_types::{Instant, Nanos, ThreadId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lateness::Lateness;
use crate::path::EmulatedPath;
use crate::settings::{LabSettings, LinkChange, LinkDirection};

/// Above the threads of the mechanism `dispatcher` (48), so that a lab beside it stays a network.
const PRIORITY: u32 = 49;
/// Packets that are read from one device before packets are delivered.
const BATCH: usize = 64;
/// Larger than every packet.
const PACKET_BYTES: usize = 64 << 10;
/// IPv4 destination and source in a header.
const SOURCE: std::ops::Range<usize> = 12..16;
const DESTINATION: std::ops::Range<usize> = 16..20;

/// An instruction to the emulator.
pub(crate) enum Order {
    BeginSchedule,
    Change(LinkDirection, LinkChange),
    Report(Sender<Snapshot>),
    Stop,
}

/// The state of the emulator at a time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub path: [Side; 2],
    pub lateness: Lateness,
    pub is_real_time: bool,
    pub seconds: f64,
}

/// One direction in a [`Snapshot`], and packets that the model does not see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub link: String,
    pub counters: crate::report::DirectionCounters,
    pub ignored: u64,
    pub write_errors: u64,
}

pub(crate) struct Emulator {
    path: EmulatedPath<Box<[u8]>>,
    /// The devices of the local end and of the peer's end.
    devices: [Tun; 2],
    orders: Receiver<Order>,
    /// An eventfd that is written after each order.
    bell: OwnedFd,
    /// The last byte of the peer's first address; the addresses of the further paths follow.
    first_peer: u8,
    lateness: Lateness,
    ignored: [u64; 2],
    write_errors: [u64; 2],
    is_real_time: bool,
    began: Instant,
    waiting: RunQueueTime,
    buffer: Box<[u8]>,
}

impl Emulator {
    pub(crate) fn new(
        settings: &LabSettings,
        devices: [Tun; 2],
        orders: Receiver<Order>,
        bell: OwnedFd,
        first_peer: u8,
    ) -> Emulator {
        let began = clock::now();
        Emulator {
            path: EmulatedPath::new(settings, began),
            devices,
            orders,
            bell,
            first_peer,
            lateness: Lateness::default(),
            ignored: [0; 2],
            write_errors: [0; 2],
            is_real_time: false,
            began,
            waiting: RunQueueTime::default(),
            buffer: vec![0; PACKET_BYTES].into_boxed_slice(),
        }
    }

    /// Moves packets until it is told to stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let fifo = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(PRIORITY) };
        self.is_real_time = fifo.give(ThreadId(0)).is_ok();
        // Without a real-time policy, timers may be up to 50 µs late for the sake of energy. If this fails, they are.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        self.waiting = RunQueueTime::start();
        loop {
            let (ready, woken) = self.wait()?;
            if ready.order && self.obey()? {
                return Ok(());
            }
            for (direction, is_ready) in LinkDirection::BOTH.into_iter().zip(ready.devices) {
                if is_ready {
                    self.read(direction, woken)?;
                }
            }
            LinkDirection::BOTH.into_iter().for_each(|direction| self.deliver(direction));
        }
    }

    /// Waits for packets, orders or the next wake-up. Returns what is ready, and the time at which the thread was woken.
    fn wait(&mut self) -> io::Result<(Ready, Instant)> {
        let before = clock::now();
        let timeout = self.path.next_wakeup().map(|at| timespec(at.since(before)));
        let mut fds = [self.bell.as_fd(), self.devices[0].as_fd(), self.devices[1].as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [order, up, down] = fds.map(|fd| !fd.revents().is_empty());
        let after = clock::now();
        let waited = self.waiting.since_last().min(after.since(before));
        Ok((Ready { order, devices: [up, down] }, after - waited))
    }

    /// Carries out orders. Returns whether to stop.
    fn obey(&mut self) -> io::Result<bool> {
        rustix::io::read(&self.bell, &mut [0u8; 8])?;
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::BeginSchedule => self.path.begin(clock::now()),
                Order::Change(direction, change) => self.path.change(clock::now(), direction, &change),
                // The requester may have ended.
                Order::Report(answer) => drop(answer.send(self.snapshot())),
                Order::Stop => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Reads packets of the device at the begin of a direction.
    fn read(&mut self, direction: LinkDirection, woken: Instant) -> io::Result<()> {
        for _ in 0..BATCH {
            let length = match self.devices[index(direction)].receive(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let packet = &self.buffer[..length];
            match path_of(packet, direction, self.first_peer) {
                Some(path) => self.path.arrive(woken, direction, packet.into(), length as u32, path),
                None => self.ignored[index(direction)] += 1,
            }
        }
        Ok(())
    }

    fn deliver(&mut self, direction: LinkDirection) {
        let far = &self.devices[1 - index(direction)];
        loop {
            let now = clock::now();
            let Some(delivery) = self.path.deliver(now, direction) else { return };
            self.lateness.record(now.since(delivery.due));
            if far.send(&delivery.packet).is_err() {
                self.write_errors[index(direction)] += 1;
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let side = |direction| Side {
            link: self.path.link(direction).settings().to_string(),
            counters: self.path.counters(direction),
            ignored: self.ignored[index(direction)],
            write_errors: self.write_errors[index(direction)],
        };
        Snapshot {
            path: LinkDirection::BOTH.map(side),
            lateness: self.lateness.clone(),
            is_real_time: self.is_real_time,
            seconds: clock::now().since(self.began).as_secs_f64(),
        }
    }
}

struct Ready {
    order: bool,
    devices: [bool; 2],
}

pub(crate) fn index(direction: LinkDirection) -> usize {
    match direction {
        LinkDirection::Up => 0,
        LinkDirection::Down => 1,
    }
}

/// The number of the path that an IPv4 packet takes; the last byte of the peer's address decides. `None` for packets of
/// other protocols.
fn path_of(packet: &[u8], direction: LinkDirection, first_peer: u8) -> Option<usize> {
    let peer = match direction {
        LinkDirection::Up => packet.get(DESTINATION)?,
        LinkDirection::Down => packet.get(SOURCE)?,
    };
    (packet[0] >> 4 == 4).then(|| usize::from(peer[3].saturating_sub(first_peer)))
}

fn timespec(time: Nanos) -> Timespec {
    let ns = time.get();
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// The time that this thread was ready to run but waited for a CPU: the second number of `schedstat`. Kernels without it
/// count as never waiting; timers then still show lateness.
#[derive(Default)]
struct RunQueueTime {
    file: Option<File>,
    last: u64,
}

impl RunQueueTime {
    /// To be called in the thread that is measured.
    fn start() -> RunQueueTime {
        let mut time = RunQueueTime { file: File::open("/proc/thread-self/schedstat").ok(), last: 0 };
        time.since_last();
        time
    }

    /// Waiting time since the last call.
    fn since_last(&mut self) -> Nanos {
        let Some(total) = self.file.as_ref().and_then(read_waiting) else { return Nanos::ZERO };
        let waited = total.saturating_sub(self.last);
        self.last = total;
        Nanos::new(waited)
    }
}

fn read_waiting(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_packet_follows_from_the_peers_address() {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 4]);
        assert_eq!(path_of(&packet, LinkDirection::Up, 2), Some(2));
        assert_eq!(path_of(&packet, LinkDirection::Down, 2), Some(0), "the local end has no paths");
        packet[0] = 0x60;
        assert_eq!(path_of(&packet, LinkDirection::Up, 2), None, "IPv6");
        assert_eq!(path_of(&packet[..15], LinkDirection::Up, 2), None);
        assert_eq!(path_of(&[], LinkDirection::Down, 2), None);
    }

    #[test]
    fn waiting_for_a_cpu_is_read_from_the_kernel() {
        let mut time = RunQueueTime::start();
        let first = time.last;
        std::thread::yield_now();
        time.since_last();
        assert!(time.last >= first);
        assert_eq!(RunQueueTime::default().since_last(), Nanos::ZERO);
    }
}
