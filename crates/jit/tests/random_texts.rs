//! Random programs in text, and heavy ones: machine code gives what the interpreter gives.

use qfabric_ecode::testing::texts::{Text, compiled};
use qfabric_ecode::testing::{heavy, seen};
use qfabric_ecode::{Interpreter, Limits};
use qfabric_jit::Jit;

fn agree(wild: bool) {
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
fn machine_code_of_tame_texts_does_what_the_interpreter_does() {
    agree(false);
}

#[test]
fn machine_code_of_wild_texts_does_what_the_interpreter_does() {
    agree(true);
}

#[test]
fn heavy_programs_are_taken_and_give_the_same() {
    for (name, text) in heavy::all() {
        let program = compiled(&text, 0).expect("it is within the limits");
        let mut jit = Jit::new(&program, Limits::default()).unwrap();
        let mut interpreter = Interpreter::new(&program, Limits::default());
        assert_eq!(seen(&mut interpreter, &program, 1), seen(&mut jit, &program, 1), "{name}");
    }
}

fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(500)
}
