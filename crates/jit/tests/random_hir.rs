//! Random checked programs do the same as machine code and in the interpreter, and are no longer than
//! was measured.

mod maker;

use qfabric_ecode::bpf::{Asm, Exits, Host, Label, Layout, Reg, generate, measure};
use qfabric_ecode::hir::Builtin;
use qfabric_ecode::{Interpreter, Limits};
use qfabric_jit::Jit;

#[test]
fn machine_code_does_what_the_interpreter_does() {
    let limits = Limits { fuel: 3_000, emissions: 3 };
    for seed in 0..rounds() {
        let program = maker::program(seed);
        let mut jit = Jit::new(&program, limits).unwrap();
        let mut interpreter = Interpreter::new(&program, limits);
        assert_eq!(maker::seen(&mut interpreter, seed), maker::seen(&mut jit, seed), "seed {seed}");
    }
}

/// A host as wordy as hosts may be.
struct Wordy;

impl Wordy {
    fn say(asm: &mut Asm, words: usize) {
        (0..words).for_each(|_| asm.mov(Reg::R0, 0));
    }
}

impl Host for Wordy {
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, _: &Layout) {
        Wordy::say(asm, if what == Builtin::Emit { 256 } else { 12 });
    }

    fn add_attribute(&mut self, asm: &mut Asm, _: i16) {
        Wordy::say(asm, 4);
    }

    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label) {
        asm.may_goto(exhausted);
        Wordy::say(asm, 1);
    }
}

#[test]
fn code_is_never_longer_than_was_measured() {
    for seed in 0..rounds() {
        let program = maker::program(seed);
        let mut asm = Asm::new();
        let exits = Exits { done: asm.label(), fault: asm.label() };
        generate(&mut asm, &program, &mut Wordy, Limits::default(), exits);
        let measured = measure(&program).instructions;
        assert!(asm.len() as u64 <= measured, "seed {seed}: {} instructions, measured {measured}", asm.len());
    }
}

fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}
