//! `qfabric lab`: runs a program over an emulated link.
//!
//! ```text
//! make the link ─ start the peer, wait for its socket ─ start the program ─ it ends ─ report ─ end the peer
//! ```
//! The program and the peer are in network namespaces of their own, at the two ends of the link. Everything in them ends
//! with this process, whatever ends it (`qfabric_linux::namespace::Sweeper`).

mod options;
mod peer;

use std::ffi::OsString;
use std::path::PathBuf;

use qfabric_netlab::{DirectionReport, Lab, LabError, LabReport, enter_user_namespace};

use crate::exit::{Advice, Failure, Outcome};
use crate::output;
use crate::program::{self, Running, Waiting};
use options::LinkOptions;
use peer::Peer;

const EXAMPLES: &str = "\
Examples: sudo qfabric lab --rate 30M --rtt 40ms --loss 2% --peer 'iperf3 -s -1' -- sh -c 'iperf3 -c $QFABRIC_LAB_PEER'
          sudo qfabric lab --loss ge:1%,30% --up 'rate 1M' --down 'rate 20M delay 30ms' -- ./test.sh
          sudo qfabric lab --scenario rfc8867-5.1 --json report.json --peer ./receiver -- ./sender";

/// Runs a program over an emulated link with a rate, a delay and losses that a seed repeats.
///
/// The program runs in a network namespace whose only other end is the peer's namespace (--peer). QFABRIC_LAB_LOCAL has
/// the program's address, QFABRIC_LAB_PEER that of the peer, in both environments; no other network is reachable. Ends
/// with the exit code of the program, or with 128+n if signal n ended it. At the end, every process in both namespaces is
/// ended. Reports how late the emulator itself was: if p99 is above 2 ms, the run is invalid. Needs root, or user
/// namespaces and the right to open /dev/net/tun; otherwise ends with 4 and names the missing part.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Shell command that runs at the other end, such as a server
    ///
    /// Starts first. The program starts when the peer has opened a socket, or after one second. It gets SIGTERM when the
    /// program has ended, and SIGKILL one second later. Its standard input is empty.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Write packets, losses, queue drops and the emulator's lateness as JSON to this file at the end; - is stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print no summary at the end
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    link: LinkOptions,
    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let settings = args.link.settings()?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let (name, command) = program::found(&args.command)?;
    // Before any thread starts.
    enter_user_namespace().map_err(failure)?;
    let lab = Lab::new(&settings).map_err(failure)?;
    let mut peer = args.peer.as_deref().map(|peer| Peer::start(&lab, peer)).transpose()?;
    let waiting = Waiting::start_command(name, lab.command_local(command)?)?;
    lab.begin_schedule().map_err(failure)?;
    let code = follow(waiting.go()?)?;
    let report = lab.report().map_err(failure)?;
    if let Some(peer) = &mut peer {
        peer.end()?;
    }
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    if !args.quiet {
        output::note(summary(&report));
    }
    Ok(code)
}

/// Waits for the end of the program.
fn follow(program: Running) -> Outcome {
    while !program.ended_within(1_000)? {}
    program.reap()
}

/// Exit code and next step of an error of a lab.
pub(crate) fn failure(error: LabError) -> Failure {
    let problem = error.problem();
    let message = Advice(&problem);
    match error {
        LabError::Settings(_) => Failure::usage(message),
        LabError::Rights | LabError::UserNamespace { .. } | LabError::DeviceRights | LabError::NoDevice { .. } => {
            Failure::unavailable(message)
        }
        LabError::System { .. } | LabError::Silent { .. } | LabError::Ended => Failure::fault(message),
    }
}

fn summary(report: &LabReport) -> String {
    let LabReport { seed, up, down, lateness, valid, reasons, .. } = report;
    let late = format!("emulator late: p50 {} ms, p99 {} ms", lateness.p50_ms, lateness.p99_ms);
    let verdict = if *valid { "valid".to_owned() } else { format!("INVALID: {}", reasons.join("; ")) };
    format!("qfabric: up {}\nqfabric: down {}\nqfabric: seed {seed}; {late}; {verdict}", line(up), line(down))
}

fn line(direction: &DirectionReport) -> String {
    let DirectionReport { counters, .. } = direction;
    let percent = 100.0 * counters.loss();
    format!(
        "{} packets, {} lost ({percent:.1} %), {} dropped by the queue, {} delivered with {} bytes",
        counters.packets, counters.lost, counters.queue_drops, counters.delivered, counters.delivered_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_losses_lateness_and_the_reasons_of_an_invalid_run() {
        let mut up = DirectionReport::default();
        (up.counters.packets, up.counters.lost, up.counters.delivered) = (100, 2, 98);
        let (down, lateness) = Default::default();
        let mut report =
            LabReport { seed: 7, seconds: 1.0, up, down, lateness, real_time: true, valid: true, reasons: Vec::new() };
        let text = summary(&report);
        assert!(text.contains("up 100 packets, 2 lost (2.0 %), 0 dropped") && text.contains("seed 7; "), "{text}");
        assert!(text.ends_with("; valid"), "{text}");
        (report.valid, report.reasons) = (false, vec!["the emulator was late".into()]);
        assert!(summary(&report).ends_with("; INVALID: the emulator was late"));
    }
}
