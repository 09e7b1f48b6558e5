//! Where both processes of an engine run: behind the emulated link, or on this host's loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use qfabric_netlab::{Lab, LabEnd, LabSettings};
use qfabric_types::BitRate;

/// A side of the link: that of the senders, except of media down, or the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

/// What the link has seen in one run, with both directions from the sender's view.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinkCounts {
    pub sent_bytes: u64,
    pub returned_bytes: u64,
    pub late_p99_ms: f64,
    /// Why the run does not count; empty if it does.
    pub reasons: Vec<String>,
}

/// The place of one run.
pub(crate) enum Place {
    Loopback,
    Link(Lab),
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::Sender => End::Receiver,
            End::Receiver => End::Sender,
        }
    }
}

impl Place {
    /// A new link.
    pub(crate) fn link(settings: &LabSettings) -> Result<Place> {
        Ok(Place::Link(Lab::new(settings)?))
    }

    /// The address of an end; `path`: which one of the end with several.
    pub(crate) fn address(&self, end: End, path: usize) -> Result<IpAddr> {
        Ok(match (self, end) {
            (Place::Loopback, _) => Ipv4Addr::LOCALHOST.into(),
            (Place::Link(lab), End::Sender) => lab.address(LabEnd::Local).into(),
            (Place::Link(lab), End::Receiver) => lab.peers().nth(path).context("the link has no such path")?.into(),
        })
    }

    /// The changes of the link over time count from now.
    pub(crate) fn begin(&self) -> Result<()> {
        match self {
            Place::Loopback => Ok(()),
            Place::Link(lab) => Ok(lab.begin_schedule()?),
        }
    }

    /// A command of these words that runs at an end.
    pub(crate) fn command(&self, end: End, words: &[String]) -> Result<Command> {
        let (program, arguments) = words.split_first().context("a command without words")?;
        let mut command = Command::new(program);
        command.args(arguments);
        self.enter(end, command)
    }

    /// Gives the granted rate to packets for this port of the receiver, and the rest of the link to all others: classes
    /// of HTB at the sender, as a reservation of the daemon has them.
    pub(crate) fn reserve(&self, link: BitRate, granted: BitRate, port: u16) -> Result<()> {
        // The emulator's queue stays empty.
        let whole = link.get() / 100 * 98;
        let rest = whole.saturating_sub(granted.get()).max(1_000);
        let commands = [
            "qdisc add dev lab0 root handle 1: htb default 2".to_owned(),
            format!("class add dev lab0 parent 1: classid 1:9 htb rate {whole} ceil {whole}"),
            format!("class add dev lab0 parent 1:9 classid 1:1 htb rate {} ceil {whole} prio 0", granted.get()),
            format!("class add dev lab0 parent 1:9 classid 1:2 htb rate {rest} ceil {whole} prio 1"),
            format!("filter add dev lab0 parent 1: protocol ip u32 match ip dport {port} 0xffff flowid 1:1"),
        ];
        commands.iter().try_for_each(|words| self.tc(words))
    }

    fn tc(&self, words: &str) -> Result<()> {
        let mut tc = Command::new("tc");
        tc.args(words.split(' '));
        let output = self.enter(End::Sender, tc)?.output().context("cannot start tc; try: apt-get install iproute2")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tc {words}: {}", said.trim());
        Ok(())
    }

    fn enter(&self, end: End, command: Command) -> Result<Command> {
        match (self, end) {
            (Place::Loopback, _) => Ok(command),
            (Place::Link(lab), End::Sender) => Ok(lab.command_local(command)?),
            (Place::Link(lab), End::Receiver) => Ok(lab.command_peer(command)?),
        }
    }

    pub(crate) fn counts(&self) -> Result<LinkCounts> {
        let Place::Link(lab) = self else { return Ok(LinkCounts::default()) };
        let report = lab.report()?;
        Ok(LinkCounts {
            sent_bytes: report.up.counters.bytes,
            returned_bytes: report.down.counters.bytes,
            late_p99_ms: report.lateness.p99_ms,
            reasons: report.reasons,
        })
    }
}
