//! Defines the sources of an event's fields, and generates the code that fetches them.
//!
//! Registers while an event is made: r6 the frame, r9 the handler's state ([`super::state`]), r10 the stack. r7 and r8
//! are free for the service's own code. r0 to r5 are lost at every call. The hook's context is at [`CONTEXT`] on the
//! stack.

use std::collections::BTreeSet;

use qfabric_ecode::bpf::{Alu, Asm, Jmp, Label, Reg, Size};
use qfabric_types::format::Format;

use super::Unsupported;
use super::options::Options;
use super::services::{At, Spec};
use super::state;
use crate::bpf::{Btf, Shape, TypeId};

/// Numbers of the kernel's helper functions (include/uapi/linux/bpf.h).
pub(super) mod helper {
    pub(crate) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(crate) const KTIME_GET_NS: i32 = 5;
    pub(crate) const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub(crate) const SKB_STORE_BYTES: i32 = 9;
    pub(crate) const TAIL_CALL: i32 = 12;
    pub(crate) const GET_CURRENT_PID_TGID: i32 = 14;
    pub(crate) const SKB_LOAD_BYTES: i32 = 26;
    pub(crate) const SKB_CHANGE_TAIL: i32 = 38;
    pub(crate) const SKB_PULL_DATA: i32 = 39;
    pub(crate) const GET_SOCKET_COOKIE: i32 = 46;
    pub(crate) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
    pub(crate) const SOCK_HASH_UPDATE: i32 = 70;
    pub(crate) const SK_REDIRECT_HASH: i32 = 72;
    pub(crate) const SK_RELEASE: i32 = 86;
    pub(crate) const SKC_LOOKUP_TCP: i32 = 99;
    pub(crate) const SK_STORAGE_GET: i32 = 107;
    pub(crate) const PROBE_READ_KERNEL: i32 = 113;
    pub(crate) const SEND_SIGNAL_THREAD: i32 = 117;
    pub(crate) const SEQ_WRITE: i32 = 127;
    pub(crate) const RINGBUF_OUTPUT: i32 = 130;
    pub(crate) const RINGBUF_RESERVE: i32 = 131;
    pub(crate) const RINGBUF_SUBMIT: i32 = 132;
    pub(crate) const SKC_TO_TCP_SOCK: i32 = 137;
}

/// Map number of the handler's state.
pub(super) const STATE: u32 = 0;
/// Map number of the session's memory_down.
pub(super) const DOWN: u32 = 1;
/// Map number of the positions of the session's handlers of deferred values ([`super::deferred`]).
pub(super) const POSITIONS: u32 = 2;
/// Stack offset of the hook's context.
pub(super) const CONTEXT: i16 = -8;

/// The source of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Time of CLOCK_MONOTONIC in nanoseconds.
    Now,
    /// The CPU number.
    Cpu,
    /// The process that runs on this CPU.
    Tgid,
    /// An argument of the tracepoint, by number; must be an integer.
    Arg(u8),
    /// A member of the structure that an argument points to; members are separated by `.`, pointers are followed.
    Path(u8, &'static str),
    /// 32 bits of a packet's context, by offset.
    Skb(u8),
    /// A constant.
    Number(i32),
    /// The service's own code writes the field.
    Made,
}

/// The way to a member: in each step, the offset to add and the size to load there.
pub(super) type Steps = Vec<(u32, Size)>;

impl Source {
    /// Finds the members on the path; fails if one is missing.
    pub(super) fn resolve(self, at: At, btf: &Btf) -> Result<Steps, Unsupported> {
        let At::Tracepoint(name) = at else { return Ok(Steps::new()) };
        let tracepoint = btf.tracepoint(name).ok_or_else(|| missing(&format!("the tracepoint {name}")))?;
        let (number, path) = match self {
            Source::Arg(number) => (number, None),
            Source::Path(number, path) => (number, Some(path)),
            _ => return Ok(Steps::new()),
        };
        let argument = btf.argument(tracepoint, number.into());
        let argument = argument.ok_or_else(|| missing(&format!("argument {number} of the tracepoint {name}")))?;
        match (path, btf.shape(argument)) {
            (None, _) => Ok(Steps::new()),
            (Some(path), Shape::Pointer(to)) => steps(btf, to, path),
            _ => Err(missing(&format!("a structure as argument {number} of the tracepoint {name}"))),
        }
    }
}

pub(super) fn missing(what: &str) -> Unsupported {
    Unsupported {
        what: format!("this kernel does not have {what}"),
        remedy: "use a kernel that is configured and built with it and with BTF, or another service".into(),
    }
}

/// The number by which programs call a function of the kernel.
pub(super) fn function_number(btf: &Btf, name: &str) -> Result<i32, Unsupported> {
    let found = btf.function(name).and_then(|id| i32::try_from(id.0).ok());
    found.ok_or_else(|| missing(&format!("the function {name}")))
}

/// The way to a member of the structure with this name.
pub(super) fn member_steps(btf: &Btf, structure: &str, path: &str) -> Result<Steps, Unsupported> {
    let found = btf.structure(structure).ok_or_else(|| missing(&format!("a structure {structure}")))?;
    steps(btf, found, path)
}

fn steps(btf: &Btf, structure: TypeId, path: &str) -> Result<Steps, Unsupported> {
    let (mut ty, mut offset, mut steps) = (structure, 0, Steps::new());
    for name in path.split('.') {
        if let Shape::Pointer(to) = btf.shape(ty) {
            steps.push((offset, Size::D));
            (ty, offset) = (to, 0);
        }
        let member = btf.member(ty, name).ok_or_else(|| missing(&format!("a member {name} of {path}")))?;
        (ty, offset) = (member.ty, offset + member.offset);
    }
    let size = match btf.shape(ty) {
        Shape::Int(1) => Size::B,
        Shape::Int(2) => Size::H,
        Shape::Int(4) => Size::W,
        _ => Size::D,
    };
    steps.push((offset, size));
    Ok(steps)
}

/// Generator of the code that makes an event.
pub(super) struct Prologue<'a> {
    pub asm: &'a mut Asm,
    pub options: Options<'a>,
    /// Jumped to if this is not an event of the handler, before the state is taken.
    pub skip: Label,
    /// Jumped to if this is not an event of the handler, after the state is taken.
    pub leave: Label,
    pub(super) btf: &'a Btf,
    pub(super) at: At,
    pub(super) format: &'a Format,
    /// Names of the fields that a step uses.
    pub(super) wanted: &'a BTreeSet<String>,
    /// Offset of the event from r6.
    pub(super) input: u32,
    /// Number of this handler among the session's handlers of deferred values.
    pub(super) deferred_handler: usize,
}

impl Prologue<'_> {
    /// Bounds the number of bytes in r4 by `most`, and stores it in the field `data_len`, if a step uses it: if no step
    /// reads the bytes themselves, the length is enough. Without bytes, continues at `done`.
    pub(super) fn data_len(&mut self, most: i32, done: Label) {
        let fits = self.asm.label();
        self.asm.jump_if(Jmp::SLe, Reg::R4, 0, done);
        self.asm.jump_if(Jmp::Le, Reg::R4, most, fits);
        self.asm.mov(Reg::R4, most);
        self.asm.bind(fits);
        if let Some(at) = self.wanted("data_len") {
            self.asm.store(Size::W, Reg::R6, at, Reg::R4);
        }
    }

    /// Offset of the field from r6; `None` if no step uses the field.
    pub(super) fn wanted(&self, field: &str) -> Option<i16> {
        let offset = self.format.field(field).expect("a service asks for its own fields").offset;
        self.wanted.contains(field).then_some((self.input + offset) as i16)
    }

    /// Sets the field to zero.
    pub(super) fn clear(&mut self, field: &str) {
        let Some(at) = self.wanted(field) else { return };
        let bytes = field_bytes(self.format, field);
        for (offset, size) in pieces(bytes) {
            self.asm.store_imm(size, Reg::R6, at + offset, 0);
        }
    }

    pub(super) fn load_context(&mut self, dst: Reg) {
        self.asm.load(Size::D, dst, Reg::R10, CONTEXT);
    }

    pub(super) fn load_argument(&mut self, dst: Reg, number: u8) {
        self.load_context(dst);
        self.asm.load(Size::D, dst, dst, i16::from(number) * 8);
    }

    /// Loads into `dst` a member of the structure that an argument points to.
    pub(super) fn load_path(&mut self, dst: Reg, number: u8, path: &'static str) -> Result<(), Unsupported> {
        let steps = Source::Path(number, path).resolve(self.at, self.btf)?;
        self.load_argument(dst, number);
        self.follow(dst, dst, &steps);
        Ok(())
    }

    /// Loads into `dst` 32 bits at `offset` of a member of the structure that an argument points to.
    pub(super) fn load_word_of_path(
        &mut self,
        dst: Reg,
        number: u8,
        path: &'static str,
        offset: i16,
    ) -> Result<(), Unsupported> {
        let mut steps = Source::Path(number, path).resolve(self.at, self.btf)?;
        let (last, size) = steps.last_mut().expect("a path has a member");
        (*last, *size) = (last.wrapping_add_signed(offset.into()), Size::W);
        self.load_argument(dst, number);
        self.follow(dst, dst, &steps);
        Ok(())
    }

    /// Loads into `dst` a member of the structure `structure` that `base` points to.
    pub(super) fn load_member(&mut self, dst: Reg, base: Reg, structure: &str, path: &str) -> Result<(), Unsupported> {
        let steps = member_steps(self.btf, structure, path)?;
        self.follow(dst, base, &steps);
        Ok(())
    }

    fn follow(&mut self, dst: Reg, base: Reg, steps: &Steps) {
        let mut from = base;
        for &(offset, size) in steps {
            self.asm.load(size, dst, from, offset as i16);
            from = dst;
        }
    }

    /// Converts 2 or 4 bytes from network byte order to the host's (little endian). Loses r0.
    pub(super) fn swap(&mut self, reg: Reg, size: Size) {
        debug_assert!(reg != Reg::R0, "r0 is used as an intermediate register");
        let bits = 8 * size.bytes() as i32;
        self.asm.mov(Reg::R0, reg);
        self.asm.alu64(Alu::And, Reg::R0, 0xff);
        for shift in (8..bits).step_by(8) {
            self.asm.alu64(Alu::Lsh, Reg::R0, 8);
            self.asm.alu64(Alu::Rsh, reg, 8);
            if shift + 8 < bits {
                self.swap_byte(reg);
            }
        }
        self.asm.alu64(Alu::And, reg, 0xff);
        self.asm.alu64(Alu::Or, reg, Reg::R0);
    }

    /// Appends the lowest byte of `reg` to r0. Loses r5.
    fn swap_byte(&mut self, reg: Reg) {
        self.asm.mov(Reg::R5, reg);
        self.asm.alu64(Alu::And, Reg::R5, 0xff);
        self.asm.alu64(Alu::Or, Reg::R0, Reg::R5);
    }

    /// Fetches every wanted field.
    pub(super) fn fill(&mut self, spec: &Spec, sources: &[Source]) -> Result<(), Unsupported> {
        let mut argument = None;
        for (field, &source) in spec.fields.iter().zip(sources) {
            if let Some(at) = self.wanted(field.name) {
                self.fetch(source, at, field.bytes(), Size::of_bits(field.ty.bits), &mut argument)?;
            }
        }
        Ok(())
    }

    fn fetch(
        &mut self,
        source: Source,
        at: i16,
        bytes: u32,
        size: Size,
        argument: &mut Option<u8>,
    ) -> Result<(), Unsupported> {
        match source {
            Source::Path(number, _) => return self.fetch_member(source, number, at, bytes, size, argument),
            Source::Number(number) => {
                self.asm.store_imm(size, Reg::R6, at, number);
                return Ok(());
            }
            Source::Made => return Ok(()),
            Source::Now => self.asm.load(Size::D, Reg::R1, Reg::R9, state::TIME),
            Source::Cpu => self.call(helper::GET_SMP_PROCESSOR_ID),
            Source::Tgid => self.tgid(),
            Source::Arg(number) => self.load_argument(Reg::R1, number),
            Source::Skb(offset) => {
                self.load_context(Reg::R1);
                self.asm.load(Size::W, Reg::R1, Reg::R1, offset.into());
            }
        }
        self.asm.store(size, Reg::R6, at, Reg::R1);
        Ok(())
    }

    /// `argument`: number of the argument whose pointer is in r8, so that several members need only one load of it.
    fn fetch_member(
        &mut self,
        source: Source,
        number: u8,
        at: i16,
        bytes: u32,
        size: Size,
        argument: &mut Option<u8>,
    ) -> Result<(), Unsupported> {
        let steps = source.resolve(self.at, self.btf)?;
        if *argument != Some(number) {
            self.load_argument(Reg::R8, number);
            *argument = Some(number);
        }
        let (last, before) = steps.split_last().expect("a path has a member");
        self.follow(Reg::R2, Reg::R8, &before.to_vec());
        let base = if before.is_empty() { Reg::R8 } else { Reg::R2 };
        if bytes <= 8 {
            self.asm.load(last.1, Reg::R1, base, last.0 as i16);
            self.asm.store(size, Reg::R6, at, Reg::R1);
            return Ok(());
        }
        for (offset, size) in pieces(bytes) {
            self.asm.load(size, Reg::R1, base, last.0 as i16 + offset);
            self.asm.store(size, Reg::R6, at + offset, Reg::R1);
        }
        Ok(())
    }

    /// r1 = the process that runs on this CPU.
    pub(super) fn tgid(&mut self) {
        self.call(helper::GET_CURRENT_PID_TGID);
        self.asm.alu64(Alu::Rsh, Reg::R1, 32);
    }

    fn call(&mut self, function: i32) {
        self.asm.call(function);
        self.asm.mov(Reg::R1, Reg::R0);
    }

    /// r1 = the process that `source` names.
    pub(super) fn process(&mut self, source: Source) -> Result<(), Unsupported> {
        match source {
            Source::Path(number, path) => self.load_path(Reg::R1, number, path),
            Source::Arg(number) => {
                self.load_argument(Reg::R1, number);
                Ok(())
            }
            _ => {
                self.tgid();
                Ok(())
            }
        }
    }
}

fn field_bytes(format: &Format, name: &str) -> u32 {
    let field = format.field(name).expect("a service asks for its own fields");
    let qfabric_types::format::Kind::Scalar(scalar) = &field.kind else { return 0 };
    scalar.bytes() * field.dims.iter().product::<u32>()
}

/// Offsets and sizes of loads that cover `bytes`.
pub(super) fn pieces(bytes: u32) -> impl Iterator<Item = (i16, Size)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let size = match bytes - at {
            0 => return None,
            8.. => Size::D,
            4.. => Size::W,
            2.. => Size::H,
            1 => Size::B,
        };
        let here = at as i16;
        at += size.bytes();
        Some((here, size))
    })
}
