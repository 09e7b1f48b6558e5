//! Goes on after a lost daemon: programs of a conference end by their user only.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use qfabric_client::channel::{Channel, Channels, Spec};
use qfabric_client::{Client, ClientError};

use super::metp::NoPictures;
use crate::wire::{FRAMES, TALK};

/// Time between two attempts to reach a daemon or a channel.
const PAUSE: Duration = Duration::from_millis(300);

/// Ends a conference's program when it is set.
#[derive(Clone, Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Calls `session` again and again until it returns, or this is set. Prints each new reason once.
    pub(super) fn retry(&self, mut session: impl FnMut() -> Result<()>) -> Result<()> {
        let mut said = String::new();
        while !self.is_set() {
            let Err(error) = session() else { return Ok(()) };
            if !is_passing(&error) {
                return Err(error);
            }
            let text = format!("{error:#}");
            if text != said {
                eprintln!("qfabric-conference: {text}; trying again until it works");
                said = text;
            }
            sleep(PAUSE);
        }
        Ok(())
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
