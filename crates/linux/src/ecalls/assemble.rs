//! Assembles one BPF program per hook: it makes an event, runs the steps' programs on it, and delivers it.
//!
//! ```text
//! right process? ── state of this CPU ── right port? ── lock, if one at a time ── fetch the fields that are used
//!   ── for each step: program │ shared memory │ ring ── count ── release the lock
//! ```
//! Normally only the fields that the first step's program reads are fetched. If the event itself is passed to a later
//! step, all fields are fetched.

use std::collections::BTreeSet;

use qfabric_ecode::bpf::{Alu, Asm, Code, Exits, Host, Jmp, Label, Layout, Reg, Size, generate};
use qfabric_ecode::hir::Builtin;
use qfabric_ecode::{Limits, Program};
use qfabric_types::format::Format;
use qfabric_types::memory::{CallRecord, CallVerdict};

use super::delivery::{self, Functions, Place, Target, count};
use super::options::Options;
use super::reads::InputUse;
use super::services::{At, Hook, Spec};
use super::source::{CONTEXT, DOWN, Prologue, STATE, helper};
use super::state;
use super::streams::StreamNumbers;
use super::{InstallError, Unsupported, answers, shared};
use crate::bpf::Btf;

const KEY: i16 = -32;
/// Stack word with the time at which the handler began.
const BEGAN: i16 = -40;
/// CPU time that a timer's interrupt is charged with in addition to the handler's, an assumption: the handler cannot
/// measure the entry into the kernel.
const INTERRUPT_NS: i32 = 2_000;
/// Verdicts on packets: pass the packet to the next program, or drop it.
const NEXT: i32 = -1;
const DROP: i32 = 2;
/// Verdicts on bytes of a stream; the first one is also the result of a hand-over that found the socket.
pub(super) const STREAM_PASS: i32 = 1;
pub(super) const STREAM_DROP: i32 = 0;

/// A step with the numbers of its maps.
pub(super) enum Stage<'a> {
    Run(&'a Program),
    Deliver(Target),
}

/// The checked parts of a handler.
pub(super) struct Plan<'a> {
    pub spec: &'static Spec,
    pub format: &'a Format,
    pub options: Options<'a>,
    pub only_pid: Option<i32>,
    pub stages: &'a [Stage<'a>],
    pub limits: Limits,
    pub deadline_ns: u64,
    pub fault_passes: bool,
    pub exclusive: bool,
    /// Number of this handler among the session's handlers of deferred values; 0 for other services.
    pub deferred_handler: usize,
    pub measured: bool,
    /// Numbers of the maps for the events of byte streams.
    pub streams: Option<StreamNumbers>,
}

/// The place of a hook's program at a shared program: its number, and the number of the map `nexts`
/// ([`super::shared`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub number: u32,
    pub maps: u32,
}

/// Position of a program's frame and statics in a state entry.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    pub frame: u32,
    pub statics: u32,
    layout: Layout,
}

impl Plan<'_> {
    pub(super) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Run(program) => Some(*program),
            Stage::Deliver(_) => None,
        })
    }

    /// The position of each program, in order, and the size of a state entry.
    pub(super) fn placements(&self) -> (Vec<Placement>, u32) {
        let mut at = state::HEADER;
        let mut placements = Vec::new();
        for program in self.programs() {
            let layout = Layout::of(program);
            let (frame, statics) = (at, (at + layout.size).next_multiple_of(8));
            at = (statics + program.statics.len() as u32).next_multiple_of(8);
            placements.push(Placement { frame, statics, layout });
        }
        if placements.is_empty() {
            at += self.format.size;
        }
        (placements, at.next_multiple_of(64))
    }

    /// Names of the fields that a step uses.
    fn wanted(&self) -> BTreeSet<String> {
        let first = match self.stages.first() {
            Some(Stage::Run(program)) => program,
            _ => return self.all_fields(),
        };
        let found = InputUse::of(first);
        let goes_on = first.output.is_none() || self.passes_unchanged(first);
        if goes_on && self.stages.len() > 1 {
            return self.all_fields();
        }
        let offsets = self.format.fields.iter().zip(self.spec.fields);
        let read = offsets.filter(|(member, field)| found.reads(member.offset, member.offset + field.bytes()));
        read.map(|(member, _)| member.name.clone()).collect()
    }

    fn all_fields(&self) -> BTreeSet<String> {
        self.format.fields.iter().map(|field| field.name.clone()).collect()
    }

    /// Whether the event itself continues after a fault, although the program has an output.
    fn passes_unchanged(&self, program: &Program) -> bool {
        self.fault_passes && program.output.as_ref().is_some_and(|output| output.is_laid_out_as(&program.input))
    }

    fn delivers(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage, Stage::Deliver(_)))
    }

    /// Assembles the program for a hook. It uses the states from `number` on of the `states` states of each CPU.
    /// `shared`: it continues with the next handler at the shared program. `functions`: those that it may call at this
    /// hook.
    pub(super) fn assemble(
        &self,
        btf: &Btf,
        hook: &Hook,
        (number, states): (u32, u32),
        shared: Option<Shared>,
        functions: Functions,
    ) -> Result<Code, InstallError> {
        let mut asm = Asm::new();
        let labels = Labels {
            foreign: asm.label(),
            skip: asm.label(),
            leave: asm.label(),
            pass: asm.label(),
            block: asm.label(),
            busy: asm.label(),
            end: asm.label(),
        };
        let build = Build { plan: self, asm: &mut asm, labels, hook, shared, functions };
        build.emit_all(btf, number, states).map_err(|why| self.unavailable(why))?;
        asm.finish().map_err(InstallError::TooLarge)
    }

    fn unavailable(&self, why: Unsupported) -> InstallError {
        InstallError::Unavailable { service: self.spec.name.into(), why }
    }
}

#[derive(Clone, Copy)]
struct Labels {
    /// The event of another process: it costs the handler's owner nothing.
    foreign: Label,
    /// Not an event of this handler; jumped to before the lock is taken.
    skip: Label,
    /// Not an event of this handler; jumped to after the lock is taken.
    leave: Label,
    pass: Label,
    block: Label,
    /// Another CPU holds the lock.
    busy: Label,
    /// The end of a handler at a shared program.
    end: Label,
}

struct Build<'a, 'b> {
    plan: &'b Plan<'a>,
    asm: &'b mut Asm,
    labels: Labels,
    hook: &'b Hook,
    shared: Option<Shared>,
    functions: Functions,
}

impl Build<'_, '_> {
    fn emit_all(mut self, btf: &Btf, number: u32, hooks: u32) -> Result<(), Unsupported> {
        let (placements, _) = self.plan.placements();
        let wanted = self.plan.wanted();
        let input = placements.first().map_or(0, |placement| placement.layout.input);
        let (spec, bytes) = (self.plan.spec, self.plan.format.size);
        self.asm.store(Size::D, Reg::R10, CONTEXT, Reg::R1);
        self.decide(CallVerdict::BLOCK);
        let (hook, only_pid, Labels { foreign, skip, .. }) = (self.hook, self.plan.only_pid, self.labels);
        only_of(&mut self.prologue(btf, &wanted, input, foreign), hook, only_pid)?;
        self.begin_measuring();
        self.find_state(number, hooks);
        if let Some(before) = hook.before {
            before(&mut self.prologue(btf, &wanted, input, skip))?;
        }
        self.take_lock();
        self.stamp(&wanted);
        self.asm.mov(Reg::R6, Reg::R9);
        self.asm.alu64(Alu::Add, Reg::R6, placements.first().map_or(state::HEADER, |placement| placement.frame) as i32);
        let mut prologue = self.prologue(btf, &wanted, input, skip);
        if let Some(make) = hook.make {
            make(&mut prologue)?;
        }
        prologue.fill(spec, hook.sources)?;
        hide_others(&mut prologue, hook, only_pid)?;
        if self.chooses() {
            self.asm.store_imm(Size::D, Reg::R9, state::SERVICE, STREAM_PASS);
        }
        if placements.is_empty() {
            self.decide(CallVerdict::DONE);
        }
        self.stages(&placements, Place { offset: input as i16, bytes });
        self.emit_exits();
        Ok(())
    }

    /// The result of a call, if the event is one. Loses r1 and r2. Not a store of a constant, which kernels before 6.3
    /// refuse in a context.
    fn decide(&mut self, verdict: CallVerdict) {
        if self.hook.at == At::Call {
            self.asm.mov(Reg::R2, verdict.0 as i32);
            self.give_verdict(Reg::R2);
        }
    }

    /// The result of a call is in `verdict`, if the event is one. Loses r1.
    fn give_verdict(&mut self, verdict: Reg) {
        if self.hook.at == At::Call {
            self.asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
            self.asm.store(Size::D, Reg::R1, CallRecord::VERDICT as i16, verdict);
        }
    }

    /// Sends the signal of the option to the thread that calls, if the verdict says so. The kernel delivers it before
    /// the call returns.
    fn signal_caller(&mut self) {
        let Some(signal) = self.plan.options.signal().filter(|_| self.hook.at == At::Call) else { return };
        let none = self.asm.label();
        let asm = &mut *self.asm;
        asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
        asm.load(Size::D, Reg::R1, Reg::R1, CallRecord::VERDICT as i16);
        asm.alu64(Alu::And, Reg::R1, CallVerdict::SIGNAL);
        asm.jump_if(Jmp::Eq, Reg::R1, 0, none);
        asm.mov(Reg::R1, signal);
        asm.call(helper::SEND_SIGNAL_THREAD);
        asm.bind(none);
    }

    fn prologue<'p>(&'p mut self, btf: &'p Btf, wanted: &'p BTreeSet<String>, input: u32, skip: Label) -> Prologue<'p> {
        Prologue {
            asm: self.asm,
            options: self.plan.options,
            skip,
            leave: self.labels.leave,
            btf,
            at: self.hook.at,
            format: self.plan.format,
            wanted,
            input,
            deferred_handler: self.plan.deferred_handler,
        }
    }

    /// Stores the time, if run times are measured. Events of other processes have left already.
    fn begin_measuring(&mut self) {
        if self.plan.measured {
            self.asm.call(helper::KTIME_GET_NS);
            self.asm.store(Size::D, Reg::R10, BEGAN, Reg::R0);
        }
    }

    /// Adds the time since [`Build::begin_measuring`] to the run time, and for a timer the interrupt.
    fn end_measuring(&mut self) {
        if self.plan.measured {
            self.asm.call(helper::KTIME_GET_NS);
            self.asm.load(Size::D, Reg::R1, Reg::R10, BEGAN);
            self.asm.alu64(Alu::Sub, Reg::R0, Reg::R1);
            if self.hook.at == At::Timer {
                self.asm.alu64(Alu::Add, Reg::R0, INTERRUPT_NS);
            }
            self.asm.atomic_add(Size::D, Reg::R9, state::RUN_NS, Reg::R0);
        }
    }

    /// r9 = the state entry of this CPU and hook; for an exclusive handler the only entry.
    fn find_state(&mut self, number: u32, hooks: u32) {
        if self.plan.exclusive {
            return self.asm.lddw_map_value(Reg::R9, STATE, 0);
        }
        let asm = &mut *self.asm;
        asm.call(helper::GET_SMP_PROCESSOR_ID);
        if hooks > 1 {
            asm.alu64(Alu::Mul, Reg::R0, hooks as i32);
            asm.alu64(Alu::Add, Reg::R0, number as i32);
        }
        asm.store(Size::W, Reg::R10, KEY, Reg::R0);
        self.look_up_state();
    }

    /// r9: the state whose number is at [`KEY`] on the stack.
    fn look_up_state(&mut self) {
        let asm = &mut *self.asm;
        asm.lddw_map(Reg::R1, STATE);
        asm.mov(Reg::R2, Reg::R10);
        asm.alu64(Alu::Add, Reg::R2, i32::from(KEY));
        asm.call(helper::MAP_LOOKUP_ELEM);
        asm.jump_if(Jmp::Eq, Reg::R0, 0, self.labels.foreign);
        asm.mov(Reg::R9, Reg::R0);
    }

    /// Whether each call takes the lock of its state. An event of a byte stream can interrupt another one on the same
    /// CPU: one that TCP handles in a system call of the server.
    fn locks(&self) -> bool {
        self.plan.exclusive || self.nests()
    }

    /// Whether each CPU has two states: one for an event that is interrupted, and one for the event that interrupts it.
    fn nests(&self) -> bool {
        !self.plan.exclusive && self.hook.at == At::Streams
    }

    /// The map of the sockets among which the verdict chooses; `None`: it does not choose.
    fn redirects(&self) -> Option<u32> {
        self.plan.streams.filter(|_| self.plan.options.is("redirect", "yes")).map(|streams| streams.sockets)
    }

    /// The map through which requests are answered, and the number of answers among which the verdict chooses.
    fn answers(&self) -> Option<(u32, u32)> {
        self.plan.streams.and_then(|streams| streams.relay)
    }

    /// Whether the verdict says more than whether the event passes.
    fn chooses(&self) -> bool {
        self.redirects().is_some() || self.answers().is_some()
    }

    fn take_lock(&mut self) {
        let free = self.asm.label();
        if self.nests() {
            self.other_if_taken(free);
        }
        if self.locks() {
            delivery::lock(self.asm, Reg::R9, state::LOCK, self.labels.busy);
        }
        self.asm.bind(free);
    }

    /// Takes the lock of the state at r9 and continues at `free`; if it is taken, r9 = the CPU's other state, whose
    /// number is the next one.
    fn other_if_taken(&mut self, free: Label) {
        let asm = &mut *self.asm;
        asm.mov(Reg::R0, 1);
        asm.atomic_xchg(Size::D, Reg::R9, state::LOCK, Reg::R0);
        asm.jump_if(Jmp::Eq, Reg::R0, 0, free);
        asm.load(Size::W, Reg::R0, Reg::R10, KEY);
        asm.alu64(Alu::Add, Reg::R0, 1);
        asm.store(Size::W, Reg::R10, KEY, Reg::R0);
        self.look_up_state();
    }

    /// Stores the time and the deadline of the event, if a step uses them.
    fn stamp(&mut self, wanted: &BTreeSet<String>) {
        if !self.plan.delivers() && !wanted.contains("time") {
            return;
        }
        let asm = &mut *self.asm;
        asm.call(helper::KTIME_GET_NS);
        asm.store(Size::D, Reg::R9, state::TIME, Reg::R0);
        match self.plan.deadline_ns {
            0 => asm.store_imm(Size::D, Reg::R9, state::DEADLINE, 0),
            after => {
                asm.lddw(Reg::R1, after as i64);
                asm.alu64(Alu::Add, Reg::R0, Reg::R1);
                asm.store(Size::D, Reg::R9, state::DEADLINE, Reg::R0);
            }
        }
    }

    /// `event` is the position of the event relative to r6; it moves from frame to frame.
    fn stages(&mut self, placements: &[Placement], mut event: Place) {
        let mut placements = placements.iter().enumerate();
        for (at, stage) in self.plan.stages.iter().enumerate() {
            match stage {
                Stage::Deliver(target) => target.deliver(self.asm, event, self.functions),
                Stage::Run(program) => {
                    let (number, placement) = placements.next().expect("every program has its placement");
                    if number > 0 {
                        self.carry_over(placement, event);
                    }
                    event = self.run(program, placement, &self.plan.stages[at + 1..]);
                }
            }
        }
        self.asm.jump(self.labels.pass);
    }

    /// Copies the event to the next program's frame and sets r6 to that frame.
    fn carry_over(&mut self, placement: &Placement, event: Place) {
        let asm = &mut *self.asm;
        asm.mov(Reg::R8, Reg::R6);
        asm.mov(Reg::R6, Reg::R9);
        asm.alu64(Alu::Add, Reg::R6, placement.frame as i32);
        let bytes = event.bytes.min(placement.layout.input_bytes);
        delivery::copy(asm, (Reg::R6, placement.layout.input as i16), (Reg::R8, event.offset), bytes);
    }

    /// Runs a program; returns the position of the event afterwards.
    fn run(&mut self, program: &Program, placement: &Placement, after: &[Stage]) -> Place {
        let event = Place { offset: placement.layout.output as i16, bytes: placement.layout.output_bytes };
        let exits = Exits { done: self.asm.label(), fault: self.asm.label() };
        let goes_on = self.asm.label();
        self.asm.mov(Reg::R7, Reg::R9);
        self.asm.alu64(Alu::Add, Reg::R7, placement.statics as i32);
        self.asm.lddw_map_value(Reg::R8, DOWN, 0);
        let targets = after.iter().filter_map(|stage| match stage {
            Stage::Deliver(target) => Some(target),
            Stage::Run(_) => None,
        });
        let mut host = InKernel { targets: targets.collect(), functions: self.functions };
        generate(self.asm, program, &mut host, self.plan.limits, exits);
        self.asm.bind(exits.fault);
        self.asm.store(Size::D, Reg::R9, state::LAST_FAULT, Reg::R0);
        count(self.asm, state::FAULTS);
        self.decide(CallVerdict::BLOCK);
        if self.plan.passes_unchanged(program) {
            let layout = &placement.layout;
            let (to, from) = ((Reg::R6, layout.output as i16), (Reg::R6, layout.input as i16));
            delivery::copy(self.asm, to, from, layout.output_bytes);
        }
        self.asm.jump(if self.plan.fault_passes { goes_on } else { self.labels.block });
        self.asm.bind(exits.done);
        self.give_verdict(Reg::R0);
        self.asm.jump_if(Jmp::Eq, Reg::R0, 0, self.labels.block);
        if self.chooses() {
            self.asm.store(Size::D, Reg::R9, state::SERVICE, Reg::R0);
        }
        self.asm.bind(goes_on);
        event
    }

    fn emit_exits(&mut self) {
        let (go_on, stop) = self.results();
        let labels = self.labels;
        self.asm.bind(labels.pass);
        count(self.asm, state::PASSED);
        self.end_measuring();
        if self.chooses() {
            self.asm.load(Size::D, Reg::R7, Reg::R9, state::SERVICE);
        }
        self.release_lock();
        self.answer();
        self.redirect();
        self.signal_caller();
        self.result(go_on);
        self.asm.bind(labels.block);
        count(self.asm, state::BLOCKED);
        self.end_measuring();
        self.release_lock();
        self.result(stop);
        self.asm.bind(labels.busy);
        self.asm.mov(Reg::R0, 1);
        self.asm.atomic_add(Size::D, Reg::R9, state::CONTENDED, Reg::R0);
        self.end_measuring();
        self.result(go_on);
        self.asm.bind(labels.leave);
        self.release_lock();
        self.asm.bind(labels.skip);
        self.end_measuring();
        self.asm.bind(labels.foreign);
        self.result(go_on);
        if let Some(Shared { number, maps }) = self.shared {
            self.asm.bind(labels.end);
            shared::go_to_next(self.asm, maps, number);
        }
    }

    /// Ends the program if r7 chooses an answer.
    fn answer(&mut self) {
        let Some((relay, count)) = self.answers() else { return };
        let other = self.asm.label();
        answers::ask(self.asm, relay, count, other);
        self.asm.bind(other);
    }

    /// Hands the bytes over to the socket whose id is r7. If the map has no such socket, the server gets them.
    fn redirect(&mut self) {
        let Some(sockets) = self.redirects() else { return };
        let asm = &mut *self.asm;
        let own = asm.label();
        asm.jump_if(Jmp::Eq, Reg::R7, STREAM_PASS, own);
        asm.store(Size::D, Reg::R10, KEY, Reg::R7);
        asm.load(Size::D, Reg::R1, Reg::R10, CONTEXT);
        asm.lddw_map(Reg::R2, sockets);
        asm.mov(Reg::R3, Reg::R10);
        asm.alu64(Alu::Add, Reg::R3, i32::from(KEY));
        asm.mov(Reg::R4, 0); // as if the server had written them
        asm.call(helper::SK_REDIRECT_HASH);
        asm.bind(own);
    }

    fn release_lock(&mut self) {
        if self.locks() {
            delivery::unlock(self.asm, Reg::R9, state::LOCK);
        }
    }

    /// Ends the program. At a tracepoint, the only kind of hook with shared programs, the result has no meaning.
    fn result(&mut self, value: i32) {
        if self.shared.is_some() {
            return self.asm.jump(self.labels.end);
        }
        self.asm.mov(Reg::R0, value);
        self.asm.exit();
    }

    /// Return values of the hook for an event that passes and for one that is blocked.
    fn results(&self) -> (i32, i32) {
        match self.hook.at {
            At::Packets(_) if self.plan.options.is("drop", "yes") => (NEXT, DROP),
            At::Packets(_) => (NEXT, NEXT),
            At::Streams if self.plan.options.is("drop", "yes") => (STREAM_PASS, STREAM_DROP),
            At::Streams => (STREAM_PASS, STREAM_PASS),
            _ => (0, 0),
        }
    }
}

/// Skips the events of other processes.
fn only_of(p: &mut Prologue, hook: &Hook, only_pid: Option<i32>) -> Result<(), Unsupported> {
    if let Some(pid) = only_pid
        && let Some((&last, others)) = hook.processes.split_last()
    {
        let concerned = p.asm.label();
        for &source in others {
            p.process(source)?;
            p.asm.jump_if32(Jmp::Eq, Reg::R1, pid, concerned);
        }
        p.process(last)?;
        let skip = p.skip;
        p.asm.jump_if32(Jmp::Ne, Reg::R1, pid, skip);
        p.asm.bind(concerned);
    }
    Ok(())
}

/// Sets the fields that describe other processes to zero: with `only_pid`, an event must not reveal them.
fn hide_others(p: &mut Prologue, hook: &Hook, only_pid: Option<i32>) -> Result<(), Unsupported> {
    let Some(pid) = only_pid else { return Ok(()) };
    for side in hook.sides {
        if side.fields.iter().all(|field| p.wanted(field).is_none()) {
            continue;
        }
        let own = p.asm.label();
        p.process(side.process)?;
        p.asm.jump_if32(Jmp::Eq, Reg::R1, pid, own);
        side.fields.iter().for_each(|field| p.clear(field));
        p.asm.bind(own);
    }
    Ok(())
}

/// Implements the builtins of E-code in the kernel.
struct InKernel<'a> {
    targets: Vec<&'a Target>,
    functions: Functions,
}

impl Host for InKernel<'_> {
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, layout: &Layout) {
        match what {
            Builtin::Now => asm.call(helper::KTIME_GET_NS),
            Builtin::Cpu => asm.call(helper::GET_SMP_PROCESSOR_ID),
            Builtin::Pid => {
                asm.call(helper::GET_CURRENT_PID_TGID);
                asm.alu64(Alu::Rsh, Reg::R0, 32);
            }
            Builtin::Emit => {
                let event = Place { offset: layout.output as i16, bytes: layout.output_bytes };
                self.targets.iter().for_each(|target| target.deliver(asm, event, self.functions));
            }
        }
    }

    fn add_attribute(&mut self, asm: &mut Asm, offset: i16) {
        add_attribute(asm, offset);
    }

    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label) {
        asm.may_goto(exhausted);
    }
}

/// Adds r1 to the word at r8 + `offset`; r0 = the new value.
pub(super) fn add_attribute(asm: &mut Asm, offset: i16) {
    asm.mov(Reg::R0, Reg::R1);
    asm.atomic_fetch_add(Size::D, Reg::R8, offset, Reg::R0);
    asm.alu64(Alu::Add, Reg::R0, Reg::R1);
}
