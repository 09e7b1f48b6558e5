//! Random checked programs give the same results as machine code and in the interpreter, and their code is at most
//! as long as [`measure`] computed.

mod maker;

use qfabric_ecode::bpf::{Asm, Exits, Host, Label, Layout, Reg, generate, measure};
use qfabric_ecode::hir::Builtin;
use qfabric_ecode::{Interpreter, Limits};
use qfabric_jit::Jit;

#[test]
fn machine_code_gives_the_results_of_the_interpreter() {
    let limits = Limits { fuel: 3_000, emissions: 3 };
    for seed in 0..rounds() {
        let program = maker::program(seed);
        let mut jit = Jit::new(&program, limits).unwrap();
        let mut interpreter = Interpreter::new(&program, limits);
        assert_eq!(maker::seen(&mut interpreter, seed), maker::seen(&mut jit, seed), "seed {seed}");
    }
}

/// A host that emits the most instructions that a host may emit.
struct Longest;

impl Longest {
    fn emit(asm: &mut Asm, words: usize) {
        (0..words).for_each(|_| asm.mov(Reg::R0, 0));
    }
}

impl Host for Longest {
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, _: &Layout) {
        Longest::emit(asm, if what == Builtin::Emit { 256 } else { 12 });
    }

    fn add_attribute(&mut self, asm: &mut Asm, _: i16) {
        Longest::emit(asm, 4);
    }

    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label) {
        asm.may_goto(exhausted);
        Longest::emit(asm, 1);
    }
}

#[test]
fn code_is_at_most_as_long_as_measured() {
    for seed in 0..rounds() {
        let program = maker::program(seed);
        let mut asm = Asm::new();
        let exits = Exits { done: asm.label(), fault: asm.label() };
        generate(&mut asm, &program, &mut Longest, Limits::default(), exits);
        let measured = measure(&program).instructions;
        assert!(asm.len() as u64 <= measured, "seed {seed}: {} instructions, measured {measured}", asm.len());
    }
}

fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}
