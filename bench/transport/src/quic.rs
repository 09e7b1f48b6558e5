//! QUIC streams by quinn with its own settings: a stream for each frame, congestion control, no deadline.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use qfabric_carrier::Congestion;
use qfabric_carrier::plain_streams::{StreamReceiver, StreamSender};

use crate::conversation::Arrivals;
use crate::plan::{Kind, Plan};
use crate::play::Sender;
use crate::realm::{RECEIVER, SENDER, tls};
use crate::stamp::Stamp;

pub(crate) fn connect(address: SocketAddr, folder: &Path, congestion: Congestion) -> Result<StreamSender> {
    Ok(StreamSender::open(address, tls(folder, SENDER)?, congestion)?)
}

impl Sender for StreamSender {
    fn send(&mut self, frame: Vec<u8>, _: Kind, _: Stamp) -> Result<()> {
        Ok(StreamSender::send(self, frame)?)
    }
}

/// Takes the frames of one connection.
pub(crate) fn receive(
    address: SocketAddr,
    plan: &Plan,
    folder: &Path,
    ready: impl FnOnce(),
    arrivals: &Arrivals,
) -> Result<()> {
    let receiver = StreamReceiver::listen(address, tls(folder, RECEIVER)?, plan.largest() as usize)?;
    ready();
    loop {
        if let Some(stamp) = Stamp::of(&receiver.receive()?, &plan.frames) {
            arrivals.on_frame(stamp);
        }
    }
}
