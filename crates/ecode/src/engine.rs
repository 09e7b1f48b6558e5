//! What every engine offers, and what a call sees of the world.

use crate::hir::Fault;

/// What the host says to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub now: u64,
    /// The process.
    pub pid: i32,
    /// The CPU.
    pub cpu: i32,
}

/// Bounds of a call. Named by the refusals and faults they lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions that the turns of all loops of one call may take, together.
    pub fuel: u32,
    /// Events one call may emit.
    pub emissions: u32,
}

impl Default for Limits {
    /// 200,000 instructions: about 0.2 ms. 16 emissions.
    fn default() -> Self {
        Limits { fuel: 200_000, emissions: 16 }
    }
}

/// Runs one program, and keeps what persists between its calls. All engines give the same answers.
pub trait Engine {
    /// Its name: `interp`, `jit` or `kernel`.
    fn name(&self) -> &'static str;

    /// One call: `input` has the length of the program's input format; each emitted event goes to `sink`. Gives
    /// the verdict. Allocates nothing.
    fn call(&mut self, input: &[u8], world: &World, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault>;

    /// The output as the last call left it; empty where the program has none.
    fn output(&self) -> &[u8];

    /// What persists.
    fn statics(&self) -> &[u8];

    /// The attributes' values, by number.
    fn attributes(&mut self) -> &mut [i64];
}
