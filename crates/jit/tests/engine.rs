//! The public interface of the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use qfabric_ecode::{CallContext, Engine, Environment, Fault, FaultKind, Interpreter, Limits, Program, compile};
use qfabric_jit::{Jit, assemble};

fn program(text: &str) -> Program {
    compile(text, &Environment::default()).unwrap_or_else(|errors| panic!("{}", errors.render("test", text, false)))
}

fn jit(text: &str) -> Jit {
    Jit::new(&program(text), Limits::default()).unwrap()
}

#[test]
fn an_engine_can_move_between_threads() {
    let mut engine = jit("static int n; return ++n;");
    let first = engine.call(&[], &CallContext::default(), &mut |_| ());
    let second = std::thread::spawn(move || engine.call(&[], &CallContext::default(), &mut |_| ())).join().unwrap();
    assert_eq!((first, second), (Ok(1), Ok(2)));
}

#[test]
fn a_panic_of_the_sink_continues_after_the_call() {
    let mut engine = jit("struct input { int a; };\nemit(); attr.done = 1; emit(); return 5;");
    let mut events = 0;
    let call = catch_unwind(AssertUnwindSafe(|| {
        engine.call(&[0; 4], &CallContext::default(), &mut |_| {
            events += 1;
            panic!("full");
        })
    }));
    assert!(call.is_err());
    assert_eq!((events, engine.attributes()), (1, &mut [1][..]), "no second call of the sink");
    assert_eq!(engine.call(&[0; 4], &CallContext::default(), &mut |_| ()), Ok(5));
}

#[test]
fn each_call_reads_its_own_world() {
    let mut engine = jit("return now() * 100 + pid() * 10 + cpu();");
    let context = CallContext { now: u64::MAX, pid: -3, cpu: 7 };
    assert_eq!(engine.call(&[], &context, &mut |_| ()), Ok(-100 - 30 + 7));
}

#[test]
fn an_engine_keeps_the_limits_of_its_creation() {
    let text = "int i, n = 0; for (i = 0; i < 100; i++) n += emit();\nreturn n;";
    let fuel = 100 * program(text).loops[0].cost;
    let mut bounded = Jit::new(&program(text), Limits { fuel, emissions: 3 }).unwrap();
    assert_eq!(bounded.call(&[], &CallContext::default(), &mut |_| ()), Ok(3));
    let mut tight = Jit::new(&program(text), Limits { fuel: fuel - 1, emissions: 3 }).unwrap();
    let fault = Fault { kind: FaultKind::Fuel, line: 1 };
    assert_eq!(tight.call(&[], &CallContext::default(), &mut |_| ()), Err(fault));
}

/// The accounts of filters charge this number.
#[test]
fn both_engines_report_the_instructions_of_the_loops_of_the_last_call() {
    let text = "struct input { int turns; }; int i, n; for (i = 0; i < input.turns; i++) n += i;\nreturn n;";
    let (program, limits) = (program(text), Limits { fuel: 10_000, emissions: 0 });
    let cost = program.loops[0].cost;
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(Jit::new(&program, limits).unwrap()), Box::new(Interpreter::new(&program, limits))];
    for mut engine in engines {
        for turns in [7, 0, 100] {
            engine.call(&i32::to_le_bytes(turns as i32), &CallContext::default(), &mut |_| ()).unwrap();
            assert_eq!(engine.looped(), turns * cost, "{}", engine.name());
        }
    }
}

#[test]
fn programs_of_many_pages_are_compiled() {
    let text: String = (0..2_000).map(|i| format!("x = x * 3 + {i};\n")).collect();
    let mut engine = jit(&format!("long x = 1;\n{text}return x;"));
    let expected = (0..2_000).fold(1_i64, |x, i| x.wrapping_mul(3).wrapping_add(i));
    assert_eq!(engine.call(&[], &CallContext::default(), &mut |_| ()), Ok(expected));
}

#[test]
fn a_simple_filter_is_a_load_and_a_jump_for_each_comparison() {
    let text = "struct input { int kind; unsigned short port; };\nreturn input.kind == 3 && input.port > 1024;";
    let listing = assemble(&program(text), Limits::default()).unwrap().to_string();
    let lines: Vec<&str> = listing.lines().skip(5).map(|line| &line[7..]).collect();
    let expected = [
        "r0 = *(u32 *)(r6 +104)",
        "if w0 != 3 goto 11",
        "r0 = *(u16 *)(r6 +108)",
        "if w0 s<= 1024 goto 11",
        "r0 = 1",
        "goto 12",
        "r0 = 0",
        "exit",
    ];
    assert_eq!(lines, expected, "{listing}");
}
