//! Streams of packets: a rate out of an interface, promised by itself or drawn from a joint contract.

use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;

use qfabric_client::{Client, Nanos, code_point};
use qfabric_types::api::net::{Selector, StreamChange, StreamSpec};

use crate::ecalls::optional;
use crate::status::{Failure, not_null, put, qf_status, settle, text};

/// Begins a stream: `bytes` of `packets` are sent out of `interface` in every `period_ns`. It ends with the calling
/// process, or with qf_stream_end. `packets` is "flow udp,FROM,TO" or "flow tcp,FROM,TO" with ADDRESS:PORT, "cgroup PATH",
/// or "mark NUMBER" (only for administrators). `bytes` count headers too. `contract` is the identity of the joint contract
/// from whose rate the stream draws, on any of its hosts; the stream then ends with the contract. Null: no contract.
/// `*stream` is its number on the interface.
///
/// # Safety
/// `contract` is null or a zero-terminated string, `interface` and `packets` are zero-terminated strings, `stream` points
/// to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_stream_begin(
    contract: *const c_char,
    interface: *const c_char,
    packets: *const c_char,
    period_ns: u64,
    bytes: u32,
    stream: *mut u32,
) -> qf_status {
    let begin = || {
        // Before the call, because the program could not end a stream whose number it does not know.
        not_null("the number of the stream", stream)?;
        // SAFETY: the caller guarantees it.
        let contract = unsafe { optional("the contract", contract) }?;
        let contract = contract.map(|id| id.parse().map_err(Failure::invalid)).transpose()?;
        // SAFETY: the caller guarantees it.
        let (interface, packets) = unsafe { (text("the interface", interface)?, text("the packets", packets)?) };
        let packets: Selector = packets.parse().map_err(Failure::invalid)?;
        let mut spec = StreamSpec { size: bytes, ..StreamSpec::new(packets, Nanos::new(period_ns)) };
        spec.terms.holder = Some(std::process::id() as i32);
        let client = Client::connect()?;
        let begun = match contract {
            Some(contract) => client.begin_stream_of_contract(&contract, interface, &spec)?,
            None => client.begin_stream(interface, &spec)?,
        };
        // SAFETY: the caller guarantees it.
        unsafe { put("the number of the stream", stream, begun.id) }
    };
    settle(begin())
}

/// Gives all packets of a stream a code point (DSCP, 0 to 63, such as 46 for expedited forwarding) for routers and access
/// points, whatever program sends them. It does not change their order on this host. Needs Linux 6.6.
///
/// # Safety
/// `interface` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_stream_set_dscp(interface: *const c_char, stream: u32, dscp: u32) -> qf_status {
    let set = || {
        // SAFETY: the caller guarantees it.
        let interface = unsafe { text("the interface", interface) }?;
        let change = StreamChange { dscp: Some(code_point(dscp)?), ..StreamChange::default() };
        Client::connect()?.change_stream(interface, stream, &change)?;
        Ok(())
    };
    settle(set())
}

/// Gives all packets of an own TCP or UDP socket a code point (DSCP, 0 to 63). Needs no privilege and no daemon.
///
/// # Safety
/// `fd` is an open descriptor, or negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_dscp(fd: c_int, dscp: u32) -> qf_status {
    let set = || {
        if fd < 0 {
            return Err(Failure::invalid(format!("{fd} is not a file descriptor; pass an open socket")));
        }
        // SAFETY: open, as the caller guarantees, and not negative.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(qfabric_client::set_dscp(socket, code_point(dscp)?)?)
    };
    settle(set())
}

/// Ends a stream. A rate that it drew is kept for the contract.
///
/// # Safety
/// `interface` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_stream_end(interface: *const c_char, stream: u32) -> qf_status {
    let end = || {
        // SAFETY: the caller guarantees it.
        let interface = unsafe { text("the interface", interface) }?;
        Ok(Client::connect()?.end_stream(interface, stream)?)
    };
    settle(end())
}
