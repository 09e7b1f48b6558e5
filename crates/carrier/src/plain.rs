//! A session over plain UDP, for comparisons in the laboratory.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::connection::Connection;
use crate::driver::Driver;
use crate::handover::Handover;
use crate::options::Options;
use crate::udp::{Laboratory, UdpCarrier};
use crate::{Error, runtime};

/// METP's tag of all sessions without a handshake.
const TAG: u16 = 0;

/// One end of a session between two addresses, without encryption and authentication, and without congestion control:
/// [`Options::rate`] is sent. Both ends call this. Addresses beyond loopback need a [`Laboratory`].
///
/// # Errors
/// [`Error::PlainUdp`], an option outside its range, or an address that cannot be used.
pub fn connect_plain(
    local: SocketAddr,
    peer: SocketAddr,
    options: Options,
    laboratory: Option<Laboratory>,
) -> Result<Connection, Error> {
    options.check()?;
    let handover = Arc::new(Handover::new(options.memory().get())?);
    let (inner, largest_message) = (handover.clone(), options.largest_message);
    let ((), _thread) = runtime::start(move || async move {
        let max_datagram = usize::from(options.mtu);
        let carrier = UdpCarrier::connect(local, peer, max_datagram, options.rate, laboratory).await?;
        let mut driver = Driver::new(&options, TAG, inner, None)?;
        driver.attach(Box::new(carrier))?;
        Ok(((), driver.run()))
    })?;
    let peer = "laboratory".parse().expect("is a name");
    Ok(Connection { handover, peer, largest_message })
}
