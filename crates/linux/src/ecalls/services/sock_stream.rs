//! `sock.stream`: bytes arrive at a TCP connection of a listening socket (000 §3.2.5). Only the fields that the
//! program reads are taken from the bytes.
//!
//! The program runs where TCP has put the bytes in order, before the server can read them. An event is what arrived
//! together: a request may come in several events, and several requests in one.

use qfabric_ecode::bpf::{Alu, Jmp, Reg, Size};
use qfabric_types::format::Scalar;

use super::super::Unsupported;
use super::super::source::Source::{Made, Now, Skb};
use super::super::source::{Prologue, helper};
use super::packet::skb;
use super::{At, Field, Hook, OptionSpec, Spec};

const DATA_BYTES: u32 = 192;
const TAIL_BYTES: i32 = 4;
const IPV4: i32 = 2;
const IPV6: i32 = 10;
/// Offsets in `struct __sk_buff`, of members that name the socket.
const FAMILY: u8 = 88;
const REMOTE_IP4: i16 = 92;
const REMOTE_IP6: i16 = 100;
const REMOTE_PORT: i16 = 132;
const LOCAL_PORT: u8 = 136;

pub(super) static SPEC: Spec = Spec {
    name: "sock.stream",
    about: "bytes arrived at a TCP connection of a listening socket, before the server reads them",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("socket", Scalar::U64, "id of the connection's socket, as getsockopt(SO_COOKIE) returns it"),
        Field::one("len", Scalar::U32, "number of bytes that arrived together"),
        Field::one("data_len", Scalar::U32, "bytes in data"),
        Field::one("peer", Scalar::U32, "IPv4 address of the peer, host byte order; 0: IPv6"),
        Field::one("local_port", Scalar::U16, "port of the listening socket"),
        Field::one("peer_port", Scalar::U16, "port of the peer"),
        Field::one("family", Scalar::U16, "2 IPv4, 10 IPv6"),
        Field::many("tail", Scalar::U8, 4, "the last four bytes; zeros: fewer arrived"),
        Field::many("peer6", Scalar::U8, 16, "IPv6 address of the peer; zeros: IPv4"),
        Field::many("data", Scalar::U8, DATA_BYTES, "the first bytes"),
    ],
    options: &[
        OptionSpec::required(
            "listen",
            "[address]:port of the listening socket; its connections from now on; one chain for each port",
        ),
        OptionSpec::optional("drop", "yes: a verdict 0 drops the bytes; no (default): it only ends the chain"),
        OptionSpec::optional(
            "redirect",
            "yes: the bytes are sent to the peer of the connection whose field socket is the verdict; no (default)",
        ),
        OptionSpec::optional(
            "answers",
            "texts, each as LENGTH:TEXT, with the comma: a verdict -N sends the N-th to the client instead",
        ),
    ],
    hooks: &[Hook {
        at: At::Streams,
        sources: &[Now, Made, Skb(skb::LEN), Made, Made, Skb(LOCAL_PORT), Made, Skb(FAMILY), Made, Made, Made],
        make: Some(take_apart),
        ..Hook::NEW
    }],
    verdict: Some("drops the bytes with drop=yes; redirect=yes sends them to another connection, answers=… an answer"),
    ..Spec::NEW
};

fn take_apart(p: &mut Prologue) -> Result<(), Unsupported> {
    for field in ["data_len", "peer", "tail", "peer6", "data"] {
        p.clear(field);
    }
    if let Some(at) = p.wanted("socket") {
        p.load_context(Reg::R1);
        p.asm.call(helper::GET_SOCKET_COOKIE);
        p.asm.store(Size::D, Reg::R6, at, Reg::R0);
    }
    if let Some(at) = p.wanted("peer_port") {
        word_of_context(p, REMOTE_PORT);
        // The two bytes of the port are the upper half of the word.
        p.asm.alu64(Alu::Rsh, Reg::R1, 16);
        p.swap(Reg::R1, Size::H);
        p.asm.store(Size::H, Reg::R6, at, Reg::R1);
    }
    if p.wanted("peer").is_some() || p.wanted("peer6").is_some() {
        peer(p);
    }
    if let Some(at) = p.wanted("tail") {
        tail(p, at);
    }
    if p.wanted("data_len").is_some() || p.wanted("data").is_some() {
        data(p);
    }
    Ok(())
}

/// r1 = 32 bits of the context.
fn word_of_context(p: &mut Prologue, offset: i16) {
    p.load_context(Reg::R1);
    p.asm.load(Size::W, Reg::R1, Reg::R1, offset);
}

fn peer(p: &mut Prologue) {
    let (v6, done) = (p.asm.label(), p.asm.label());
    word_of_context(p, FAMILY.into());
    p.asm.jump_if(Jmp::Eq, Reg::R1, IPV6, v6);
    p.asm.jump_if(Jmp::Ne, Reg::R1, IPV4, done);
    if let Some(at) = p.wanted("peer") {
        word_of_context(p, REMOTE_IP4);
        p.swap(Reg::R1, Size::W);
        p.asm.store(Size::W, Reg::R6, at, Reg::R1);
    }
    p.asm.jump(done);
    p.asm.bind(v6);
    if let Some(at) = p.wanted("peer6") {
        for part in (0..16).step_by(4) {
            word_of_context(p, REMOTE_IP6 + part);
            p.asm.store(Size::W, Reg::R6, at + part, Reg::R1);
        }
    }
    p.asm.bind(done);
}

fn tail(p: &mut Prologue, at: i16) {
    let fewer = p.asm.label();
    p.load_context(Reg::R1);
    p.asm.load(Size::W, Reg::R2, Reg::R1, skb::LEN.into());
    p.asm.jump_if(Jmp::Lt, Reg::R2, TAIL_BYTES, fewer);
    p.asm.alu64(Alu::Sub, Reg::R2, TAIL_BYTES);
    p.asm.mov(Reg::R3, Reg::R6);
    p.asm.alu64(Alu::Add, Reg::R3, i32::from(at));
    p.asm.mov(Reg::R4, TAIL_BYTES);
    p.asm.call(helper::SKB_LOAD_BYTES);
    p.asm.bind(fewer);
}

fn data(p: &mut Prologue) {
    let done = p.asm.label();
    p.load_context(Reg::R1);
    p.asm.load(Size::W, Reg::R4, Reg::R1, skb::LEN.into());
    p.data_len(DATA_BYTES as i32, done);
    if let Some(at) = p.wanted("data") {
        p.asm.mov(Reg::R2, 0);
        p.asm.mov(Reg::R3, Reg::R6);
        p.asm.alu64(Alu::Add, Reg::R3, i32::from(at));
        p.asm.call(helper::SKB_LOAD_BYTES);
    }
    p.asm.bind(done);
}
