//! `app.call`: a call of an application whose handlers run in the kernel before the call returns (000 §3.2.1, fast
//! user-ECalls). The application runs the program by `BPF_PROG_RUN`, one system call for which a user needs no
//! capability, only the descriptor. The values come in the program's context, and the verdict goes back there.

use qfabric_ecode::bpf::{Jmp, Reg, Size};
use qfabric_types::format::Scalar;
use qfabric_types::memory::{CALL_SERVICE, CALL_VALUES};

use super::super::Unsupported;
use super::super::source::Prologue;
use super::super::source::Source::{Made, Now, Tgid};
use super::super::source::helper;
use super::super::state;
use super::{At, Field, Hook, OptionSpec, Spec};

pub(super) static SPEC: Spec = Spec {
    name: CALL_SERVICE,
    about: "the application makes a fast call: the handlers run before it returns",
    fields: &[
        Field::many("value", Scalar::I64, CALL_VALUES as u32, "the values of the caller"),
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
        Field::one("tid", Scalar::I32, "the thread that calls"),
    ],
    options: &[OptionSpec::optional(
        "signal",
        "real-time signal, 34 to 64, that the calling thread gets before the call returns, if the handler's verdict contains 4",
    )],
    hooks: &[Hook {
        at: At::Call,
        sources: &[Made, Now, Made],
        processes: &[Tgid],
        before: Some(is_installed),
        make: Some(words),
        ..Hook::NEW
    }],
    // The kernel can preempt the program, so two calls can meet on one CPU.
    exclusive: true,
    needs_pid: true,
    ..Spec::NEW
};

/// The application keeps the descriptor after the subscription has ended; then there is no event.
fn is_installed(p: &mut Prologue) -> Result<(), Unsupported> {
    let skip = p.skip;
    p.asm.load(Size::D, Reg::R1, Reg::R9, state::SERVICE);
    p.asm.jump_if(Jmp::Ne, Reg::R1, 0, skip);
    Ok(())
}

fn words(p: &mut Prologue) -> Result<(), Unsupported> {
    if let Some(at) = p.wanted("value") {
        p.load_context(Reg::R7);
        for word in (0..8 * CALL_VALUES as i16).step_by(8) {
            p.asm.load(Size::D, Reg::R1, Reg::R7, word);
            p.asm.store(Size::D, Reg::R6, at + word, Reg::R1);
        }
    }
    if let Some(at) = p.wanted("tid") {
        p.asm.call(helper::GET_CURRENT_PID_TGID);
        p.asm.store(Size::W, Reg::R6, at, Reg::R0);
    }
    Ok(())
}
