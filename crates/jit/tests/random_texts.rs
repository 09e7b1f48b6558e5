//! Random programs in text, and heavy programs: machine code must give the results of the interpreter.

use qfabric_ecode::testing::texts::{Text, compiled};
use qfabric_ecode::testing::{heavy, seen};
use qfabric_ecode::{Interpreter, Limits};
use qfabric_jit::Jit;

fn check_agreement(wild: bool) {
    let limits = Limits { fuel: 50_000, emissions: 3 };
    for seed in 0..rounds() {
        let text = Text::random(seed, wild).ecode();
        let Some(program) = compiled(&text, seed) else { continue };
        let mut jit = Jit::new(&program, limits).unwrap();
        let mut interpreter = Interpreter::new(&program, limits);
        let (expected, found) = (seen(&mut interpreter, &program, seed), seen(&mut jit, &program, seed));
        assert_eq!(expected, found, "seed {seed}\n{text}");
    }
}

#[test]
fn machine_code_of_tame_texts_gives_the_results_of_the_interpreter() {
    check_agreement(false);
}

#[test]
fn machine_code_of_wild_texts_gives_the_results_of_the_interpreter() {
    check_agreement(true);
}

#[test]
fn heavy_programs_compile_and_give_the_results_of_the_interpreter() {
    for (name, text) in heavy::all() {
        let program = compiled(&text, 0).expect("a heavy program is within the limits");
        let mut jit = Jit::new(&program, Limits::default()).unwrap();
        let mut interpreter = Interpreter::new(&program, Limits::default());
        assert_eq!(seen(&mut interpreter, &program, 1), seen(&mut jit, &program, 1), "{name}");
    }
}

fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(500)
}
