//! `tcp.accept`: a client requests a connection to a listening socket (003 §5.3). Reports the length of the socket's
//! queues.
//!
//! The event is raised where the packet enters, before TCP processes it, so dropping the packet costs least there. The
//! two queues are those of the paper's Figure 7: complete connections that wait for `accept()` (ACK queue), and
//! connections whose handshake is in progress (SYN queue). Linux limits both by the backlog given to `listen()`.

use qfabric_ecode::bpf::{Alu, Jmp, Label, Reg, Size};
use qfabric_types::format::Scalar;

use super::super::Unsupported;
use super::super::options::Listen;
use super::super::source::Source::{Made, Now};
use super::super::source::{Prologue, helper};
use super::packet::{self, IP, TRANSPORT, TUPLE};
use super::{At, Field, Hook, OptionSpec, Spec};
use crate::bpf::SkbSide;

const TCP: i32 = 6;
const SYN: i32 = 0x02;
const ACK: i32 = 0x10;
const TIME_WAIT: i32 = 6;
const LISTEN: i32 = 10;
/// Offset of `state` in `struct bpf_sock`.
const STATE_OF_SOCKET: i16 = 72;

pub(super) static SPEC: Spec = Spec {
    name: "tcp.accept",
    about: "a client requests a connection (SYN) to a listening socket",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("accept_queue", Scalar::U32, "number of connections that wait to be accepted"),
        Field::one("accept_limit", Scalar::U32, "limit of accept_queue (the backlog of listen())"),
        Field::one("syn_queue", Scalar::U32, "number of connections whose handshake is in progress"),
        Field::one("syn_limit", Scalar::U32, "limit of syn_queue"),
        Field::one("port", Scalar::U16, "port of the listening socket"),
        Field::one("source_port", Scalar::U16, "port of the client"),
        Field::one("source", Scalar::U32, "IPv4 address of the client, host byte order; 0: IPv6"),
        Field::many("source6", Scalar::U8, 16, "IPv6 address of the client; zeros: IPv4"),
    ],
    options: &[
        OptionSpec::required("listen", "[address]:port of the listening socket"),
        OptionSpec::optional(
            "interface",
            "interface at which the packets arrive, such as eth0; several names separated by commas; default: all interfaces, as soon as they are up",
        ),
        OptionSpec::optional("drop", "yes: a verdict 0 drops the SYN; no (default): it only ends the chain"),
    ],
    hooks: &[Hook {
        at: At::Packets(SkbSide::Ingress),
        sources: &[Now, Made, Made, Made, Made, Made, Made, Made, Made],
        before: Some(is_request),
        make: Some(queues),
        ..Hook::NEW
    }],
    verdict: Some("drops the SYN with drop=yes: the client tries again after 1, 3, 7 … s"),
    ..Spec::NEW
};

/// Copies the headers to the stack.
fn is_request(p: &mut Prologue) -> Result<(), Unsupported> {
    let listen = p.options.listen().expect("a required option");
    let (v6, transport, skip) = (p.asm.label(), p.asm.label(), p.skip);
    packet::ip_header(p, v6, skip);
    p.asm.load(Size::B, Reg::R1, Reg::R10, IP + 9);
    address(p, &listen, 4, IP + 16, skip);
    p.asm.jump(transport);
    p.asm.bind(v6);
    p.asm.load(Size::B, Reg::R1, Reg::R10, IP + 6);
    address(p, &listen, 16, IP + 24, skip);
    p.asm.bind(transport);
    p.asm.jump_if(Jmp::Ne, Reg::R1, TCP, skip);
    packet::transport_header(p, 20, skip);
    p.asm.load(Size::B, Reg::R1, Reg::R10, TRANSPORT + 13);
    p.asm.alu64(Alu::And, Reg::R1, SYN | ACK);
    p.asm.jump_if(Jmp::Ne, Reg::R1, SYN, skip);
    packet::network(p, Reg::R1, Size::H, TRANSPORT + 2);
    p.asm.jump_if(Jmp::Ne, Reg::R1, i32::from(listen.port), skip);
    Ok(())
}

/// Skips the packet unless its destination (`bytes` at `at` on the stack) is the requested address. Keeps r1.
fn address(p: &mut Prologue, listen: &Listen, bytes: usize, at: i16, skip: Label) {
    let Some(wanted) = &listen.address else { return };
    if wanted.len() != bytes {
        p.asm.jump(skip);
        return;
    }
    for (i, part) in wanted.chunks(4).enumerate() {
        let part = u32::from_le_bytes(part.try_into().expect("addresses are whole words"));
        p.asm.load(Size::W, Reg::R2, Reg::R10, at + 4 * i as i16);
        p.asm.jump_if32(Jmp::Ne, Reg::R2, part as i32, skip);
    }
}

fn queues(p: &mut Prologue) -> Result<(), Unsupported> {
    for field in ["accept_queue", "accept_limit", "syn_queue", "syn_limit", "source", "source6"] {
        p.clear(field);
    }
    from_headers(p);
    tuple(p);
    lookup(p)
}

fn from_headers(p: &mut Prologue) {
    for (field, at) in [("source_port", TRANSPORT), ("port", TRANSPORT + 2)] {
        if let Some(to) = p.wanted(field) {
            packet::network(p, Reg::R1, Size::H, at);
            p.asm.store(Size::H, Reg::R6, to, Reg::R1);
        }
    }
}

/// Writes the connection in the form that lookups use: addresses, then ports, in network byte order; r7 = its length.
/// The version is in the upper half of the IP header's first byte.
fn tuple(p: &mut Prologue) {
    let (v6, ports) = (p.asm.label(), p.asm.label());
    p.asm.load(Size::B, Reg::R1, Reg::R10, IP);
    p.asm.alu64(Alu::Rsh, Reg::R1, 4);
    p.asm.jump_if(Jmp::Eq, Reg::R1, 6, v6);
    copy(p, IP + 12, TUPLE, 8);
    copy(p, TRANSPORT, TUPLE + 8, 4);
    if let Some(to) = p.wanted("source") {
        packet::network(p, Reg::R1, Size::W, IP + 12);
        p.asm.store(Size::W, Reg::R6, to, Reg::R1);
    }
    p.asm.mov(Reg::R7, 12);
    p.asm.jump(ports);
    p.asm.bind(v6);
    copy(p, IP + 8, TUPLE, 32);
    copy(p, TRANSPORT, TUPLE + 32, 4);
    if let Some(to) = p.wanted("source6") {
        for part in [0, 8] {
            p.asm.load(Size::D, Reg::R1, Reg::R10, IP + 8 + part);
            p.asm.store(Size::D, Reg::R6, to + part, Reg::R1);
        }
    }
    p.asm.mov(Reg::R7, 36);
    p.asm.bind(ports);
}

/// Copies word by word, because the stack can be read only at multiples of the size.
fn copy(p: &mut Prologue, from: i16, to: i16, bytes: i16) {
    for at in (0..bytes).step_by(4) {
        p.asm.load(Size::W, Reg::R1, Reg::R10, from + at);
        p.asm.store(Size::W, Reg::R10, to + at, Reg::R1);
    }
}

/// Finds the listening socket and reads its queues; without one, this is not an event. The reference is released at
/// once: such programs run under RCU protection, which keeps the socket readable.
fn lookup(p: &mut Prologue) -> Result<(), Unsupported> {
    let (found, release, done, skip) = (p.asm.label(), p.asm.label(), p.asm.label(), p.leave);
    find(p);
    p.asm.jump_if(Jmp::Eq, Reg::R0, 0, skip);
    p.asm.load(Size::W, Reg::R1, Reg::R0, STATE_OF_SOCKET);
    p.asm.jump_if(Jmp::Ne, Reg::R1, TIME_WAIT, found);
    // An earlier connection with these ports waits for late packets. TCP gives its place to the new one.
    p.asm.mov(Reg::R1, Reg::R0);
    p.asm.call(helper::SK_RELEASE);
    without_client(p);
    find(p);
    p.asm.jump_if(Jmp::Eq, Reg::R0, 0, skip);
    p.asm.bind(found);
    p.asm.mov(Reg::R8, Reg::R0);
    p.asm.mov(Reg::R1, Reg::R0);
    p.asm.call(helper::SKC_TO_TCP_SOCK);
    p.asm.mov(Reg::R7, 0);
    p.asm.jump_if(Jmp::Eq, Reg::R0, 0, release);
    read(p, release)?;
    p.asm.mov(Reg::R7, 1);
    p.asm.bind(release);
    p.asm.mov(Reg::R1, Reg::R8);
    p.asm.call(helper::SK_RELEASE);
    p.asm.jump_if(Jmp::Eq, Reg::R7, 0, skip);
    p.asm.bind(done);
    Ok(())
}

/// Sets the client's address and port to zero: no connection has these, so a look-up finds the listening socket.
fn without_client(p: &mut Prologue) {
    let (v6, done) = (p.asm.label(), p.asm.label());
    p.asm.jump_if(Jmp::Eq, Reg::R7, 36, v6);
    p.asm.store_imm(Size::W, Reg::R10, TUPLE, 0);
    p.asm.store_imm(Size::H, Reg::R10, TUPLE + 8, 0);
    p.asm.jump(done);
    p.asm.bind(v6);
    for at in (0..16).step_by(4) {
        p.asm.store_imm(Size::W, Reg::R10, TUPLE + at, 0);
    }
    p.asm.store_imm(Size::H, Reg::R10, TUPLE + 32, 0);
    p.asm.bind(done);
}

/// r0 = the socket of the connection on the stack, or the listening socket, or 0. The verifier requires a constant
/// length.
fn find(p: &mut Prologue) {
    let (v6, found) = (p.asm.label(), p.asm.label());
    p.asm.jump_if(Jmp::Eq, Reg::R7, 36, v6);
    find_by(p, 12);
    p.asm.jump(found);
    p.asm.bind(v6);
    find_by(p, 36);
    p.asm.bind(found);
}

fn find_by(p: &mut Prologue, length: i32) {
    p.load_context(Reg::R1);
    p.asm.mov(Reg::R2, Reg::R10);
    p.asm.alu64(Alu::Add, Reg::R2, i32::from(TUPLE));
    p.asm.mov(Reg::R3, length);
    p.asm.mov(Reg::R4, -1); // the network namespace of the packet
    p.asm.mov(Reg::R5, 0);
    p.asm.call(helper::SKC_LOOKUP_TCP);
}

/// r0: the socket.
fn read(p: &mut Prologue, no_listener: Label) -> Result<(), Unsupported> {
    const SOCK: &str = "inet_conn.icsk_inet.sk";
    p.load_member(Reg::R1, Reg::R0, "tcp_sock", &format!("{SOCK}.__sk_common.skc_state"))?;
    p.asm.jump_if(Jmp::Ne, Reg::R1, LISTEN, no_listener);
    let fields = [
        ("accept_queue", format!("{SOCK}.sk_ack_backlog")),
        ("accept_limit", format!("{SOCK}.sk_max_ack_backlog")),
        ("syn_queue", "inet_conn.icsk_accept_queue.qlen.counter".into()),
        ("syn_limit", format!("{SOCK}.sk_max_ack_backlog")),
    ];
    for (field, path) in fields {
        if let Some(to) = p.wanted(field) {
            p.load_member(Reg::R1, Reg::R0, "tcp_sock", &path)?;
            p.asm.store(Size::W, Reg::R6, to, Reg::R1);
        }
    }
    Ok(())
}
