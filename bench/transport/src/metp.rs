//! METP, through the interface that applications use, with mutual TLS. The laboratory's link belongs to the bench, so
//! the sender claims the granted rate without a reservation. In a test case of RFC 8867 nothing is granted, and congestion
//! control decides.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use qfabric_carrier::{
    ClientConnection, DeliveryOrder, Engine, Error, FrameKind, Mode, Options, RateGrant, ServerConnection, Target,
    default_service,
};
use qfabric_types::{BitRate, Bytes};

pub(crate) use qfabric_carrier::Engine as Kind;

use crate::conversation::{Arrivals, now_ns};
use crate::plan::{self, Plan};
use crate::play::Sender;
use crate::realm::{RECEIVER, SENDER, tls};
use crate::stamp::Stamp;

/// The sender waits as long for room in the queue before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that sends.
pub(crate) struct MetpSender {
    connection: ClientConnection,
    deadline_ns: u64,
}

fn options(engine: Engine, plan: &Plan) -> Options {
    // Without a pace there are no deadlines either: the plan measures throughput.
    let mode = if plan.period.is_zero() { Mode::TotallyReliable } else { Mode::PartiallyReliable };
    Options {
        engine,
        mode,
        rate: BitRate::new(plan.granted_bps),
        largest_message: Bytes::new(plan.largest().into()),
        send_time: Some(plan.deadline),
        order: DeliveryOrder::WhenComplete,
        ..Options::default()
    }
}

pub(crate) fn connect(address: SocketAddr, engine: Engine, plan: &Plan, folder: &Path) -> Result<MetpSender> {
    let target = Target { peer: address, local: None, service: default_service(), host: None };
    let connection = ClientConnection::open(target, tls(folder, SENDER)?, options(engine, plan))?;
    if plan.is_reserved {
        connection.grant(Some(RateGrant::laboratory(BitRate::new(plan.granted_bps))))?;
    }
    Ok(MetpSender { connection, deadline_ns: plan.deadline.as_nanos() as u64 })
}

impl Sender for MetpSender {
    fn send(&mut self, frame: Vec<u8>, kind: plan::Kind, stamp: Stamp) -> Result<()> {
        let kind = match kind {
            plan::Kind::I => FrameKind::I,
            plan::Kind::P => FrameKind::P,
            plan::Kind::B => FrameKind::B,
        };
        let left = (stamp.due_ns + self.deadline_ns).saturating_sub(now_ns());
        self.connection.send(kind, frame, Some(Duration::from_nanos(left)), PATIENCE)?;
        Ok(())
    }
}

/// Takes the frames of one session.
pub(crate) fn receive(
    address: SocketAddr,
    engine: Engine,
    plan: &Plan,
    folder: &Path,
    ready: impl FnOnce(),
    arrivals: &Arrivals,
) -> Result<()> {
    let server = ServerConnection::register(default_service(), address, tls(folder, RECEIVER)?, options(engine, plan))?;
    ready();
    let connection = server.accept(PATIENCE)?;
    loop {
        match connection.receive(PATIENCE) {
            Ok(message) if message.is_complete() => {
                Stamp::of(&message.data, &plan.frames).into_iter().for_each(|stamp| arrivals.on_frame(stamp));
            }
            Ok(_) | Err(Error::TimeOut { .. }) => {}
            Err(error) => bail!("{error}"),
        }
    }
}
