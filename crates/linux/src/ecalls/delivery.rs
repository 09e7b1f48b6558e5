//! Generates the code that delivers an event: into shared memory, to the ring of user space, or to the CPU scheduler.
//! The code never leaves the chain; if there is no room, it counts the event. r6 is the event's frame, r9 the handler's
//! state; r0 to r5 are lost.

use qfabric_ecode::bpf::{Alu, Asm, Jmp, Label, Reg, Size};
use qfabric_types::memory::{Geometry, HEADER_BYTES, Layout, SLOT_HEADER_BYTES, UpHeader};

use super::by_kernel::{self, SignalCalls, SignalTo};
use super::favour::favour;
use super::ring::{NO_USER, PREFIX, SHARE};
use super::source::{function_number, helper, pieces};
use super::{Unsupported, state};
use crate::bpf::Btf;

/// The owner's part of a memory_up, in memory that no application maps. Offsets in bytes.
pub(super) mod private {
    /// 1 while a writer is active.
    pub(crate) const LOCK: i16 = 0;
    /// Number of events written so far. The area contains a copy, which the application could change.
    pub(crate) const BACK: i16 = 8;
    /// Increases by two with every write to a slot.
    pub(crate) const SERIAL: i16 = 16;
    /// The next slot to try.
    pub(crate) const CURSOR: i16 = 24;
    /// Size of this part.
    pub(crate) const BYTES: u32 = 32;
}

/// Header of a record in the ring to user space: id, time, deadline, then in one word the length and, in the upper
/// half, the user's number ([`NO_USER`]: without a bound). The event follows.
pub(super) const RECORD_HEADER: u32 = 32;
/// Size from which the kernel's own routine copies, in bytes.
const LONG: u32 = 256;
/// A free word on the stack.
pub(super) const SCRATCH: i16 = -16;
/// Stack word of a loop: the number of attempts left to take a lock, or the next server to favour.
pub(super) const TURNS: i16 = -24;
const FORCE_WAKEUP: i32 = 2;

/// Destination of an event. The numbers are those of the program's maps.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A memory_up: its area, its owner's part, its wake ring. `position`: the field that names the slot (offset in the
    /// event, size).
    Memory { area: u32, private: u32, wake: u32, geometry: Geometry, position: Option<(u32, Size)> },
    /// The ring to user space; `id` is the number of the subscription. With a signal, only the events whose signal the
    /// kernel does not send itself.
    Ring { map: u32, id: u64, bound: Option<RingBound>, signal: Option<SignalTo> },
    /// The CPU scheduler: the aim, and the memory in which events are raised.
    Favour { aim: u32, raised: u32 },
}

/// The kernel's functions that a handler may call at its hook, besides the helpers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    /// Interrupts a CPU; its number.
    pub kick: Option<i32>,
    /// Send a signal.
    pub signal: Option<SignalCalls>,
    /// Hold off other threads of the CPU; for programs that the kernel can preempt.
    pub preemption: Option<Preemption>,
}

/// The kernel's functions between which other threads do not take the CPU (Linux 6.10), by their numbers. A record that
/// is reserved and not yet submitted holds up the ring of all users: if the thread of a call could lose its CPU there, a
/// user could stop the events of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preemption {
    off: i32,
    on: i32,
}

impl Preemption {
    /// Fails if this kernel lacks a function.
    pub(super) fn of(btf: &Btf) -> Result<Preemption, Unsupported> {
        let number = |name: &str| function_number(btf, name);
        Ok(Preemption { off: number("bpf_preempt_disable")?, on: number("bpf_preempt_enable")? })
    }
}

impl Functions {
    /// Generates `code`, which no other thread of the CPU interrupts. Loses r0 to r5 before and after it.
    fn unpreempted(self, asm: &mut Asm, code: impl FnOnce(&mut Asm)) {
        if let Some(Preemption { off, .. }) = self.preemption {
            asm.call_kfunc(off);
        }
        code(asm);
        if let Some(Preemption { on, .. }) = self.preemption {
            asm.call_kfunc(on);
        }
    }
}

/// The bound on the bytes of a user's records in a ring: the map with the words of the users, and the user's number.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingBound {
    pub counts: u32,
    pub number: u32,
}

/// Position of an event relative to r6, and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub offset: i16,
    pub bytes: u32,
}

impl Target {
    pub(super) fn deliver(&self, asm: &mut Asm, event: Place, functions: Functions) {
        match *self {
            Target::Ring { map, id, bound, signal } => {
                let sent = asm.label();
                if let (Some(calls), Some(to)) = (functions.signal, signal) {
                    by_kernel::send(asm, calls, to, event, sent);
                }
                functions.unpreempted(asm, |asm| to_ring(asm, map, id, bound, event));
                asm.bind(sent);
            }
            Target::Favour { aim, raised } => {
                functions.unpreempted(asm, |asm| favour(asm, aim, raised, functions.kick));
            }
            Target::Memory { area, private, wake, geometry, position } => {
                let to = ToMemory { asm, area, private, geometry, event };
                to.deliver(wake, position);
            }
        }
    }
}

/// Waits for the lock at `base + offset`; jumps to `busy` if this takes too long. Loses r0. The number of attempts is
/// read from memory, because with a constant the verifier would walk through every attempt.
pub(super) fn lock(asm: &mut Asm, base: Reg, offset: i16, busy: Label) {
    let (spin, got) = (asm.label(), asm.label());
    asm.mov(Reg::R0, 1);
    asm.atomic_xchg(Size::D, base, offset, Reg::R0);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, got);
    asm.load(Size::D, Reg::R0, Reg::R9, state::SPINS);
    asm.store(Size::D, Reg::R10, TURNS, Reg::R0);
    asm.bind(spin);
    asm.may_goto(busy);
    asm.load(Size::D, Reg::R0, Reg::R10, TURNS);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, busy);
    asm.alu64(Alu::Sub, Reg::R0, 1);
    asm.store(Size::D, Reg::R10, TURNS, Reg::R0);
    asm.mov(Reg::R0, 1);
    asm.atomic_xchg(Size::D, base, offset, Reg::R0);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, spin);
    asm.bind(got);
}

/// Releases the lock. Uses an exchange, so that all earlier writes become visible first. Loses r0.
pub(super) fn unlock(asm: &mut Asm, base: Reg, offset: i16) {
    asm.mov(Reg::R0, 0);
    asm.atomic_xchg(Size::D, base, offset, Reg::R0);
}

/// Increments a counter of this handler's state. Loses r0.
pub(super) fn count(asm: &mut Asm, counter: i16) {
    asm.load(Size::D, Reg::R0, Reg::R9, counter);
    asm.alu64(Alu::Add, Reg::R0, 1);
    asm.store(Size::D, Reg::R9, counter, Reg::R0);
}

/// Copies `bytes` from `from + from_offset` to `to + to_offset`. Loses r5; loses r0 to r5 if `bytes` is larger than
/// [`LONG`].
pub(super) fn copy(asm: &mut Asm, (to, to_offset): (Reg, i16), (from, from_offset): (Reg, i16), bytes: u32) {
    if bytes <= LONG {
        for (at, size) in pieces(bytes) {
            asm.load(size, Reg::R5, from, from_offset + at);
            asm.store(size, to, to_offset + at, Reg::R5);
        }
        return;
    }
    asm.mov(Reg::R3, from);
    asm.alu64(Alu::Add, Reg::R3, i32::from(from_offset));
    asm.mov(Reg::R1, to);
    asm.alu64(Alu::Add, Reg::R1, i32::from(to_offset));
    asm.mov(Reg::R2, bytes as i32);
    asm.call(helper::PROBE_READ_KERNEL);
}

fn to_ring(asm: &mut Asm, map: u32, id: u64, bound: Option<RingBound>, event: Place) {
    let (full, done) = (asm.label(), asm.label());
    let bytes = (RECORD_HEADER + event.bytes.next_multiple_of(8)) as i32;
    let taken = bytes + PREFIX as i32;
    if let Some(RingBound { counts, number }) = bound {
        asm.lddw_map_value(Reg::R1, counts, 8 * SHARE);
        asm.load(Size::D, Reg::R2, Reg::R1, 0);
        asm.lddw_map_value(Reg::R1, counts, 8 * number);
        asm.mov(Reg::R0, taken);
        asm.atomic_fetch_add(Size::D, Reg::R1, 0, Reg::R0);
        asm.alu64(Alu::Add, Reg::R0, taken);
        asm.jump_if(Jmp::Gt, Reg::R0, Reg::R2, full);
    }
    asm.lddw_map(Reg::R1, map);
    asm.mov(Reg::R2, bytes);
    asm.mov(Reg::R3, 0);
    asm.call(helper::RINGBUF_RESERVE);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, full);
    asm.lddw(Reg::R1, id as i64);
    asm.store(Size::D, Reg::R0, 0, Reg::R1);
    stamp(asm, Reg::R0, 8);
    let user = bound.map_or(NO_USER, |bound| bound.number);
    asm.lddw(Reg::R1, i64::from(user) << 32 | i64::from(event.bytes));
    asm.store(Size::D, Reg::R0, 24, Reg::R1);
    asm.store(Size::D, Reg::R10, SCRATCH, Reg::R0);
    copy(asm, (Reg::R0, RECORD_HEADER as i16), (Reg::R6, event.offset), event.bytes);
    asm.load(Size::D, Reg::R1, Reg::R10, SCRATCH);
    asm.mov(Reg::R2, 0);
    asm.call(helper::RINGBUF_SUBMIT);
    asm.jump(done);
    asm.bind(full);
    if let Some(RingBound { counts, number }) = bound {
        asm.lddw_map_value(Reg::R1, counts, 8 * number);
        asm.mov(Reg::R0, -taken);
        asm.atomic_add(Size::D, Reg::R1, 0, Reg::R0);
    }
    count(asm, state::DROPPED_RING);
    asm.bind(done);
}

/// Stores time and deadline at `base + offset`. Loses r5.
fn stamp(asm: &mut Asm, base: Reg, offset: i16) {
    for (from, to) in [(state::TIME, offset), (state::DEADLINE, offset + 8)] {
        asm.load(Size::D, Reg::R5, Reg::R9, from);
        asm.store(Size::D, base, to, Reg::R5);
    }
}

struct ToMemory<'a> {
    asm: &'a mut Asm,
    area: u32,
    private: u32,
    geometry: Geometry,
    event: Place,
}

impl ToMemory<'_> {
    /// Locks, writes, publishes, and wakes a sleeping reader. The publishing exchange is a full fence: `waiting` is
    /// read after it, as the reader reads the events after its own fence.
    fn deliver(mut self, wake: u32, position: Option<(u32, Size)>) {
        let (busy, full, unlocked, done) = (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.lddw_map_value(Reg::R1, self.private, 0);
        lock(self.asm, Reg::R1, private::LOCK, busy);
        match self.geometry.layout() {
            Layout::Ring => self.append(full),
            Layout::Bits => self.place(position, full),
        }
        self.raise_flag();
        self.take_waiting();
        self.asm.lddw_map_value(Reg::R1, self.private, 0);
        unlock(self.asm, Reg::R1, private::LOCK);
        self.asm.jump_if(Jmp::Eq, Reg::R3, 0, done);
        self.wake(wake);
        self.asm.jump(done);
        self.asm.bind(full);
        self.asm.lddw_map_value(Reg::R1, self.private, 0);
        unlock(self.asm, Reg::R1, private::LOCK);
        self.asm.jump(unlocked);
        self.asm.bind(busy);
        self.asm.bind(unlocked);
        self.drop_event();
        self.asm.bind(done);
    }

    /// r1: the owner's part.
    fn append(&mut self, full: Label) {
        let asm = &mut *self.asm;
        asm.load(Size::W, Reg::R3, Reg::R1, private::BACK);
        asm.lddw_map_value(Reg::R2, self.area, 0);
        asm.load(Size::W, Reg::R4, Reg::R2, UpHeader::FRONT as i16);
        asm.mov(Reg::R5, Reg::R3);
        asm.alu32(Alu::Sub, Reg::R5, Reg::R4);
        asm.jump_if(Jmp::Ge, Reg::R5, self.geometry.slots() as i32, full);
        asm.mov(Reg::R4, Reg::R3);
        asm.alu64(Alu::And, Reg::R4, self.geometry.slots() as i32 - 1);
        asm.alu32(Alu::Add, Reg::R3, 1);
        asm.store(Size::D, Reg::R10, SCRATCH, Reg::R3);
        self.slot_of(Reg::R4);
        self.asm.store(Size::D, Reg::R2, self.slots(), Reg::R3);
        self.write_slot();
        let asm = &mut *self.asm;
        asm.load(Size::D, Reg::R3, Reg::R10, SCRATCH);
        asm.lddw_map_value(Reg::R1, self.private, 0);
        asm.store(Size::W, Reg::R1, private::BACK, Reg::R3);
        asm.lddw_map_value(Reg::R2, self.area, 0);
        asm.atomic_xchg(Size::W, Reg::R2, UpHeader::BACK as i16, Reg::R3);
    }

    /// r1: the owner's part.
    fn place(&mut self, position: Option<(u32, Size)>, full: Label) {
        let slots = self.geometry.slots() as i32;
        match position {
            Some((offset, size)) => {
                self.asm.load(size, Reg::R3, Reg::R6, self.event.offset + offset as i16);
                self.asm.jump_if(Jmp::Ge, Reg::R3, slots, full);
            }
            None => self.next_slot(full),
        }
        self.asm.store(Size::D, Reg::R10, SCRATCH, Reg::R3);
        self.sequence(1);
        self.write_slot();
        self.sequence(2);
        let asm = &mut *self.asm;
        asm.load(Size::D, Reg::R3, Reg::R10, SCRATCH);
        asm.jump_if(Jmp::Ge, Reg::R3, slots, full);
        self.bit_of(Reg::R3);
        self.asm.atomic_fetch_or(Size::D, Reg::R2, HEADER_BYTES as i16, Reg::R5);
        self.asm.lddw_map_value(Reg::R2, self.area, 0);
    }

    /// r3 = the next slot in turn; jumps to `full` if its bit is still set.
    fn next_slot(&mut self, full: Label) {
        let slots = self.geometry.slots() as i32;
        self.asm.load(Size::D, Reg::R3, Reg::R1, private::CURSOR);
        self.asm.alu64(Alu::And, Reg::R3, slots - 1);
        self.bit_of(Reg::R3);
        self.asm.load(Size::D, Reg::R4, Reg::R2, HEADER_BYTES as i16);
        self.asm.alu64(Alu::And, Reg::R4, Reg::R5);
        self.asm.jump_if(Jmp::Ne, Reg::R4, 0, full);
        self.asm.mov(Reg::R4, Reg::R3);
        self.asm.alu64(Alu::Add, Reg::R4, 1);
        self.asm.store(Size::D, Reg::R1, private::CURSOR, Reg::R4);
    }

    /// r2 = the area plus the offset of the word with the bit of slot `index`; r5 = the bit. Loses r4.
    fn bit_of(&mut self, index: Reg) {
        let asm = &mut *self.asm;
        asm.lddw_map_value(Reg::R2, self.area, 0);
        asm.mov(Reg::R4, index);
        asm.alu64(Alu::Rsh, Reg::R4, 6);
        asm.alu64(Alu::Lsh, Reg::R4, 3);
        asm.alu64(Alu::Add, Reg::R2, Reg::R4);
        asm.mov(Reg::R4, index);
        asm.alu64(Alu::And, Reg::R4, 63);
        asm.mov(Reg::R5, 1);
        asm.alu64(Alu::Lsh, Reg::R5, Reg::R4);
    }

    /// Makes the sequence number of the slot whose number is on the stack odd (1: being written) or even (2: complete);
    /// r2 = the slot.
    fn sequence(&mut self, by: i32) {
        let asm = &mut *self.asm;
        asm.load(Size::D, Reg::R4, Reg::R10, SCRATCH);
        asm.alu64(Alu::And, Reg::R4, self.geometry.slots() as i32 - 1);
        self.slot_of(Reg::R4);
        let (slots, asm) = (self.slots(), &mut *self.asm);
        asm.lddw_map_value(Reg::R1, self.private, 0);
        asm.load(Size::D, Reg::R5, Reg::R1, private::SERIAL);
        asm.alu64(Alu::Add, Reg::R5, by);
        if by == 2 {
            asm.store(Size::D, Reg::R1, private::SERIAL, Reg::R5);
        }
        asm.atomic_xchg(Size::D, Reg::R2, slots, Reg::R5);
    }

    /// r2 = the area plus the offset of the slot whose number is in `index`. Loses `index`.
    fn slot_of(&mut self, index: Reg) {
        self.asm.alu64(Alu::Mul, index, self.geometry.slot_bytes() as i32);
        self.asm.lddw_map_value(Reg::R2, self.area, 0);
        self.asm.alu64(Alu::Add, Reg::R2, index);
    }

    /// Offset of the first slot.
    fn slots(&self) -> i16 {
        self.geometry.slots_offset() as i16
    }

    /// Writes stamp and data of the slot at r2.
    fn write_slot(&mut self) {
        let slots = self.slots();
        stamp(self.asm, Reg::R2, slots + 8);
        let to = (Reg::R2, slots + SLOT_HEADER_BYTES as i16);
        copy(self.asm, to, (Reg::R6, self.event.offset), self.event.bytes);
    }

    /// r2: the area. The lock excludes other writers.
    fn raise_flag(&mut self) {
        let asm = &mut *self.asm;
        asm.load(Size::W, Reg::R3, Reg::R2, UpHeader::FLAG as i16);
        asm.alu32(Alu::Add, Reg::R3, 1);
        asm.store(Size::W, Reg::R2, UpHeader::FLAG as i16, Reg::R3);
    }

    /// r3 = 1 if the reader sleeps, else 0; marks the reader as awake. r2: the area.
    fn take_waiting(&mut self) {
        let awake = self.asm.label();
        let asm = &mut *self.asm;
        asm.load(Size::W, Reg::R3, Reg::R2, UpHeader::WAITING as i16);
        asm.jump_if(Jmp::Eq, Reg::R3, 0, awake);
        asm.mov(Reg::R3, 0);
        asm.atomic_xchg(Size::W, Reg::R2, UpHeader::WAITING as i16, Reg::R3);
        asm.bind(awake);
    }

    fn wake(&mut self, ring: u32) {
        wake(self.asm, ring);
    }

    /// Counts an event for which there was no room, for the application and for the installation.
    fn drop_event(&mut self) {
        let asm = &mut *self.asm;
        asm.lddw_map_value(Reg::R2, self.area, 0);
        asm.mov(Reg::R1, 1);
        asm.atomic_add(Size::D, Reg::R2, UpHeader::DROPPED as i16, Reg::R1);
        count(asm, state::DROPPED_MEMORY);
    }
}

/// Makes a wake ring readable. A full ring is already readable.
pub(super) fn wake(asm: &mut Asm, ring: u32) {
    asm.store_imm(Size::D, Reg::R10, SCRATCH, 0);
    asm.lddw_map(Reg::R1, ring);
    asm.mov(Reg::R2, Reg::R10);
    asm.alu64(Alu::Add, Reg::R2, i32::from(SCRATCH));
    asm.mov(Reg::R3, 8);
    asm.mov(Reg::R4, FORCE_WAKEUP);
    asm.call(helper::RINGBUF_OUTPUT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_call_is_written_without_preemption() {
        let mut asm = Asm::new();
        let functions = Functions { preemption: Some(Preemption { off: 1_001, on: 1_002 }), ..Functions::default() };
        let ring = Target::Ring { map: 0, id: 1, bound: None, signal: None };
        ring.deliver(&mut asm, Place { offset: 0, bytes: 8 }, functions);
        let insns = asm.finish().unwrap().insns;
        let called: Vec<i32> = insns.iter().filter(|insn| insn.code == 0x85).map(|insn| insn.imm).collect();
        assert_eq!(called, [1_001, helper::RINGBUF_RESERVE, helper::RINGBUF_SUBMIT, 1_002]);
    }
}
