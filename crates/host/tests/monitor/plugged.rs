//! Plugged-in attributes, as code and as E-code.

use qfabric_ecode::{Engine, Interpreter, Limits, Program};
use qfabric_host::monitor::{Derived, Monitor, Source, Watch};
use qfabric_types::monitor::{Attribute, HOST, Readers, Shape, Unit};
use qfabric_types::{AppId, Instant};

use super::{A, B, BYTES, Made, QUEUE, at, ms, run};

#[test]
fn an_attribute_plugs_in_as_code_and_leaves_with_its_owner() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let attribute = Attribute::new("game.players", Unit::Count, Shape::Level).unwrap();
    let twice = |_: AppId, now: Instant, others: &mut dyn Readers| Some(2 * others.read(QUEUE, HOST, now)?);
    monitor.plug_in(A, attribute.clone(), Box::new(twice), &made).unwrap();
    let again = monitor.plug_in(B, attribute, Box::new(twice), &made).unwrap_err();
    assert!(again.to_string().contains("has the same name"), "{again}");
    let standard = Attribute::new("cpu.run_queue", Unit::Count, Shape::Level).unwrap();
    assert!(monitor.plug_in(A, standard, Box::new(twice), &made).is_err(), "standard attributes cannot be replaced");
    monitor.watch(B, "game.players", Watch::every(ms(10)), &mut made, at(0)).unwrap();
    made.set(QUEUE, 21);
    assert_eq!(run(&mut monitor, &mut made, at(10))[0].value, 42);
    monitor.leave(A);
    assert!(run(&mut monitor, &mut made, at(20)).is_empty());
    assert_eq!(monitor.counters().unread, 1);
}

fn interpreter(program: &Program) -> Result<Box<dyn Engine + Send>, String> {
    Ok(Box::new(Interpreter::new(program, Limits::default())))
}

fn derived(text: &str, made: &Made) -> Result<Derived, String> {
    Derived::new(text, HOST, made, &mut interpreter).map_err(|error| error.to_string())
}

#[test]
fn an_attribute_plugs_in_as_e_code_over_others() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let text = "struct input { int cpu_run_queue; long net_eth0_rx_bytes; };
                struct output { long value; };
                static int calls = 0;
                calls++;
                if (input.cpu_run_queue > 100) return 0;
                output.value = input.net_eth0_rx_bytes * input.cpu_run_queue + calls * 1000000;";
    let source = derived(text, &made).unwrap();
    let attribute = Attribute::new("my.load", Unit::Count, Shape::Level).unwrap();
    monitor.plug_in(A, attribute, Box::new(source), &made).unwrap();
    monitor.watch(A, "my.load", Watch::every(ms(10)), &mut made, at(0)).unwrap();
    made.set(QUEUE, 3);
    made.set(BYTES, 1_050);
    assert_eq!(run(&mut monitor, &mut made, at(10))[0].value, 1_000_150, "50 bytes came, at a queue of 3");
    made.set(QUEUE, 101);
    assert!(run(&mut monitor, &mut made, at(20)).is_empty(), "the text returned 0, so there is no reading");
    made.set(QUEUE, i64::MAX);
    assert!(run(&mut monitor, &mut made, at(30)).is_empty(), "a value is clamped to the range of its field");
}

#[test]
fn a_faulting_text_gives_no_reading() {
    let mut made = Made::new();
    let text = "struct input { long cpu_run_queue; }; struct output { long value; };
                output.value = 100 / (input.cpu_run_queue - 1);";
    let mut source = derived(text, &made).unwrap();
    assert_eq!(source.read(HOST, at(0), &mut made), None);
    assert_eq!(source.faults(), 1);
    made.set(QUEUE, 6);
    assert_eq!(source.read(HOST, at(10), &mut made), Some(20));
}

#[test]
fn texts_that_are_no_derived_attribute_are_refused_with_the_reason() {
    let made = Made::new();
    let output = "struct output { long value; }; output.value = 1;";
    for (text, reason) in [
        ("this is no program".to_owned(), "there is no type `this`"),
        (format!("struct input {{ long cpu_run_que; }}; {output}"), "this host has no attribute `cpu_run_que`"),
        (format!("struct input {{ long app_misses; }}; {output}"), "name the application"),
        (format!("struct input {{ long cpu_run_queue[2]; }}; {output}"), "must be an integer"),
        (output.to_owned(), "has 0 attributes"),
        ("struct input { long cpu_run_queue; }; return 1;".to_owned(), "struct output { long value; }"),
        ("x".repeat(70_000), "the limit is 65536"),
    ] {
        let refusal = derived(&text, &made).err().expect("refused");
        assert!(refusal.contains(reason), "{refusal}");
    }
}
