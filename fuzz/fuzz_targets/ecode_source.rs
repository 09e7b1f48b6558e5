//! Any text is answered: by a program within the limits that runs and can be laid out, or by errors that can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qfabric_ecode::bpf::measure;
use qfabric_ecode::{Engine, Environment, Interpreter, Limits, World, compile, pretty};

fuzz_target!(|text: &str| {
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
});
