//! The host of generated code in user space: the host's words in the frame, and a helper that delivers events.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use qfabric_ecode::bpf::{Alu, Asm, Exits, Host, Label, Layout, Reg, Size};
use qfabric_ecode::hir::Builtin;

/// The indices of the host's words in the frame, in 64-bit words from its start.
pub(crate) mod word {
    use qfabric_ecode::bpf::Layout;
    const FIRST: usize = Layout::HOST as usize / 8;
    /// Address of the statics.
    pub(crate) const STATICS: usize = FIRST;
    /// Address of the attributes.
    pub(crate) const ATTRIBUTES: usize = FIRST + 1;
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub(crate) const NOW: usize = FIRST + 2;
    /// The process id in the lower half, the CPU in the upper half.
    pub(crate) const PID_CPU: usize = FIRST + 3;
    /// Address of the [`super::Delivery`].
    pub(crate) const DELIVERY: usize = FIRST + 4;
    /// The code of the fault that ended the call, or 0.
    pub(crate) const FAULT: usize = FIRST + 5;
}

/// The helper number of [`deliver`] in generated code.
pub(crate) const DELIVER: u32 = 1;

/// The receiver of emitted events.
pub(crate) struct Delivery<'a> {
    pub sink: &'a mut dyn FnMut(&[u8]),
    /// The panic of `sink`. Machine code cannot be unwound, so the panic continues after the call.
    pub panic: Option<Box<dyn Any + Send>>,
}

impl Delivery<'_> {
    fn take(&mut self, event: &[u8]) {
        if self.panic.is_none() {
            self.panic = catch_unwind(AssertUnwindSafe(|| (self.sink)(event))).err();
        }
    }
}

/// Delivers an event. Called by generated code with the delivery, the event and the event's length.
///
/// # Safety
/// No other code may use `delivery` during the call, and `event` must have `bytes` bytes that no other code writes
/// meanwhile.
#[allow(unsafe_code)] // takes addresses from generated code
unsafe extern "sysv64" fn deliver(delivery: *mut Delivery<'_>, event: *const u8, bytes: usize) {
    // SAFETY: only `emit` generates this call. It passes the delivery that `Jit::call` put into the frame, which
    // lives and is not borrowed elsewhere while the code runs, and a range inside the frame, which no code writes
    // while this function runs.
    unsafe { (*delivery).take(std::slice::from_raw_parts(event, bytes)) }
}

/// The function that generated code actually calls. `rbpf` calls with a stack that is 8 bytes off the alignment on
/// which compiled Rust relies, so this function aligns the stack and then calls [`deliver`].
///
/// # Safety
/// The same conditions as for [`deliver`], whose arguments it passes on. Only for generated code.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[allow(unsafe_code)] // aligns the stack
pub(crate) unsafe extern "sysv64" fn aligned_deliver() {
    // SAFETY: arguments stay in their registers; the stack is aligned for the call and restored before the return.
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "and rsp, -16",
        "call {deliver}",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
        deliver = sym deliver,
    )
}

/// Starts the program; r1 is the address of the frame.
pub(crate) fn prologue(asm: &mut Asm) {
    asm.mov(Reg::R6, Reg::R1);
    asm.load(Size::D, Reg::R7, Reg::R6, offset(word::STATICS));
    asm.load(Size::D, Reg::R8, Reg::R6, offset(word::ATTRIBUTES));
}

/// Ends the program: a verdict is the result, the code of a fault goes into the frame.
pub(crate) fn epilogue(asm: &mut Asm, exits: Exits) {
    asm.bind(exits.fault);
    asm.store(Size::D, Reg::R6, offset(word::FAULT), Reg::R0);
    asm.bind(exits.done);
    asm.exit();
}

/// The [`Host`] for user space.
pub(crate) struct User {
    /// Offset of the marks of assigned attributes from the attributes: one byte for each attribute.
    pub marks: i16,
}

impl Host for User {
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, layout: &Layout) {
        match what {
            Builtin::Now => asm.load(Size::D, Reg::R0, Reg::R6, offset(word::NOW)),
            Builtin::Pid => {
                asm.load(Size::W, Reg::R0, Reg::R6, offset(word::PID_CPU));
                asm.alu64(Alu::Lsh, Reg::R0, 32);
                asm.alu64(Alu::Arsh, Reg::R0, 32);
            }
            Builtin::Cpu => {
                asm.load(Size::D, Reg::R0, Reg::R6, offset(word::PID_CPU));
                asm.alu64(Alu::Arsh, Reg::R0, 32);
            }
            Builtin::Emit => emit(asm, layout),
        }
    }

    fn set_attribute(&mut self, asm: &mut Asm, offset: i16, value: Reg) {
        asm.store(Size::D, Reg::R8, offset, value);
        asm.store_imm(Size::B, Reg::R8, self.marks + offset / 8, 1);
    }

    fn add_attribute(&mut self, asm: &mut Asm, offset: i16) {
        asm.load(Size::D, Reg::R0, Reg::R8, offset);
        asm.alu64(Alu::Add, Reg::R0, Reg::R1);
        asm.store(Size::D, Reg::R8, offset, Reg::R0);
    }

    /// Empty: in user space only fuel bounds loops.
    fn loop_guard(&mut self, _: &mut Asm, _: Label) {}
}

fn emit(asm: &mut Asm, layout: &Layout) {
    asm.load(Size::D, Reg::R1, Reg::R6, offset(word::DELIVERY));
    asm.mov(Reg::R2, Reg::R6);
    asm.alu64(Alu::Add, Reg::R2, layout.output as i32);
    asm.mov(Reg::R3, layout.output_bytes as i32);
    asm.call(DELIVER as i32);
}

fn offset(word: usize) -> i16 {
    8 * word as i16
}
