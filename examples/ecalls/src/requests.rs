//! Preprocessing 1: a handler reads requests as they arrive and puts them into shared memory; the server is told by a
//! signal and has the request at once, without reading its socket.
//!
//! In the paper the handler reads from the socket. Here it reads the packet at the interface, before there is a
//! socket to read from: so this is for requests of one packet (UDP). The packet goes on to the socket as ever; the
//! server answers through it.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use qfabric_client::ecalls::{Ecalls, MemoryUp, Signals, Subscribe};

use crate::{PATIENCE, number};

/// What travels to the server: who asks, and the beginning of what is asked.
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

/// Serves `count` requests that arrive at `socket` through `interface`; what was asked, in order.
pub fn serve(ecalls: &Ecalls, interface: &str, socket: &UdpSocket, count: usize) -> Result<Vec<String>> {
    let signals = Signals::keep(SIGNAL)?;
    let port = i64::from(socket.local_addr()?.port());
    let wanted = Subscribe::to("net.rx").option("interface", interface).attribute("port", port);
    let wanted = wanted.code(CODE).memory_up(MemoryUp::default()).signal(SIGNAL);
    let mut requests = ecalls.subscribe(&wanted)?;
    let mut served = Vec::new();
    while served.len() < count {
        signals.next(PATIENCE)?.context("no signal came in time")?;
        // The kernel wrote the memory before it handed the event over for the signal.
        let request = requests.try_next().context("a signal, but nothing in the memory")?;
        let address = (number::<4>(&request, 0) as u32).to_be_bytes();
        let from = SocketAddr::from((address, number::<2>(&request, 4) as u16));
        let length = number::<2>(&request, 6) as usize;
        let text = String::from_utf8_lossy(&request.data[8..8 + length.min(64)]).into_owned();
        socket.send_to(format!("you asked {text}").as_bytes(), from)?;
        served.push(text);
    }
    Ok(served)
}
