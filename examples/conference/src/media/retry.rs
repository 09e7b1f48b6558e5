//! Goes on after a lost daemon: programs of a conference end by their user only.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use qfabric_client::channel::{Channel, Channels, Spec};
use qfabric_client::{Client, ClientError};

use super::metp::NoPictures;
use crate::wire::{FRAMES, TALK};

/// Time between the first two attempts to reach a daemon, a channel or a server.
const PAUSE: Duration = Duration::from_millis(300);
/// The pause doubles after each further failure, this many times at most: up to 2.4 s.
const MOST_DOUBLINGS: u32 = 3;
/// A session of this length has worked. A shorter one may have waited for a resolver or a handshake only.
const WORKED: Duration = Duration::from_secs(60);

/// Ends a conference's program when it is set.
#[derive(Clone, Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Calls `session` again and again until it returns, or this is set, with pauses in between. Prints each new reason
    /// once.
    pub(super) fn retry(&self, mut session: impl FnMut() -> Result<()>) -> Result<()> {
        let mut failures = Failures::default();
        while !self.is_set() {
            let begun = Instant::now();
            let Err(error) = session() else { return Ok(()) };
            if !is_passing(&error) {
                return Err(error);
            }
            let why = format!("{error:#}");
            let (is_new, pauses) = failures.add(&why, begun.elapsed());
            if is_new {
                eprintln!("qfabric-conference: {why}; trying again until it works");
            }
            (0..pauses).take_while(|_| !self.is_set()).for_each(|_| sleep(PAUSE));
        }
        Ok(())
    }
}

/// Sessions that failed one after the other.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// Why the last one failed.
    why: String,
}

impl Failures {
    /// Counts a session that failed after the time `lasted`. Returns whether the reason is new, and how many times
    /// [`PAUSE`] has to pass before the next attempt.
    fn add(&mut self, why: &str, lasted: Duration) -> (bool, u32) {
        if lasted >= WORKED {
            *self = Failures::default();
        }
        let (is_new, pauses) = (self.why != why, 1 << self.count.min(MOST_DOUBLINGS));
        *self = Failures { count: self.count.saturating_add(1), why: why.to_owned() };
        (is_new, pauses)
    }
}

/// The daemon ended a member of a channel.
#[derive(Debug, thiserror::Error)]
#[error("the daemon ended the member of a channel: {0}")]
pub(super) struct Ended(pub String);

/// Whether a later attempt may succeed: the daemon, or the network, is away.
fn is_passing(error: &Error) -> bool {
    if error.is::<Ended>() {
        return true;
    }
    if let Some(error) = error.downcast_ref::<NoPictures>() {
        return error.is_passing();
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Value(_) | ClientError::Contract(_) | ClientError::Version { .. }) | None => false,
        // Rights are given by people.
        Some(ClientError::Refused(problem)) => !["not_permitted", "forbidden"].contains(&&*problem.code),
        Some(_) => true,
    }
}

/// The channels of a conference, opened with one connection.
pub(super) struct Rooms {
    pub channels: Channels,
    pub frames: Channel,
    pub talk: Channel,
}

impl Rooms {
    /// Opens both channels; creates those that no host holds.
    pub(super) fn enter(socket: Option<&PathBuf>, name: &str) -> Result<Rooms> {
        let channels = Channels::connect(&client(socket)?)?;
        let frames = enter(&channels, name, FRAMES)?;
        let talk = enter(&channels, &format!("{name}.talk"), TALK)?;
        Ok(Rooms { channels, frames, talk })
    }
}

pub(super) fn client(socket: Option<&PathBuf>) -> Result<Client> {
    Ok(match socket {
        Some(socket) => Client::connect_to(socket)?,
        None => Client::connect()?,
    })
}

fn enter(channels: &Channels, name: &str, formats: &str) -> Result<Channel> {
    let created = channels.open(name).or_else(|_| channels.create(name, &Spec::of(formats)));
    // Another host may have created it in between.
    let opened = created.or_else(|error| channels.open(name).map_err(|_| error));
    opened.with_context(|| format!("cannot open the channel {name}"))
}

/// The number of an event's type.
pub(super) fn event_type(channel: &Channel, name: &str) -> Result<u16> {
    let why =
        || format!("the channel {} has no events {name}: another program made it; use another --channel", channel.id());
    channel.type_number(name).with_context(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_begin_again_after_a_session_that_worked() {
        let mut failures = Failures::default();
        let pauses = [0, 10, 0, 0, 59, 0, 60, 0].map(|seconds| failures.add("away", Duration::from_secs(seconds)).1);
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8, 1, 2]);
    }

    #[test]
    fn a_reason_is_new_once_and_again_after_a_session_that_worked() {
        let mut failures = Failures::default();
        let sessions = [("away", 0), ("away", 1), ("full", 0), ("full", 59), ("full", 60), ("full", 0)];
        let are_new = sessions.map(|(why, seconds)| failures.add(why, Duration::from_secs(seconds)).0);
        assert_eq!(are_new, [true, false, true, false, true, false]);
    }

    #[test]
    fn a_session_is_tried_again_after_a_failure_that_passes_only() {
        let mut calls = 0;
        let done = Stop::default().retry(|| {
            calls += 1;
            if calls == 1 { Err(Ended("it was stopped".to_owned()).into()) } else { Err(Error::msg("for good")) }
        });
        assert_eq!((done.unwrap_err().to_string(), calls), ("for good".to_owned(), 2));
    }
}
