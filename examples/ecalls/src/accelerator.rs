//! Filtering 2: an accelerator before a server. A handler at the interface tells static requests from dynamic ones:
//! static ones end there and are answered from memory, dynamic ones go on to the server.
//!
//! **What differs from the paper, and why.** There the handler answers static requests itself, over TCP, in the
//! kernel. A handler on a stock kernel has no socket to write to, and to answer TCP from an interface it would have
//! to keep the connection's state. So: the protocol is one request per UDP packet; the handler recognises a static
//! one (`GET /static/N`), puts it into shared memory and drops the packet, before it costs the network stack and
//! the server anything; a thread of the application that sleeps on that memory answers. What remains of the
//! paper's gain is that static requests never wait in the server's queue; the answer costs a wake-up and a system
//! call that the paper's does not.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use qfabric_client::ecalls::{Ecalls, MemoryUp, Subscribe, Subscription};

use crate::number;

/// Static requests are delivered and dropped; dynamic ones are only counted, and go on.
pub const CODE: &str = "
struct output { unsigned int from; unsigned short port; unsigned char page; unsigned char reserved; };
#define SLASH_S 0x732f
{
    if (input.transport != 17 || input.destination_port != attr.port) return 1;
    if (input.data_len < 13) { attr.dynamic += 1; return 1; }
    if ((input.data[4] | input.data[5] << 8) != SLASH_S || input.data[10] != 'c' || input.data[11] != '/') {
        attr.dynamic += 1;
        return 1;
    }
    attr.hits += 1;
    output.from = input.source;
    output.port = input.source_port;
    output.page = input.data[12] - '0';
    output.reserved = 1;
    emit();
    return 0;
}";

/// The accelerator at work.
pub struct Accelerator {
    ecalls: Ecalls,
    requests: Subscription,
    answers: UdpSocket,
    pages: Vec<Vec<u8>>,
}

/// Requests the handler saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Static ones: answered here.
    pub hits: i64,
    /// Dynamic ones: passed on.
    pub dynamic: i64,
}

impl Accelerator {
    /// Before the server that listens at `server`, for requests through `interface`.
    pub fn before(ecalls: &Ecalls, interface: &str, server: &UdpSocket, pages: Vec<Vec<u8>>) -> Result<Accelerator> {
        let port = i64::from(server.local_addr()?.port());
        let wanted = Subscribe::to("net.rx").option("interface", interface).option("drop", "yes").code(CODE);
        let requests = ecalls.subscribe(&wanted.attribute("port", port).memory_up(MemoryUp::default()))?;
        Ok(Accelerator { ecalls: ecalls.clone(), requests, answers: server.try_clone()?, pages })
    }

    /// What the handler counted.
    pub fn seen(&self) -> Result<Seen> {
        Ok(Seen { hits: self.ecalls.attribute("hits")?.get(), dynamic: self.ecalls.attribute("dynamic")?.get() })
    }

    /// Answers static requests until `stop`; how many.
    pub fn answer(&mut self, stop: &AtomicBool) -> Result<usize> {
        let mut answered = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(request) = self.requests.next(Duration::from_millis(20))? else { continue };
            // Dynamic requests pass by here as well: their verdict is «go on».
            if request.data[7] == 0 {
                continue;
            }
            let address = (number::<4>(&request, 0) as u32).to_be_bytes();
            let to = SocketAddr::from((address, number::<2>(&request, 4) as u16));
            let page = self.pages.get(usize::from(request.data[6])).map_or(&b"no such page"[..], Vec::as_slice);
            self.answers.send_to(page, to)?;
            answered += 1;
        }
        Ok(answered)
    }
}
