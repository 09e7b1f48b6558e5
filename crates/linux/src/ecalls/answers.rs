//! Answers requests in the kernel: the handler of a byte stream chooses one of several fixed answers.
//!
//! ```text
//! request ─> the chain's program: writes the id of the client's connection and the number of the answer over it
//!         ─> a pair of Unix sockets ─> the program of this module: replaces the request by the answer
//!         ─> the server's socket of that connection, which sends it as if the server had written it
//! ```
//! The detour is needed because TCP counts the bytes that leave a connection by their length after the program. So the
//! request leaves TCP with its own length. Unix sockets do not count.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use qfabric_ecode::bpf::{Alu, Asm, Code, Jmp, Label, Reg, Size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::InstallError;
use super::assemble::{STREAM_DROP, STREAM_PASS};
use super::handler::{refused, system};
use super::source::{CONTEXT, helper};
use crate::bpf::{self, Kind, Loaded, Map};

/// Longest answer in bytes: what one packet in the kernel can be enlarged to, with room to spare.
pub(super) const LONGEST: usize = 15_000;
/// Answers of one chain.
pub(super) const MOST: usize = 1_024;
/// Their number times the length of the longest: the kernel's memory for them, which no limit of a user counts.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Bytes at the beginning of a request that the id and the number need; the server gets shorter requests.
const HEAD_BYTES: i32 = 16;
/// Longest request that is answered; the server gets longer ones.
const LONGEST_REQUEST: i32 = 4_096;
/// Requests that wait for the second program; the server gets further ones. The kernel has no bound of its own: it
/// acknowledges the bytes that leave a connection, so TCP does not slow down a client.
const MOST_WAITING: i32 = 1_024;
/// Stack offset of the id, and of the number after it.
const HEAD: i16 = -56;
/// Stack offset of a key.
const KEY: i16 = -32;
/// Offset of the text in an entry of the table, after its length.
const TEXT: u32 = 8;
/// Offset of the length in the context, `struct __sk_buff`.
const LEN: i16 = 0;

/// Map numbers in the program that replaces requests.
const TABLE: u32 = 0;
const SOCKETS: u32 = 1;
const WAITING: u32 = 2;

/// The answers of one chain.
#[derive(Debug)]
pub(super) struct Answers {
    _ends: (OwnedFd, OwnedFd),
    relay: Map,
    /// The number of waiting requests.
    waiting: Map,
    _replies: Map,
    _program: Loaded,
    count: u32,
}

impl Answers {
    /// `texts`: at least one, and each with at least one byte. `sockets`: the chain's connections.
    pub(super) fn new(texts: &[&str], sockets: &Map) -> Result<Answers, InstallError> {
        let count = texts.len() as u32;
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0) as u32;
        let table = system("answers", table(texts, TEXT + longest.next_multiple_of(8)))?;
        let waiting = system("number of waiting requests", Map::array(8, 1))?;
        let maps = [table.fd(), sockets.fd(), waiting.fd()];
        let program = bpf::Program { kind: Kind::Streams, code: assemble(longest), maps: &maps };
        let program = program.load().map_err(refused)?;
        let pair = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let ends = system("pair of sockets", pair.map_err(io::Error::from))?;
        let relay = system("map of the near socket", Map::sockets(1))?;
        let replies = system("map of the far socket", Map::sockets(1))?;
        system("attaching to the far socket", program.attach_sockets(&replies))?;
        system("adding the far socket", replies.add_socket(0, ends.1.as_fd()))?;
        system("adding the near socket", relay.add_socket(0, ends.0.as_fd()))?;
        Ok(Answers { _ends: ends, relay, waiting, _replies: replies, _program: program, count })
    }

    /// The map with the socket to which requests are handed over, at key 0, and the number of waiting requests.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.relay.fd(), self.waiting.fd()]
    }

    /// Number of the answers.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

/// A map with an entry of `bytes` for each text.
fn table(texts: &[&str], bytes: u32) -> io::Result<Map> {
    let table = Map::array(bytes, texts.len() as u32)?;
    let mapping = table.map(texts.len() * bytes as usize)?;
    for (number, text) in texts.iter().enumerate() {
        let at = number * bytes as usize;
        mapping.words(at)[0].store(text.len() as u64, Ordering::Relaxed);
        mapping.copy_from(at + TEXT as usize, text.as_bytes());
    }
    Ok(table)
}

/// Ends the chain's program with the hand-over of the request if r7, the verdict, is below 0: −1 for the first answer.
/// Continues at `other` if it is not, or if there is no such answer, or if the request is too short or too long, or if
/// too many wait. `relay`: number of the first map of [`Answers::fds`], which the second one follows. Loses r8.
pub(super) fn ask(asm: &mut Asm, relay: u32, count: u32, other: Label) {
    let (back, drop, waiting) = (asm.label(), asm.label(), relay + 1);
    asm.jump_if(Jmp::SGe, Reg::R7, 0, other);
    asm.mov(Reg::R8, -1);
    asm.alu64(Alu::Sub, Reg::R8, Reg::R7);
    asm.jump_if(Jmp::Ge, Reg::R8, count as i32, other);
    asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
    asm.load(Size::W, Reg::R2, Reg::R1, LEN);
    asm.jump_if(Jmp::Lt, Reg::R2, HEAD_BYTES, other);
    asm.jump_if(Jmp::Gt, Reg::R2, LONGEST_REQUEST, other);
    // In one piece, so that it stays one message: a second one would consist of the client's bytes alone.
    asm.call(helper::SKB_PULL_DATA);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, other);
    add_waiting(asm, waiting, 1);
    asm.jump_if(Jmp::SGe, Reg::R0, MOST_WAITING, back);
    // First, because without the socket the server gets the request as it is.
    asm.store_imm(Size::D, Reg::R10, KEY, 0);
    asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
    asm.lddw_map(Reg::R2, relay);
    stack(asm, Reg::R3, KEY);
    asm.mov(Reg::R4, 0);
    asm.call(helper::SK_REDIRECT_HASH);
    asm.jump_if(Jmp::Ne, Reg::R0, STREAM_PASS, back);
    asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
    asm.call(helper::GET_SOCKET_COOKIE);
    asm.store(Size::D, Reg::R10, HEAD, Reg::R0);
    asm.store(Size::D, Reg::R10, HEAD + 8, Reg::R8);
    asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
    asm.mov(Reg::R2, 0);
    stack(asm, Reg::R3, HEAD);
    asm.mov(Reg::R4, HEAD_BYTES);
    asm.mov(Reg::R5, 0);
    asm.call(helper::SKB_STORE_BYTES);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, drop);
    asm.mov(Reg::R0, STREAM_PASS);
    asm.exit();
    // The client's own bytes must not be read as an id and a number.
    asm.bind(drop);
    add_waiting(asm, waiting, -1);
    asm.mov(Reg::R0, STREAM_DROP);
    asm.exit();
    asm.bind(back);
    add_waiting(asm, waiting, -1);
    asm.jump(other);
}

/// Adds to the number of waiting requests; r0 = the number before. Loses r1.
fn add_waiting(asm: &mut Asm, waiting: u32, by: i32) {
    asm.lddw_map_value(Reg::R1, waiting, 0);
    asm.mov(Reg::R0, by);
    asm.atomic_fetch_add(Size::D, Reg::R1, 0, Reg::R0);
}

/// `dst` = the address of a place on the stack.
fn stack(asm: &mut Asm, dst: Reg, at: i16) {
    asm.mov(dst, Reg::R10);
    asm.alu64(Alu::Add, dst, i32::from(at));
}

/// The program that replaces a request by its answer. r6: the context; r7: the entry of the table; r8: its length.
fn assemble(longest: u32) -> Code {
    let mut asm = Asm::new();
    let drop = asm.label();
    asm.mov(Reg::R6, Reg::R1);
    add_waiting(&mut asm, WAITING, -1);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, 0);
    stack(&mut asm, Reg::R3, HEAD);
    asm.mov(Reg::R4, HEAD_BYTES);
    asm.call(helper::SKB_LOAD_BYTES);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, drop);
    asm.load(Size::D, Reg::R1, Reg::R10, HEAD + 8);
    asm.store(Size::W, Reg::R10, KEY, Reg::R1);
    asm.lddw_map(Reg::R1, TABLE);
    stack(&mut asm, Reg::R2, KEY);
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, drop);
    asm.mov(Reg::R7, Reg::R0);
    asm.load(Size::W, Reg::R8, Reg::R7, 0);
    asm.jump_if(Jmp::SLe, Reg::R8, 0, drop);
    asm.jump_if(Jmp::Gt, Reg::R8, longest as i32, drop);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, Reg::R8);
    asm.mov(Reg::R3, 0);
    asm.call(helper::SKB_CHANGE_TAIL);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, drop);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, 0);
    asm.mov(Reg::R3, Reg::R7);
    asm.alu64(Alu::Add, Reg::R3, TEXT as i32);
    asm.mov(Reg::R4, Reg::R8);
    asm.mov(Reg::R5, 0);
    asm.call(helper::SKB_STORE_BYTES);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, drop);
    asm.mov(Reg::R1, Reg::R6);
    asm.lddw_map(Reg::R2, SOCKETS);
    stack(&mut asm, Reg::R3, HEAD);
    asm.mov(Reg::R4, 0);
    asm.call(helper::SK_REDIRECT_HASH);
    asm.exit();
    asm.bind(drop);
    asm.mov(Reg::R0, 0);
    asm.exit();
    asm.finish().expect("some sixty instructions")
}
