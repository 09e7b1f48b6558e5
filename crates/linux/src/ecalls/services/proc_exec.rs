//! `proc.exec`: a process executes another program.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Arg, Now, Path};
use super::{Field, Hook, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "proc.exec",
    about: "a process executes another program",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("pid", Scalar::I32, "the process"),
        Field::one("parent", Scalar::I32, "its parent process"),
        Field::one("old_tid", Scalar::I32, "the thread that called exec; from now on the only thread of the process"),
        Field::many("comm", Scalar::I8, 16, "the new name, ended by 0"),
    ],
    hooks: &[Hook {
        processes: &[Path(0, "tgid")],
        ..Hook::tracepoint(
            "sched_process_exec",
            &[Now, Path(0, "tgid"), Path(0, "real_parent.tgid"), Arg(1), Path(0, "comm")],
        )
    }],
    ..Spec::NEW
};
