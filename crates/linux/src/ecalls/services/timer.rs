//! `timer`: an event at regular times, on one CPU.

use qfabric_ecode::bpf::{Alu, Reg, Size};
use qfabric_types::format::Scalar;

use super::super::Unsupported;
use super::super::source::Prologue;
use super::super::source::Source::{Cpu, Made, Now, Tgid};
use super::super::state;
use super::{At, Field, Hook, OptionSpec, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "timer",
    about: "a period has passed",
    fields: &[
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("count", Scalar::U64, "number of this event, from 1"),
        Field::one("cpu", Scalar::I32, "the CPU"),
        Field::one("pid", Scalar::I32, "the process that was interrupted; 0: idle"),
    ],
    options: &[
        OptionSpec::required("period", "time between two events, such as 10ms; at least 100us, for users 1ms"),
        OptionSpec::optional("cpu", "number of the CPU; default 0"),
    ],
    hooks: &[Hook { at: At::Timer, sources: &[Now, Made, Cpu, Tgid], make: Some(count), ..Hook::NEW }],
    exclusive: true,
    ..Spec::NEW
};

fn count(p: &mut Prologue) -> Result<(), Unsupported> {
    p.asm.load(Size::D, Reg::R1, Reg::R9, state::SERVICE);
    p.asm.alu64(Alu::Add, Reg::R1, 1);
    p.asm.store(Size::D, Reg::R9, state::SERVICE, Reg::R1);
    if let Some(at) = p.wanted("count") {
        p.asm.store(Size::D, Reg::R6, at, Reg::R1);
    }
    Ok(())
}
