//! The roles of the child processes: their parameters and their actions.
//!
//! The clock releases a *player* («timed waits»: it sleeps until the display time of the next frame). It takes the
//! frame from its socket, computes, and is finished by the end of its period, or is late. Late work is completed,
//! or abandoned if `abandon` is set. Periods that have passed meanwhile are skipped, as a player drops frames.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_linux::clock;
use qfabric_stream::{Receiver, Shape, send, sleep_until};
use qfabric_types::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use crate::trace::{Job, Trace};
use crate::work::Work;

/// Largest frame in bytes; one datagram.
const FRAME_BYTES: usize = 2_048;

/// The action of a child between the common start and its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A periodic task or a video player.
    Player(Player),
    /// Sends every player its frames, each half a period before its display time.
    Server(Server),
    /// Computes frames and sends them.
    Sender(Sender),
    /// Receives frames. Its jobs are frames, from the start of their period to their arrival.
    Viewer(Viewer),
    /// Fills a link with many flows until its starter ends it.
    Flood(SocketAddr),
    /// Computes until its starter ends it.
    Hog,
    /// Starts short-lived children as fast as it can until its starter ends it.
    Forks,
}

/// A periodic task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Player {
    /// T, in ns.
    pub period: u64,
    /// First release after the start, in ns.
    pub phase: u64,
    /// Computation of a job, in ns.
    pub cost: u64,
    /// Duration, in ns.
    pub span: u64,
    /// Abandons work at its deadline.
    pub abandon: bool,
    /// Receives frames.
    pub frames: bool,
}

/// A video server, which stands for other machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its viewers.
    pub streams: Vec<Stream>,
    /// Duration, in ns.
    pub span: u64,
}

/// One viewer of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// The viewer's address.
    pub to: SocketAddr,
    /// T, in ns.
    pub period: u64,
    /// First display time after the start, in ns.
    pub phase: u64,
}

/// The sending end of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sender {
    /// The sender's own address, which identifies its packets.
    pub from: SocketAddr,
    /// The viewer's address.
    pub to: SocketAddr,
    /// T, in ns.
    pub period: u64,
    /// First release after the start, in ns.
    pub phase: u64,
    /// Computation of a frame, in ns.
    pub cost: u64,
    /// Bytes of a frame.
    pub bytes: u32,
    /// Number of frames.
    pub frames: u32,
}

/// The receiving end of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Viewer {
    /// The viewer's own address.
    pub at: SocketAddr,
    /// T, in ns.
    pub period: u64,
    /// Due time of the first frame minus T, from the start, in ns.
    pub due: u64,
    /// Number of frames.
    pub frames: u32,
}

/// A role with its resources, ready to run.
pub enum PreparedRole {
    Player(Player, Option<UdpSocket>),
    Sender(Sender, UdpSocket),
    Viewer(Viewer, UdpSocket),
    /// A role without resources.
    Other(Role),
}

impl Role {
    /// Does everything that may fail. Returns the role and the address at which it listens, if any.
    pub fn prepare(self) -> Result<(PreparedRole, Option<SocketAddr>)> {
        match self {
            Role::Player(player) if player.frames => {
                let socket = UdpSocket::bind("127.0.0.1:0").context("cannot listen for frames")?;
                let address = socket.local_addr()?;
                Ok((PreparedRole::Player(player, Some(socket)), Some(address)))
            }
            Role::Player(player) => Ok((PreparedRole::Player(player, None), None)),
            Role::Sender(sender) => {
                let socket = UdpSocket::bind(sender.from).context("cannot bind the address of the sender")?;
                socket.connect(sender.to)?;
                Ok((PreparedRole::Sender(sender, socket), None))
            }
            Role::Viewer(viewer) => {
                let socket = UdpSocket::bind(viewer.at).context("cannot bind the address of the viewer")?;
                Ok((PreparedRole::Viewer(viewer, socket), None))
            }
            other => Ok((PreparedRole::Other(other), None)),
        }
    }
}

impl PreparedRole {
    /// Runs the role from `start` on.
    pub fn run(self, work: Work, start: Instant) -> Result<Trace> {
        match self {
            PreparedRole::Player(player, socket) => play(&player, socket, work, start),
            PreparedRole::Other(Role::Server(server)) => serve(&server, start).map(|()| Trace::default()),
            PreparedRole::Sender(sender, socket) => produce(&sender, &socket, work, start).map(|()| Trace::default()),
            PreparedRole::Viewer(viewer, socket) => view(&viewer, socket, start),
            PreparedRole::Other(Role::Flood(to)) => flood(to, start),
            PreparedRole::Other(Role::Forks) => fork_endlessly(start),
            PreparedRole::Other(_) => {
                sleep_until(start);
                work.endless()
            }
        }
    }
}

/// Plays until no further whole period fits.
fn play(player: &Player, socket: Option<UdpSocket>, work: Work, start: Instant) -> Result<Trace> {
    let periods = player.span.saturating_sub(player.phase) / player.period;
    let mut trace = Trace {
        period: player.period,
        phase: player.phase,
        periods,
        jobs: Vec::with_capacity(periods as usize),
        cpu: 0,
    };
    let first = start + Nanos::new(player.phase);
    let mut inbox = socket.map(|socket| Inbox::new(socket, Nanos::new(player.period))).transpose()?;
    let before = clock::thread_cpu();
    let mut period = 0;
    while period < periods {
        let release = first + Nanos::new(period * player.period);
        // A job that begins late because the previous job was late has not waited for a CPU before this moment.
        let due = release.max(clock::now());
        sleep_until(release);
        let woke = clock::now();
        let here = inbox.as_mut().is_none_or(|inbox| inbox.take(period));
        let (cost, deadline) = (Nanos::new(player.cost), release + Nanos::new(player.period));
        let complete = here && if player.abandon { work.run_until(cost, deadline) } else { complete(work, cost) };
        let end = clock::now();
        let since = |moment: Instant| moment.since(start).get();
        trace.jobs.push(Job { period, release: since(due), woke: since(woke), end: since(end), complete });
        period = (period + 1).max(end.since(first).get() / player.period);
    }
    trace.cpu = (clock::thread_cpu() - before).get();
    Ok(trace)
}

fn complete(work: Work, cost: Nanos) -> bool {
    work.run(cost);
    true
}

/// The socket of a player and the frames that it has received.
struct Inbox {
    socket: UdpSocket,
    /// All frames with smaller numbers have arrived.
    newest: u64,
}

impl Inbox {
    fn new(socket: UdpSocket, patience: Nanos) -> Result<Inbox> {
        socket.set_read_timeout(Some(Duration::from_nanos(patience.get())))?;
        Ok(Inbox { socket, newest: 0 })
    }

    /// Takes frames up to this one, waiting at most a period. Returns whether the frame has arrived.
    fn take(&mut self, frame: u64) -> bool {
        let mut bytes = [0; FRAME_BYTES];
        while self.newest <= frame {
            match self.socket.recv(&mut bytes) {
                Ok(_) => self.newest = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) + 1,
                Err(_) => return false,
            }
        }
        true
    }
}

fn serve(server: &Server, start: Instant) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("cannot send frames")?;
    let mut bytes = [7u8; FRAME_BYTES];
    for (at, to, frame) in timetable(server) {
        sleep_until(start + Nanos::new(at));
        bytes[..8].copy_from_slice(&frame.to_le_bytes());
        // A viewer that has ended no longer listens, so the send may fail.
        let _ = socket.send_to(&bytes, to);
    }
    Ok(())
}

/// Times at which frames are sent: half a period before their display times.
fn timetable(server: &Server) -> Vec<(u64, SocketAddr, u64)> {
    let mut times: Vec<_> = server.streams.iter().flat_map(|stream| of_stream(stream, server.span)).collect();
    times.sort();
    times
}

fn of_stream(stream: &Stream, span: u64) -> impl Iterator<Item = (u64, SocketAddr, u64)> + use<> {
    let Stream { to, period, phase } = stream.clone();
    let displays = (0..).map(move |k| (phase + k * period, k)).take_while(move |(display, _)| *display < span);
    displays.map(move |(display, k)| (display.saturating_sub(period / 2), to, k))
}

fn produce(sender: &Sender, socket: &UdpSocket, work: Work, start: Instant) -> Result<()> {
    let shape =
        Shape { period: Nanos::new(sender.period), phase: Nanos::ZERO, bytes: sender.bytes, frames: sender.frames };
    let first = start + Nanos::new(sender.phase);
    send(socket, &shape, first, |_| work.run(Nanos::new(sender.cost)))?;
    Ok(())
}

fn view(viewer: &Viewer, socket: UdpSocket, start: Instant) -> Result<Trace> {
    let (period, phase, frames) = (viewer.period, viewer.due, u64::from(viewer.frames));
    // Waits two more periods, so that late frames still count as arrived.
    let arrivals = Receiver::new(socket).until(start + Nanos::new(phase + (frames + 2) * period))?;
    let since = |moment: Instant| moment.since(start).get();
    let job = |arrival: &qfabric_stream::Arrival| {
        let (release, end) = (since(arrival.release), since(arrival.end));
        Job { period: u64::from(arrival.frame), release, woke: end, end, complete: true }
    };
    Ok(Trace { period, phase, periods: frames, jobs: arrivals.iter().map(job).collect(), cpu: 0 })
}

/// As many flows as some downloads have, each as fast as its socket accepts data.
fn flood(to: SocketAddr, start: Instant) -> ! {
    const FLOWS: usize = 8;
    let bound = (0..FLOWS).filter_map(|_| UdpSocket::bind("0.0.0.0:0").ok());
    let sockets: Vec<_> = bound.filter(|socket| socket.set_nonblocking(true).is_ok()).collect();
    sleep_until(start);
    loop {
        for socket in &sockets {
            // The socket is full; the next round fills it again.
            while socket.send_to(&[0; 1_400], to).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn fork_endlessly(start: Instant) -> ! {
    sleep_until(start);
    loop {
        // If the kernel refuses a process, try again. Waiting for each child leaves no zombies.
        let mut program = Command::new("/proc/self/exe");
        let _ = program.arg("--version").stdout(Stdio::null()).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn player(cost_ms: u64, abandon: bool) -> Player {
        let ms = |n: u64| n * 1_000_000;
        Player { period: ms(20), phase: 0, cost: ms(cost_ms), span: ms(200), abandon, frames: false }
    }

    #[test]
    fn a_player_skips_only_frames_whose_period_has_passed() {
        let trace = play(&player(2, false), None, Work::calibrate(), clock::now()).unwrap();
        assert_eq!(trace.jobs[0].period, 0);
        for pair in trace.jobs.windows(2) {
            assert_eq!(pair[1].period, (pair[0].period + 1).max(pair[0].end / trace.period), "{pair:?}");
        }
    }

    #[test]
    fn a_player_that_computes_longer_than_its_period_skips_frames() {
        // Five periods by the calibration: even if the machine becomes much faster meanwhile, it is more than one
        // period.
        let trace = play(&player(100, false), None, Work::calibrate(), clock::now()).unwrap();
        assert!(trace.jobs.len() < 8 && trace.jobs.windows(2).all(|pair| pair[0].period < pair[1].period));
    }

    #[test]
    fn abandoned_frames_are_not_complete() {
        let trace = play(&player(10_000, true), None, Work::calibrate(), clock::now()).unwrap();
        assert!(trace.jobs.iter().all(|job| !job.complete));
    }

    #[test]
    fn frames_are_sent_half_a_period_before_their_display_in_order_of_time() {
        let to = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let streams = vec![Stream { to: to(1), period: 10, phase: 10 }, Stream { to: to(2), period: 20, phase: 11 }];
        let times = timetable(&Server { streams, span: 35 });
        assert_eq!(times, [(1, to(2), 0), (5, to(1), 0), (15, to(1), 1), (21, to(2), 1), (25, to(1), 2)]);
    }

    #[test]
    fn a_player_takes_frames_that_wait_for_it() {
        let (ready, address) = Role::Player(Player { frames: true, ..player(1, false) }).prepare().unwrap();
        let server =
            Server { streams: vec![Stream { to: address.unwrap(), period: 20_000_000, phase: 0 }], span: 200_000_000 };
        let now = clock::now();
        // The server began its span earlier, so all frames are in the socket when the player begins.
        serve(&server, Instant::new(now.get() - server.span)).unwrap();
        let trace = ready.run(Work::calibrate(), now).unwrap();
        assert!(!trace.jobs.is_empty() && trace.jobs.iter().all(|job| job.complete), "{trace:?}");
    }
}
