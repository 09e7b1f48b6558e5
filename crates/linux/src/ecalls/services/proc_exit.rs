//! `proc.exit`: a thread ends, which may be the last one of its process.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Now, Path};
use super::{Field, Hook, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "proc.exit",
    about: "a thread ends; if tid equals pid, it is the first thread of the process",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("pid", Scalar::I32, "its process"),
        Field::one("tid", Scalar::I32, "the thread"),
        Field::one("parent", Scalar::I32, "the process's parent"),
        Field::one("code", Scalar::I32, "as in wait(): the status in bits 8 to 15, the signal in bits 0 to 6"),
        Field::one("left", Scalar::I32, "number of threads of the process that have not ended"),
        Field::many("comm", Scalar::I8, 16, "the thread's name, ended by 0"),
    ],
    hooks: &[Hook {
        processes: &[Path(0, "tgid")],
        ..Hook::tracepoint(
            "sched_process_exit",
            &[
                Now,
                Path(0, "tgid"),
                Path(0, "pid"),
                Path(0, "real_parent.tgid"),
                Path(0, "exit_code"),
                Path(0, "signal.live.counter"),
                Path(0, "comm"),
            ],
        )
    }],
    ..Spec::NEW
};
