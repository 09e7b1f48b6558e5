//! `qfabric-stream`: runs the sender or the receiver of a stream from a terminal.
#![forbid(unsafe_code)]

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use qfabric_linux::clock;
use qfabric_stream::{Arrival, Receiver, Shape, StreamRequest, Together, send};
use qfabric_types::{Nanos, ThreadId, Window};

/// A stream whose computation and packets share one clock
#[derive(Parser)]
#[command(name = "qfabric-stream", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compute frames and send them
    Send(SendOptions),
    /// Receive frames and print how old they were
    Receive(ReceiveOptions),
}

#[derive(Args)]
struct Timing {
    /// T: the time from one frame to the next
    #[arg(long, default_value = "40ms")]
    period: Nanos,
    /// Θ: the time by which the packet periods follow the CPU periods; a packet leaves at most Θ + T after its
    /// frame's release
    #[arg(long, default_value = "15ms")]
    phase: Nanos,
    /// Length of the run in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Args)]
struct SendOptions {
    #[command(flatten)]
    timing: Timing,
    /// Address of the receiver
    #[arg(long)]
    to: SocketAddr,
    /// Size of a frame in bytes
    #[arg(long, default_value_t = 12_000)]
    bytes: u32,
    /// C: CPU time to reserve for each frame (root; Linux ≥ 6.19)
    #[arg(long)]
    service: Option<Nanos>,
    /// Interface on which to reserve packet time for the stream (root; Linux ≥ 6.16)
    #[arg(long, requires = "rate_mbit")]
    interface: Option<String>,
    /// Rate of the interface in Mbit/s
    #[arg(long)]
    rate_mbit: Option<u64>,
    /// x/y: at most x of every y frames may be lost
    #[arg(long, default_value = "1/10")]
    window: Window,
}

#[derive(Args)]
struct ReceiveOptions {
    #[command(flatten)]
    timing: Timing,
    /// Address at which to receive
    #[arg(long)]
    listen: SocketAddr,
}

impl Timing {
    fn shape(&self, bytes: u32) -> Result<Shape> {
        ensure!(self.period > Nanos::ZERO, "--period is zero; use the time between two frames, such as 40ms");
        let frames = self.seconds.saturating_mul(1_000_000_000) / self.period.get();
        let frames = u32::try_from(frames).context("too many frames; use a longer --period or fewer --seconds")?;
        Ok(Shape { period: self.period, phase: self.phase, bytes, frames })
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Send(options) => sending(options),
        Command::Receive(options) => receiving(&options),
    }
}

fn sending(options: SendOptions) -> Result<()> {
    let shape = options.timing.shape(options.bytes)?;
    let any: SocketAddr = if options.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let socket = UdpSocket::bind(any)?;
    socket.connect(options.to).with_context(|| format!("cannot reach {}", options.to))?;
    let rate = options.rate_mbit.unwrap_or_default().saturating_mul(1_000_000);
    let interface = options.interface.map(|name| (name, rate));
    let wish = StreamRequest { service: options.service, interface, window: options.window };
    let mut together = Together::load(&wish)?;
    let start = clock::now() + Nanos::from_millis(100);
    let me = ThreadId(rustix::thread::gettid().as_raw_nonzero().get());
    together.reserve(&shape, start, me, (socket.local_addr()?, options.to))?;
    let sent = send(&socket, &shape, start, |_| render(options.service))?;
    println!("{sent} of {} frames sent", shape.frames);
    if let Some(counts) = together.cpu_counts()? {
        println!("CPU: {} periods served, {} missed, {} violations", counts.served, counts.missed, counts.violations);
    }
    if let Some(counts) = together.packet_counts() {
        println!("packets: {} sent, {} late, {} violations", counts.sent, counts.late, counts.violations);
    }
    Ok(())
}

/// Stands for an encoder: uses half of the reserved CPU time, or 2 ms without a reservation.
fn render(service: Option<Nanos>) {
    let cost = service.map_or(Nanos::from_millis(2), |service| Nanos::new(service.get() / 2));
    let begin = clock::thread_cpu();
    while clock::thread_cpu().saturating_sub(begin) < cost {
        std::hint::spin_loop();
    }
}

fn receiving(options: &ReceiveOptions) -> Result<()> {
    let shape = options.timing.shape(0)?;
    let socket = UdpSocket::bind(options.listen).with_context(|| format!("cannot listen on {}", options.listen))?;
    let span = Nanos::new(options.timing.seconds.saturating_mul(1_000_000_000));
    let arrivals = Receiver::new(socket).until(clock::now() + span)?;
    let age = |arrival: &Arrival| arrival.end.since(arrival.release);
    let in_time = arrivals.iter().filter(|arrival| age(arrival) <= shape.bound()).count();
    let oldest = arrivals.iter().map(age).max().unwrap_or_default();
    println!("{} frames, {in_time} not older than Θ + T = {}; the oldest {oldest}", arrivals.len(), shape.bound());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_of_zero_and_too_many_frames_are_refused_with_the_next_step() {
        let timing = |period, seconds| Timing { period, phase: Nanos::ZERO, seconds };
        assert_eq!(timing(Nanos::from_millis(40), 10).shape(1).unwrap().frames, 250);
        let refused = |timing: Timing| timing.shape(1).unwrap_err().to_string();
        assert!(refused(timing(Nanos::ZERO, 10)).contains("40ms"));
        assert!(refused(timing(Nanos::new(1), u64::MAX)).contains("--seconds"));
    }
}
