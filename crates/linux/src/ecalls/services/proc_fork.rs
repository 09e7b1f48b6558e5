//! `proc.fork`: a process starts a process or a thread.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Now, Path};
use super::{Field, Hook, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "proc.fork",
    about: "a process starts a process or a thread (an event of the parent)",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("pid", Scalar::I32, "the parent process"),
        Field::one("tid", Scalar::I32, "the thread that called fork or clone"),
        Field::one("child_pid", Scalar::I32, "the new process; equal to pid for a new thread"),
        Field::one("child_tid", Scalar::I32, "the new thread"),
        Field::many("comm", Scalar::I8, 16, "the name of that thread, ended by 0"),
    ],
    hooks: &[Hook {
        processes: &[Path(0, "tgid")],
        ..Hook::tracepoint(
            "sched_process_fork",
            &[Now, Path(0, "tgid"), Path(0, "pid"), Path(1, "tgid"), Path(1, "pid"), Path(0, "comm")],
        )
    }],
    ..Spec::NEW
};
