//! `tcp.state`: a TCP connection changes its state.

use qfabric_ecode::bpf::{Jmp, Reg, Size};
use qfabric_types::format::Scalar;

use super::super::Unsupported;
use super::super::source::Prologue;
use super::super::source::Source::{Arg, Made, Now, Path};
use super::{Field, Hook, OptionSpec, Spec, listener};

const IPPROTO_TCP: i32 = 6;

pub(super) static SPEC: Spec = Spec {
    name: "tcp.state",
    about: "a TCP connection changes its state",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one(
            "old_state",
            Scalar::I32,
            "1 ESTABLISHED, 2 SYN_SENT, 3 SYN_RECV, 4 FIN_WAIT1, 5 FIN_WAIT2, 6 TIME_WAIT, 7 CLOSE, 8 CLOSE_WAIT, 9 LAST_ACK, 10 LISTEN, 11 CLOSING, 12 NEW_SYN_RECV",
        ),
        Field::one("state", Scalar::I32, "the new state, with the same numbers"),
        Field::one("local_port", Scalar::U16, "port on this host"),
        Field::one("peer_port", Scalar::U16, "port of the peer; 0: none yet"),
        Field::one("family", Scalar::U16, "2 IPv4, 10 IPv6"),
        Field::one("local", Scalar::U32, "IPv4 address on this host, host byte order; 0 for IPv6"),
        Field::one("peer", Scalar::U32, "IPv4 address of the peer, host byte order; 0 for IPv6"),
    ],
    options: &[OptionSpec::optional("listen", "[address]:port: only connections with this local port and address")],
    hooks: &[Hook {
        before: Some(only_tcp_of_the_port),
        make: Some(peer),
        ..Hook::tracepoint(
            "inet_sock_set_state",
            &[Now, Arg(1), Arg(2), Path(0, "__sk_common.skc_num"), Made, Path(0, "__sk_common.skc_family"), Made, Made],
        )
    }],
    ..Spec::NEW
};

fn only_tcp_of_the_port(p: &mut Prologue) -> Result<(), Unsupported> {
    p.load_path(Reg::R1, 0, "sk_protocol")?;
    let skip = p.skip;
    p.asm.jump_if(Jmp::Ne, Reg::R1, IPPROTO_TCP, skip);
    listener::only(p)
}

fn peer(p: &mut Prologue) -> Result<(), Unsupported> {
    if let Some(at) = p.wanted("peer_port") {
        p.load_path(Reg::R1, 0, "__sk_common.skc_dport")?;
        p.swap(Reg::R1, Size::H);
        p.asm.store(Size::H, Reg::R6, at, Reg::R1);
    }
    for (field, path) in [("local", "__sk_common.skc_rcv_saddr"), ("peer", "__sk_common.skc_daddr")] {
        if let Some(at) = p.wanted(field) {
            p.load_path(Reg::R1, 0, path)?;
            p.swap(Reg::R1, Size::W);
            p.asm.store(Size::W, Reg::R6, at, Reg::R1);
        }
    }
    Ok(())
}
