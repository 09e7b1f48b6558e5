//! E-code from anywhere.

use qfabric_ecode::bpf::measure;
use qfabric_ecode::{Engine, Environment, Interpreter, Limits, World, compile, pretty};
use qfabric_jit::Jit;

/// Any text is answered: by a program within the limits that runs and can be laid out, or by errors that can be shown.
pub fn ecode_source(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match compile(text, &Environment::default()) {
        Ok(program) => {
            assert!(measure(&program).instructions <= 30_000);
            let mut engine = Interpreter::new(&program, Limits { fuel: 1000, emissions: 4 });
            let event = vec![0x5a; program.input.size as usize];
            let _verdict_or_fault = engine.call(&event, &World::default(), &mut |_| ());
            let laid_out = pretty(text).expect("what compiles can be laid out");
            if laid_out.len() <= 65_536 {
                assert_eq!(pretty(&laid_out).expect("it can be read"), laid_out);
            }
        }
        Err(errors) => assert!(!errors.render("fuzz.ec", text, false).is_empty()),
    }
}

/// Whatever compiles does the same as machine code and in the interpreter. The text ends with a zero, the event follows.
pub fn ecode_engines(bytes: &[u8]) {
    let mut script = crate::Script(bytes);
    let Some(Ok(program)) = script.text().map(|text| compile(text, &Environment::default())) else { return };
    let limits = Limits { fuel: 1_000, emissions: 3 };
    let mut jit = Jit::new(&program, limits).expect("what is accepted fits");
    let mut interpreter = Interpreter::new(&program, limits);
    let mut input = vec![0x83; program.input.size as usize];
    let given = script.0.len().min(input.len());
    input[..given].copy_from_slice(&script.0[..given]);
    let seen = |engine: &mut dyn Engine| {
        let mut emitted = Vec::new();
        let answer = engine.call(&input, &World::default(), &mut |event| emitted.push(event.to_vec()));
        (answer, emitted, engine.output().to_vec(), engine.statics().to_vec(), engine.attributes().to_vec())
    };
    // Twice: what a call leaves behind is seen by the next.
    for _ in 0..2 {
        assert_eq!(seen(&mut interpreter), seen(&mut jit));
    }
}
