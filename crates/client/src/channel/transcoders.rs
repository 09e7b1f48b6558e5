//! Transcoders before `submit` (000 §6.2): functions of the application that make the data of an event smaller. They run in
//! the order that the application gives, and attributes of the event tell the receivers which of them were applied.
//!
//! Which transcoders save energy is the question of the room `transcode`; a pipeline of that room can be one of them.

use std::fmt;

use qfabric_types::channel_wire::{Attributes, MAX_KEY};

use super::members::Submission;
use crate::error::ClientError;

/// The attribute `transcoded_NAME` of an event has the place of the transcoder in the order of application, from 1.
const PREFIX: &str = "transcoded_";

/// Changes the data of events.
pub trait Transcoder: Send {
    /// The name that receivers are told: 1 to 21 of `a-z`, `A-Z`, `0-9` and `_`.
    fn name(&self) -> &str;

    /// The data after this transcoder.
    ///
    /// # Errors
    /// A sentence with the reason. The data then stays as it was, and the event is not submitted if it needs this
    /// transcoder.
    fn apply(&mut self, data: &[u8]) -> Result<Vec<u8>, String>;
}

/// A chain of transcoders, for [`super::Source::set_transcoders`].
#[derive(Default)]
pub struct Transcoders {
    head: usize,
    steps: Vec<Step>,
}

struct Step {
    is_mandatory: bool,
    transcoder: Box<dyn Transcoder>,
}

impl fmt::Debug for Transcoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| step.transcoder.name())).finish()
    }
}

/// An event's payload after the transcoders.
pub(super) struct Transcoded {
    payload: Vec<u8>,
    /// Names of attributes, in the order of application.
    applied: Vec<String>,
}

impl Transcoders {
    /// A chain without transcoders. The first `head` bytes of a payload, the structure of its type, do not pass through it.
    pub fn behind(head: usize) -> Transcoders {
        Transcoders { head, steps: Vec::new() }
    }

    /// Adds a transcoder to the end of the chain. If it fails, the event is submitted without it.
    ///
    /// # Errors
    /// [`ClientError::Value`]: its name is no part of an attribute's name, or the chain has it already.
    pub fn optional(mut self, transcoder: impl Transcoder + 'static) -> Result<Transcoders, ClientError> {
        self.add(false, transcoder)?;
        Ok(self)
    }

    /// Adds a transcoder without which an event must not be submitted.
    ///
    /// # Errors
    /// As [`Transcoders::optional`].
    pub fn mandatory(mut self, transcoder: impl Transcoder + 'static) -> Result<Transcoders, ClientError> {
        self.add(true, transcoder)?;
        Ok(self)
    }

    /// Adds a transcoder to the end of the chain; see [`Transcoders::mandatory`] and [`Transcoders::optional`].
    ///
    /// # Errors
    /// As [`Transcoders::optional`]. The chain is unchanged.
    pub fn add(&mut self, is_mandatory: bool, transcoder: impl Transcoder + 'static) -> Result<(), ClientError> {
        let name = transcoder.name();
        transcoder_attribute(name)?;
        if self.steps.iter().any(|known| known.transcoder.name() == name) {
            return Err(ClientError::invalid(
                format!("the chain has a transcoder {name} already"),
                "give it another name",
            ));
        }
        self.steps.push(Step { is_mandatory, transcoder: Box::new(transcoder) });
        Ok(())
    }

    pub(super) fn run(&mut self, payload: &[u8]) -> Result<Transcoded, ClientError> {
        let Some((head, data)) = payload.split_at_checked(self.head) else {
            let why = format!("an event of {} bytes; the transcoders begin behind {}", payload.len(), self.head);
            return Err(ClientError::invalid(why, "submit the whole structure before the data"));
        };
        let (mut data, mut applied) = (data.to_vec(), Vec::new());
        for Step { is_mandatory, transcoder } in &mut self.steps {
            match transcoder.apply(&data) {
                Ok(smaller) => {
                    data = smaller;
                    applied.push(format!("{PREFIX}{}", transcoder.name()));
                }
                Err(why) if *is_mandatory => {
                    let why = format!("the transcoder {} failed: {why}", transcoder.name());
                    return Err(ClientError::NotSubmitted { why, blocked_until: None });
                }
                Err(_) => {}
            }
        }
        Ok(Transcoded { payload: [head, &data].concat(), applied })
    }
}

impl Transcoded {
    /// Calls `submit` with the event, its new payload and its additional attributes.
    pub(super) fn submit<R>(&self, event: &Submission<'_>, submit: impl FnOnce(&Submission<'_>) -> R) -> R {
        let places = self.applied.iter().map(String::as_str).zip(1..);
        let attributes: Vec<(&str, i64)> = event.attributes.iter().copied().chain(places).collect();
        submit(&Submission { attributes: &attributes, payload: &self.payload, ..*event })
    }
}

/// The attribute by which an event says that the transcoder `name` was applied: its value is the place of the
/// transcoder in the order of application, from 1. For sources that run their transcoders themselves; [`transcoded`] reads it.
///
/// # Errors
/// [`ClientError::Value`]: `name` is no part of an attribute's name.
pub fn transcoder_attribute(name: &str) -> Result<String, ClientError> {
    let most = MAX_KEY - PREFIX.len();
    let fits = (1..=most).contains(&name.len());
    if !fits || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let next = format!("use 1 to {most} of a-z, A-Z, 0-9 and '_'");
        return Err(ClientError::invalid(format!("{name:?} is no name of a transcoder"), next));
    }
    Ok(format!("{PREFIX}{name}"))
}

/// The names of the transcoders that the source applied to an event, in this order.
///
/// They come from another process: a source may name what it did not apply.
pub fn transcoded<'a>(attributes: &Attributes<'a>) -> Vec<&'a str> {
    let of = |(key, place): (&'a str, i64)| Some((place, key.strip_prefix(PREFIX)?));
    let mut applied: Vec<(i64, &str)> = attributes.iter().filter_map(of).collect();
    applied.sort_unstable();
    applied.into_iter().map(|(_, name)| name).collect()
}
