//! Preprocessing 1: a handler copies requests into shared memory when they arrive. A signal informs the server,
//! which then has the request without reading its socket.
//!
//! In the paper, the handler reads from the socket. Here the handler reads the packet at the interface, before the
//! packet belongs to a socket. Therefore this example is limited to requests of one packet (UDP). The packet
//! continues to the socket as usual, and the server sends its answer through the socket.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Ecalls, MemoryUp, Signals, SubscriptionBuilder};

use crate::{EVENT_TIMEOUT, number};

/// Delivers the client's address and port, the length of the request, and its first 64 bytes.
pub const CODE: &str = "
struct output { unsigned int from; unsigned short port; unsigned short length; unsigned char request[64]; };
{
    int i;
    if (input.transport != 17 || input.destination_port != attr.port) return 0;
    output.from = input.source;
    output.port = input.source_port;
    output.length = min(input.data_len, 64);
    for (i = 0; i < 64; i++) output.request[i] = input.data[i];
    return 1;
}";

const SIGNAL: i32 = 40;

/// Serves `count` requests that arrive at `socket` through `interface`. Returns the requests in the order of
/// arrival.
pub fn serve(ecalls: &Ecalls, interface: &str, socket: &UdpSocket, count: usize) -> Result<Vec<String>> {
    let signals = Signals::keep(SIGNAL)?;
    let port = i64::from(socket.local_addr()?.port());
    let wanted = SubscriptionBuilder::to("net.rx").option("interface", interface).attribute("port", port);
    let wanted = wanted.code(CODE).memory_up(MemoryUp::default()).signal(SIGNAL);
    let mut requests = ecalls.subscribe(&wanted)?;
    let mut served = Vec::new();
    while served.len() < count {
        signals.next(EVENT_TIMEOUT)?.context("no signal arrived within 10 s")?;
        // The kernel wrote the request into shared memory before it sent the signal.
        let request = requests.try_next().context("a signal arrived, but shared memory holds no request")?;
        let address = (number::<4>(&request, 0) as u32).to_be_bytes();
        let from = SocketAddr::from((address, number::<2>(&request, 4) as u16));
        let length = number::<2>(&request, 6) as usize;
        let text = String::from_utf8_lossy(&request.data[8..8 + length.min(64)]).into_owned();
        // A client that states an address to which nothing can be sent, such as port 0, gets no answer.
        let _ = socket.send_to(format!("you asked {text}").as_bytes(), from);
        served.push(text);
    }
    Ok(served)
}
