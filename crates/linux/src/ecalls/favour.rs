//! Generates the code by which a handler favours servers without user space: it raises events, each with its own
//! deadline, by the protocol of `struct qf_raised` (`bpf/include/qf_sched.h`), and interrupts the servers' CPUs.
//!
//! The interruption is a call of the kernel's `scx_bpf_kick_cpu`, which handlers at tracepoints and timers may call.
//! Handlers of packets and of byte streams may not: a CPU takes their events when one of its threads wakes or begins to
//! run, at the latest at its next tick.
//!
//! The servers are listed in separate words, the [`Aim`], because servers come, move and go while a handler stays. An
//! outdated word does no harm: a CPU ignores events of slots that it does not own, and an event never makes a server
//! miss its guarantee (rules 1 to 5).

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_ecode::bpf::{Alu, Asm, Jmp, Reg, Size};

use super::delivery::{SCRATCH, TURNS};
use super::source::helper;
use super::state;
use crate::abi::{QF_CPUS, QF_RAISED_EACH, QF_SLOTS, qf_raised, qf_raised_sink};
use crate::bpf::{Map, Mapping};
use crate::mechanism::RaiseTarget;

/// Largest number of servers that one handler favours: the first ones among the threads of a process with separate
/// contracts.
const TARGETS: usize = 4;
const BYTES: u32 = 8 * TARGETS as u32;
/// `SCX_KICK_PREEMPT`: the thread that runs must pass a decision of the scheduler.
const KICK_PREEMPT: i32 = 2;
/// The kernel's function that interrupts a CPU; its arguments are the CPU and flags.
pub(super) const KICK: &str = "scx_bpf_kick_cpu";

/// The servers that a handler favours; can change while the handler runs.
#[derive(Debug)]
pub struct Aim {
    pub(super) map: Map,
    words: Mapping,
}

impl Aim {
    /// Favours no server.
    ///
    /// # Errors
    /// The error of the kernel if it has no memory, or if the process lacks the permission.
    pub fn new() -> io::Result<Aim> {
        let map = Map::array(BYTES, 1)?;
        let words = map.map(BYTES as usize)?;
        Ok(Aim { map, words })
    }

    /// Favours these servers from the next event on. Targets after the fourth are ignored.
    pub fn at(&self, targets: impl IntoIterator<Item = RaiseTarget>) {
        let mut targets = targets.into_iter();
        for word in 0..TARGETS {
            // Slot 0 is never used, so 0 marks an empty word.
            let value = targets.next().map_or(0, |at| u64::from(at.cpu) << 32 | u64::from(at.slot));
            self.word(word).store(value, Ordering::Relaxed);
        }
    }

    /// True if the aim has a target.
    pub fn is_aimed(&self) -> bool {
        self.word(0).load(Ordering::Relaxed) != 0
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        &self.words.words(8 * number)[0]
    }
}

/// Raises events with the deadline of the present event. `aim` and `raised` are map numbers; `kick` is the kernel's
/// number of [`KICK`]; `None`: the CPUs are not interrupted. Loses r0 to r5. A loop, because each emission of a program
/// contains this code.
pub(super) fn favour(asm: &mut Asm, aim: u32, raised: u32, kick: Option<i32>) {
    let (next, no_target) = (asm.label(), asm.label());
    if kick.is_some() {
        remember_own_cpu(asm, raised);
    }
    asm.mov(Reg::R5, 0);
    asm.bind(next);
    asm.jump_if(Jmp::Ge, Reg::R5, BYTES as i32, no_target);
    asm.lddw_map_value(Reg::R1, aim, 0);
    asm.alu64(Alu::Add, Reg::R1, Reg::R5);
    asm.load(Size::D, Reg::R3, Reg::R1, 0);
    asm.jump_if(Jmp::Eq, Reg::R3, 0, no_target);
    asm.alu64(Alu::Add, Reg::R5, 8);
    asm.store(Size::D, Reg::R10, TURNS, Reg::R5);
    raise(asm, raised);
    if let Some(kick) = kick {
        interrupt(asm, raised, kick);
    }
    asm.load(Size::D, Reg::R5, Reg::R10, TURNS);
    asm.jump(next);
    asm.bind(no_target);
    // The verifier then sees the same stack after any number of servers.
    asm.store_imm(Size::D, Reg::R10, TURNS, 0);
}

/// The stack word = whether this CPU may interrupt others.
fn remember_own_cpu(asm: &mut Asm, raised: u32) {
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    asm.alu64(Alu::And, Reg::R0, QF_CPUS as i32 - 1);
    asm.alu64(Alu::Lsh, Reg::R0, 3);
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, online) as u32);
    asm.alu64(Alu::Add, Reg::R1, Reg::R0);
    asm.load(Size::D, Reg::R0, Reg::R1, 0);
    asm.store(Size::D, Reg::R10, SCRATCH, Reg::R0);
}

/// r3: a target. Afterwards r4 is 8 times the CPU, and r2 its dirty word before.
fn raise(asm: &mut Asm, raised: u32) {
    asm.mov(Reg::R4, Reg::R3);
    asm.alu64(Alu::And, Reg::R3, QF_SLOTS as i32 - 1);
    asm.alu64(Alu::Rsh, Reg::R4, 32);
    asm.alu64(Alu::And, Reg::R4, QF_CPUS as i32 - 1);
    write_deadline(asm, raised);
    set_bit(asm, raised);
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, dirty) as u32);
    asm.alu64(Alu::Lsh, Reg::R4, 3);
    asm.alu64(Alu::Add, Reg::R1, Reg::R4);
    asm.mov(Reg::R2, 1);
    asm.atomic_xchg(Size::D, Reg::R1, 0, Reg::R2);
}

/// r3: the slot. A place that is not free holds an event of the same server; the new event replaces it.
fn write_deadline(asm: &mut Asm, raised: u32) {
    let (has_deadline, was_free) = (asm.label(), asm.label());
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, sinks) as u32);
    asm.mov(Reg::R5, Reg::R3);
    asm.alu64(Alu::Mul, Reg::R5, size_of::<qf_raised_sink>() as i32);
    asm.alu64(Alu::Add, Reg::R1, Reg::R5);
    asm.mov(Reg::R2, 1);
    asm.atomic_fetch_add(Size::D, Reg::R1, offset_of!(qf_raised_sink, next) as i16, Reg::R2);
    asm.alu64(Alu::And, Reg::R2, QF_RAISED_EACH as i32 - 1);
    asm.alu64(Alu::Lsh, Reg::R2, 3);
    asm.mov(Reg::R5, Reg::R1);
    asm.alu64(Alu::Add, Reg::R5, Reg::R2);
    asm.load(Size::D, Reg::R0, Reg::R9, state::DEADLINE);
    asm.jump_if(Jmp::Ne, Reg::R0, 0, has_deadline);
    asm.mov(Reg::R0, -1);
    asm.bind(has_deadline);
    asm.atomic_xchg(Size::D, Reg::R5, offset_of!(qf_raised_sink, deadline_ns) as i16, Reg::R0);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, was_free);
    asm.mov(Reg::R0, 1);
    asm.atomic_add(Size::D, Reg::R1, offset_of!(qf_raised_sink, replaced) as i16, Reg::R0);
    asm.bind(was_free);
}

/// r4: 8 times the CPU; r2: its dirty word before. The handler that sets the word interrupts the CPU. A CPU that the
/// scheduler does not know has no kicks: the kernel would end the scheduler that names it.
fn interrupt(asm: &mut Asm, raised: u32, kick: i32) {
    let done = asm.label();
    asm.jump_if(Jmp::Ne, Reg::R2, 0, done);
    asm.load(Size::D, Reg::R2, Reg::R10, SCRATCH);
    asm.jump_if(Jmp::Eq, Reg::R2, 0, done);
    asm.lddw_map_value(Reg::R1, raised, offset_of!(qf_raised, kicks) as u32);
    asm.alu64(Alu::Add, Reg::R1, Reg::R4);
    asm.mov(Reg::R2, -1);
    asm.atomic_fetch_add(Size::D, Reg::R1, 0, Reg::R2);
    asm.jump_if(Jmp::SLe, Reg::R2, 0, done);
    asm.mov(Reg::R1, Reg::R4);
    asm.alu64(Alu::Rsh, Reg::R1, 3);
    asm.mov(Reg::R2, KICK_PREEMPT);
    asm.call_kfunc(kick);
    asm.bind(done);
}

/// r3: the slot; r4: the CPU. A full fence: a CPU that sees its dirty word also sees the bit and the deadline.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use qfabric_ecode::Limits;
    use qfabric_types::Nanos;

    use super::super::{Install, Installed, Kernel, Step};
    use super::*;

    const BITS: usize = offset_of!(qf_raised, bits);
    const SINKS: usize = offset_of!(qf_raised, sinks);
    const EACH: usize = QF_RAISED_EACH as usize;

    /// The memory of the scheduler, without a scheduler.
    struct Raised(Map, Mapping);

    impl Raised {
        fn new() -> io::Result<Raised> {
            let bytes = size_of::<qf_raised>();
            let map = Map::array(bytes as u32, 1)?;
            let memory = map.map(bytes)?;
            Ok(Raised(map, memory))
        }

        fn word(&self, offset: usize) -> u64 {
            self.1.words(offset)[0].load(Ordering::Relaxed)
        }

        /// The events of a slot that no CPU has taken: their number so far, how many were replaced, the deadlines.
        fn sink(&self, slot: usize) -> (u64, u64, Vec<u64>) {
            let at = SINKS + slot * size_of::<qf_raised_sink>();
            let deadlines = at + offset_of!(qf_raised_sink, deadline_ns);
            let of = (0..EACH).map(|place| self.word(deadlines + 8 * place)).collect();
            (self.word(at), self.word(at + offset_of!(qf_raised_sink, replaced)), of)
        }

        fn bits(&self, cpu: usize, slot: usize) -> u64 {
            self.word(BITS + cpu * QF_SLOTS as usize / 8 + slot / 64 * 8) >> (slot % 64) & 1
        }
    }

    fn every_ms(kernel: &Kernel, raised: &Raised, aim: &Aim) -> Installed {
        let step = Step::Favour { raised: raised.0.fd(), aim };
        let install = Install {
            service: "timer",
            options: &BTreeMap::from([("period".to_owned(), "1ms".to_owned())]),
            only_pid: None,
            steps: &[step],
            limits: Limits::default(),
            down: None,
            deadline: Some(Nanos::from_millis(5)),
            fault_passes: true,
            measured: false,
        };
        kernel.install(&install).unwrap()
    }

    fn some_events(of: &Installed, count: u64) {
        let before = of.counters().passed;
        (0..1_000).take_while(|_| of.counters().passed < before + count).for_each(|_| {
            std::thread::sleep(Duration::from_millis(2));
        });
    }

    #[test]
    fn a_handler_raises_events_for_the_targets_of_its_aim() {
        let Ok(kernel) = Kernel::open().map_err(crate::testing::skip) else { return };
        let (raised, aim) = (Raised::new().unwrap(), Aim::new().unwrap());
        let installed = every_ms(&kernel, &raised, &aim);
        some_events(&installed, 3);
        assert_eq!(
            (raised.word(0), raised.word(8), aim.is_aimed()),
            (0, 0, false),
            "without a target nothing is written"
        );
        aim.at([RaiseTarget { slot: 70, cpu: 1 }, RaiseTarget { slot: 1_023, cpu: 255 }]);
        some_events(&installed, 3);
        assert_eq!([raised.word(0), raised.word(8), raised.word(255 * 8)], [0, 1, 1]);
        assert_eq!([raised.bits(1, 70), raised.bits(255, 1_023), raised.bits(1, 71)], [1, 1, 0]);
        let (next, _, deadlines) = raised.sink(70);
        assert!(next >= 3 && deadlines[0] > crate::clock::now().get() - 1_000_000_000, "{next}: {deadlines:?}");
        assert_eq!(raised.sink(0), (0, 0, vec![0; EACH]));
    }

    #[test]
    fn waiting_events_keep_their_own_deadlines_and_replaced_ones_are_counted() {
        let Ok(kernel) = Kernel::open().map_err(crate::testing::skip) else { return };
        let (raised, aim) = (Raised::new().unwrap(), Aim::new().unwrap());
        let installed = every_ms(&kernel, &raised, &aim);
        aim.at([RaiseTarget { slot: 5, cpu: 0 }]);
        some_events(&installed, EACH as u64 + 3);
        drop(installed);
        let (next, replaced, mut deadlines) = raised.sink(5);
        assert!(next > EACH as u64, "{next} events");
        assert_eq!(replaced, next - EACH as u64, "nobody takes them: {deadlines:?}");
        deadlines.sort_unstable();
        deadlines.dedup();
        assert_eq!(deadlines.len(), EACH, "each event has its own: {deadlines:?}");
    }

    #[test]
    fn the_code_takes_less_than_a_third_of_an_emission() {
        let mut asm = Asm::new();
        favour(&mut asm, 0, 1, Some(1));
        let instructions = asm.finish().unwrap().insns.len();
        assert!(instructions <= 85, "{instructions} of 256");
    }

    #[test]
    fn an_aim_holds_four_targets() {
        let Ok(aim) = Aim::new().map_err(crate::testing::skip) else { return };
        aim.at((1..9).map(|slot| RaiseTarget { slot, cpu: 2 }));
        let all: Vec<u64> = (0..TARGETS).map(|word| aim.word(word).load(Ordering::Relaxed)).collect();
        assert_eq!(all, [1, 2, 3, 4].map(|slot| 2 << 32 | slot));
        aim.at(None);
        assert!(!aim.is_aimed());
    }
}
