//! Generates the code by which a handler sends a real-time signal without user space, by functions of the kernel (Linux
//! 6.13: `bpf_send_signal_task`).
//!
//! The process is found by its number and its start time, because another process may have got the number since. If
//! there is no such process, or if the kernel refuses (where it cannot send at once, it holds one signal for each CPU
//! until an interrupt), the event goes on to user space, which then sends the signal. The program may hold the process
//! in a word of the stack only, since a handler that emits keeps its own registers.

use qfabric_ecode::bpf::{Alu, Asm, Jmp, Label, Reg, Size};
use qfabric_types::format::Scalar;

use super::delivery::{Place, SCRATCH, count};
use super::source::{function_number, member_steps, missing};
use super::{Unsupported, state};
use crate::bpf::Btf;

/// The kernel's functions: by number to a process, whose reference [`RELEASE`] gives back; and to send a signal.
const FIND: &str = "bpf_task_from_pid";
const RELEASE: &str = "bpf_task_release";
const SEND: &str = "bpf_send_signal_task";
/// `PIDTYPE_TGID`: any thread of the process may get the signal.
const TO_PROCESS: i32 = 1;
/// Start times in `/proc` are in units of `USER_HZ`, which is 100 on all architectures of this project.
const TICK_NS: i32 = 10_000_000;

/// A real-time signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalTo {
    /// 34 to 64.
    pub number: i32,
    /// The process, by its number in the initial PID namespace.
    pub pid: i32,
    /// Its start time ([`crate::threads::start_time`]).
    pub started: u64,
    /// The integer of the event that travels with the signal, by its offset in bytes and its type; `None`: 0.
    pub value: Option<(u32, Scalar)>,
}

/// The numbers of the functions in this kernel, and the place of the start time in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalCalls {
    find: i32,
    release: i32,
    send: i32,
    started: i16,
}

impl SignalCalls {
    /// Fails if this kernel lacks a function.
    pub(super) fn of(btf: &Btf) -> Result<SignalCalls, Unsupported> {
        let number = |name: &str| function_number(btf, name);
        let started = match member_steps(btf, "task_struct", "start_boottime")?.as_slice() {
            [(offset, Size::D)] => i16::try_from(*offset).ok(),
            _ => None,
        };
        let started = started.ok_or_else(|| missing("a start time in its processes"))?;
        Ok(SignalCalls { find: number(FIND)?, release: number(RELEASE)?, send: number(SEND)?, started })
    }
}

/// Sends the signal and continues at `sent`; continues behind this code if it was not sent. r6 is the event's frame, r9
/// the state; r0 to r5 are lost.
pub(super) fn send(asm: &mut Asm, calls: SignalCalls, to: SignalTo, event: Place, sent: Label) {
    let (other, none) = (asm.label(), asm.label());
    asm.mov(Reg::R1, to.pid);
    asm.call_kfunc(calls.find);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, none);
    asm.store(Size::D, Reg::R10, SCRATCH, Reg::R0);
    asm.load(Size::D, Reg::R1, Reg::R0, calls.started);
    asm.alu64(Alu::Div, Reg::R1, TICK_NS);
    asm.lddw(Reg::R2, to.started as i64);
    asm.jump_if(Jmp::Ne, Reg::R1, Reg::R2, other);
    load_value(asm, to.value, event);
    asm.load(Size::D, Reg::R1, Reg::R10, SCRATCH);
    asm.mov(Reg::R2, to.number);
    asm.mov(Reg::R3, TO_PROCESS);
    asm.call_kfunc(calls.send);
    asm.jump_if32(Jmp::Ne, Reg::R0, 0, other);
    release(asm, calls);
    count(asm, state::SIGNALS);
    asm.jump(sent);
    asm.bind(other);
    release(asm, calls);
    asm.bind(none);
}

/// r4 = the value, with its sign.
fn load_value(asm: &mut Asm, value: Option<(u32, Scalar)>, event: Place) {
    let Some((offset, ty)) = value else { return asm.mov(Reg::R4, 0) };
    asm.load(Size::of_bits(ty.bits), Reg::R4, Reg::R6, event.offset + offset as i16);
    let unused = 64 - i32::from(ty.bits);
    if ty.signed && unused > 0 {
        asm.alu64(Alu::Lsh, Reg::R4, unused);
        asm.alu64(Alu::Arsh, Reg::R4, unused);
    }
}

/// Gives the reference back. The verifier then sees the same stack as before.
fn release(asm: &mut Asm, calls: SignalCalls) {
    asm.load(Size::D, Reg::R1, Reg::R10, SCRATCH);
    asm.call_kfunc(calls.release);
    asm.store_imm(Size::D, Reg::R10, SCRATCH, 0);
}
