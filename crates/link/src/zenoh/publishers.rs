//! One publisher for each destination and lane, made at first use.

use std::collections::HashMap;

use qfabric_channel::{DestinationRef, Lane};
use qfabric_sync::{Lock, rank};
use qfabric_types::channel::{ChannelId, Name};
use zenoh::bytes::ZBytes;
use zenoh::pubsub::Publisher;
use zenoh::qos::{CongestionControl, Priority};
use zenoh::sample::Locality;
use zenoh::{Session, Wait};

use super::numbers::Numbers;

/// Largest number of channels with publishers, of both planes. Above it all publishers are discarded and made again
/// at their next use, so that channels that come and go do not accumulate.
const MAX_CHANNELS: usize = 2048;

/// By lane.
type Each = [Option<Publisher<'static>>; 3];

/// The publishers in use. A host's publishers are dropped when the host is gone, a channel's when the channel is left.
#[derive(Default)]
pub(crate) struct Publishers {
    everyone: Lock<Each, { rank::SENDING }>,
    hosts: Lock<HashMap<Name, Each>, { rank::SENDING }>,
    channels: Lock<HashMap<ChannelId, Each>, { rank::SENDING }>,
}

impl Publishers {
    /// Publishes; returns false if Zenoh refused. Without a number for the key there is no publisher, only this frame.
    pub(super) fn put(
        &self,
        (session, numbers): (&Session, &Numbers),
        to: DestinationRef<'_>,
        lane: Lane,
        key: impl FnOnce() -> String,
        frame: ZBytes,
    ) -> bool {
        let mut frame = Some(frame);
        if let Some(done) = self.existing(to, lane, &mut frame) {
            return done;
        }
        if !numbers.take() {
            return frame.is_some_and(|frame| put_once(session, key(), lane, frame));
        }
        match publisher(session, key(), lane) {
            Ok(publisher) => {
                let done = put(&publisher, &mut frame);
                self.keep(to, lane, publisher);
                done
            }
            Err(_) => false,
        }
    }

    /// `None`: there is no publisher yet, and the frame stays.
    fn existing(&self, to: DestinationRef<'_>, lane: Lane, frame: &mut Option<ZBytes>) -> Option<bool> {
        let mut put = |each: &Each| each[lane as usize].as_ref().map(|publisher| put(publisher, frame));
        match to {
            DestinationRef::Everyone => put(&self.everyone.lock()),
            DestinationRef::Host(host) => put(self.hosts.lock().get(host)?),
            DestinationRef::Channel(channel) => put(self.channels.lock().get(channel)?),
        }
    }

    fn keep(&self, to: DestinationRef<'_>, lane: Lane, publisher: Publisher<'static>) {
        match to {
            DestinationRef::Everyone => self.everyone.lock()[lane as usize] = Some(publisher),
            DestinationRef::Host(host) => {
                let mut hosts = self.hosts.lock();
                hosts.entry(host.clone()).or_default()[lane as usize] = Some(publisher);
            }
            DestinationRef::Channel(channel) => {
                let mut channels = self.channels.lock();
                if channels.len() >= MAX_CHANNELS {
                    channels.clear();
                }
                channels.entry(channel.clone()).or_default()[lane as usize] = Some(publisher);
            }
        }
    }

    /// The host is gone.
    pub(super) fn forget(&self, host: &Name) {
        let pair = self.hosts.lock().remove(host);
        drop(pair);
    }

    /// Called when this host leaves the channel.
    pub(super) fn forget_channel(&self, channel: &ChannelId) {
        let pair = self.channels.lock().remove(channel);
        drop(pair);
    }
}

fn put(publisher: &Publisher<'static>, frame: &mut Option<ZBytes>) -> bool {
    frame.take().is_some_and(|frame| publisher.put(frame).wait().is_ok())
}

/// Publishes to a key that is not declared.
fn put_once(session: &Session, key: String, lane: Lane, frame: ZBytes) -> bool {
    let (priority, congestion) = service(lane);
    let put = session.put(key, frame).priority(priority).congestion_control(congestion);
    put.allowed_destination(Locality::Remote).wait().is_ok()
}

fn service(lane: Lane) -> (Priority, CongestionControl) {
    match lane {
        Lane::Control => (Priority::RealTime, CongestionControl::Block),
        Lane::Data => (Priority::Data, CongestionControl::Drop),
        Lane::Bulk => (Priority::DataLow, CongestionControl::Drop),
    }
}

fn publisher(session: &Session, key: String, lane: Lane) -> zenoh::Result<Publisher<'static>> {
    let (priority, congestion) = service(lane);
    let publisher = session.declare_publisher(key).priority(priority).congestion_control(congestion);
    publisher.allowed_destination(Locality::Remote).wait()
}
