//! Whatever compiles does the same as machine code and in the interpreter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qfabric_ecode::{Engine, Environment, Interpreter, Limits, World, compile};
use qfabric_jit::Jit;

fuzz_target!(|text: &str| {
    let Ok(program) = compile(text, &Environment::default()) else { return };
    let limits = Limits { fuel: 1_000, emissions: 3 };
    let mut jit = Jit::new(&program, limits).expect("what is accepted fits");
    let mut interpreter = Interpreter::new(&program, limits);
    let input = vec![0x83; program.input.size as usize];
    let seen = |engine: &mut dyn Engine| {
        let mut emitted = Vec::new();
        let answer = engine.call(&input, &World::default(), &mut |event| emitted.push(event.to_vec()));
        (answer, emitted, engine.output().to_vec(), engine.statics().to_vec(), engine.attributes().to_vec())
    };
    assert_eq!(seen(&mut interpreter), seen(&mut jit));
});
