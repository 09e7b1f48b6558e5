//! Runs the conformance suite on the engines of user space.

use qfabric_ecode::testing::conformance;
use qfabric_ecode::{Interpreter, Limits};
use qfabric_jit::Jit;

#[test]
fn the_interpreter_conforms() {
    conformance::run(&mut |program| Box::new(Interpreter::new(program, Limits::default())));
}

#[test]
fn machine_code_conforms() {
    conformance::run(&mut |program| Box::new(Jit::new(program, Limits::default()).unwrap()));
}
