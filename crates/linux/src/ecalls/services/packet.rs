//! Parses packets. Headers are copied to the stack; each field is converted to the host's byte order from there.
//! Extension headers of IPv6 are not followed.

use qfabric_ecode::bpf::{Alu, Jmp, Label, Reg, Size};

use super::super::source::{Prologue, helper};

/// Stack offset of the IP header (40 bytes).
pub(super) const IP: i16 = -104;
/// Stack offset of the first 20 bytes of the TCP or UDP header.
pub(super) const TRANSPORT: i16 = -128;
/// Stack offset of the distance (u64) of the transport header from the beginning of the IP header.
pub(super) const DISTANCE: i16 = -136;
/// Stack offset of a connection's addresses and ports for a lookup (36 bytes).
pub(super) const TUPLE: i16 = -176;

const ETHERTYPE_IPV4: i32 = 0x0800;
const ETHERTYPE_IPV6: i32 = 0x86dd;
/// Offsets in the packet's context, `struct __sk_buff`.
pub(super) mod skb {
    pub(crate) const LEN: u8 = 0;
    pub(crate) const MARK: u8 = 8;
    pub(crate) const PROTOCOL: u8 = 16;
    pub(crate) const IFINDEX: u8 = 40;
}
const FROM_IP_HEADER: i32 = 1; // BPF_HDR_START_NET

/// r1 = the type of the frame's payload, such as 0x0800.
pub(super) fn ethertype(p: &mut Prologue) {
    p.load_context(Reg::R1);
    p.asm.load(Size::W, Reg::R1, Reg::R1, skb::PROTOCOL.into());
    p.swap(Reg::R1, Size::H);
}

/// Copies the IP header to the stack and branches by version. Continues at `neither` if the packet is not IP.
pub(super) fn ip_header(p: &mut Prologue, v6: Label, neither: Label) {
    let is_v6 = p.asm.label();
    let v4 = p.asm.label();
    ethertype(p);
    p.asm.jump_if(Jmp::Eq, Reg::R1, ETHERTYPE_IPV6, is_v6);
    p.asm.jump_if(Jmp::Ne, Reg::R1, ETHERTYPE_IPV4, neither);
    load_bytes(p, 0, IP, 20, neither);
    p.asm.load(Size::B, Reg::R1, Reg::R10, IP);
    p.asm.alu64(Alu::And, Reg::R1, 0xf);
    p.asm.alu64(Alu::Lsh, Reg::R1, 2);
    p.asm.store(Size::D, Reg::R10, DISTANCE, Reg::R1);
    p.asm.jump(v4);
    p.asm.bind(is_v6);
    load_bytes(p, 0, IP, 40, neither);
    p.asm.store_imm(Size::D, Reg::R10, DISTANCE, 40);
    p.asm.jump(v6);
    p.asm.bind(v4);
}

/// Copies `bytes` bytes at `distance` from the IP header to the stack.
pub(super) fn load_bytes(p: &mut Prologue, distance: i32, to: i16, bytes: i32, missing: Label) {
    p.asm.mov(Reg::R2, distance);
    load_bytes_at(p, to, bytes, missing);
}

/// Copies the first `bytes` bytes of the transport header to the stack.
pub(super) fn transport_header(p: &mut Prologue, bytes: i32, missing: Label) {
    p.asm.load(Size::D, Reg::R2, Reg::R10, DISTANCE);
    load_bytes_at(p, TRANSPORT, bytes, missing);
}

fn load_bytes_at(p: &mut Prologue, to: i16, bytes: i32, missing: Label) {
    p.asm.mov(Reg::R3, Reg::R10);
    p.asm.alu64(Alu::Add, Reg::R3, i32::from(to));
    p.asm.mov(Reg::R4, bytes);
    load_relative(p, missing);
}

/// r2: distance from the IP header; r3: destination; r4: number of bytes.
pub(super) fn load_relative(p: &mut Prologue, missing: Label) {
    p.load_context(Reg::R1);
    p.asm.mov(Reg::R5, FROM_IP_HEADER);
    p.asm.call(helper::SKB_LOAD_BYTES_RELATIVE);
    p.asm.jump_if(Jmp::Ne, Reg::R0, 0, missing);
}

/// `dst` = the number of 2 or 4 bytes in network byte order at `at` on the stack.
pub(super) fn network(p: &mut Prologue, dst: Reg, size: Size, at: i16) {
    p.asm.load(size, dst, Reg::R10, at);
    p.swap(dst, size);
}
