//! Where everything of a call lies in its frame.

use crate::hir::Program;

/// The frame of a call: one block of memory, private to it, 8-byte aligned. Offsets and sizes in bytes.
///
/// ```text
/// 0 fuel │ 8 emissions │ 16 host's own words │ 64 temporaries │ input │ output │ locals
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the host puts the event before the call.
    pub input: u32,
    /// Length of the event.
    pub input_bytes: u32,
    /// Where the output is; the input's place in a program without output format.
    pub output: u32,
    /// Length of what is emitted or passed on: of the output, or of the input.
    pub output_bytes: u32,
    /// Of the whole frame, a multiple of 8.
    pub size: u32,
}

impl Layout {
    /// Turns that may still be taken (u64).
    pub const FUEL: u32 = 0;
    /// Emissions that may still be made (u64).
    pub const EMISSIONS: u32 = 8;
    /// Words that the generated code never touches: the host's.
    pub const HOST: u32 = 16;
    /// How many bytes of them.
    pub const HOST_BYTES: u32 = 48;

    /// The frame of a program.
    pub fn of(program: &Program) -> Layout {
        let input = Self::HOST + Self::HOST_BYTES;
        let input_bytes = program.input.size;
        let after = (input + input_bytes).next_multiple_of(8);
        Layout { input, input_bytes, output: after, output_bytes: 0, size: after }
    }
}
