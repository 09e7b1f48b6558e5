//! What a contract means for a connection, and the reservation of its rate.

use std::time::Duration;

use qfabric_carrier::{ClientConnection, Error, Mode};
use qfabric_client::{ClientError, Nanos};
use qfabric_translate::{Host, Level, Peer, Reliability, Stream};
use qfabric_types::{Amount, BitRate, Bytes, Direction, InterfaceName, Resource};

use super::failure;
use crate::connect::{self, Daemon};
use crate::contracts::{invalid, read_profiles};
use crate::exit::Failure;

/// A stream that begins or ends within the network, for a contract that names no interface: only its rate counts.
const SOME_INTERFACE: &str = "lo";

/// The terms of a contract for its frames.
#[derive(Debug)]
pub(super) struct Terms {
    /// With all headers.
    pub(super) rate: BitRate,
    pub(super) period: Nanos,
    pub(super) deadline: Option<Nanos>,
    pub(super) mode: Mode,
    pub(super) largest: Bytes,
    /// The largest frame of each kind.
    pub(super) sizes: Vec<Bytes>,
    pub(super) interface: Option<InterfaceName>,
}

impl Terms {
    /// The terms of the video of a stream, at its best quality.
    pub(super) fn of(stream: &Stream) -> Result<Terms, Failure> {
        let Some(video) = &stream.video else {
            return Err(Failure::usage("the contract has no video\ntry: a section [video]"));
        };
        let largest = video.sizes.into_iter().max().unwrap_or_default();
        Ok(Terms {
            rate: rate(stream)?,
            period: video.rate.max().period(),
            deadline: stream.delay,
            mode: match stream.reliability {
                Reliability::Total => Mode::TotallyReliable,
                Reliability::Partial => Mode::PartiallyReliable,
            },
            largest,
            sizes: video.sizes.into_iter().filter(|size| *size > Bytes::ZERO).collect(),
            interface: stream.local.interface.clone(),
        })
    }
}

/// The bandwidth that leaves this host.
fn rate(stream: &Stream) -> Result<BitRate, Failure> {
    let mut stream = stream.clone();
    let some = || SOME_INTERFACE.parse().expect("is a name");
    stream.local.interface.get_or_insert_with(some);
    let peer = || Peer { host: "peer".parse().expect("is a name"), end: Default::default() };
    stream.peer.get_or_insert_with(peer);
    let profiles = read_profiles(&stream)?;
    let quality = stream.quality(Level::Wanted);
    let translated = qfabric_translate::translate(&stream, quality, &profiles);
    let translated = translated.map_err(|error| invalid(&error.problem()))?;
    let here = translated.resources.iter().filter(|(host, _)| *host == Host::Local);
    let rates =
        here.flat_map(|(_, amounts)| amounts.iter()).filter_map(|(resource, amount)| match (resource, amount) {
            (Resource::Network(end), Amount::Network(rate)) if end.direction == Direction::Out => Some(rate.get()),
            _ => None,
        });
    Ok(BitRate::new(rates.sum()))
}

/// Where the rate comes from.
pub(super) enum Source {
    Reservation(BitRate),
    Laboratory(BitRate),
    /// The reason why nothing is reserved.
    Nothing(String),
}

/// Reserves the rate of the contract for the connection's packets, if a daemon runs and the contract names an interface.
pub(super) fn reserve(connection: &ClientConnection, terms: &Terms, daemon: &Daemon) -> Result<Source, Failure> {
    let Some(interface) = &terms.interface else {
        return Ok(Source::Nothing("the contract names no interface in [local]".to_owned()));
    };
    let client = match daemon.client_if_any() {
        Ok(client) => client,
        Err(ClientError::NoDaemon { .. }) => return Ok(Source::Nothing("no daemon runs".to_owned())),
        Err(error) => return Err(connect::failure(error)),
    };
    match connection.reserve(&client, interface.as_str(), terms.rate, terms.period, None) {
        Ok(rate) => Ok(Source::Reservation(rate)),
        Err(Error::Daemon(error)) => Err(connect::failure(*error)),
        Err(error) => Err(failure(&error)),
    }
}

pub(super) fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.get())
}
