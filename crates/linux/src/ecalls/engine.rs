//! Runs E-code in the kernel on demand: for `ecode run --engine kernel`, conformance tests and benchmarks.
//!
//! Uses the same generated code as a handler. Time, process and CPU come from the caller instead of the kernel, so that
//! all engines can run with the same values. Emitted events are kept until the call ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use qfabric_ecode::bpf::{Alu, Asm, Exits, Host, Jmp, Label, Layout, Reg, Size, generate};
use qfabric_ecode::hir::Builtin;
use qfabric_ecode::{CallContext, Engine, Fault, Limits, Program};

use super::assemble::add_attribute;
use super::handler::{refused, system};
use super::{InstallError, delivery};
use crate::bpf::{self, Kind, Loaded, Map, Mapping};

/// Words at the beginning of the state. Offsets in bytes from r9.
mod word {
    pub(super) const VERDICT: i16 = 0;
    pub(super) const FAULT: i16 = 8;
    pub(super) const EMITTED: i16 = 16;
    pub(super) const NOW: i16 = 24;
    pub(super) const PID: i16 = 32;
    pub(super) const CPU: i16 = 40;
    /// Size of all words, in bytes.
    pub(super) const HEADER: u32 = 64;
}

/// Largest total size of a program's frame, statics and emissions.
const MOST_BYTES: u64 = 64 << 20;

/// A program in the kernel that is run by `BPF_PROG_TEST_RUN`. Needs no hook.
#[derive(Debug)]
pub struct KernelEngine {
    program: Loaded,
    state: Mapping,
    _map: Map,
    at: Places,
    layout: Layout,
    output: Vec<u8>,
    statics: Vec<u8>,
    attributes: Vec<i64>,
    emitted: Vec<u8>,
}

/// Offsets in the state.
#[derive(Clone, Copy, Debug)]
struct Places {
    frame: usize,
    statics: usize,
    attributes: usize,
    emissions: usize,
    /// Bytes from one emission to the next.
    stride: usize,
    total: u64,
}

impl Places {
    fn of(program: &Program, layout: &Layout, limits: Limits) -> Places {
        let frame = word::HEADER as usize;
        let statics = frame + layout.size.next_multiple_of(8) as usize;
        let attributes = statics + program.statics.len().next_multiple_of(8);
        let emissions = attributes + 8 * program.attributes.len();
        let stride = layout.output_bytes.next_multiple_of(8) as usize;
        let total = emissions as u64 + u64::from(limits.emissions) * stride as u64;
        Places { frame, statics, attributes, emissions, stride, total: total.next_multiple_of(8) }
    }
}

impl KernelEngine {
    /// Generates the code, loads it and has it verified.
    pub fn new(program: &Program, limits: Limits) -> Result<KernelEngine, InstallError> {
        let layout = Layout::of(program);
        let at = Places::of(program, &layout, limits);
        if at.total > MOST_BYTES {
            let bytes = at.total;
            let why = format!(
                "{bytes} bytes for frame and emissions, more than the limit of {MOST_BYTES}; allow fewer emissions"
            );
            return Err(InstallError::Steps(why));
        }
        let map = system("state", Map::array(at.total as u32, 1))?;
        let state = system("state", map.map(at.total as usize))?;
        state.copy_from(at.statics, &program.statics);
        let code = assemble(program, limits, at).map_err(InstallError::TooLarge)?;
        let program_of = bpf::Program { kind: Kind::Demand, code, maps: &[map.fd()] };
        Ok(KernelEngine {
            program: program_of.load().map_err(refused)?,
            state,
            _map: map,
            at,
            output: vec![0; if program.output.is_some() { layout.output_bytes as usize } else { 0 }],
            emitted: vec![0; layout.output_bytes as usize],
            statics: program.statics.clone(),
            attributes: vec![0; program.attributes.len()],
            layout,
        })
    }

    /// Duration of loading: the kernel's verifier and JIT.
    pub fn load_time(&self) -> Duration {
        self.program.took()
    }

    /// Number of instructions that the verifier walked through.
    pub fn verified_instructions(&self) -> u32 {
        self.program.info().map_or(0, |info| info.verified_insns)
    }

    /// Mean duration of one of `repeat` calls on the same input, as measured by the kernel.
    pub fn measure(&mut self, input: &[u8], repeat: u32) -> std::io::Result<Duration> {
        self.prepare(input, &CallContext::default());
        Ok(self.program.run(repeat)?.1)
    }

    fn prepare(&mut self, input: &[u8], context: &CallContext) {
        self.set(word::FAULT, 0);
        self.set(word::EMITTED, 0);
        self.set(word::NOW, context.now);
        self.set(word::PID, i64::from(context.pid) as u64);
        self.set(word::CPU, i64::from(context.cpu) as u64);
        self.state.copy_from(self.at.frame + self.layout.input as usize, input);
        for (word, value) in self.state.words(self.at.attributes).iter().zip(&self.attributes) {
            word.store(*value as u64, Ordering::Relaxed);
        }
    }

    fn collect(&mut self, sink: &mut dyn FnMut(&[u8])) {
        self.state.copy_to(self.at.frame + self.layout.output as usize, &mut self.output);
        self.state.copy_to(self.at.statics, &mut self.statics);
        for (word, value) in self.state.words(self.at.attributes).iter().zip(&mut self.attributes) {
            *value = word.load(Ordering::Relaxed) as i64;
        }
        for number in 0..self.get(word::EMITTED) as usize {
            self.state.copy_to(self.at.emissions + number * self.at.stride, &mut self.emitted);
            sink(&self.emitted);
        }
    }

    fn set(&self, at: i16, value: u64) {
        self.state.words(at as usize)[0].store(value, Ordering::Relaxed);
    }

    fn get(&self, at: i16) -> u64 {
        self.state.words(at as usize)[0].load(Ordering::Relaxed)
    }
}

impl Engine for KernelEngine {
    fn name(&self) -> &'static str {
        "kernel"
    }

    /// If the kernel refuses the system call, the fault is [`Fault::REFUSED`].
    fn call(&mut self, input: &[u8], context: &CallContext, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
        self.prepare(input, context);
        self.program.run(1).map_err(|_| Fault::REFUSED)?;
        self.collect(sink);
        match Fault::from_code(self.get(word::FAULT) as u32) {
            Some(fault) => Err(fault),
            None => Ok(self.get(word::VERDICT) as i64),
        }
    }

    fn output(&self) -> &[u8] {
        &self.output
    }

    fn statics(&self) -> &[u8] {
        &self.statics
    }

    fn attributes(&mut self) -> &mut [i64] {
        &mut self.attributes
    }
}

fn assemble(program: &Program, limits: Limits, at: Places) -> Result<bpf::Code, bpf::TooLarge> {
    let mut asm = Asm::new();
    let exits = Exits { done: asm.label(), fault: asm.label() };
    asm.lddw_map_value(Reg::R9, 0, 0);
    for (reg, offset) in [(Reg::R6, at.frame), (Reg::R7, at.statics), (Reg::R8, at.attributes)] {
        asm.mov(reg, Reg::R9);
        asm.alu64(Alu::Add, reg, offset as i32);
    }
    generate(&mut asm, program, &mut OnDemand { at, limits }, limits, exits);
    for (label, to) in [(exits.done, word::VERDICT), (exits.fault, word::FAULT)] {
        asm.bind(label);
        asm.store(Size::D, Reg::R9, to, Reg::R0);
        asm.mov(Reg::R0, 0);
        asm.exit();
    }
    asm.finish()
}

/// Implements the builtins of E-code with the caller's values.
struct OnDemand {
    at: Places,
    limits: Limits,
}

impl Host for OnDemand {
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, layout: &Layout) {
        match what {
            Builtin::Now => asm.load(Size::D, Reg::R0, Reg::R9, word::NOW),
            Builtin::Pid => asm.load(Size::D, Reg::R0, Reg::R9, word::PID),
            Builtin::Cpu => asm.load(Size::D, Reg::R0, Reg::R9, word::CPU),
            Builtin::Emit => self.emit(asm, layout),
        }
    }

    fn add_attribute(&mut self, asm: &mut Asm, offset: i16) {
        add_attribute(asm, offset);
    }

    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label) {
        asm.may_goto(exhausted);
    }
}

impl OnDemand {
    fn emit(&self, asm: &mut Asm, layout: &Layout) {
        let full = asm.label();
        asm.load(Size::D, Reg::R1, Reg::R9, word::EMITTED);
        asm.jump_if(Jmp::Ge, Reg::R1, self.limits.emissions as i32, full);
        asm.mov(Reg::R2, Reg::R1);
        asm.alu64(Alu::Add, Reg::R2, 1);
        asm.store(Size::D, Reg::R9, word::EMITTED, Reg::R2);
        asm.alu64(Alu::Mul, Reg::R1, self.at.stride as i32);
        asm.mov(Reg::R4, Reg::R9);
        asm.alu64(Alu::Add, Reg::R4, self.at.emissions as i32);
        asm.alu64(Alu::Add, Reg::R4, Reg::R1);
        delivery::copy(asm, (Reg::R4, 0), (Reg::R6, layout.output as i16), layout.output_bytes);
        asm.bind(full);
    }
}
