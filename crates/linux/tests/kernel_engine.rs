//! The kernel's verifier accepts every program that the checker accepts, and the kernel returns the interpreter's
//! results.

#[path = "../../jit/tests/maker/mod.rs"]
mod maker;

use std::time::Duration;

use qfabric_ecode::bpf::measure;
use qfabric_ecode::testing::texts::{Text, compiled};
use qfabric_ecode::testing::{THESIS_FORMATS, THESIS_HANDLER, conformance, heavy, seen};
use qfabric_ecode::{CallContext, Engine, Environment, Fault, FaultKind, Interpreter, Limits, Program, compile};
use qfabric_linux::ecalls::{Kernel, KernelEngine};

/// True if this process may load programs into the kernel; otherwise prints that the test is skipped.
fn may_load() -> bool {
    Kernel::open().map_err(qfabric_linux::testing::skip).is_ok()
}

fn program(text: &str) -> Program {
    compile(text, &Environment::default()).unwrap_or_else(|errors| panic!("{}", errors.render("test", text, false)))
}

/// Number of programs to try; `QFABRIC_ROUNDS` sets it.
fn rounds() -> u64 {
    std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}

#[test]
fn random_programs_are_verified_and_do_what_the_interpreter_does() {
    if !may_load() {
        return;
    }
    let limits = Limits { fuel: 3_000, emissions: 3 };
    for seed in 0..rounds() {
        let program = maker::program(seed);
        if measure(&program).instructions > 30_000 {
            continue;
        }
        let mut kernel = KernelEngine::new(&program, limits).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut interpreter = Interpreter::new(&program, limits);
        assert_eq!(maker::seen(&mut interpreter, seed), maker::seen(&mut kernel, seed), "seed {seed}");
        let (walked, made) = (u64::from(kernel.verified_instructions()), measure(&program).instructions);
        assert!(walked <= 20 * made + 1000, "seed {seed}: the verifier walked {walked} for {made} instructions");
    }
}

#[test]
fn random_texts_are_verified_and_do_what_the_interpreter_does() {
    if !may_load() {
        return;
    }
    let limits = Limits { fuel: 50_000, emissions: 3 };
    for (seed, wild) in (0..rounds() / 2).flat_map(|seed| [(seed, false), (seed, true)]) {
        let text = Text::random(seed, wild).ecode();
        let Some(program) = compiled(&text, seed) else { continue };
        let mut kernel =
            KernelEngine::new(&program, limits).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        let mut interpreter = Interpreter::new(&program, limits);
        let (expected, found) = (seen(&mut interpreter, &program, seed), seen(&mut kernel, &program, seed));
        assert_eq!(expected, found, "seed {seed}\n{text}");
    }
}

#[test]
fn the_kernel_passes_the_engines_conformance_suite() {
    if may_load() {
        conformance::run(&mut |program| Box::new(KernelEngine::new(program, Limits::default()).unwrap()));
    }
}

/// Largest number of instructions that the verifier walks for each instruction of a program. Its time depends on this.
const WALKED_PER_INSTRUCTION: u64 = 20;

#[test]
fn programs_near_the_limits_are_verified_with_bounded_work() {
    if !may_load() {
        return;
    }
    for (name, text) in heavy::all() {
        let program = program(&text);
        let engine = KernelEngine::new(&program, Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (walked, made) = (engine.verified_instructions(), measure(&program).instructions);
        println!("{name}: {walked} walked for {made} instructions in {:?}", engine.load_time());
        assert!(u64::from(walked) <= WALKED_PER_INSTRUCTION * made, "{name}: {walked} walked for {made}");
    }
}

/// Nested loops up to the checker's limit: the verifier's work must not multiply with each level.
#[test]
fn the_verifiers_work_grows_with_the_text_not_with_the_nesting() {
    if !may_load() {
        return;
    }
    for depth in [1, 4, 8, 16, 24] {
        let heads: String = (0..depth)
            .map(|i| format!("for (int v{i} = 0; v{i} < 3 + x % 5; v{i}++) {{ if (v{i} == x) n += v{i}; else n ^= x; "))
            .collect();
        let text = format!("int x = now() % 7; static long n; {heads} n++; {} return n;", "}".repeat(depth));
        let program = program(&text);
        let engine = KernelEngine::new(&program, Limits::default()).unwrap_or_else(|error| panic!("{depth}: {error}"));
        let (walked, made) = (u64::from(engine.verified_instructions()), measure(&program).instructions);
        assert!(walked <= WALKED_PER_INSTRUCTION * made, "depth {depth}: {walked} walked for {made}");
    }
}

#[test]
fn the_papers_example_runs_in_the_kernel() {
    if !may_load() {
        return;
    }
    let program = program(&format!("{THESIS_FORMATS}{THESIS_HANDLER}"));
    let mut engine = KernelEngine::new(&program, Limits::default()).unwrap();
    let mut words = vec![0i32; 4 * 17];
    for resource in words.chunks_mut(17) {
        resource[0] = 8;
        resource[3] = 9; // attribute[2] over its threshold of 0
    }
    let input: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(engine.call(&input, &CallContext::default(), &mut |_| ()), Ok(1));
    let exceeded: Vec<usize> = (0..32).filter(|i| engine.output()[4 * i] == 1).collect();
    assert_eq!(exceeded, [2, 10, 18, 26]);
    // More attributes than exist cause a fault, not a read beyond the end.
    let too_many = [9u8, 0, 0, 0].into_iter().chain(input[4..].iter().copied()).collect::<Vec<_>>();
    let fault = engine.call(&too_many, &CallContext::default(), &mut |_| ());
    assert!(matches!(fault, Err(Fault { kind: FaultKind::Index, .. })), "{fault:?}");
}

#[test]
fn fuel_ends_a_call_in_the_kernel_and_the_next_call_has_full_fuel() {
    if !may_load() {
        return;
    }
    let program = program("static int calls; calls++; long n = 0; while (n < 100000000) n++; return n;");
    let mut engine = KernelEngine::new(&program, Limits { fuel: 10_000, emissions: 0 }).unwrap();
    for call in 1..3 {
        let fault = engine.call(&[], &CallContext::default(), &mut |_| ());
        assert!(matches!(fault, Err(Fault { kind: FaultKind::Fuel, line: 1 })), "{fault:?}");
        assert_eq!(engine.statics()[0], call);
    }
}

#[test]
fn a_call_is_measured_by_the_kernel() {
    if !may_load() {
        return;
    }
    let program = program("struct input { int a; }; return input.a > 5 && input.a < 100;");
    let mut engine = KernelEngine::new(&program, Limits::default()).unwrap();
    let mean = engine.measure(&[7, 0, 0, 0], 10_000).unwrap();
    assert!(mean > Duration::ZERO, "{mean:?}");
}

#[test]
fn emissions_that_would_fill_the_memory_are_refused() {
    if !may_load() {
        return;
    }
    let program = program("struct output { long much[2000]; }; emit(); return 1;");
    let refusal = KernelEngine::new(&program, Limits { fuel: 1, emissions: 10_000 }).unwrap_err();
    assert!(refusal.to_string().contains("allow fewer emissions"), "{refusal}");
}
