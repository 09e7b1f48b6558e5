//! The interface of all engines, and the values that a call can read from the host.

use crate::hir::Fault;

/// Values that the host supplies to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallContext {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub now: u64,
    /// Process id.
    pub pid: i32,
    /// CPU number.
    pub cpu: i32,
}

/// Limits of one call. Refusals and faults name the limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of instructions that all loops of one call may execute together.
    pub fuel: u32,
    /// Largest number of events that one call may emit.
    pub emissions: u32,
}

impl Default for Limits {
    /// 200,000 instructions, which take at most about 0.3 ms, and 16 emissions.
    fn default() -> Self {
        Limits { fuel: 200_000, emissions: 16 }
    }
}

/// Runs one program and keeps its persistent variables between calls. All engines give the same results.
pub trait Engine {
    /// `interp`, `jit` or `kernel`.
    fn name(&self) -> &'static str;

    /// Runs the program once and returns its verdict. `input` must have the length of the program's input format.
    /// Passes each emitted event to `sink`. Allocates no memory.
    fn call(&mut self, input: &[u8], context: &CallContext, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault>;

    /// The output of the last call; empty if the program has no output.
    fn output(&self) -> &[u8];

    /// The contents of the persistent variables.
    fn statics(&self) -> &[u8];

    /// The values of the attributes, by attribute number.
    fn attributes(&mut self) -> &mut [i64];

    /// The attributes that the last call assigned (`attr.a = 1`), as bits by attribute number. The caller stores the
    /// values of these; it adds the changes of the others (`attr.a += 1`), because other handlers may have changed
    /// them in the meantime. 0 for an engine that works on the shared words themselves.
    fn assigned(&self) -> u64 {
        0
    }

    /// Instructions that the loops of the last call executed, in the unit of [`Limits::fuel`]. 0 for an engine that
    /// does not report them.
    fn looped(&self) -> u32 {
        0
    }
}
