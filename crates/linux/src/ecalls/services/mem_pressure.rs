//! `mem.pressure`: the kernel has to reclaim memory.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Arg, Now, Number, Tgid};
use super::{Field, Hook, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "mem.pressure",
    about: "memory is short: the reclaiming thread of a node was woken, or a process has to reclaim memory itself",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one(
            "kind",
            Scalar::I32,
            "1 the reclaiming thread was woken, 2 a process begins to reclaim and waits, 3 the process has finished",
        ),
        Field::one("pid", Scalar::I32, "the process that was about to allocate memory"),
        Field::one("node", Scalar::I32, "the memory node, for kind 1; else -1"),
        Field::one("order", Scalar::I32, "for kinds 1 and 2: the allocation has 2^order pages"),
        Field::one("reclaimed", Scalar::U64, "for kind 3: reclaimed pages"),
    ],
    hooks: &[
        Hook::tracepoint("mm_vmscan_wakeup_kswapd", &[Now, Number(1), Tgid, Arg(0), Arg(2), Number(0)]),
        Hook::tracepoint("mm_vmscan_direct_reclaim_begin", &[Now, Number(2), Tgid, Number(-1), Arg(0), Number(0)]),
        Hook::tracepoint("mm_vmscan_direct_reclaim_end", &[Now, Number(3), Tgid, Number(-1), Number(0), Arg(0)]),
    ],
    ..Spec::NEW
};
