//! The engine: the machine code of a program and its memory.

use std::io;
use std::panic::resume_unwind;

use qfabric_ecode::bpf::{Asm, Code, Exits, Layout, TooLarge, generate};
use qfabric_ecode::{CallContext, Engine, Fault, Limits, Program};
use qfabric_types::api::Problem;

use crate::code::Machine;
use crate::host::{Delivery, User, epilogue, prologue, word};

/// The reason for which a program has no machine code.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum JitError {
    /// A jump of the program is too long.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// No memory, or no compiler for this processor.
    Memory(#[from] io::Error),
}

impl JitError {
    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        match self {
            JitError::TooLarge(error) => error.problem(),
            JitError::Memory(error) => Problem::new(
                "no_machine_code",
                format!("cannot compile the program to machine code: {error}"),
                "use the interpreter instead (`--engine interp`)",
            ),
        }
    }
}

/// Generates the eBPF for user space that [`Jit::new`] compiles. Its `Display` prints a listing.
pub fn assemble(program: &Program, limits: Limits) -> Result<Code, TooLarge> {
    let mut asm = Asm::new();
    let exits = Exits { done: asm.label(), fault: asm.label() };
    prologue(&mut asm);
    let marks = 8 * program.attributes.len() as i16;
    generate(&mut asm, program, &mut User { marks }, limits, exits);
    epilogue(&mut asm, exits);
    asm.finish()
}

/// Runs a program as machine code.
#[derive(Debug)]
pub struct Jit {
    machine: Machine,
    layout: Layout,
    has_output: bool,
    /// The memory of a call: [`Layout`], in words.
    frame: Vec<u64>,
    statics: Vec<u64>,
    static_bytes: usize,
    /// The values, then a byte for each attribute that is 1 if the last call assigned it.
    attributes: Vec<i64>,
    attribute_count: usize,
    /// Fuel at the start of each call.
    fuel: u32,
}

impl Jit {
    /// Compiles a program of [`qfabric_ecode::compile`]. Statics have their initial values and attributes are 0.
    pub fn new(program: &Program, limits: Limits) -> Result<Jit, JitError> {
        let layout = Layout::of(program);
        Ok(Jit {
            machine: Machine::compile(&assemble(program, limits)?)?,
            has_output: program.output.is_some(),
            frame: vec![0; layout.size as usize / 8],
            layout,
            statics: words(&program.statics),
            static_bytes: program.statics.len(),
            attributes: vec![0; program.attributes.len() + program.attributes.len().div_ceil(8)],
            attribute_count: program.attributes.len(),
            fuel: limits.fuel,
        })
    }

    fn prepare(&mut self, input: &[u8], context: &CallContext, delivery: &mut Delivery<'_>) {
        assert_eq!(input.len(), self.layout.input_bytes as usize, "an event has the length of the input format");
        bytes_mut(&mut self.frame)[self.layout.input as usize..][..input.len()].copy_from_slice(input);
        self.attributes[self.attribute_count..].fill(0);
        let frame = &mut self.frame;
        frame[word::STATICS] = self.statics.as_mut_ptr() as u64;
        frame[word::ATTRIBUTES] = self.attributes.as_mut_ptr() as u64;
        frame[word::NOW] = context.now;
        frame[word::PID_CPU] = u64::from(context.pid as u32) | u64::from(context.cpu as u32) << 32;
        frame[word::DELIVERY] = std::ptr::from_mut(delivery) as u64;
        frame[word::FAULT] = 0;
    }
}

impl Engine for Jit {
    fn name(&self) -> &'static str {
        "jit"
    }

    #[allow(unsafe_code)] // machine code
    fn call(&mut self, input: &[u8], context: &CallContext, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
        let mut delivery = Delivery { sink, panic: None };
        self.prepare(input, context, &mut delivery);
        // SAFETY: the frame has this program's layout, and `prepare` has just set the host's words to addresses of
        // memory that `self` and this function own and do not access until the code returns.
        let verdict = unsafe { self.machine.run(&mut self.frame) };
        if let Some(panic) = delivery.panic {
            resume_unwind(panic);
        }
        match Fault::from_code(self.frame[word::FAULT] as u32) {
            Some(fault) => Err(fault),
            None => Ok(verdict as i64),
        }
    }

    fn output(&self) -> &[u8] {
        let bytes = if self.has_output { self.layout.output_bytes } else { 0 };
        &bytes_of(&self.frame)[self.layout.output as usize..][..bytes as usize]
    }

    fn statics(&self) -> &[u8] {
        &bytes_of(&self.statics)[..self.static_bytes]
    }

    fn attributes(&mut self) -> &mut [i64] {
        &mut self.attributes[..self.attribute_count]
    }

    fn assigned(&self) -> u64 {
        let marks = self.attributes[self.attribute_count..].iter().flat_map(|word| word.to_ne_bytes());
        marks.take(64).zip(0..).fold(0, |mask, (mark, number)| mask | u64::from(mark) << number)
    }

    fn looped(&self) -> u32 {
        self.fuel.saturating_sub(self.frame[Layout::FUEL as usize / 8] as u32)
    }
}

/// The bytes as words; the last word is padded with zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

#[allow(unsafe_code)] // the standard library has no safe view of words as bytes
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: both views cover the same memory, and any byte at any address is valid.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[allow(unsafe_code)] // the standard library has no safe view of words as bytes
fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: both views cover the same memory with the same lifetime; any bytes and any words are valid.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}
