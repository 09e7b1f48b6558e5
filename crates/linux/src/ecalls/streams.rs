//! Leads the bytes of the connections of a listening socket through a chain's program, before the server reads them.
//!
//! ```text
//! a connection is complete ─> program of this module: right port, address and network namespace?
//!                             ─> map of sockets
//! bytes arrive at a socket of the map ─> entrance ─> the chain's program: to the server, dropped, to another socket,
//!                                                    or answered ([`super::answers`])
//! ```
//! Each socket holds the program that the kernel runs for it, until the socket leaves the map. A chain's program that
//! hands over refers to the map, so the sockets, the program and the map would hold each other until the last
//! connection is closed, also without this process. So the sockets hold a program that refers to neither: the entrance,
//! which calls the chain's program through a map that is empty when this process ends. Without an entry the server gets
//! the bytes.
//!
//! The server is not changed: it accepts, reads and writes as before. The first program is attached to the root of the
//! control groups, so it sees the connections of all servers of the host.
//!
//! The program gets the bytes as TCP delivers them, without a stream parser. With a parser, a message that is never
//! complete would keep all bytes of its connection from the server.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use qfabric_ecode::bpf::{Alu, Asm, Code, Jmp, Label, Reg, Size};
use qfabric_sync::{Lock, rank};

use super::answers::Answers;
use super::assemble::STREAM_PASS;
use super::handler::{refused, system};
use super::options::{Listen, Options};
use super::services::{At, Hook, own_namespace};
use super::source::{helper, member_steps};
use super::{InstallError, Unsupported};
use crate::bpf::{self, Btf, Kind, Link, Loaded, Map, Table};
use crate::cgroup::Mounts;

/// Connections of one chain at the same time; the server gets the bytes of further ones without an event.
const CONNECTIONS: u32 = 65_536;

/// The way from `struct tcp_sock` to the number of the socket's network namespace.
const NAMESPACE: &str = "inet_conn.icsk_inet.sk.__sk_common.skc_net.net.ns.inum";
/// Map number in the program that collects the connections.
const SOCKETS: u32 = 0;
/// Map number in the entrance, and the entry with the chain's program.
const WAY: u32 = 0;
const CHAIN: u32 = 0;
/// Stack offset of a socket's id.
const KEY: i16 = -8;
/// `BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB`: a server's side of a connection is complete.
const ACCEPTED: i32 = 5;
const IPV6: i32 = 10;
/// Offsets in the program's context, `struct bpf_sock_ops`.
mod context {
    pub(super) const OP: i16 = 0;
    pub(super) const FAMILY: i16 = 20;
    pub(super) const LOCAL_IP4: i16 = 28;
    pub(super) const LOCAL_IP6: i16 = 48;
    pub(super) const LOCAL_PORT: i16 = 68;
    pub(super) const SK: i16 = 184;
}

/// The maps of a chain at byte streams.
#[derive(Debug)]
pub(super) struct StreamMaps {
    answers: Option<Answers>,
    sockets: Map,
}

/// Numbers of the maps in the chain's program.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamNumbers {
    pub sockets: u32,
    /// The first map of [`Answers::fds`], and the number of answers.
    pub relay: Option<(u32, u32)>,
}

impl StreamMaps {
    /// `None`: the events at these hooks are of another kind.
    pub(super) fn of(hooks: &[&Hook], options: Options) -> Result<Option<StreamMaps>, InstallError> {
        if hooks.iter().all(|hook| hook.at != At::Streams) {
            return Ok(None);
        }
        let (sockets, texts) = (system("map of connections", Map::sockets(CONNECTIONS))?, options.answers());
        let answers = (!texts.is_empty()).then(|| Answers::new(&texts, &sockets)).transpose()?;
        Ok(Some(StreamMaps { answers, sockets }))
    }

    /// The numbers, if `before` maps have smaller ones.
    pub(super) fn numbers(&self, before: usize) -> StreamNumbers {
        let sockets = before as u32;
        StreamNumbers { sockets, relay: self.answers.as_ref().map(|answers| (sockets + 1, answers.count())) }
    }

    /// The maps in the order of their numbers.
    pub(super) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.sockets.fd()).chain(self.answers.iter().flat_map(Answers::fds)).collect()
    }

    pub(super) fn sockets(&self) -> &Map {
        &self.sockets
    }
}

/// The ports whose connections have a chain: the kernel runs one program for each socket.
#[derive(Debug, Default)]
pub(super) struct Ports {
    taken: Lock<BTreeSet<u16>, { rank::STREAM_PORTS }>,
}

/// A port that belongs to one chain; free again when dropped.
#[derive(Debug)]
pub(super) struct TakenPort {
    ports: Arc<Ports>,
    port: u16,
}

impl Ports {
    /// `None`: another chain has the port.
    pub(super) fn take(self: &Arc<Self>, port: u16) -> Option<TakenPort> {
        let free = self.taken.lock().insert(port);
        free.then(|| TakenPort { ports: self.clone(), port })
    }
}

impl Drop for TakenPort {
    fn drop(&mut self) {
        self.ports.taken.lock().remove(&self.port);
    }
}

/// The connections of a listening socket since this was created. Dropping it adds no more, and the server gets the
/// bytes that arrive from then on at those that there are.
#[derive(Debug)]
pub(super) struct Connections {
    /// The map of the entrance.
    way: Table,
    _link: Link,
    collector: Loaded,
    _port: TakenPort,
}

impl Connections {
    /// Leads the connections through `verdict` from now on.
    pub(super) fn follow(
        btf: &Btf,
        port: TakenPort,
        listen: &Listen,
        sockets: &Map,
        verdict: &Loaded,
    ) -> Result<Connections, InstallError> {
        let programs = system("way to the chain", Map::programs(1))?;
        let maps = [programs.fd()];
        let entrance = bpf::Program { kind: Kind::Streams, code: enter(), maps: &maps }.load().map_err(refused)?;
        let way = system("way to the chain", programs.table())?;
        system("way to the chain", way.set(&CHAIN, &verdict.fd().as_raw_fd()))?;
        // A socket gets the program that the map has when the socket is added.
        system("attaching to the sockets", entrance.attach_sockets(sockets))?;
        let unavailable = |why| InstallError::Unavailable { service: "sock.stream".into(), why };
        let code = assemble(btf, listen).map_err(unavailable)?;
        let maps = [sockets.fd()];
        let collector = bpf::Program { kind: Kind::Connections, code, maps: &maps }.load().map_err(refused)?;
        let groups = root_group().map_err(unavailable)?;
        let link = system("attaching to the control groups", collector.attach_group(groups.as_fd()))?;
        Ok(Connections { way, _link: link, collector, _port: port })
    }

    /// The kernel's id of the program that collects the connections; `None`: the kernel does not tell it.
    pub(super) fn program_id(&self) -> Option<u32> {
        self.collector.info().ok().map(|info| info.id)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        // A refusal of the kernel leaves the entry until the last descriptor is closed.
        let _ = self.way.remove(&CHAIN);
    }
}

/// Fails if this host lacks a part that [`Connections`] needs.
pub(super) fn check(btf: &Btf) -> Result<(), Unsupported> {
    member_steps(btf, "tcp_sock", NAMESPACE)?;
    root_group().map(drop)
}

/// The root of the control groups of version 2.
fn root_group() -> Result<File, Unsupported> {
    let missing = |why: String| Unsupported {
        what: format!("the control groups of version 2 cannot be opened ({why})"),
        remedy: "mount them: mount -t cgroup2 none /sys/fs/cgroup/unified".into(),
    };
    let at = Mounts::here().v2.ok_or_else(|| missing("they are not mounted".into()))?;
    File::open(&at).map_err(|error: io::Error| missing(format!("{}: {error}", at.display())))
}

/// The entrance.
fn enter() -> Code {
    let mut asm = Asm::new();
    asm.lddw_map(Reg::R2, WAY);
    asm.mov(Reg::R3, CHAIN as i32);
    asm.call(helper::TAIL_CALL);
    asm.mov(Reg::R0, STREAM_PASS);
    asm.exit();
    asm.finish().expect("six instructions")
}

/// The program that adds the connections of `listen` to the map. r6: the context. The result 1 leaves the answers of
/// other programs of this kind as they are.
fn assemble(btf: &Btf, listen: &Listen) -> Result<Code, Unsupported> {
    let mut asm = Asm::new();
    let end = asm.label();
    asm.mov(Reg::R6, Reg::R1);
    asm.load(Size::W, Reg::R1, Reg::R6, context::OP);
    asm.jump_if(Jmp::Ne, Reg::R1, ACCEPTED, end);
    asm.load(Size::W, Reg::R1, Reg::R6, context::LOCAL_PORT);
    asm.jump_if(Jmp::Ne, Reg::R1, i32::from(listen.port), end);
    only_address(&mut asm, listen.address.as_deref().unwrap_or_default(), end);
    only_namespace(&mut asm, btf, end)?;
    add(&mut asm);
    asm.bind(end);
    asm.mov(Reg::R0, 1);
    asm.exit();
    Ok(asm.finish().expect("some forty instructions"))
}

/// Continues at `other` unless the connection's address on this host is `address` (in network byte order; 4 or 16
/// bytes; empty: any address).
fn only_address(asm: &mut Asm, address: &[u8], other: Label) {
    let from = if address.len() == 4 { context::LOCAL_IP4 } else { context::LOCAL_IP6 };
    if address.len() == 16 {
        asm.load(Size::W, Reg::R1, Reg::R6, context::FAMILY);
        asm.jump_if(Jmp::Ne, Reg::R1, IPV6, other);
    }
    for (part, at) in address.chunks_exact(4).zip((from..).step_by(4)) {
        let part = i32::from_ne_bytes(part.try_into().expect("four bytes"));
        asm.load(Size::W, Reg::R1, Reg::R6, at);
        asm.jump_if32(Jmp::Ne, Reg::R1, part, other);
    }
}

/// Continues at `other` unless the socket is in the network namespace of this thread.
fn only_namespace(asm: &mut Asm, btf: &Btf, other: Label) -> Result<(), Unsupported> {
    asm.load(Size::D, Reg::R1, Reg::R6, context::SK);
    asm.jump_if(Jmp::Eq, Reg::R1, 0, other);
    asm.call(helper::SKC_TO_TCP_SOCK);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, other);
    for (offset, size) in member_steps(btf, "tcp_sock", NAMESPACE)? {
        asm.load(size, Reg::R0, Reg::R0, offset as i16);
    }
    asm.jump_if32(Jmp::Ne, Reg::R0, own_namespace()? as i32, other);
    Ok(())
}

/// Adds the socket to the map, under its id. If the map is full, the server gets the bytes without an event.
fn add(asm: &mut Asm) {
    asm.mov(Reg::R1, Reg::R6);
    asm.call(helper::GET_SOCKET_COOKIE);
    asm.store(Size::D, Reg::R10, KEY, Reg::R0);
    asm.mov(Reg::R1, Reg::R6);
    asm.lddw_map(Reg::R2, SOCKETS);
    asm.mov(Reg::R3, Reg::R10);
    asm.alu64(Alu::Add, Reg::R3, i32::from(KEY));
    asm.mov(Reg::R4, 0);
    asm.call(helper::SOCK_HASH_UPDATE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_belongs_to_one_chain_until_it_ends() {
        let ports = Arc::new(Ports::default());
        let first = ports.take(80).unwrap();
        assert!(ports.take(80).is_none() && ports.take(81).is_some());
        drop(first);
        assert!(ports.take(80).is_some());
    }
}
