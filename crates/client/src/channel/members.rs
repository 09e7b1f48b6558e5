//! Sources and sinks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qfabric_types::Instant as Moment;
use qfabric_types::api::channel::AttributeChanges;
use qfabric_types::channel_wire::{
    Attributes, Destination, Event, FromClient, FromDaemon, MAX_ATTRIBUTES, MAX_KEY, MAX_PAYLOAD, Sent, SubmitRequest,
};

use super::connection::Inner;
use super::inbox::Answer;
use super::transcoders::Transcoders;
use crate::error::ClientError;
use crate::sync::{Mutex, lock};

/// An event to be submitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submission<'a> {
    /// Number of its type; see [`super::Channel::type_number`].
    pub event_type: u16,
    /// 0, the lowest, to 7.
    pub priority: u8,
    /// When it is of no use any more: it is dropped and counted then, wherever it is.
    pub deadline: Option<Moment>,
    /// For whom, before filters choose among them.
    pub to: Destination<'a>,
    /// At most 16 Q-attributes.
    pub attributes: &'a [(&'a str, i64)],
    /// As its type's format says, with anything behind it; at most 1 MiB.
    pub payload: &'a [u8],
}

/// A source of events; dropping it leaves the channel.
#[derive(Debug)]
pub struct Source {
    inner: Arc<Inner>,
    number: u32,
    transcoders: Mutex<Option<Transcoders>>,
}

impl Source {
    pub(super) fn new(inner: Arc<Inner>, number: u32) -> Source {
        Source { inner, number, transcoders: Mutex::default() }
    }

    /// From now on, these transcoders run on each event before it is submitted, in the thread that submits it; none: no
    /// transcoder. Receivers are told by attributes what was applied: [`super::transcoded`].
    pub fn set_transcoders(&self, transcoders: Option<Transcoders>) {
        *lock(&self.transcoders) = transcoders;
    }

    /// Calls `submit` with the event after the transcoders.
    fn transcoded<R>(
        &self,
        event: &Submission<'_>,
        submit: impl FnOnce(&Submission<'_>) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let transcoded = lock(&self.transcoders).as_mut().map(|chain| chain.run(event.payload)).transpose()?;
        match transcoded {
            Some(transcoded) => transcoded.submit(event, submit),
            None => submit(event),
        }
    }

    /// Its number on this host.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Submits an event: no answer is waited for, and no system call is made unless the daemon sleeps. A refusal comes as a
    /// [`super::Notice::Refused`].
    pub fn submit(&self, event: &Submission<'_>) -> Result<(), ClientError> {
        self.transcoded(event, |event| self.inner.send(&FromClient::Submit(self.message(event, false)?)))
    }

    /// Submits an event, and waits for word of it.
    pub fn submit_and_wait(&self, event: &Submission<'_>) -> Result<Sent, ClientError> {
        self.transcoded(event, |event| self.ask(event))
    }

    fn ask(&self, event: &Submission<'_>) -> Result<Sent, ClientError> {
        let message = self.message(event, true)?;
        match self.inner.ask(message.tag, &FromClient::Submit(message))? {
            Answer::Sent(sent) => Ok(sent),
            Answer::Refused { blocked_until_ns, why, .. } => {
                let blocked_until = (blocked_until_ns != 0).then(|| Moment::new(blocked_until_ns));
                Err(ClientError::NotSubmitted { why, blocked_until })
            }
        }
    }

    /// Submits an event; where a slow sink holds the channel up, waits for at most `patience`.
    pub fn submit_patiently(&self, event: &Submission<'_>, patience: Duration) -> Result<Sent, ClientError> {
        let until = Instant::now() + patience;
        self.transcoded(event, |event| self.ask_until(event, until))
    }

    fn ask_until(&self, event: &Submission<'_>, until: Instant) -> Result<Sent, ClientError> {
        loop {
            match self.ask(event) {
                Err(ClientError::NotSubmitted { blocked_until: Some(next), why }) => {
                    let left = next.get().saturating_sub(crate::clock::now().get());
                    let look = (Instant::now() + Duration::from_nanos(left)).min(until);
                    self.inner.wait_writable(self.number, look)?;
                    if Instant::now() >= until {
                        return Err(ClientError::NotSubmitted { blocked_until: Some(next), why });
                    }
                }
                other => return other,
            }
        }
    }

    /// Submits an event without waiting for its answer. While a slow sink holds the channel up, the daemon keeps the event,
    /// and later events of the source wait behind it. At most 256 events, or 192 KiB, of this connection are without an
    /// answer; the call waits at most `patience` for room. A refusal comes as a [`super::Notice::Refused`]. Call
    /// [`Source::drain`] before the source is dropped: events that still wait are lost with it.
    pub fn submit_queued(&self, event: &Submission<'_>, patience: Duration) -> Result<(), ClientError> {
        let keep = |event: &Submission<'_>| {
            let message = SubmitRequest { keep: true, ..self.message(event, true)? };
            self.inner.send_queued(message, patience)
        };
        match self.transcoded(event, keep)? {
            true => Ok(()),
            false => {
                let why = format!(
                    "the events before it wait for a slow sink, and no answer came within {patience:?}; `qfabric channel \
                     show` lists the sinks with their queues"
                );
                Err(ClientError::NotSubmitted { why, blocked_until: None })
            }
        }
    }

    /// Waits until all events of [`Source::submit_queued`] have gone to the channel or were refused. False: not within
    /// `patience`.
    pub fn drain(&self, patience: Duration) -> Result<bool, ClientError> {
        self.inner.drain(self.number, patience)
    }

    /// Sets a Q-attribute; none takes it away.
    pub fn set_attribute(&self, key: &str, value: Option<i64>) -> Result<(), ClientError> {
        self.inner.client.change_member("sources", self.number, &change(key, value))
    }

    /// What is wrong with an event is said before it is sent, where it would not fit a message.
    fn message<'a>(&self, event: &Submission<'a>, confirm: bool) -> Result<SubmitRequest<'a>, ClientError> {
        let Submission { event_type, priority, deadline, to, attributes, payload } = *event;
        if payload.len() > MAX_PAYLOAD {
            let why = format!("an event of {} bytes; the limit is {MAX_PAYLOAD}", payload.len());
            return Err(ClientError::invalid(why, "send it in parts"));
        }
        if attributes.len() > MAX_ATTRIBUTES || attributes.iter().any(|(key, _)| !(1..=MAX_KEY).contains(&key.len())) {
            let limits =
                format!("use at most {MAX_ATTRIBUTES} attributes, each name 1 to {MAX_KEY} of a-z, A-Z, 0-9 and '_'");
            return Err(ClientError::invalid("the event has too many attributes, or one without a valid name", limits));
        }
        Ok(SubmitRequest {
            source: self.number,
            tag: self.inner.tag(),
            confirm,
            keep: false,
            event_type,
            priority,
            deadline_ns: deadline.map_or(0, |deadline| deadline.get().max(1)),
            to,
            attributes: Attributes::Listed(attributes),
            payload,
        })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.inner.leave_source(self.number);
    }
}

/// A sink of events; dropping it leaves the channel. Its handler is not called any more then: dropping waits for a call
/// in another thread to end. Within the handler it does not wait, that call is the last one.
#[derive(Debug)]
pub struct Sink {
    pub(super) inner: Arc<Inner>,
    pub(super) number: u32,
}

impl Sink {
    /// Its number on this host.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The next event, if one comes within `patience`. For sinks without a handler. If the sink has ended by itself, the
    /// events that have come are returned first, then [`ClientError::SinkEnded`].
    pub fn next(&mut self, patience: Duration) -> Result<Option<Received>, ClientError> {
        let message = self.inner.next_of(self.number, patience)?;
        Ok(message.map(|message| Received { inner: self.inner.clone(), sink: self.number, message }))
    }

    /// Sets a Q-attribute, which OUT-filters at all sources see; none takes it away.
    pub fn set_attribute(&self, key: &str, value: Option<i64>) -> Result<(), ClientError> {
        self.inner.client.change_member("sinks", self.number, &change(key, value))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.inner.leave("sinks", self.number);
        self.inner.forget_sink(self.number);
    }
}

/// An event that was taken. While it is held, there is room for one less.
#[derive(Debug)]
pub struct Received {
    inner: Arc<Inner>,
    sink: u32,
    message: Vec<u8>,
}

impl Received {
    /// The event.
    pub fn event(&self) -> Event<'_> {
        match FromDaemon::decode(&self.message) {
            Some(FromDaemon::Event(event)) => event,
            _ => unreachable!("only events are kept"),
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // If the connection is broken, the request for the next event returns the error.
        let _ = self.inner.done(self.sink, std::mem::take(&mut self.message));
    }
}

fn change(key: &str, value: Option<i64>) -> AttributeChanges {
    AttributeChanges { attributes: BTreeMap::from([(key.to_owned(), value)]) }
}
