//! Tests that no call executes more instructions than [`measure`] computed. An interpreter for eBPF executes the
//! generated code, counts the instructions, and compares the result with the E-code interpreter.

#[allow(dead_code)] // only its programs are used here
mod maker;

use qfabric_ecode::bpf::{Asm, Code, Exits, Host, Insn, Label, Layout, Reg, Size, generate, measure};
use qfabric_ecode::hir::{Builtin, Repetition};
use qfabric_ecode::testing::texts::{Text, compiled};
use qfabric_ecode::{CallContext, Engine, Environment, FaultKind, Interpreter, Limits, Program, compile};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Distance between the start addresses of the memories.
const MEMORIES: u64 = 1 << 32;

/// A host whose builtins return 7, with the fewest instructions that a host can emit.
struct Bare;

impl Host for Bare {
    fn builtin(&mut self, asm: &mut Asm, _: Builtin, _: &Layout) {
        asm.mov(Reg::R0, 7);
    }

    fn add_attribute(&mut self, asm: &mut Asm, offset: i16) {
        asm.load(Size::D, Reg::R0, Reg::R8, offset);
        asm.alu64(qfabric_ecode::bpf::Alu::Add, Reg::R0, Reg::R1);
        asm.store(Size::D, Reg::R8, offset, Reg::R0);
    }

    fn loop_guard(&mut self, _: &mut Asm, _: Label) {}
}

/// A machine with registers, and with the frame, the statics and the attributes as its memories.
struct Machine {
    registers: [u64; 11],
    memories: [Vec<u8>; 3],
    executed: u64,
}

impl Machine {
    fn new(program: &Program, input: &[u8]) -> Machine {
        let layout = Layout::of(program);
        let mut frame = vec![0; layout.size as usize];
        frame[layout.input as usize..][..input.len()].copy_from_slice(input);
        let memories = [frame, program.statics.clone(), vec![0; 8 * program.attributes.len()]];
        let mut registers = [0; 11];
        (0..3).for_each(|memory| registers[6 + memory] = (1 + memory as u64) * MEMORIES);
        Machine { registers, memories, executed: 0 }
    }

    /// Runs until an exit. Returns whether the exit was that of a fault, and r0.
    fn run(&mut self, code: &Code) -> (bool, u64) {
        let mut at = 0;
        loop {
            let insn = code.insns[at];
            self.executed += 1;
            at += 1;
            match insn.code & 7 {
                // A 64-bit constant takes two instructions.
                0 => {
                    self.registers[usize::from(insn.dst)] =
                        u64::from(insn.imm as u32) | u64::from(code.insns[at].imm as u32) << 32;
                    at += 1;
                }
                1 => self.registers[usize::from(insn.dst)] = self.load(insn),
                2 => self.store(insn, i64::from(insn.imm) as u64),
                3 => self.store(insn, self.registers[usize::from(insn.src)]),
                4 | 7 => self.compute(insn),
                _ if insn.code == 0x95 => return (self.registers[9] == 1, self.registers[0]),
                _ if self.jumps(insn) => {
                    at = at.checked_add_signed(isize::from(insn.off)).expect("jumps stay in the code");
                }
                _ => {}
            }
        }
    }

    fn place(&mut self, base: u8, offset: i16, size: u8) -> &mut [u8] {
        let bytes = [4, 2, 1, 8][usize::from(size >> 3 & 3)];
        let address = self.registers[usize::from(base)].wrapping_add_signed(i64::from(offset));
        let memory = &mut self.memories[(address / MEMORIES - 1) as usize];
        &mut memory[(address % MEMORIES) as usize..][..bytes]
    }

    fn load(&mut self, insn: Insn) -> u64 {
        let mut word = [0; 8];
        let bytes = self.place(insn.src, insn.off, insn.code);
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    fn store(&mut self, insn: Insn, value: u64) {
        assert_eq!(insn.code & 0xe0, 0x60, "only plain stores are generated for this host");
        let bytes = self.place(insn.dst, insn.off, insn.code);
        let length = bytes.len();
        bytes.copy_from_slice(&value.to_le_bytes()[..length]);
    }

    fn operand(&self, insn: Insn) -> u64 {
        if insn.code & 8 != 0 { self.registers[usize::from(insn.src)] } else { i64::from(insn.imm) as u64 }
    }

    fn compute(&mut self, insn: Insn) {
        let wide = insn.code & 7 == 7;
        let narrow = |value: u64| if wide { value } else { u64::from(value as u32) };
        let (a, b) = (narrow(self.registers[usize::from(insn.dst)]), narrow(self.operand(insn)));
        let shift = (b & if wide { 63 } else { 31 }) as u32;
        let signed = if wide { a as i64 } else { i64::from(a as i32) };
        self.registers[usize::from(insn.dst)] = narrow(match insn.code & 0xf0 {
            0x00 => a.wrapping_add(b),
            0x10 => a.wrapping_sub(b),
            0x20 => a.wrapping_mul(b),
            0x30 => a.checked_div(b).unwrap_or(0),
            0x40 => a | b,
            0x50 => a & b,
            0x60 => a << shift,
            0x70 => a >> shift,
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(b).unwrap_or(a),
            0xa0 => a ^ b,
            0xb0 => b,
            0xc0 => (signed >> shift) as u64,
            other => panic!("no arithmetic {other:#x} is generated"),
        });
    }

    fn jumps(&self, insn: Insn) -> bool {
        let (a, b) = (self.registers[usize::from(insn.dst)], self.operand(insn));
        let (a, b, c, d) = match insn.code & 7 {
            5 => (a, b, a as i64, b as i64),
            _ => (u64::from(a as u32), u64::from(b as u32), i64::from(a as i32), i64::from(b as i32)),
        };
        match insn.code & 0xf0 {
            0x00 => true,
            0x10 => a == b,
            0x20 => a > b,
            0x30 => a >= b,
            0x40 => a & b != 0,
            0x50 => a != b,
            0x60 => c > d,
            0x70 => c >= d,
            0xa0 => a < b,
            0xb0 => a <= b,
            0xc0 => c < d,
            0xd0 => c <= d,
            other => panic!("no jump {other:#x} is generated"),
        }
    }
}

/// Generates the program's code; r9 is 1 after a fault.
fn code(program: &Program, limits: Limits) -> Code {
    let mut asm = Asm::new();
    let exits = Exits { done: asm.label(), fault: asm.label() };
    generate(&mut asm, program, &mut Bare, limits, exits);
    asm.bind(exits.fault);
    asm.mov(Reg::R9, 1);
    asm.exit();
    asm.bind(exits.done);
    asm.exit();
    asm.finish().unwrap()
}

/// Runs one call and returns the number of executed instructions. The result must equal that of the E-code
/// interpreter.
fn executed(program: &Program, limits: Limits, input: &[u8], what: &str) -> u64 {
    let mut machine = Machine::new(program, input);
    let (faulted, r0) = machine.run(&code(program, limits));
    let context = CallContext { now: 7, pid: 7, cpu: 7 };
    let expected = Interpreter::new(program, limits).call(input, &context, &mut |_| ());
    let found = if faulted { Err(r0 as u32) } else { Ok(r0 as i64) };
    assert_eq!(found, expected.map_err(|fault| fault.code()), "{what}");
    machine.executed
}

/// Instructions that [`code`] adds to those of the program.
const EXIT: u64 = 2;

#[test]
fn no_call_of_a_random_program_executes_more_than_was_measured() {
    for seed in 0..rounds() {
        let (program, limits) = (maker::program(seed), Limits { fuel: 3_000, emissions: 3 });
        let mut input = vec![0; program.input.size as usize];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut input);
        let most = measure(&program).worst_case(limits.fuel) + EXIT;
        let executed = executed(&program, limits, &input, &format!("seed {seed}"));
        assert!(executed <= most, "seed {seed}: {executed} executed, {most} measured");
    }
}

#[test]
fn no_call_of_a_random_text_executes_more_than_was_measured() {
    for (seed, wild) in (0..rounds()).flat_map(|seed| [(seed, false), (seed, true)]) {
        let text = Text::random(seed, wild).ecode();
        let Some(program) = compiled(&text, seed) else { continue };
        let limits = Limits { fuel: 20_000, emissions: 3 };
        let mut input = vec![0; program.input.size as usize];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut input);
        let most = measure(&program).worst_case(limits.fuel) + EXIT;
        let executed = executed(&program, limits, &input, &format!("seed {seed}\n{text}"));
        assert!(executed <= most, "seed {seed}: {executed} executed, {most} measured\n{text}");
    }
}

/// Loops with an iteration count in the text: the bound holds, is close, and its fuel suffices for all iterations.
#[test]
fn iterations_stated_in_the_text_are_counted() {
    let known = [
        ("for (int i = 0; i < 10; i++) n += i;", 10),
        ("for (int i = 0; i <= 10; i++) n += i;", 11),
        ("for (int i = 0; 10 > i; i += 3) n += i;", 4),
        ("for (int i = 10; i > 0; i--) n += i;", 10),
        ("for (long i = 10; i >= 0; i -= 4) n += i;", 3),
        ("for (unsigned char i = 0; i < 200; i++) n += i;", 200),
        ("int i = 5; while (i < 9) { n += i; i++; }", 4),
        ("int i = 5; do { n += i; i++; } while (i < 9);", 4),
        ("for (int i = 0; i < 10 && n < 1000; i++) n += i;", 10),
        ("int i; for (i = 0; i < 8; i++) if (n > 3) continue;", 8),
        ("for (int i = 0; i < 4; i++) for (int k = 0; k < 5; k++) n += k;", 4),
        ("short i = -5; while (i < 5) { n++; i += 2; }", 5),
    ];
    for (loops, turns) in known {
        let program = compile(&format!("long n = 0; {loops} return n;"), &Environment::default()).unwrap();
        assert_eq!(
            program.loops.last().map(|known| known.turns),
            Some(turns + u64::from(loops.contains("do "))),
            "{loops}"
        );
        let measured = measure(&program);
        let limits = Limits { fuel: u32::try_from(measured.turns).unwrap(), emissions: 0 };
        let executed = executed(&program, limits, &[], loops);
        assert!(executed <= measured.worst_case(u32::MAX), "{loops}: {executed} executed, measured {measured:?}");
    }
}

#[test]
fn iterations_not_stated_in_the_text_are_unknown() {
    let open = [
        "struct input { int a; }; int i = 0; while (i < input.a * 2L) i++;",
        "for (int i = 0; i < 10; i++) { if (n > 3) i = 0; n++; }",
        "for (int i = 0; i < 10; i += n) n++;",
        "for (unsigned char i = 0; i < 300; i++) n++;",
        "for (unsigned char i = 250; i > 2; i += 3) n++;",
        "int i = 0; while (i < 10) { n++; if (n < 100) continue; i++; }",
        "int i = 0; while (1) { i++; if (i > 3) break; }",
        "static int s; for (s = 0; s < 10; s++) n++;",
    ];
    for text in open {
        let program = compile(&format!("long n = 0; {text} return n;"), &Environment::default()).unwrap();
        assert_eq!(program.loops.last().map(|known| known.turns), Some(Repetition::UNKNOWN), "{text}");
        assert_eq!(measure(&program).turns, u64::MAX, "{text}");
    }
}

/// The range of a compared value also bounds a loop.
#[test]
fn the_range_of_a_type_bounds_a_loop() {
    let text = "struct input { unsigned char a; }; long n = 0; for (int i = 0; i < input.a; i++) n++; return n;";
    let program = compile(text, &Environment::default()).unwrap();
    assert_eq!(program.loops[0].turns, 255);
    let limits = Limits { fuel: measure(&program).turns as u32, emissions: 0 };
    executed(&program, limits, &[255], text);
}

/// Sixty thousand iterations of a body of thousands of instructions: one call would take seconds, and the measure
/// says so.
#[test]
fn a_very_long_loop_is_measured_and_ended_by_fuel() {
    let body: String = (0..2_000).map(|i| format!("n = n * 3 + {i};\n")).collect();
    let text = format!("long n = 0; for (int i = 0; i < 60000; i++) {{\n{body}}} return n;");
    let program = compile(&text, &Environment::default()).unwrap();
    let measured = measure(&program);
    assert!(measured.turns > 60_000 * 4_000, "{measured:?}");
    let limits = Limits { fuel: 200_000, emissions: 0 };
    let fault = Interpreter::new(&program, limits).call(&[], &CallContext::default(), &mut |_| ());
    assert_eq!(fault.unwrap_err().kind, FaultKind::Fuel);
    assert!(executed(&program, limits, &[], "bomb") <= 200_000 + measured.instructions + EXIT);
}

fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}
