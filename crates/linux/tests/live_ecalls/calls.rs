//! Tests of fast calls: `app.call`.

use std::process::Command;

use qfabric_linux::ecalls::{DownMemory, Step};
use qfabric_types::memory::{CALL_VALUES, CallVerdict};

use crate::common::{Request, kernel, number, take_event, up};

fn values(first: i64, second: i64) -> [i64; CALL_VALUES] {
    let mut values = [0; CALL_VALUES];
    (values[0], values[1]) = (first, second);
    values
}

#[test]
fn a_call_is_handled_before_it_returns_with_the_verdict() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("app.call").own();
    let program = ask.program(&kernel, "attr.seen += input.value[1]; return 16 * (input.value[0] + 1) + 1;");
    let down = DownMemory::new().unwrap();
    let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
    for turn in 1..=100 {
        let verdict = installed.call(values(turn, 2)).unwrap();
        assert_eq!((verdict.answer(), verdict.blocks(), down.down().attribute(0)), (turn + 1, false, 2 * turn));
    }
    assert_eq!((installed.counters().passed, installed.counters().events), (100, 100));
}

#[test]
fn the_event_of_a_call_has_its_values_and_its_thread_in_memory() {
    let Some(kernel) = kernel() else { return };
    let format = &kernel.service("app.call").unwrap().format;
    let memory = up(format);
    let ask = Request::of("app.call").own();
    let installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    assert_eq!(installed.call([1, -2, 3, 4, 5, 6, 7, 8]).unwrap(), CallVerdict::DONE, "a chain without a handler");
    let data = take_event(&memory).expect("the event is there when the call returns");
    let at = format.field("value").unwrap().offset as usize;
    let found: Vec<i64> = (0..CALL_VALUES)
        .map(|word| i64::from_ne_bytes(data[at + 8 * word..at + 8 * word + 8].try_into().unwrap()))
        .collect();
    assert_eq!(found, [1, -2, 3, 4, 5, 6, 7, 8]);
    let own = i64::from(rustix::thread::gettid().as_raw_nonzero().get());
    assert_eq!(number(format, &data, "tid"), own);
}

#[test]
fn a_call_that_no_handler_answers_says_that_the_blocking_call_is_needed() {
    let Some(kernel) = kernel() else { return };
    for fault_passes in [true, false] {
        let ask = Request { fault_passes, ..Request::of("app.call").own() };
        let program = ask.program(&kernel, "if (input.value[0] == 3) return 8; return 1 / input.value[0];");
        let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
        let call = |first| installed.call(values(first, 0)).unwrap();
        assert_eq!((call(1), call(2)), (CallVerdict::DONE, CallVerdict(0)), "0 ends the chain, and the call is done");
        assert_eq!((call(3), call(0)), (CallVerdict::BLOCK, CallVerdict::BLOCK), "by the handler; by a fault");
        assert_eq!(installed.counters().faults, 1);
    }
}

#[test]
fn a_call_of_another_process_reaches_no_handler() {
    let Some(kernel) = kernel() else { return };
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let ask = Request { pid: Some(other.id() as i32), ..Request::of("app.call") };
    let program = ask.program(&kernel, "attr.seen += 1; return 1;");
    let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let verdict = installed.call(values(1, 1));
    other.kill().and_then(|()| other.wait()).unwrap();
    assert_eq!((verdict.unwrap(), installed.counters().events), (CallVerdict::BLOCK, 0));
}

/// A call that meets another one is done after a short wait, or is not done at all.
#[test]
fn calls_of_several_threads_are_handled_one_at_a_time() {
    const EACH: u64 = 10_000;
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("app.call").own();
    let program = ask.program(&kernel, "static long n; n += 1; return 16 * n + 1;");
    let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let call_often = || {
        let verdicts = (0..EACH).map(|_| installed.call(values(0, 0)).unwrap());
        verdicts.filter(|verdict| !verdict.blocks()).map(CallVerdict::answer).collect::<Vec<i64>>()
    };
    let mut answers: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(call_often)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    answers.sort_unstable();
    let counters = installed.counters();
    assert_eq!(answers, (1..=counters.passed as i64).collect::<Vec<i64>>(), "no number is given twice");
    assert_eq!(counters.passed + counters.contended, 4 * EACH, "{counters:?}");
}

#[test]
fn a_map_and_a_program_count_as_held_until_their_last_descriptor_is_closed() {
    let Some(kernel) = kernel() else { return };
    let memory = up(&kernel.service("app.call").unwrap().format);
    let ask = Request::of("app.call").own();
    let installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let [area, wake] = memory.objects().unwrap();
    let objects = [area, wake, installed.call_object().unwrap()];
    let held = || {
        let held = kernel.held().unwrap();
        objects.map(|object| held.contains(&object))
    };
    assert_eq!(held(), [true; 3]);
    let [map, program] = [memory.fd(), installed.call_fd().unwrap()].map(|fd| fd.try_clone_to_owned().unwrap());
    drop((installed, memory));
    assert_eq!(held(), [true, false, true], "nobody has the wake descriptor");
    drop(map);
    assert_eq!(held(), [false, false, true], "that a program uses the map does not count");
    assert!(kernel.maps().unwrap().contains(&area), "the program keeps it");
    drop(program);
    assert_eq!(held(), [false; 3]);
}

#[test]
fn a_chain_at_another_service_takes_no_calls() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::with("timer", &[("period", "1s")]);
    let program = ask.program(&kernel, "return 1;");
    let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    assert!(installed.call_fd().is_none() && installed.call(values(0, 0)).is_err());
}
