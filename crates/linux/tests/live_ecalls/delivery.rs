//! Tests of the ways of delivery, of chains, faults and refusals.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::Duration;

use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::ecalls::{DownMemory, EventRing, SignalTo, Step, UpMemory};
use qfabric_linux::threads::start_time;
use qfabric_types::format::{Format, Scalar};
use qfabric_types::memory::{Geometry, Layout};
use qfabric_types::{Nanos, ThreadId};

use crate::common::{Request, event, kernel, nap, nap_until_run, number, own_pid, up};

#[test]
fn a_wakeup_of_this_process_arrives_in_its_memory() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("sched.wakeup").own();
    let format = &kernel.service("sched.wakeup").unwrap().format;
    let memory = up(format);
    let program = ask.program(&kernel, "attr.seen += 1; return input.prio >= 100;");
    let down = DownMemory::new().unwrap();
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, Some(&down)).unwrap();
    nap_until_run(&installed);
    let data = event(&memory);
    assert_eq!(number(format, &data, "pid"), i64::from(own_pid()));
    assert!(number(format, &data, "time") > 0 && number(format, &data, "prio") >= 100);
    assert!(down.down().attribute(0) > 0);
    let counters = installed.counters();
    assert!(counters.passed > 0 && counters.events == counters.passed + counters.blocked, "{counters:?}");
}

#[test]
fn a_stored_attribute_is_seen_by_the_next_event() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("sched.wakeup").own();
    let program = ask.program(&kernel, "return attr.limit > 10;");
    let down = DownMemory::new().unwrap();
    let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
    nap_until_run(&installed);
    let before = installed.counters();
    assert!(before.blocked > 0 && before.passed == 0, "{before:?}");
    down.down().set_attribute(1, 11);
    let passes = |_: &usize| {
        nap();
        installed.counters().passed > 0
    };
    assert!((0..5_000).find(passes).is_some(), "{:?}", installed.counters());
}

#[test]
fn statics_persist_and_an_output_replaces_the_event() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("sched.wakeup").own();
    let text = "struct output { long number; int tid; }; static long n = 100;
                n++; output.number = n; output.tid = input.tid; return 1;";
    let program = ask.program(&kernel, text);
    let format = program.output.clone().unwrap();
    let memory = up(&format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    nap_until_run(&installed);
    nap_until_run(&installed);
    let (first, second) = (event(&memory), event(&memory));
    assert_eq!([first, second].map(|data| number(&format, &data, "number")), [101, 102]);
}

#[test]
fn an_event_passes_along_a_chain_until_a_handler_blocks_it() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("sched.wakeup").own();
    let first = ask.program(&kernel, "struct output { int a; int b; }; output.a = input.pid; output.b = 5; return 1;");
    let env = Environment { input: first.output.clone(), ..Environment::default() };
    let second = compile("output = input; output.b = input.b * 2; return input.a != 0;", &env).unwrap();
    let never = compile("return input.b != 10;", &env).unwrap();
    let format = second.output.clone().unwrap();
    let (memory, unused) = (up(&format), up(&format));
    let pass = [Step::Handler(&first), Step::Handler(&second), Step::Memory { memory: &memory, position: None }];
    let stop = [
        Step::Handler(&first),
        Step::Handler(&second),
        Step::Handler(&never),
        Step::Memory { memory: &unused, position: None },
    ];
    let passes = ask.install(&kernel, &pass, None).unwrap();
    let stops = ask.install(&kernel, &stop, None).unwrap();
    nap_until_run(&passes);
    nap_until_run(&stops);
    let data = event(&memory);
    assert_eq!((number(&format, &data, "a"), number(&format, &data, "b")), (own_pid().into(), 10));
    assert!(unused.reader().is_empty() && stops.counters().blocked > 0);
}

#[test]
fn a_tail_step_reaches_user_space_with_its_deadline() {
    let Some(kernel) = kernel() else { return };
    let ring = EventRing::new(1 << 16).unwrap();
    let ask = Request { deadline: Some(Nanos::from_millis(7)), ..Request::of("sched.wakeup").own() };
    let installed =
        ask.install(&kernel, &[Step::Tail { ring: &ring, id: 0x1234_5678_9abc, user: None }], None).unwrap();
    nap_until_run(&installed);
    let mut seen = 0;
    ring.drain(1000, &mut |record| {
        assert_eq!((record.id, record.deadline_ns - record.time_ns), (0x1234_5678_9abc, 7_000_000));
        assert_eq!(record.data.len() as u32, kernel.service("sched.wakeup").unwrap().format.size);
        seen += 1;
    });
    assert!(seen > 0 && seen <= installed.counters().passed as usize);
}

/// A process that a signal ends.
fn sleeper() -> (Child, SignalTo) {
    let process = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = process.id() as i32;
    let started = start_time(ThreadId(pid)).unwrap();
    (process, SignalTo { number: 40, pid, started, value: None })
}

#[test]
fn a_signal_that_the_kernel_sends_needs_no_user_space() {
    let Some(kernel) = kernel() else { return };
    if let Err(why) = kernel.signals() {
        return qfabric_linux::testing::skip(why);
    }
    let ring = EventRing::new(1 << 16).unwrap();
    let (mut process, to) = sleeper();
    let to = SignalTo { value: Some((0, Scalar::I64)), ..to };
    let steps = [Step::Signal(to), Step::Tail { ring: &ring, id: 1, user: None }];
    let installed = Request::of("app.call").own().install(&kernel, &steps, None).unwrap();
    assert!(installed.sends_signals());
    installed.call([-5; 8]).unwrap();
    assert_eq!(process.wait().unwrap().signal(), Some(40), "{:?}", installed.counters());
    let (counters, taken) = (installed.counters(), ring.drain(1000, &mut |_| ()));
    assert_eq!((counters.signals, counters.passed, taken), (1, 1, 0), "{counters:?}");
    installed.call([-5; 8]).unwrap();
    assert_eq!((installed.counters().signals, ring.drain(1000, &mut |_| ())), (1, 1), "nobody is there");
}

#[test]
fn a_handler_at_a_tracepoint_sends_signals() {
    let Some(kernel) = kernel() else { return };
    if let Err(why) = kernel.signals() {
        return qfabric_linux::testing::skip(why);
    }
    let ring = EventRing::new(1 << 16).unwrap();
    let (mut process, to) = sleeper();
    let ask = Request::of("proc.fork").own();
    // Each emission contains the code, too.
    let program = ask.program(&kernel, "for (int i = 0; i < 3; i++) emit(); return 1;");
    let steps = [Step::Handler(&program), Step::Signal(to), Step::Tail { ring: &ring, id: 1, user: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    Command::new("true").status().unwrap();
    assert_eq!(process.wait().unwrap().signal(), Some(40), "{:?}", installed.counters());
    assert!(installed.counters().signals > 0, "{:?}", installed.counters());
}

#[test]
fn a_signal_for_a_process_that_is_gone_goes_to_user_space() {
    let Some(kernel) = kernel() else { return };
    let (mut process, to) = sleeper();
    let ring = EventRing::new(1 << 16).unwrap();
    let ask = Request::of("app.call").own();
    // Another process has the number since.
    let other = SignalTo { started: to.started + 1, ..to };
    let steps = [Step::Signal(other), Step::Tail { ring: &ring, id: 1, user: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    installed.call([0; 8]).unwrap();
    let taken = ring.drain(1000, &mut |_| ());
    assert_eq!((taken, installed.counters().signals), (1, 0), "{:?}", installed.counters());
    assert_eq!(process.try_wait().unwrap(), None, "it got no signal");
    process.kill().and_then(|()| process.wait()).unwrap();
    let alone = ask.install(&kernel, &[Step::Signal(to)], None).unwrap_err().to_string();
    assert!(alone.contains("needs a step into user space"), "{alone}");
    let outside = SignalTo { value: Some((4096, Scalar::I64)), ..to };
    let refused = ask.install(&kernel, &[Step::Signal(outside), steps[1]], None).unwrap_err().to_string();
    assert!(refused.contains("not inside the event"), "{refused}");
}

#[test]
fn a_full_ring_drops_and_counts() {
    let Some(kernel) = kernel() else { return };
    let ring = EventRing::new(4096).unwrap();
    let ask = Request::of("sched.wakeup").own();
    let installed = ask.install(&kernel, &[Step::Tail { ring: &ring, id: 1, user: None }], None).unwrap();
    let memory = UpMemory::new(Geometry::new(Layout::Ring, 4, 48).unwrap()).unwrap();
    let bounded = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    for _ in 0..100 {
        nap();
    }
    let (to_ring, to_memory) = (installed.counters(), bounded.counters());
    assert!(to_ring.dropped_ring > 0 && to_ring.dropped_memory == 0, "{to_ring:?}");
    assert!(to_memory.dropped_memory > 90, "{to_memory:?}");
    assert_eq!(memory.reader().dropped(), to_memory.dropped_memory);
    let mut taken = 0;
    assert!(ring.drain(usize::MAX, &mut |_| taken += 1) > 30 && taken > 30);
}

/// Eight users leave their shares full; the events of a ninth and of root have room.
#[test]
fn users_whose_events_wait_in_the_ring_take_the_room_of_no_other_user() {
    let Some(kernel) = kernel() else { return };
    let ring = EventRing::new(65_536).unwrap();
    let ask = Request::of("sched.wakeup").own();
    let tail = |id, user| ask.install(&kernel, &[Step::Tail { ring: &ring, id, user }], None).unwrap();
    let greedy: Vec<_> = (1..=8).map(|user| tail(user, Some(user as u32))).collect();
    let is_full = |_: &usize| {
        nap();
        greedy.iter().all(|one| one.counters().dropped_ring > 0)
    };
    assert!((0..5_000).find(is_full).is_some(), "the shares are full");
    let others = [tail(20, Some(20)), tail(30, None)];
    let have_events = |_: &usize| {
        nap();
        others.iter().all(|one| one.counters().events > 2)
    };
    assert!((0..5_000).find(have_events).is_some());
    assert!(others.iter().all(|one| one.counters().dropped_ring == 0));
    drop(others);
    let mut of = std::collections::BTreeMap::<u64, u64>::new();
    ring.drain(usize::MAX, &mut |record| *of.entry(record.id).or_default() += 1);
    assert!((1..=8).all(|user| of[&user] > 20) && of[&20] > 2 && of[&30] > 2, "{of:?}");
    nap_until_run(&greedy[0]);
    assert!(ring.drain(usize::MAX, &mut |record| assert!(record.id <= 8)) > 0, "there is room again");
}

#[test]
fn an_emission_is_delivered_though_the_verdict_blocks() {
    let Some(kernel) = kernel() else { return };
    let ask = Request { limits: Limits { emissions: 2, ..Limits::default() }, ..Request::of("sched.wakeup").own() };
    let text = "struct output { int n; }; for (int i = 1; i < 6; i++) { output.n = i; emit(); } return 0;";
    let program = ask.program(&kernel, text);
    let format = program.output.clone().unwrap();
    let memory = up(&format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    nap_until_run(&installed);
    drop(installed);
    let data = [event(&memory), event(&memory)];
    assert_eq!(data.map(|data| number(&format, &data, "n")), [1, 2]);
}

#[test]
fn a_fault_is_counted_with_its_line_and_takes_the_policy() {
    let Some(kernel) = kernel() else { return };
    let mut ask = Request::of("sched.wakeup").own();
    let program = ask.program(&kernel, "int zero = input.cpu - input.cpu;\nreturn 1 / zero;");
    let passes = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    ask.fault_passes = false;
    let blocks = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    nap_until_run(&passes);
    nap_until_run(&blocks);
    let (passes, blocks) = (passes.counters(), blocks.counters());
    assert!(passes.faults > 0 && passes.passed == passes.faults && passes.blocked == 0, "{passes:?}");
    assert!(blocks.faults > 0 && blocks.blocked == blocks.faults && blocks.passed == 0, "{blocks:?}");
    assert_eq!(passes.last_fault.map(|fault| fault.line), Some(2));
}

#[test]
fn a_fault_passes_the_event_as_it_was_before_the_handler() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::of("sched.wakeup").own();
    let program =
        ask.program(&kernel, "output = input; output.pid = 7; output.tid = 8; return 1 / (input.cpu - input.cpu);");
    let format = &kernel.service("sched.wakeup").unwrap().format;
    let memory = up(format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    nap_until_run(&installed);
    let data = event(&memory);
    assert_eq!(number(format, &data, "pid"), i64::from(own_pid()));
    assert!(number(format, &data, "tid") >= i64::from(own_pid()) && number(format, &data, "time") > 0);
}

#[test]
fn a_sleeping_reader_is_woken_once() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::with("timer", &[("period", "20ms")]);
    let memory = up(&kernel.service("timer").unwrap().format);
    let _installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let mut reader = memory.reader();
    for _ in 0..5 {
        while !reader.may_sleep() {
            while reader.take(&mut [0; 64]).is_some() {}
        }
        assert!(readable(memory.wake_fd(), 1000), "the reader is woken");
        acknowledge(&memory);
        assert!(!reader.is_empty());
    }
    // A reader that is awake is not woken again.
    std::thread::sleep(Duration::from_millis(60));
    assert!(!readable(memory.wake_fd(), 0));
}

fn readable(fd: std::os::fd::BorrowedFd, ms: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let patience = rustix::time::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&patience)).unwrap() == 1
}

/// Separate from the reader, because applications hold only the descriptor.
fn acknowledge(memory: &UpMemory) {
    memory.acknowledge().unwrap();
}

#[test]
fn slots_are_taken_by_position_and_the_newest_stays() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::with("timer", &[("period", "1ms")]);
    let text = "struct output { long value; int slot; }; static int n; n++; output.slot = n % 3 + 60; output.value = n; return 1;";
    let program = ask.program(&kernel, text);
    let format = program.output.clone().unwrap();
    let memory = UpMemory::new(Geometry::new(Layout::Bits, 128, format.size).unwrap()).unwrap();
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: Some("slot") }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    drop(installed);
    let (mut reader, mut data) = (memory.reader(), vec![0; format.size as usize]);
    let mut taken = Vec::new();
    while let Some((position, _)) = reader.take_lowest(&mut data) {
        assert_eq!(number(&format, &data, "slot"), i64::from(position));
        taken.push((position, number(&format, &data, "value")));
    }
    assert_eq!(taken.iter().map(|&(position, _)| position).collect::<Vec<_>>(), [60, 61, 62]);
    let newest: Vec<i64> = taken.iter().map(|&(_, value)| value).collect();
    assert!(newest.iter().max().unwrap() - newest.iter().min().unwrap() == 2, "{newest:?}");
}

#[test]
fn free_slots_are_filled_in_turn_and_a_position_out_of_range_is_dropped() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::with("timer", &[("period", "1ms")]);
    let format = &kernel.service("timer").unwrap().format;
    let memory = UpMemory::new(Geometry::new(Layout::Bits, 4, format.size).unwrap()).unwrap();
    let installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let dropped = || installed.counters().dropped_memory;
    (0..200).take_while(|_| dropped() <= 5).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(dropped() > 5);
    // A slot counts as free while it is being read, so the next event would fill it again: stop the events first.
    drop(installed);
    let mut reader = memory.reader();
    let mut counts = Vec::new();
    for position in 0..4 {
        let mut data = vec![0; format.size as usize];
        reader.take_at(position, &mut data).unwrap();
        counts.push(number(format, &data, "count"));
    }
    assert_eq!(counts, [1, 2, 3, 4]);
    let beyond = ask.install(&kernel, &[Step::Memory { memory: &memory, position: Some("time") }], None).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(beyond.counters().dropped_memory, beyond.counters().passed);
}

#[test]
fn an_event_raised_in_user_space_arrives_like_one_of_the_kernel() {
    use qfabric_types::memory::Stamp;
    if kernel().is_none() {
        return;
    }
    let stamp = Stamp { time_ns: 5, deadline_ns: 6 };
    let ring = UpMemory::new(Geometry::new(Layout::Ring, 2, 300).unwrap()).unwrap();
    assert!(ring.put(&[7; 300], stamp, None).unwrap() && ring.put(b"short", stamp, None).unwrap());
    assert!(!ring.put(b"no room", stamp, None).unwrap());
    let (mut reader, mut data) = (ring.reader(), [1; 300]);
    assert_eq!((reader.flag(), reader.dropped()), (2, 1));
    assert_eq!(reader.take(&mut data), Some(stamp));
    assert_eq!(data, [7; 300]);
    assert_eq!(reader.take(&mut data), Some(stamp));
    assert_eq!((&data[..5], &data[5..]), (&b"short"[..], &[0; 295][..]));
    let bits = UpMemory::new(Geometry::new(Layout::Bits, 64, 8).unwrap()).unwrap();
    assert!(bits.put(b"old", stamp, Some(9)).unwrap() && bits.put(b"new", stamp, Some(9)).unwrap());
    assert!(!bits.put(b"", stamp, Some(64)).unwrap());
    let mut data = [0; 3];
    assert_eq!(bits.reader().take_lowest(&mut data), Some((9, stamp)));
    assert_eq!(&data, b"new");
}

#[test]
fn a_refused_installation_names_its_reason() {
    let Some(kernel) = kernel() else { return };
    let refusal = |ask: Request, steps: &[Step]| ask.install(&kernel, steps, None).unwrap_err().to_string();
    let ring = EventRing::new(4096).unwrap();
    let tail = [Step::Tail { ring: &ring, id: 1, user: None }];
    assert!(refusal(Request::of("sched.snore"), &tail).contains("the services are sched.wakeup"));
    assert!(refusal(Request::of("sched.wakeup"), &[]).contains("the chain has no step"));
    assert!(
        refusal(Request::with("net.rx", &[("interface", "nowhere0")]), &tail)
            .contains("list the interfaces with `ip link`")
    );
    assert!(refusal(Request::with("app.deferred", &[("when", "syscall")]), &tail).contains("needs a process"));
    assert!(refusal(Request::with("timer", &[("period", "1ms")]).own(), &tail).contains("leave out the process"));
    let small = UpMemory::new(Geometry::new(Layout::Ring, 4, 8).unwrap()).unwrap();
    let steps = [Step::Memory { memory: &small, position: None }];
    assert!(refusal(Request::of("sched.wakeup"), &steps).contains("8 bytes for an event, but this event has 48"));
    let other =
        compile("return input.x;", &Environment { input: Some(ring_format()), ..Environment::default() }).unwrap();
    assert!(refusal(Request::of("sched.wakeup"), &[Step::Handler(&other)]).contains("its input has 4 bytes"));
    let big = Request::with("net.rx", &[("interface", "lo")]);
    assert!(
        refusal(big, &[Step::Tail { ring: &EventRing::new(4096).unwrap(), id: 1, user: None }, tail[0]])
            .contains("the last one")
    );
}

fn ring_format() -> Format {
    qfabric_ecode::parse_formats("struct one { int x; };").unwrap().remove(0)
}
