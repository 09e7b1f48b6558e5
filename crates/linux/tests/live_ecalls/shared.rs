//! Tests of the programs that the handlers of many processes share.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use qfabric_linux::ecalls::{DownMemory, Installed, Kernel, Step};
use rustix::process::Pid;
use rustix::thread::CpuSet;

use crate::common::{Request, kernel, nap, own_pid};

/// Process ids beyond the largest one that Linux gives out.
const NO_PROCESS: i32 = 5_000_000;

/// A handler that counts its events in its own attributes.
fn counting(kernel: &Kernel, ask: &Request, text: &str) -> (Installed, DownMemory) {
    let program = ask.program(kernel, text);
    let down = DownMemory::new().unwrap();
    (ask.install(kernel, &[Step::Handler(&program)], Some(&down)).unwrap(), down)
}

fn seen(handlers: &[(Installed, DownMemory)]) -> Vec<i64> {
    handlers.iter().map(|(_, down)| down.down().attribute(0)).collect()
}

/// Naps until every handler has seen a further event.
fn all_see_more(handlers: &[(Installed, DownMemory)]) {
    let before = seen(handlers);
    let grown = || seen(handlers).iter().zip(&before).all(|(now, before)| now > before);
    let waited = (0..5_000).find(|_| {
        nap();
        grown()
    });
    assert!(waited.is_some(), "{before:?}, then {:?}", seen(handlers));
}

/// With verdicts that pass and block, and with faults: no handler ends the event for the next one.
#[test]
fn every_handler_of_a_process_sees_its_events_while_others_come_and_go() {
    let Some(kernel) = kernel() else { return };
    let ask = Request { fault_passes: false, ..Request::of("sched.wakeup").own() };
    let texts = [
        "attr.seen += 1; return 1;",
        "attr.seen += 1; return 0;",
        "attr.seen += 1; return 1 / (input.cpu - input.cpu);",
    ];
    let mut handlers: Vec<_> = (0..40).map(|number| counting(&kernel, &ask, texts[number % 3])).collect();
    assert_eq!(kernel.shared_program_ids().len(), 3, "at most 15 handlers of a process at each");
    all_see_more(&handlers);
    for round in 0..4 {
        let mut number = 0;
        handlers.retain(|_| {
            number += 1;
            (number + round) % 3 != 0
        });
        all_see_more(&handlers);
        handlers.push(counting(&kernel, &ask, texts[round % 3]));
        all_see_more(&handlers);
    }
    drop(handlers);
    assert_eq!(kernel.shared_program_ids(), [0; 0], "the last handler takes the shared programs with it");
}

#[test]
fn handlers_of_other_processes_add_no_program_to_a_hook() {
    let Some(kernel) = kernel() else { return };
    let hooks = ["sched.wakeup", "sched.switch"];
    let other = |number: i32| {
        let ask = Request { pid: Some(NO_PROCESS + number), ..Request::of(hooks[number as usize % 2]) };
        counting(&kernel, &ask, "attr.seen += 1; return 1;")
    };
    let others: Vec<_> = (0..128).map(other).collect();
    // One at each hook, and one that continues with the second process of a switch.
    assert_eq!(kernel.shared_program_ids().len(), 3);
    let own = hooks.map(|hook| counting(&kernel, &Request::of(hook).own(), "attr.seen += 1; return 1;"));
    all_see_more(&own);
    assert_eq!(kernel.shared_program_ids().len(), 3);
    assert!(seen(&others).iter().all(|seen| *seen == 0), "events of this process only");
}

/// This thread and a child answer each other on one CPU, so most switches lead from one to the other.
#[test]
fn a_switch_is_an_event_of_both_processes() {
    const TURNS: i64 = 200;
    let Some(kernel) = kernel() else { return };
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pids = [own_pid(), child.id() as i32];
    let mut one_cpu = CpuSet::new();
    one_cpu.set(0);
    for pid in [None, Pid::from_raw(pids[1])] {
        rustix::thread::sched_setaffinity(pid, &one_cpu).unwrap();
    }
    let of = |pid, text| counting(&kernel, &Request { pid: Some(pid), ..Request::of("sched.switch") }, text);
    let [begins, ends] = ["attr.seen += input.next_pid != 0; return 1;", "attr.seen += input.prev_pid != 0; return 1;"];
    let handlers = [of(pids[0], begins), of(pids[0], ends), of(pids[1], begins), of(pids[1], ends)];
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for _ in 0..TURNS {
        to.write_all(b"x").unwrap();
        from.read_exact(&mut [0]).unwrap();
    }
    let seen = seen(&handlers);
    drop(to);
    child.wait().unwrap();
    assert!(seen.iter().all(|seen| *seen >= TURNS - 1), "{seen:?}");
}

#[test]
fn run_time_is_measured_on_request_and_without_the_events_of_other_processes() {
    let Some(kernel) = kernel() else { return };
    let measured = Request { measured: true, ..Request::of("sched.wakeup").own() };
    let text = "attr.seen += 1; return 1;";
    let handlers = [
        counting(&kernel, &measured, text),
        counting(&kernel, &Request { measured: false, ..Request::of("sched.wakeup").own() }, text),
        counting(&kernel, &Request { pid: Some(NO_PROCESS), measured: true, ..Request::of("sched.wakeup") }, text),
    ];
    all_see_more(&handlers[..2]);
    let [own, silent, others] = handlers.map(|(installed, _)| installed.counters());
    assert!(own.run_ns > 0 && own.events > 0, "{own:?}");
    assert_eq!((silent.run_ns, others.run_ns, others.events), (0, 0, 0));
}
