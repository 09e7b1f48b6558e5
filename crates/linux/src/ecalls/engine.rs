//! E-code run by the kernel on demand: for `ecode run --engine kernel`, conformance tests and benchmarks.

use std::time::Duration;

use qfabric_ecode::{Engine, Fault, Limits, Program, World};

use super::InstallError;

/// A program in the kernel, run by `BPF_PROG_TEST_RUN`. Needs no hook.
#[derive(Debug)]
pub struct KernelEngine {}

impl KernelEngine {
    /// Generates, loads and verifies.
    pub fn new(program: &Program, limits: Limits) -> Result<KernelEngine, InstallError> {
        let _ = (program, limits);
        Err(InstallError::Steps("not built yet".into()))
    }

    /// What loading took: verifier and JIT of the kernel.
    pub fn load_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Mean time of one of `repeat` calls on the same input, as the kernel measures it.
    pub fn measure(&mut self, input: &[u8], repeat: u32) -> std::io::Result<Duration> {
        let _ = (input, repeat);
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl Engine for KernelEngine {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn call(&mut self, input: &[u8], world: &World, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
        let _ = (input, world, sink);
        Ok(1)
    }

    fn output(&self) -> &[u8] {
        &[]
    }

    fn statics(&self) -> &[u8] {
        &[]
    }

    fn attributes(&mut self) -> &mut [i64] {
        &mut []
    }
}
