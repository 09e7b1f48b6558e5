//! Handlers in the running kernel: each service's events, each way of delivery.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use qfabric_ecode::{Environment, Limits, Program, compile};
use qfabric_linux::ecalls::{DownMemory, EventRing, Install, InstallError, Installed, Kernel, Step, UpMemory};
use qfabric_types::Nanos;
use qfabric_types::format::Format;
use qfabric_types::memory::{Geometry, Layout};

fn options(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// A request that each test changes where it matters.
struct Ask {
    service: &'static str,
    options: BTreeMap<String, String>,
    pid: Option<i32>,
    deadline: Option<Nanos>,
    fault_passes: bool,
    limits: Limits,
}

impl Ask {
    fn of(service: &'static str) -> Ask {
        let (options, limits) = (BTreeMap::new(), Limits::default());
        Ask { service, options, pid: None, deadline: None, fault_passes: true, limits }
    }

    fn with(service: &'static str, options: &[(&str, &str)]) -> Ask {
        Ask { options: self::options(options), ..Ask::of(service) }
    }

    fn own(self) -> Ask {
        Ask { pid: Some(own_pid()), ..self }
    }

    fn install(&self, kernel: &Kernel, steps: &[Step], down: Option<&DownMemory>) -> Result<Installed, InstallError> {
        kernel.install(&Install {
            service: self.service,
            options: &self.options,
            only_pid: self.pid,
            steps,
            limits: self.limits,
            down,
            deadline: self.deadline,
            fault_passes: self.fault_passes,
        })
    }

    fn program(&self, kernel: &Kernel, text: &str) -> Program {
        let input = Some(kernel.service(self.service).unwrap().format.clone());
        let env = Environment { input, attributes: vec!["seen".into(), "limit".into()], ..Environment::default() };
        compile(text, &env).unwrap_or_else(|errors| panic!("{}", errors.render("test", text, false)))
    }
}

fn up(format: &Format) -> UpMemory {
    UpMemory::new(Geometry::new(Layout::Ring, 64, format.size).unwrap()).unwrap()
}

/// A field of an event that is a single number.
fn number(format: &Format, data: &[u8], name: &str) -> i64 {
    let field = format.field(name).unwrap_or_else(|| panic!("{} has no field {name}", format.name));
    let qfabric_types::format::Kind::Scalar(scalar) = field.kind else { panic!("{name} is no number") };
    let mut bytes = [0; 8];
    let (at, length) = (field.offset as usize, scalar.bytes() as usize);
    bytes[..length].copy_from_slice(&data[at..at + length]);
    scalar.wrap(i64::from_le_bytes(bytes))
}

fn event(of: &UpMemory) -> Vec<u8> {
    let mut data = vec![0; of.geometry().data_bytes() as usize];
    let mut reader = of.reader();
    for _ in 0..200 {
        if reader.take(&mut data).is_some() {
            return data;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no event within a second");
}

/// Makes this process sleep and be woken.
fn nap() {
    std::thread::sleep(Duration::from_millis(2));
}

#[test]
fn every_service_can_be_had_here_and_takes_all_its_fields() {
    let kernel = Kernel::open().unwrap();
    for service in kernel.services() {
        assert_eq!(service.unavailable, None, "{}", service.name);
        assert_eq!(service.fields.len(), service.format.fields.len());
        let memory = up(&service.format);
        let values = [("interface", "lo"), ("listen", ":7777"), ("period", "1ms"), ("when", "syscall")];
        let needed = values.iter().filter(|(name, _)| service.options.iter().any(|o| o.required && o.name == *name));
        let ask = Ask { options: options(&needed.copied().collect::<Vec<_>>()), ..Ask::of(service.name) };
        let ask = if service.name == "app.deferred" { ask.own() } else { ask };
        ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None)
            .unwrap_or_else(|error| panic!("{}: {error}", service.name));
    }
}

#[test]
fn a_wakeup_of_this_process_arrives_in_its_memory() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::of("sched.wakeup").own();
    let format = &kernel.service("sched.wakeup").unwrap().format;
    let memory = up(format);
    let program = ask.program(&kernel, "attr.seen += 1; return input.prio >= 100;");
    let down = DownMemory::new().unwrap();
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, Some(&down)).unwrap();
    nap();
    let data = event(&memory);
    assert_eq!(number(format, &data, "pid"), i64::from(own_pid()));
    assert!(number(format, &data, "time") > 0 && number(format, &data, "prio") >= 100);
    assert!(down.down().attribute(0) > 0);
    let counters = installed.counters();
    assert!(counters.passed > 0 && counters.events == counters.passed + counters.blocked, "{counters:?}");
}

#[test]
fn a_stored_attribute_is_seen_by_the_next_event() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::of("sched.wakeup").own();
    let program = ask.program(&kernel, "return attr.limit > 10;");
    let down = DownMemory::new().unwrap();
    let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
    nap();
    let before = installed.counters();
    assert!(before.blocked > 0 && before.passed == 0, "{before:?}");
    down.down().set_attribute(1, 11);
    nap();
    assert!(installed.counters().passed > 0);
}

#[test]
fn statics_persist_and_an_output_replaces_the_event() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::of("sched.wakeup").own();
    let text = "struct output { long number; int tid; }; static long n = 100;
                n++; output.number = n; output.tid = input.tid; return 1;";
    let program = ask.program(&kernel, text);
    let format = program.output.clone().unwrap();
    let memory = up(&format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let _installed = ask.install(&kernel, &steps, None).unwrap();
    nap();
    nap();
    let (first, second) = (event(&memory), event(&memory));
    assert_eq!([first, second].map(|data| number(&format, &data, "number")), [101, 102]);
}

#[test]
fn two_programs_in_a_chain_pass_the_event_along_until_one_says_no() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::of("sched.wakeup").own();
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
    let _passes = ask.install(&kernel, &pass, None).unwrap();
    let stops = ask.install(&kernel, &stop, None).unwrap();
    nap();
    let data = event(&memory);
    assert_eq!((number(&format, &data, "a"), number(&format, &data, "b")), (own_pid().into(), 10));
    assert!(unused.reader().is_empty() && stops.counters().blocked > 0);
}

#[test]
fn a_tail_step_reaches_user_space_with_its_deadline() {
    let kernel = Kernel::open().unwrap();
    let ring = EventRing::new(1 << 16).unwrap();
    let ask = Ask { deadline: Some(Nanos::from_millis(7)), ..Ask::of("sched.wakeup").own() };
    let installed = ask.install(&kernel, &[Step::Tail { ring: &ring, id: 0x1234_5678_9abc }], None).unwrap();
    nap();
    let mut seen = 0;
    ring.drain(1000, &mut |record| {
        assert_eq!((record.id, record.deadline_ns - record.time_ns), (0x1234_5678_9abc, 7_000_000));
        assert_eq!(record.data.len() as u32, kernel.service("sched.wakeup").unwrap().format.size);
        seen += 1;
    });
    assert!(seen > 0 && seen <= installed.counters().passed as usize);
}

#[test]
fn a_full_ring_drops_and_counts() {
    let kernel = Kernel::open().unwrap();
    let ring = EventRing::new(4096).unwrap();
    let ask = Ask::of("sched.wakeup").own();
    let installed = ask.install(&kernel, &[Step::Tail { ring: &ring, id: 1 }], None).unwrap();
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

#[test]
fn an_emission_is_delivered_though_the_verdict_blocks() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask { limits: Limits { emissions: 2, ..Limits::default() }, ..Ask::of("sched.wakeup").own() };
    let text = "struct output { int n; }; for (int i = 1; i < 6; i++) { output.n = i; emit(); } return 0;";
    let program = ask.program(&kernel, text);
    let format = program.output.clone().unwrap();
    let memory = up(&format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    nap();
    drop(installed);
    let data = [event(&memory), event(&memory)];
    assert_eq!(data.map(|data| number(&format, &data, "n")), [1, 2]);
}

#[test]
fn a_fault_is_counted_with_its_line_and_takes_the_policy() {
    let kernel = Kernel::open().unwrap();
    let mut ask = Ask::of("sched.wakeup").own();
    let program = ask.program(&kernel, "int zero = input.cpu - input.cpu;\nreturn 1 / zero;");
    let passes = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    ask.fault_passes = false;
    let blocks = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    nap();
    let (passes, blocks) = (passes.counters(), blocks.counters());
    assert!(passes.faults > 0 && passes.passed == passes.faults && passes.blocked == 0, "{passes:?}");
    assert!(blocks.faults > 0 && blocks.blocked == blocks.faults && blocks.passed == 0, "{blocks:?}");
    assert_eq!(passes.last_fault.map(|fault| fault.line), Some(2));
}

#[test]
fn a_reader_that_sleeps_is_woken_once() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::with("timer", &[("period", "20ms")]);
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
    // Awake, it is left alone.
    std::thread::sleep(Duration::from_millis(60));
    assert!(!readable(memory.wake_fd(), 0));
}

fn readable(fd: std::os::fd::BorrowedFd, ms: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let patience = rustix::time::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&patience)).unwrap() == 1
}

/// As applications do it, who have the descriptor alone.
fn acknowledge(memory: &UpMemory) {
    memory.acknowledge().unwrap();
}

#[test]
fn slots_are_taken_by_position_and_the_newest_stays() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::with("timer", &[("period", "1ms")]);
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
    let kernel = Kernel::open().unwrap();
    let ask = Ask::with("timer", &[("period", "1ms")]);
    let format = &kernel.service("timer").unwrap().format;
    let memory = UpMemory::new(Geometry::new(Layout::Bits, 4, format.size).unwrap()).unwrap();
    let installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut reader = memory.reader();
    let mut counts = Vec::new();
    for position in 0..4 {
        let mut data = vec![0; format.size as usize];
        reader.take_at(position, &mut data).unwrap();
        counts.push(number(format, &data, "count"));
    }
    assert_eq!(counts, [1, 2, 3, 4]);
    assert!(installed.counters().dropped_memory > 5);
    let beyond = ask.install(&kernel, &[Step::Memory { memory: &memory, position: Some("time") }], None).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(beyond.counters().dropped_memory, beyond.counters().passed);
}

#[test]
fn what_user_space_raises_arrives_like_the_kernels_own() {
    use qfabric_types::memory::Stamp;
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
fn fork_exec_and_exit_tell_of_a_child() {
    let kernel = Kernel::open().unwrap();
    let format = |service: &str| kernel.service(service).unwrap().format.clone();
    let memories: Vec<_> = ["proc.fork", "proc.exec", "proc.exit"].map(|service| up(&format(service))).into();
    let fork = Ask::of("proc.fork").own();
    let forked = fork.install(&kernel, &[Step::Memory { memory: &memories[0], position: None }], None).unwrap();
    let of_ours = |service: &'static str, memory: &UpMemory| {
        let ask = Ask::of(service);
        let program = ask.program(&kernel, &format!("return input.parent == {};", own_pid()));
        ask.install(&kernel, &[Step::Handler(&program), Step::Memory { memory, position: None }], None).unwrap()
    };
    let (executed, exited) = (of_ours("proc.exec", &memories[1]), of_ours("proc.exit", &memories[2]));
    let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
    let pid = i64::from(child.id());
    child.wait().unwrap();
    let find = |service: &str, memory: &UpMemory, name: &str| {
        let format = format(service);
        (0..64).map(|_| event(memory)).find(|data| number(&format, data, name) == pid).unwrap()
    };
    find("proc.fork", &memories[0], "child_pid");
    let exec = find("proc.exec", &memories[1], "pid");
    let comm = format("proc.exec").field("comm").unwrap().offset as usize;
    assert_eq!(&exec[comm..comm + 3], b"sh\0");
    let exit = find("proc.exit", &memories[2], "pid");
    assert_eq!(number(&format("proc.exit"), &exit, "code") >> 8, 3);
    drop((forked, executed, exited));
}

#[test]
fn a_packet_is_taken_apart_and_can_be_dropped() {
    let kernel = Kernel::open().unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ask = Ask::with("net.rx", &[("interface", "lo"), ("drop", "yes")]);
    let text = format!("if (input.destination_port != {port}) return 1; emit(); return input.data[0] != 'x';");
    let program = ask.program(&kernel, &text);
    let format = &kernel.service("net.rx").unwrap().format;
    let memory = up(format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let _installed = ask.install(&kernel, &steps, None).unwrap();
    let mut room = [0; 16];
    sender.send_to(b"hello", ("127.0.0.1", port)).unwrap();
    assert_eq!(receiver.recv(&mut room).unwrap(), 5);
    sender.send_to(b"x away", ("127.0.0.1", port)).unwrap();
    assert!(receiver.recv(&mut room).is_err(), "dropped in the kernel");
    let data = std::iter::repeat_with(|| event(&memory))
        .find(|data| number(format, data, "destination_port") == i64::from(port))
        .unwrap();
    let expected = [("version", 4), ("transport", 17), ("protocol", 0x800), ("data_len", 5), ("source", 0x7f00_0001)];
    for (field, value) in expected {
        assert_eq!(number(format, &data, field), value, "{field}");
    }
    let payload = format.field("data").unwrap().offset as usize;
    assert_eq!(&data[payload..payload + 6], b"hello\0");
}

#[test]
fn a_packet_over_ipv6_has_its_addresses_and_leaves_by_tx() {
    let kernel = Kernel::open().unwrap();
    let Ok(receiver) = UdpSocket::bind("[::1]:0") else { return };
    let port = receiver.local_addr().unwrap().port();
    let ask = Ask::with("net.tx", &[("interface", "lo")]);
    let program = ask.program(&kernel, &format!("return input.destination_port == {port};"));
    let format = &kernel.service("net.tx").unwrap().format;
    let memory = up(format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let _installed = ask.install(&kernel, &steps, None).unwrap();
    UdpSocket::bind("[::1]:0").unwrap().send_to(b"six", ("::1", port)).unwrap();
    let data = event(&memory);
    let destination = format.field("destination6").unwrap().offset as usize;
    assert_eq!(data[destination..destination + 16], std::net::Ipv6Addr::LOCALHOST.octets());
    assert_eq!((number(format, &data, "version"), number(format, &data, "data_len")), (6, 3));
}

#[test]
fn a_syn_shows_the_queues_and_can_be_dropped() {
    let kernel = Kernel::open().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listen = format!("127.0.0.1:{}", address.port());
    let ask = Ask::with("tcp.accept", &[("interface", "lo"), ("listen", &listen), ("drop", "yes")]);
    let program = ask.program(&kernel, "if (input.accept_queue < 2) return 1; emit(); return 0;");
    let format = &kernel.service("tcp.accept").unwrap().format;
    let memory = up(format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300));
    let _first = connect().unwrap();
    nap(); // the last packet of the handshake is on its way still
    let _second = connect().unwrap();
    nap();
    assert!(connect().is_err(), "two wait already");
    let events: Vec<_> = (0..3).map(|_| event(&memory)).collect();
    let queue: Vec<_> = events.iter().map(|data| number(format, data, "accept_queue")).collect();
    assert_eq!(queue, [0, 1, 2]);
    assert_eq!(number(format, &events[0], "accept_limit"), 128);
    assert_eq!(number(format, &events[0], "port"), i64::from(address.port()));
    assert!(installed.counters().blocked >= 1);
    drop(installed);
    listener.accept().unwrap();
    connect().unwrap();
}

#[test]
fn a_connections_states_and_a_sockets_data_are_told() {
    let kernel = Kernel::open().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!(":{}", listener.local_addr().unwrap().port());
    let format = |service: &str| kernel.service(service).unwrap().format.clone();
    let (states, ready) = (up(&format("tcp.state")), up(&format("sock.ready")));
    let ask = |service, memory| {
        let ask = Ask::with(service, &[("listen", &listen)]);
        ask.install(&kernel, &[Step::Memory { memory, position: None }], None).unwrap()
    };
    let _installed = (ask("tcp.state", &states), ask("sock.ready", &ready));
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"data").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
    drop(client);
    let reached: Vec<_> = (0..2).map(|_| number(&format("tcp.state"), &event(&states), "state")).collect();
    assert_eq!(reached[0], 3, "SYN_RECV of the new connection");
    let why: Vec<_> = (0..3).map(|_| number(&format("sock.ready"), &event(&ready), "why")).collect();
    assert_eq!(why, [1, 1, 2], "a connection, its data, its end");
}

#[test]
fn deferred_values_come_in_batches_at_the_next_system_call() {
    let kernel = Kernel::open().unwrap();
    let ask = Ask::with("app.deferred", &[("when", "syscall")]).own();
    let program = ask.program(&kernel, "for (int i = 0; i < input.count; i++) attr.seen += input.value[i]; return 1;");
    let down = DownMemory::new().unwrap();
    let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
    for value in 1..=20 {
        down.down().defer(value).unwrap();
    }
    for _ in 0..3 {
        rustix::process::getppid();
    }
    assert_eq!(down.down().attribute(0), 210);
    assert_eq!((installed.counters().events, down.down().deferred()), (2, 0));
}

#[test]
fn only_the_latest_deferred_value_is_handed_over_if_that_is_wanted() {
    let kernel = Kernel::open().unwrap();
    for when in ["schedule", "delay"] {
        let ask = Ask::with("app.deferred", &[("when", when), ("latest", "yes")]).own();
        let program = ask.program(&kernel, "attr.seen = input.value[0]; return input.count == 1;");
        let down = DownMemory::new().unwrap();
        let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
        (1..=20).for_each(|value| down.down().defer(value).unwrap());
        for _ in 0..100 {
            nap();
        }
        assert_eq!((down.down().attribute(0), down.down().deferred()), (20, 0), "{when}");
        assert_eq!(installed.counters().blocked, 0);
    }
}

#[test]
fn what_cannot_be_installed_is_refused_with_the_reason() {
    let kernel = Kernel::open().unwrap();
    let refusal = |ask: Ask, steps: &[Step]| ask.install(&kernel, steps, None).unwrap_err().to_string();
    let ring = EventRing::new(4096).unwrap();
    let tail = [Step::Tail { ring: &ring, id: 1 }];
    assert!(refusal(Ask::of("sched.snore"), &tail).contains("`qfabric services` lists them: sched.wakeup"));
    assert!(refusal(Ask::of("sched.wakeup"), &[]).contains("there is no step"));
    assert!(refusal(Ask::with("net.rx", &[("interface", "nowhere0")]), &tail).contains("`ip link` lists them"));
    assert!(refusal(Ask::with("app.deferred", &[("when", "syscall")]), &tail).contains("needs a process"));
    assert!(refusal(Ask::with("timer", &[("period", "1ms")]).own(), &tail).contains("leave the process out"));
    let small = UpMemory::new(Geometry::new(Layout::Ring, 4, 8).unwrap()).unwrap();
    let steps = [Step::Memory { memory: &small, position: None }];
    assert!(refusal(Ask::of("sched.wakeup"), &steps).contains("8 bytes for an event, this one has 48"));
    let other = compile("return input.x;", &Environment { input: Some(ring_format()), ..Environment::default() }).unwrap();
    assert!(refusal(Ask::of("sched.wakeup"), &[Step::Handler(&other)]).contains("its input has 4 bytes"));
    let big = Ask::with("net.rx", &[("interface", "lo")]);
    assert!(refusal(big, &[Step::Tail { ring: &EventRing::new(4096).unwrap(), id: 1 }, tail[0]]).contains("the last one"));
}

fn ring_format() -> Format {
    qfabric_ecode::parse_formats("struct one { int x; };").unwrap().remove(0)
}
