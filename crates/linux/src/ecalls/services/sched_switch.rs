//! `sched.switch`: a CPU switches from one thread to another.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Arg, Cpu, Now, Path};
use super::{Field, Hook, Side, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "sched.switch",
    about: "a CPU switches from one thread to another (either may belong to the subscribed process; the fields of the \
            other process are then 0)",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("cpu", Scalar::I32, "the CPU"),
        Field::one("preempted", Scalar::I32, "1: the previous thread was still runnable"),
        Field::one("prev_pid", Scalar::I32, "process of the previous thread; 0: idle, or not the subscribed process"),
        Field::one("prev_tid", Scalar::I32, "the previous thread"),
        Field::one("prev_prio", Scalar::I32, "its priority: 0 to 99 real-time, 100 to 139 normal, -1 deadline"),
        Field::one(
            "prev_state",
            Scalar::U32,
            "its state: 0 runnable, 1 sleeps, 2 sleeps uninterruptibly, others as in the kernel",
        ),
        Field::one("next_pid", Scalar::I32, "process of the next thread; 0: idle, or not the subscribed process"),
        Field::one("next_tid", Scalar::I32, "the next thread"),
        Field::one("next_prio", Scalar::I32, "its priority"),
    ],
    hooks: &[Hook {
        processes: &[Path(1, "tgid"), Path(2, "tgid")],
        sides: &[
            Side {
                process: Path(1, "tgid"),
                fields: &["preempted", "prev_pid", "prev_tid", "prev_prio", "prev_state"],
            },
            Side { process: Path(2, "tgid"), fields: &["next_pid", "next_tid", "next_prio"] },
        ],
        ..Hook::tracepoint(
            "sched_switch",
            &[
                Now,
                Cpu,
                Arg(0),
                Path(1, "tgid"),
                Path(1, "pid"),
                Path(1, "prio"),
                Arg(3),
                Path(2, "tgid"),
                Path(2, "pid"),
                Path(2, "prio"),
            ],
        )
    }],
    ..Spec::NEW
};
