//! `proc.fork`: a process or a thread comes into being.

use qfabric_types::format::Scalar;

use super::super::source::Source::{Now, Path};
use super::{Field, Hook, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "proc.fork",
    about: "a process makes a process or a thread (told for the maker)",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("pid", Scalar::I32, "the process that makes it"),
        Field::one("tid", Scalar::I32, "the thread that makes it"),
        Field::one("child_pid", Scalar::I32, "the new process; equal to pid for a new thread"),
        Field::one("child_tid", Scalar::I32, "the new thread"),
        Field::many("comm", Scalar::I8, 16, "the maker's name, ended by 0"),
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
