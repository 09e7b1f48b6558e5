//! `sched.wakeup`: a sleeping thread becomes runnable.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Cpu, Now, Path, Tgid};
use super::{Field, Hook, Side, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "sched.wakeup",
    about: "a sleeping thread becomes runnable",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("pid", Scalar::I32, "its process"),
        Field::one("tid", Scalar::I32, "the thread"),
        Field::one("prio", Scalar::I32, "its priority: 0 to 99 real-time (0 highest), 100 to 139 normal, -1 deadline"),
        Field::one("cpu", Scalar::I32, "the CPU that wakes it"),
        Field::one(
            "waker",
            Scalar::I32,
            "the process that runs on that CPU, which may be unrelated; 0: not the subscribed process",
        ),
        Field::many("comm", Scalar::I8, 16, "the thread's name, ended by 0"),
    ],
    hooks: &[Hook {
        processes: &[Path(0, "tgid")],
        sides: &[Side { process: Tgid, fields: &["waker"] }],
        ..Hook::tracepoint(
            "sched_wakeup",
            &[Now, Path(0, "tgid"), Path(0, "pid"), Path(0, "prio"), Cpu, Tgid, Path(0, "comm")],
        )
    }],
    ..Spec::NEW
};
