//! Q-Fabric as users have it: an application's connections to the daemon of its host.

use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use qfabric_client::channel::{
    Channel, Channels, Pressure, Sink, SinkOptions, Source, SourceOptions, Spec, Submission,
};
use qfabric_client::{Client, ClientError};

use crate::field::{Each, Peer, Publish, until};
use crate::wire::Wire;

const FORMAT: &str = "struct event { long number; };";
/// Events in a sink's queue: the largest allowed number.
const CAPACITY: u32 = 4096;
/// Timeout for an answer, and for a sink that blocks a source.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections of an application to its daemon.
pub(crate) struct Service {
    socket: PathBuf,
    /// End of the names of this measurement's channels, because the channels of the previous measurement may still be
    /// closing.
    tag: String,
    /// Channels that stay open as long as this value.
    watched: Mutex<Vec<(Channels, Channel)>>,
}

impl Service {
    pub(crate) fn new(socket: &str, tag: &str) -> Service {
        Service { socket: socket.into(), tag: tag.to_owned(), watched: Mutex::default() }
    }

    /// Opens the topic's channel with its own connection, or creates it if the other side has not.
    fn open(&self, topic: &str) -> Result<(Channels, Channel), ClientError> {
        let (name, until) = (format!("{topic}-{}", self.tag), Instant::now() + PATIENCE);
        let channels = Channels::connect(&Client::connect_to(&self.socket)?)?;
        // On the stream, events wait for the reader; on other topics the oldest event is dropped.
        let pressure = if topic == "stream" { Pressure::Block } else { Pressure::DropOldest };
        let spec = Spec { pressure, ..Spec::of(FORMAT) };
        loop {
            match channels.open(&name).or_else(|_| channels.create(&name, &spec)) {
                Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
                result => return result.map(|channel| (channels, channel)),
            }
        }
    }

    fn source(&self, topic: &str) -> Result<(Channels, Channel, Source), ClientError> {
        let (channels, channel) = self.open(topic)?;
        let source = channel.source_subscribe(&SourceOptions::default())?;
        Ok((channels, channel, source))
    }

    fn sink(&self, topic: &str) -> Result<(Channels, Channel, Sink), ClientError> {
        let (channels, channel) = self.open(topic)?;
        let sink = channel.sink(&SinkOptions { capacity: CAPACITY, ..SinkOptions::default() })?;
        Ok((channels, channel, sink))
    }

    /// Sends on one topic, receives on the other.
    pub(crate) fn wire(&self, out: &str, back: &str) -> Result<impl Wire + use<>> {
        Ok(Ends { source: self.source(out)?, sink: self.sink(back)? })
    }
}

impl Peer for Service {
    fn subscribe(&self, topic: &'static str, mut each: Each) {
        let (channels, channel, mut sink) = self.sink(topic).expect("a sink");
        thread::spawn(move || {
            let _open = (channels, channel);
            loop {
                if let Some(event) = sink.next(PATIENCE).expect("the daemon is there") {
                    each(event.event().payload);
                }
            }
        });
    }

    fn publish(&self, topic: &'static str) -> Publish {
        let open = self.source(topic).expect("a source");
        Box::new(move |payload| {
            // Keeps connection, channel and source: dropping the channel would close it and its sources.
            let (_, _, source) = &open;
            let event = Submission { payload, ..Submission::default() };
            match topic {
                "stream" => source.submit_queued(&event, PATIENCE),
                _ => source.submit(&event),
            }
            .expect("submitted");
        })
    }

    fn echo(&self) {
        let mut back = self.publish("pong");
        self.subscribe("ping", Box::new(move |bytes| back(bytes)));
    }

    fn wait_for(&self, topic: &'static str, sinks: usize) {
        let (channels, channel) = self.open(topic).expect("a channel");
        let known = || channel.look().map_or(0, |info| info.hosts.iter().map(|host| host.sinks.len()).sum());
        until(|| known() >= sinks);
        self.watched.lock().expect("no panic").push((channels, channel));
    }
}

/// A source and a sink, in the asking thread.
struct Ends {
    source: (Channels, Channel, Source),
    sink: (Channels, Channel, Sink),
}

impl Wire for Ends {
    fn send(&mut self, payload: &[u8]) -> Result<()> {
        Ok(self.source.2.submit(&Submission { payload, ..Submission::default() })?)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize> {
        let event = self.sink.2.next(PATIENCE)?.context("no event within 5 s")?;
        let payload = event.event().payload;
        into[..payload.len()].copy_from_slice(payload);
        Ok(payload.len())
    }
}
