//! Where both processes of an engine run: behind the emulated link, or on this host's loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result};

use crate::Options;

/// A side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

/// What the link has seen in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounts {
    pub sent_bytes: u64,
    pub returned_bytes: u64,
    pub late_p99_ns: u64,
}

/// The place of one run.
pub(crate) enum Place {
    Loopback,
}

impl Place {
    pub(crate) fn start(_options: &Options, _round: u32) -> Result<Place> {
        Ok(Place::Loopback)
    }

    /// The receiver's address.
    pub(crate) fn receiver(&self) -> IpAddr {
        match self {
            Place::Loopback => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// A command of these words that runs at an end.
    pub(crate) fn command(&self, _end: End, words: &[String]) -> Result<Command> {
        let (program, arguments) = words.split_first().context("a command without words")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }

    pub(crate) fn counts(&self) -> Result<LinkCounts> {
        Ok(LinkCounts::default())
    }
}
