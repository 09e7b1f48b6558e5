//! Random checked programs do the same as machine code and in the interpreter.

mod maker;

use qfabric_ecode::{Interpreter, Limits};
use qfabric_jit::Jit;

#[test]
fn machine_code_does_what_the_interpreter_does() {
    let limits = Limits { fuel: 60, emissions: 3 };
    for seed in 0..rounds() {
        let program = maker::program(seed);
        let mut jit = Jit::new(&program, limits).unwrap();
        let mut interpreter = Interpreter::new(&program, limits);
        assert_eq!(maker::seen(&mut interpreter, seed), maker::seen(&mut jit, seed), "seed {seed}");
    }
}

#[test]
fn dump() {
    if let Ok(seed) = std::env::var("SEED") {
        let program = maker::program(seed.parse().unwrap());
        for f in &program.functions { println!("{f:?}"); }
    }
}

fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}
