//! The stream of packets that carries the pictures from the server's host: the daemon there limits its rate and counts
//! its late packets, for the policy of that host. Source: 000 §5.5, Figure 42, with the feedback of DWCS.
//!
//! The data of channels has a TCP connection of its own, at the port after the configured one. Only the client connects,
//! so there is one such connection, and the kernel's table of sockets names its other end. On kernels without DWCS, the
//! stream is a class of HTB: then only dropped packets count as late.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};
use qfabric_client::Client;
use qfabric_netlab::{Lab, LabEnd};
use qfabric_types::api::net::{AttachRequest, Flow, Selector, StreamChange, StreamId, StreamSpec};
use qfabric_types::{BitRate, Nanos};

/// Rate to which the server's link is paced, in bit/s; much more than the pictures need.
const LINK: u64 = 40_000_000;
/// Rate of the stream without a limit.
const WIDE: BitRate = BitRate::new(20_000_000);
/// T: the paper's 14 kB/s have room for three packets in it.
const PERIOD: Nanos = Nanos::from_millis(400);
/// Packets that may wait: 3.4 s of 14 kB/s.
const WAITING: u32 = 32;
/// State of an established connection in the kernel's table.
const ESTABLISHED: &str = "01";

/// The stream, which ends with the daemon of the server's host.
pub(super) struct Shaped {
    client: Client,
    interface: &'static str,
    id: StreamId,
    spec: StreamSpec,
}

impl Shaped {
    /// Begins the stream of the data that leaves the server's host. `client`: of the daemon there. `port`: of the data.
    pub(super) fn begin(lab: &Lab, client: Client, port: u16) -> Result<Shaped> {
        let interface = lab.interface();
        let request = AttachRequest { rate_bps: Some(LINK), ..AttachRequest::default() };
        client.attach(interface, &request).context("cannot schedule the packets of the server's host")?;
        let local = SocketAddrV4::new(lab.address(LabEnd::Local), port);
        let table = lab.inside(LabEnd::Local, || std::fs::read_to_string("/proc/thread-self/net/tcp"))??;
        let remote = remote(&table, local).with_context(|| format!("no connection to {local} carries data"))?;
        let flow: Flow = format!("tcp,{local},{remote}").parse().context("the flow of the data")?;
        let mut spec = StreamSpec::new(Selector::Flow(flow), PERIOD);
        (spec.limit, spec.size) = (WAITING, spec.size_at(WIDE));
        let begun = client.begin_stream(interface, &spec).context("cannot begin the stream of the pictures")?;
        Ok(Shaped { client, interface, id: begun.id, spec })
    }

    /// The interface and the number of the stream, for the policy.
    pub(super) fn name(&self) -> (&str, StreamId) {
        (self.interface, self.id)
    }

    /// Limits the stream to a rate; none: no limit that matters.
    pub(super) fn limit(&self, rate: Option<BitRate>) -> Result<()> {
        let size = Some(self.spec.size_at(rate.unwrap_or(WIDE)));
        let change = StreamChange { size, ..StreamChange::default() };
        self.client.change_stream(self.interface, self.id, &change).context("cannot limit the stream")?;
        Ok(())
    }
}

/// The other end of the connection at `local`, in the text of the kernel's table of TCP sockets.
fn remote(table: &str, local: SocketAddrV4) -> Option<SocketAddrV4> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let [_, here, there, ESTABLISHED] = words[..] else { return None };
        if address(here)? == local { address(there) } else { None }
    })
}

/// Reads an address of the table: hexadecimal digits, the bytes of the address in the order of a little-endian word.
fn address(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.split_once(':')?;
    let word = u32::from_str_radix(address, 16).ok()?;
    Some(SocketAddrV4::new(Ipv4Addr::from(word.swap_bytes()), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_an_established_connection_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 010012C6:1E15 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5\n\
                     1: 010012C6:1E14 020012C6:C351 01 00000000:00000000 00:00000000 00000000     0        0 6\n\
                     2: 010012C6:1E15 020012C6:C350 01 00000000:00000000 00:00000000 00000000     0        0 7\n";
        let at = |port| SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), port);
        assert_eq!(remote(table, at(7_701)), Some("198.18.0.2:50000".parse().unwrap()));
        assert_eq!(remote(table, at(7_702)), None);
        assert_eq!(remote("", at(7_701)), None);
    }
}
