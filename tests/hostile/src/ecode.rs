//! Properties of E-code from an unknown author.

use qfabric_ecode::bpf::measure;
use qfabric_ecode::{CallContext, Engine, Environment, Interpreter, Limits, compile, pretty};
use qfabric_jit::Jit;

/// Any text compiles to a program within the limits, which runs and can be formatted, or is refused with errors
/// that can be printed.
pub fn ecode_source(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match compile(text, &Environment::default()) {
        Ok(program) => {
            assert!(measure(&program).instructions <= 30_000);
            let mut engine = Interpreter::new(&program, Limits { fuel: 1000, emissions: 4 });
            let event = vec![0x5a; program.input.size as usize];
            let _verdict_or_fault = engine.call(&event, &CallContext::default(), &mut |_| ());
            let formatted = pretty(text).expect("text that compiles can be formatted");
            if formatted.len() <= 65_536 {
                assert_eq!(pretty(&formatted).expect("formatted text can be formatted again"), formatted);
            }
        }
        Err(errors) => assert!(!errors.render("fuzz.ec", text, false).is_empty()),
    }
}

/// A program gives the same results as machine code and in the interpreter. The text ends with a zero byte; the
/// rest of the input is the event.
pub fn ecode_engines(bytes: &[u8]) {
    let mut script = crate::Script(bytes);
    let Some(Ok(program)) = script.text().map(|text| compile(text, &Environment::default())) else { return };
    let limits = Limits { fuel: 1_000, emissions: 3 };
    let mut jit = Jit::new(&program, limits).expect("an accepted program fits");
    let mut interpreter = Interpreter::new(&program, limits);
    let mut input = vec![0x83; program.input.size as usize];
    let given = script.0.len().min(input.len());
    input[..given].copy_from_slice(&script.0[..given]);
    let results = |engine: &mut dyn Engine| {
        let mut emitted = Vec::new();
        let answer = engine.call(&input, &CallContext::default(), &mut |event| emitted.push(event.to_vec()));
        (answer, emitted, engine.output().to_vec(), engine.statics().to_vec(), engine.attributes().to_vec())
    };
    // Two calls, because the second call depends on the state that the first call left.
    for _ in 0..2 {
        assert_eq!(results(&mut interpreter), results(&mut jit));
    }
}
