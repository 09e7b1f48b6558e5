//! `net.rx`, `net.tx`: packets at an interface. Only the fields that the program reads are taken from the packet.

use qfabric_ecode::bpf::{Alu, Jmp, Label, Reg, Size};
use qfabric_types::format::Scalar;

use super::super::Unsupported;
use super::super::source::Prologue;
use super::super::source::Source::{Made, Now, Skb};
use super::packet::{self, IP, TRANSPORT, skb};
use super::{At, Field, Hook, OptionSpec, Spec};
use crate::bpf::SkbSide;

const DATA_BYTES: u32 = 128;
const TCP: i32 = 6;
const UDP: i32 = 17;

const FIELDS: &[Field] = &[
    Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
    Field::one(
        "len",
        Scalar::U32,
        "bytes of the packet with its link header; more than the MTU if the kernel has joined packets",
    ),
    Field::one("interface", Scalar::U32, "number of the interface"),
    Field::one("mark", Scalar::U32, "the packet's mark (SO_MARK, nft)"),
    Field::one("protocol", Scalar::U16, "type of the payload: 0x0800 IPv4, 0x86dd IPv6, others as in Ethernet"),
    Field::one("version", Scalar::U8, "4, 6, or 0: not IP"),
    Field::one("transport", Scalar::U8, "6 TCP, 17 UDP, 1 ICMP, others as in IP"),
    Field::one("source", Scalar::U32, "IPv4 address, host byte order; 0: not IPv4"),
    Field::one("destination", Scalar::U32, "IPv4 address, host byte order; 0: not IPv4"),
    Field::one("source_port", Scalar::U16, "of TCP and UDP"),
    Field::one("destination_port", Scalar::U16, "of TCP and UDP"),
    Field::many("source6", Scalar::U8, 16, "IPv6 address; zeros: not IPv6"),
    Field::many("destination6", Scalar::U8, 16, "IPv6 address; zeros: not IPv6"),
    Field::one("data_len", Scalar::U32, "bytes in data"),
    Field::many("data", Scalar::U8, DATA_BYTES, "the first bytes after the TCP or UDP header"),
];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::optional(
        "interface",
        "name of the interface, such as eth0; several names separated by commas; default: all interfaces, as soon as they are up",
    ),
    OptionSpec::optional("drop", "yes: a verdict 0 drops the packet; no (default): it only ends the chain"),
];

const HOOK: Hook = Hook {
    sources: &[
        Now,
        Skb(skb::LEN),
        Skb(skb::IFINDEX),
        Skb(skb::MARK),
        Made,
        Made,
        Made,
        Made,
        Made,
        Made,
        Made,
        Made,
        Made,
        Made,
        Made,
    ],
    make: Some(take_apart),
    ..Hook::NEW
};

const VERDICT: Option<&str> = Some("drops the packet with drop=yes");

pub(super) static RX: Spec = Spec {
    name: "net.rx",
    about: "a packet arrived at an interface",
    fields: FIELDS,
    options: OPTIONS,
    hooks: &[Hook { at: At::Packets(SkbSide::Ingress), ..HOOK }],
    verdict: VERDICT,
    ..Spec::NEW
};

pub(super) static TX: Spec = Spec {
    name: "net.tx",
    about: "a packet is about to leave by an interface",
    fields: FIELDS,
    options: OPTIONS,
    hooks: &[Hook { at: At::Packets(SkbSide::Egress), ..HOOK }],
    verdict: VERDICT,
    ..Spec::NEW
};

fn take_apart(p: &mut Prologue) -> Result<(), Unsupported> {
    clear(p);
    if let Some(at) = p.wanted("protocol") {
        packet::ethertype(p);
        p.asm.store(Size::H, Reg::R6, at, Reg::R1);
    }
    if !wants_ip(p) {
        return Ok(());
    }
    let (v6, transport, done) = (p.asm.label(), p.asm.label(), p.asm.label());
    packet::ip_header(p, v6, done);
    version_4(p);
    p.asm.jump(transport);
    p.asm.bind(v6);
    version_6(p);
    p.asm.bind(transport);
    behind_ip(p, done);
    p.asm.bind(done);
    Ok(())
}

const IP_FIELDS: [&str; 6] = ["version", "transport", "source", "destination", "source6", "destination6"];
const PORT_FIELDS: [&str; 4] = ["source_port", "destination_port", "data_len", "data"];

fn wants_ip(p: &Prologue) -> bool {
    IP_FIELDS.iter().chain(&PORT_FIELDS).any(|field| p.wanted(field).is_some())
}

/// Sets the fields to zero, because the frame may contain values of an earlier packet.
fn clear(p: &mut Prologue) {
    for field in IP_FIELDS.iter().chain(&PORT_FIELDS) {
        p.clear(field);
    }
}

fn version_4(p: &mut Prologue) {
    number(p, "version", 4);
    byte(p, "transport", IP + 9);
    for (field, at) in [("source", IP + 12), ("destination", IP + 16)] {
        if let Some(to) = p.wanted(field) {
            packet::network(p, Reg::R1, Size::W, at);
            p.asm.store(Size::W, Reg::R6, to, Reg::R1);
        }
    }
    // r8: the transport protocol; r7: bytes of the packet from the IP header on, according to that header.
    p.asm.load(Size::B, Reg::R8, Reg::R10, IP + 9);
    packet::network(p, Reg::R7, Size::H, IP + 2);
}

fn version_6(p: &mut Prologue) {
    number(p, "version", 6);
    byte(p, "transport", IP + 6);
    for (field, at) in [("source6", IP + 8), ("destination6", IP + 24)] {
        if let Some(to) = p.wanted(field) {
            for part in [0, 8] {
                p.asm.load(Size::D, Reg::R1, Reg::R10, at + part);
                p.asm.store(Size::D, Reg::R6, to + part, Reg::R1);
            }
        }
    }
    p.asm.load(Size::B, Reg::R8, Reg::R10, IP + 6);
    packet::network(p, Reg::R7, Size::H, IP + 4);
    p.asm.alu64(Alu::Add, Reg::R7, 40);
}

fn number(p: &mut Prologue, field: &str, value: i32) {
    if let Some(at) = p.wanted(field) {
        p.asm.store_imm(Size::B, Reg::R6, at, value);
    }
}

fn byte(p: &mut Prologue, field: &str, from: i16) {
    if let Some(at) = p.wanted(field) {
        p.asm.load(Size::B, Reg::R1, Reg::R10, from);
        p.asm.store(Size::B, Reg::R6, at, Reg::R1);
    }
}

fn behind_ip(p: &mut Prologue, done: Label) {
    if !PORT_FIELDS.iter().any(|field| p.wanted(field).is_some()) {
        return;
    }
    let known = p.asm.label();
    p.asm.jump_if(Jmp::Eq, Reg::R8, TCP, known);
    p.asm.jump_if(Jmp::Ne, Reg::R8, UDP, done);
    p.asm.bind(known);
    packet::transport_header(p, 8, done);
    for (field, at) in [("source_port", TRANSPORT), ("destination_port", TRANSPORT + 2)] {
        if let Some(to) = p.wanted(field) {
            packet::network(p, Reg::R1, Size::H, at);
            p.asm.store(Size::H, Reg::R6, to, Reg::R1);
        }
    }
    if p.wanted("data").is_some() || p.wanted("data_len").is_some() {
        data(p, done);
    }
}

fn data(p: &mut Prologue, done: Label) {
    let udp = p.asm.label();
    let known = p.asm.label();
    p.asm.jump_if(Jmp::Eq, Reg::R8, UDP, udp);
    packet::transport_header(p, 20, done);
    p.asm.load(Size::B, Reg::R2, Reg::R10, TRANSPORT + 12);
    p.asm.alu64(Alu::Rsh, Reg::R2, 4);
    p.asm.alu64(Alu::Lsh, Reg::R2, 2);
    p.asm.jump(known);
    p.asm.bind(udp);
    p.asm.mov(Reg::R2, 8);
    p.asm.bind(known);
    copy_data(p, done);
}

/// r2: bytes of the transport header.
fn copy_data(p: &mut Prologue, done: Label) {
    p.asm.load(Size::D, Reg::R1, Reg::R10, packet::DISTANCE);
    p.asm.alu64(Alu::Add, Reg::R2, Reg::R1);
    p.asm.mov(Reg::R4, Reg::R7);
    p.asm.alu64(Alu::Sub, Reg::R4, Reg::R2);
    p.data_len(DATA_BYTES as i32, done);
    if let Some(at) = p.wanted("data") {
        p.asm.mov(Reg::R3, Reg::R6);
        p.asm.alu64(Alu::Add, Reg::R3, i32::from(at));
        packet::load_relative(p, done);
    }
}
