//! Code by which a handler favours its sink's server without user space: the three stores of `bpf/include/qf_sched.h`.
//!
//! Which server that is stands in a word of its own, the [`Aim`], since servers come, move and go while a handler
//! stays. A word that is out of date does no harm: a CPU passes over events of slots that it does not hold, and an
//! event never makes anybody miss what is guaranteed (rules 1 to 5).

use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use qfabric_ecode::bpf::{Alu, Asm, Jmp, Reg, Size};

use super::state;
use crate::abi::{QF_CPUS, QF_SLOTS, qf_raised};
use crate::bpf::{Map, Mapping};
use crate::mechanism::RaiseTarget;

/// Whom a handler favours, told while it runs.
#[derive(Debug)]
pub struct Aim {
    pub(super) map: Map,
    word: Mapping,
}

impl Aim {
    /// At nobody.
    ///
    /// # Errors
    /// The kernel's, where it has no memory or the right to it is missing.
    pub fn new() -> io::Result<Aim> {
        let map = Map::array(8, 1)?;
        let word = map.map(8)?;
        Ok(Aim { map, word })
    }

    /// From the next event on.
    pub fn at(&self, target: Option<RaiseTarget>) {
        // No server has slot 0.
        let word = target.map_or(0, |at| u64::from(at.cpu) << 32 | u64::from(at.slot));
        self.word.words(0)[0].store(word, Ordering::Relaxed);
    }

    /// Whether anybody is favoured.
    pub fn is_aimed(&self) -> bool {
        self.word.words(0)[0].load(Ordering::Relaxed) != 0
    }
}

/// Raises an event with the deadline of the one that is handled. `aim`, `raised`: numbers of maps. Loses r1 to r5.
pub(super) fn favour(asm: &mut Asm, aim: u32, raised: u32) {
    let nobody = asm.label();
    asm.lddw_map_value(Reg::R1, aim, 0);
    asm.load(Size::D, Reg::R3, Reg::R1, 0);
    asm.jump_if(Jmp::Eq, Reg::R3, 0, nobody);
    asm.mov(Reg::R4, Reg::R3);
    asm.alu64(Alu::And, Reg::R3, QF_SLOTS as i32 - 1);
    asm.alu64(Alu::Rsh, Reg::R4, 32);
    asm.alu64(Alu::And, Reg::R4, QF_CPUS as i32 - 1);
    write_deadline(asm, raised);
    set_bit(asm, raised);
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, dirty) as u32);
    asm.alu64(Alu::Lsh, Reg::R4, 3);
    asm.alu64(Alu::Add, Reg::R1, Reg::R4);
    asm.store_imm(Size::D, Reg::R1, 0, 1);
    asm.bind(nobody);
}

/// r3: the slot.
fn write_deadline(asm: &mut Asm, raised: u32) {
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, deadline_ns) as u32);
    asm.mov(Reg::R5, Reg::R3);
    asm.alu64(Alu::Lsh, Reg::R5, 3);
    asm.alu64(Alu::Add, Reg::R1, Reg::R5);
    asm.load(Size::D, Reg::R5, Reg::R9, state::DEADLINE);
    asm.store(Size::D, Reg::R1, 0, Reg::R5);
}

/// r3: the slot; r4: the CPU. A full fence, so that whoever sees the CPU's dirty word sees both.
fn set_bit(asm: &mut Asm, raised: u32) {
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, bits) as u32);
    asm.mov(Reg::R5, Reg::R4);
    asm.alu64(Alu::Lsh, Reg::R5, (QF_SLOTS / 8).ilog2() as i32);
    asm.alu64(Alu::Add, Reg::R1, Reg::R5);
    asm.mov(Reg::R5, Reg::R3);
    asm.alu64(Alu::Rsh, Reg::R5, 6);
    asm.alu64(Alu::Lsh, Reg::R5, 3);
    asm.alu64(Alu::Add, Reg::R1, Reg::R5);
    asm.alu64(Alu::And, Reg::R3, 63);
    asm.mov(Reg::R5, 1);
    asm.alu64(Alu::Lsh, Reg::R5, Reg::R3);
    asm.atomic_fetch_or(Size::D, Reg::R1, 0, Reg::R5);
}
