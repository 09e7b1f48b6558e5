//! `sock.ready`: a socket has something to read.

use qfabric_ecode::bpf::{Jmp, Reg, Size};
use qfabric_types::format::Scalar;

use super::super::Unsupported;
use super::super::source::Source::{Made, Now, Number, Path};
use super::super::source::{Prologue, helper};
use super::{Field, Hook, OptionSpec, Spec, listener};

const CLOSE: i32 = 7;
const CLOSE_WAIT: i32 = 8;

pub(super) static SPEC: Spec = Spec {
    name: "sock.ready",
    about: "a socket has data to read or a connection to accept, or its peer closed it",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("socket", Scalar::U64, "id of the socket, as getsockopt(SO_COOKIE) returns it"),
        Field::one("why", Scalar::I32, "the reason: 1 data or connection, 2 closed by the peer"),
        Field::one("family", Scalar::U16, "1 Unix, 2 IPv4, 10 IPv6"),
        Field::one("protocol", Scalar::U16, "6 TCP, 17 UDP"),
        Field::one("local_port", Scalar::U16, "port on this host"),
        Field::one("peer_port", Scalar::U16, "port of the peer"),
        Field::one("backlog", Scalar::U32, "connections that wait to be accepted, for a listening socket"),
    ],
    options: &[OptionSpec::optional("listen", "[address]:port: only sockets with this local port and address")],
    hooks: &[
        Hook {
            before: Some(listener::only),
            make: Some(socket),
            ..Hook::tracepoint(
                "sk_data_ready",
                &[
                    Now,
                    Made,
                    Number(1),
                    Path(0, "__sk_common.skc_family"),
                    Path(0, "sk_protocol"),
                    Path(0, "__sk_common.skc_num"),
                    Made,
                    Path(0, "sk_ack_backlog"),
                ],
            )
        },
        Hook {
            before: Some(closed),
            make: Some(socket),
            ..Hook::tracepoint(
                "inet_sock_set_state",
                &[
                    Now,
                    Made,
                    Number(2),
                    Path(0, "__sk_common.skc_family"),
                    Path(0, "sk_protocol"),
                    Path(0, "__sk_common.skc_num"),
                    Made,
                    Path(0, "sk_ack_backlog"),
                ],
            )
        },
    ],
    ..Spec::NEW
};

fn closed(p: &mut Prologue) -> Result<(), Unsupported> {
    let (closed, skip) = (p.asm.label(), p.skip);
    p.load_argument(Reg::R1, 2);
    p.asm.jump_if(Jmp::Eq, Reg::R1, CLOSE_WAIT, closed);
    p.asm.jump_if(Jmp::Ne, Reg::R1, CLOSE, skip);
    p.asm.bind(closed);
    listener::only(p)
}

fn socket(p: &mut Prologue) -> Result<(), Unsupported> {
    if let Some(at) = p.wanted("socket") {
        p.load_argument(Reg::R1, 0);
        p.asm.call(helper::GET_SOCKET_COOKIE);
        p.asm.store(Size::D, Reg::R6, at, Reg::R0);
    }
    if let Some(at) = p.wanted("peer_port") {
        p.load_path(Reg::R1, 0, "__sk_common.skc_dport")?;
        p.swap(Reg::R1, Size::H);
        p.asm.store(Size::H, Reg::R6, at, Reg::R1);
    }
    Ok(())
}
