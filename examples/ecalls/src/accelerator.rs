//! Filtering 2: an accelerator for a server. A handler at the network interface separates static requests from
//! dynamic ones. Static requests are answered from memory and do not reach the server; dynamic requests continue
//! to the server.
//!
//! **Departure from the paper.** In the paper, the handler answers static requests itself, over TCP, in the
//! kernel. A handler on a stock kernel has no socket to write to. To answer TCP from an interface, it would also
//! have to keep the state of each connection. Therefore this example differs in three points:
//!
//! - The protocol is one request per UDP packet.
//! - The handler recognises a static request (`GET /static/N`), writes it into shared memory and drops the packet,
//!   before the packet costs the network stack or the server any time.
//! - A thread of the application sleeps until shared memory holds a request, and answers it.
//!
//! The service `sock.stream` sees the bytes of TCP connections instead; there the kernel sends fixed answers (the guide's
//! chapter «In front of a TCP server»).
//!
//! One advantage of the paper's design remains: static requests never wait in the server's queue. The answer costs
//! a wake-up and a system call, which the paper's design does not need.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use qfabric_client::ecalls::{Ecalls, MemoryUp, Subscription, SubscriptionBuilder};

use crate::number;

/// Delivers and drops static requests; only counts dynamic ones and lets them continue.
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

/// The subscription of a running accelerator, and the pages it serves.
pub struct Accelerator {
    ecalls: Ecalls,
    requests: Subscription,
    answers: UdpSocket,
    pages: Vec<Vec<u8>>,
}

/// Numbers of requests that the handler received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCounts {
    /// Static requests, which the accelerator answers.
    pub hits: i64,
    /// Dynamic requests, which continue to the server.
    pub dynamic: i64,
}

impl Accelerator {
    /// Starts an accelerator for `server` on `interface`. `pages[N]` is the answer to `GET /static/N`.
    pub fn before(ecalls: &Ecalls, interface: &str, server: &UdpSocket, pages: Vec<Vec<u8>>) -> Result<Accelerator> {
        let port = i64::from(server.local_addr()?.port());
        let wanted = SubscriptionBuilder::to("net.rx").option("interface", interface).option("drop", "yes").code(CODE);
        let requests = ecalls.subscribe(&wanted.attribute("port", port).memory_up(MemoryUp::default()))?;
        Ok(Accelerator { ecalls: ecalls.clone(), requests, answers: server.try_clone()?, pages })
    }

    /// The handler's counters.
    pub fn counts(&self) -> Result<RequestCounts> {
        Ok(RequestCounts {
            hits: self.ecalls.attribute("hits")?.get(),
            dynamic: self.ecalls.attribute("dynamic")?.get(),
        })
    }

    /// Answers static requests until `stop` is true. Returns the number of answers.
    pub fn answer(&mut self, stop: &AtomicBool) -> Result<usize> {
        let mut answered = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(request) = self.requests.next(Duration::from_millis(20))? else { continue };
            // Dynamic requests are delivered here too; their verdict is 1, which lets the packet continue.
            if request.data[7] == 0 {
                continue;
            }
            let address = (number::<4>(&request, 0) as u32).to_be_bytes();
            let to = SocketAddr::from((address, number::<2>(&request, 4) as u16));
            let page = self.pages.get(usize::from(request.data[6])).map_or(&b"no such page"[..], Vec::as_slice);
            // A client that states an address to which nothing can be sent, such as port 0, gets no answer.
            answered += usize::from(self.answers.send_to(page, to).is_ok());
        }
        Ok(answered)
    }
}
