//! `app.deferred`: values that an application queued in its memory_down are handled as a batch at the next chosen
//! moment (000 §3.2.1, deferred user-ECalls). A handler passes over the values that are for other moments.

use qfabric_ecode::bpf::{Alu, Jmp, Reg, Size};
use qfabric_types::format::Scalar;
use qfabric_types::memory::{BATCH, DEFERRED, Down, Moment};

use super::super::Unsupported;
use super::super::deferred::{HANDLERS, position_of};
use super::super::options::Options;
use super::super::source::Source::{Made, Now, Path, Tgid};
use super::super::source::{DOWN, POSITIONS, Prologue};
use super::super::state;
use super::{At, Field, Hook, OptionSpec, Spec};

pub(super) static SPEC: Spec = Spec {
    name: "app.deferred",
    about: "deferred values of the application are handled at the chosen moment",
    fields: &[
        Field::one(
            "count",
            Scalar::U32,
            "number of values in this batch, 1 to 16; the rest follows at the next moment",
        ),
        Field::many("value", Scalar::I64, BATCH as u32, "the values, oldest first"),
        Field::one("time", Scalar::U64, "ns of CLOCK_MONOTONIC"),
    ],
    options: &[
        OptionSpec::required(
            "when",
            "syscall: at the end of the process's next system call (makes the system calls of all processes slower, so users need a grant); schedule: when a thread of the process leaves its CPU; before_schedule: when a thread of the process calls the CPU scheduler, before the scheduler decides (Linux 6.15); delay: after at most `delay`",
        ),
        OptionSpec::optional(
            "delay",
            "with when=delay: the longest delay, such as 5ms; at least 100us, for users 1ms; default 10ms",
        ),
        OptionSpec::optional("latest", "yes: only the most recent value is delivered"),
    ],
    hooks: &[
        Hook {
            processes: &[Tgid],
            when: |options| options.is("when", "syscall"),
            before: Some(something_waits),
            make: Some(batch),
            ..Hook::tracepoint("sys_exit", SOURCES)
        },
        Hook {
            processes: &[Path(1, "tgid")],
            when: |options| options.is("when", "schedule"),
            before: Some(something_waits),
            make: Some(batch),
            ..Hook::tracepoint("sched_switch", SOURCES)
        },
        Hook {
            processes: &[Tgid],
            when: |options| options.is("when", "before_schedule"),
            before: Some(something_waits),
            make: Some(batch),
            optional: true,
            ..Hook::tracepoint("sched_entry_tp", SOURCES)
        },
        Hook {
            at: At::Timer,
            sources: SOURCES,
            processes: &[],
            sides: &[],
            when: |options: &Options| options.is("when", "delay"),
            before: Some(something_waits),
            make: Some(batch),
            optional: false,
        },
    ],
    verdict: None,
    exclusive: true,
    needs_pid: true,
    takes_deferred: true,
};

const SOURCES: &[super::super::source::Source] = &[Made, Made, Now];

/// Compares the application's word with the handler's word without the lock. This is cheap; `batch` checks again under
/// the lock.
fn something_waits(p: &mut Prologue) -> Result<(), Unsupported> {
    let skip = p.skip;
    p.asm.lddw_map_value(Reg::R2, DOWN, 0);
    p.asm.load(Size::W, Reg::R1, Reg::R2, Down::HEAD as i16);
    p.asm.load(Size::W, Reg::R2, Reg::R9, state::SERVICE);
    p.asm.jump_if(Jmp::Eq, Reg::R1, Reg::R2, skip);
    Ok(())
}

/// r8: memory_down; r7: the handler's position; r1: number of waiting values.
fn batch(p: &mut Prologue) -> Result<(), Unsupported> {
    let (leave, sane) = (p.leave, p.asm.label());
    p.asm.lddw_map_value(Reg::R8, DOWN, 0);
    p.asm.load(Size::W, Reg::R7, Reg::R9, state::SERVICE);
    p.asm.load(Size::W, Reg::R2, Reg::R8, Down::HEAD as i16);
    p.asm.mov(Reg::R1, Reg::R2);
    p.asm.alu32(Alu::Sub, Reg::R1, Reg::R7);
    p.asm.jump_if(Jmp::Eq, Reg::R1, 0, leave);
    p.asm.jump_if(Jmp::Le, Reg::R1, DEFERRED as i32, sane);
    // The application has written an impossible position. Only the last DEFERRED values can exist.
    p.asm.mov(Reg::R1, DEFERRED as i32);
    p.asm.mov(Reg::R7, Reg::R2);
    p.asm.alu32(Alu::Sub, Reg::R7, DEFERRED as i32);
    p.asm.bind(sane);
    let elsewhere = moment(p).elsewhere() as i16;
    p.asm.store_imm(Size::W, Reg::R9, state::TAKEN, 0);
    p.asm.load(Size::D, Reg::R4, Reg::R8, elsewhere);
    if p.options.is("latest", "yes") {
        latest(p)
    } else {
        oldest_first(p)
    }
    p.asm.store(Size::W, Reg::R9, state::SERVICE, Reg::R7);
    give_back(p);
    p.asm.load(Size::W, Reg::R1, Reg::R9, state::TAKEN);
    if let Some(at) = p.wanted("count") {
        p.asm.store(Size::W, Reg::R6, at, Reg::R1);
    }
    // All values that were looked at are for other moments.
    p.asm.jump_if(Jmp::Eq, Reg::R1, 0, leave);
    Ok(())
}

/// The moment of the handler.
fn moment(p: &Prologue) -> Moment {
    Moment::ALL.into_iter().find(|moment| p.options.is("when", moment.name())).unwrap_or(Moment::Delay)
}

/// Publishes the handler's position r7, and gives back the places of the values that all handlers have taken. The
/// exchange is a full fence: of two handlers at the same time, the later one sees both positions.
fn give_back(p: &mut Prologue) {
    let own = p.deferred_handler;
    p.asm.lddw_map_value(Reg::R2, POSITIONS, position_of(own));
    p.asm.mov(Reg::R1, Reg::R7);
    p.asm.atomic_xchg(Size::D, Reg::R2, 0, Reg::R1);
    p.asm.lddw_map_value(Reg::R2, POSITIONS, 0);
    p.asm.load(Size::D, Reg::R3, Reg::R2, 0);
    // r5 = the number of values that the slowest handler has not taken.
    p.asm.load(Size::W, Reg::R4, Reg::R8, Down::HEAD as i16);
    p.asm.mov(Reg::R5, Reg::R4);
    p.asm.alu32(Alu::Sub, Reg::R5, Reg::R7);
    for other in (0..HANDLERS).filter(|number| *number != own) {
        let next = p.asm.label();
        p.asm.mov(Reg::R1, Reg::R3);
        p.asm.alu64(Alu::And, Reg::R1, 1 << other);
        p.asm.jump_if(Jmp::Eq, Reg::R1, 0, next);
        p.asm.load(Size::W, Reg::R1, Reg::R2, position_of(other) as i16);
        p.asm.mov(Reg::R0, Reg::R4);
        p.asm.alu32(Alu::Sub, Reg::R0, Reg::R1);
        p.asm.jump_if(Jmp::Le, Reg::R0, Reg::R5, next);
        p.asm.jump_if(Jmp::Gt, Reg::R0, DEFERRED as i32, next);
        p.asm.mov(Reg::R5, Reg::R0);
        p.asm.bind(next);
    }
    p.asm.alu32(Alu::Sub, Reg::R4, Reg::R5);
    advance(p);
}

/// Increases the number of taken values to r4. Each failure means that another handler has increased it.
fn advance(p: &mut Prologue) {
    let done = p.asm.label();
    for _ in 0..HANDLERS {
        p.asm.load(Size::W, Reg::R0, Reg::R8, Down::TAIL as i16);
        p.asm.mov(Reg::R1, Reg::R4);
        p.asm.alu32(Alu::Sub, Reg::R1, Reg::R0);
        p.asm.jump_if(Jmp::Eq, Reg::R1, 0, done);
        p.asm.jump_if(Jmp::Gt, Reg::R1, i32::MAX, done);
        p.asm.mov(Reg::R2, Reg::R0);
        p.asm.atomic_cmpxchg(Size::W, Reg::R8, Down::TAIL as i16, Reg::R4);
        p.asm.jump_if32(Jmp::Eq, Reg::R0, Reg::R2, done);
    }
    p.asm.bind(done);
}

/// Takes the newest value of this moment. r4: the places of the values for other moments.
fn latest(p: &mut Prologue) {
    let (found, done) = (p.asm.label(), p.asm.label());
    p.asm.alu32(Alu::Add, Reg::R7, Reg::R1);
    p.clear("value");
    p.asm.mov(Reg::R2, Reg::R7);
    for i in 0..DEFERRED as i32 {
        p.asm.jump_if(Jmp::Le, Reg::R1, i, done);
        p.asm.alu32(Alu::Sub, Reg::R2, 1);
        is_elsewhere(p);
        p.asm.jump_if(Jmp::Eq, Reg::R3, 0, found);
    }
    p.asm.jump(done);
    p.asm.bind(found);
    take(p);
    p.asm.bind(done);
}

/// Takes the values of this moment among the oldest ones. r4: the places of the values for other moments.
fn oldest_first(p: &mut Prologue) {
    let (few, done) = (p.asm.label(), p.asm.label());
    p.asm.jump_if(Jmp::Le, Reg::R1, BATCH as i32, few);
    p.asm.mov(Reg::R1, BATCH as i32);
    p.asm.bind(few);
    p.clear("value");
    for i in 0..BATCH as i32 {
        let next = p.asm.label();
        p.asm.jump_if(Jmp::Le, Reg::R1, i, done);
        p.asm.mov(Reg::R2, Reg::R7);
        p.asm.alu32(Alu::Add, Reg::R2, i);
        is_elsewhere(p);
        p.asm.jump_if(Jmp::Ne, Reg::R3, 0, next);
        take(p);
        p.asm.bind(next);
    }
    p.asm.bind(done);
    p.asm.alu32(Alu::Add, Reg::R7, Reg::R1);
}

/// r3: not 0 if the value at position r2 is for another moment. r5 is lost.
fn is_elsewhere(p: &mut Prologue) {
    p.asm.mov(Reg::R5, Reg::R2);
    p.asm.alu64(Alu::And, Reg::R5, DEFERRED as i32 - 1);
    p.asm.mov(Reg::R3, Reg::R4);
    p.asm.alu64(Alu::Rsh, Reg::R3, Reg::R5);
    p.asm.alu64(Alu::And, Reg::R3, 1);
}

/// Appends the value at position r2 to the batch. The number of values so far is in memory, because the verifier would
/// follow each number in a register separately. r0, r2, r3 and r5 are lost.
fn take(p: &mut Prologue) {
    p.asm.load(Size::W, Reg::R5, Reg::R9, state::TAKEN);
    p.asm.alu64(Alu::And, Reg::R5, BATCH as i32 - 1);
    if let Some(at) = p.wanted("value") {
        p.asm.alu64(Alu::And, Reg::R2, DEFERRED as i32 - 1);
        p.asm.alu64(Alu::Lsh, Reg::R2, 3);
        p.asm.mov(Reg::R3, Reg::R8);
        p.asm.alu64(Alu::Add, Reg::R3, Reg::R2);
        p.asm.load(Size::D, Reg::R3, Reg::R3, Down::VALUES as i16);
        p.asm.mov(Reg::R2, Reg::R5);
        p.asm.alu64(Alu::Lsh, Reg::R2, 3);
        p.asm.mov(Reg::R0, Reg::R6);
        p.asm.alu64(Alu::Add, Reg::R0, Reg::R2);
        p.asm.store(Size::D, Reg::R0, at, Reg::R3);
    }
    p.asm.alu64(Alu::Add, Reg::R5, 1);
    p.asm.store(Size::W, Reg::R9, state::TAKEN, Reg::R5);
}

const _: () = assert!(BATCH.is_power_of_two(), "a batch's number of values is cut to its bits");
