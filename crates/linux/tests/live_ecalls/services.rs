//! Tests of the events of each service.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use qfabric_linux::ecalls::{DownMemory, Step, UpMemory};
use qfabric_types::format::Format;
use qfabric_types::memory::Moment;

use crate::common::{Request, event, kernel, nap, number, options, own_pid, take_event, up};

#[test]
fn every_service_is_available_and_delivers_all_its_fields() {
    let Some(kernel) = kernel() else { return };
    for service in kernel.services() {
        assert_eq!(service.unavailable, None, "{}", service.name);
        assert_eq!(service.fields.len(), service.format.fields.len());
        let memory = up(&service.format);
        let values = [("interface", "lo"), ("listen", ":7777"), ("period", "1ms"), ("when", "syscall")];
        let needed = values.iter().filter(|(name, _)| service.options.iter().any(|o| o.required && o.name == *name));
        let ask = Request { options: options(&needed.copied().collect::<Vec<_>>()), ..Request::of(service.name) };
        let ask = if service.name.starts_with("app.") { ask.own() } else { ask };
        ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None)
            .unwrap_or_else(|error| panic!("{}: {error}", service.name));
    }
}

#[test]
fn fork_exec_and_exit_of_a_child_are_events() {
    let Some(kernel) = kernel() else { return };
    let format = |service: &str| kernel.service(service).unwrap().format.clone();
    let memories: Vec<_> = ["proc.fork", "proc.exec", "proc.exit"].map(|service| up(&format(service))).into();
    let fork = Request::of("proc.fork").own();
    let forked = fork.install(&kernel, &[Step::Memory { memory: &memories[0], position: None }], None).unwrap();
    let of_ours = |service: &'static str, memory: &UpMemory| {
        let ask = Request::of(service);
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
fn a_packet_is_parsed_and_can_be_dropped() {
    let Some(kernel) = kernel() else { return };
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ask = Request::with("net.rx", &[("interface", "lo"), ("drop", "yes")]);
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
    let Some(kernel) = kernel() else { return };
    let Ok(receiver) = UdpSocket::bind("[::1]:0") else { return };
    let port = receiver.local_addr().unwrap().port();
    let ask = Request::with("net.tx", &[("interface", "lo")]);
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
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listen = format!("127.0.0.1:{}", address.port());
    let ask = Request::with("tcp.accept", &[("interface", "lo"), ("listen", &listen), ("drop", "yes")]);
    let program = ask.program(&kernel, "if (input.accept_queue < 2) return 1; emit(); return 0;");
    let format = &kernel.service("tcp.accept").unwrap().format;
    let memory = up(format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300));
    let _first = connect().unwrap();
    nap(); // the last packet of the handshake may still be on its way
    let _second = connect().unwrap();
    nap();
    assert!(connect().is_err(), "two connections are already queued");
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

/// The server closes first, so its side of the connection stays in TIME_WAIT, and the client uses the same port again.
#[test]
fn a_connection_that_takes_the_place_of_a_closed_one_is_an_event() {
    const CONNECTIONS: usize = 5;
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap().to_string();
    let ask = Request::with("tcp.accept", &[("interface", "lo"), ("listen", &listen)]);
    let format = &kernel.service("tcp.accept").unwrap().format;
    let memory = up(format);
    let _installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let mut port = 0;
    for _ in 0..CONNECTIONS {
        let mut client = client_at(port, listener.local_addr().unwrap());
        port = client.local_addr().unwrap().port();
        drop(listener.accept().unwrap());
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server has closed");
        drop(client);
        std::thread::sleep(Duration::from_millis(20)); // TCP's time stamps have ticks of a millisecond
    }
    let ports: Vec<_> = (0..CONNECTIONS).map(|_| number(format, &event(&memory), "source_port")).collect();
    assert_eq!(ports, [i64::from(port); CONNECTIONS]);
}

/// A connection from this port; 0: any port.
fn client_at(port: u16, to: std::net::SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&client, true).unwrap();
    bind(&client, &std::net::SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    connect(&client, &to).unwrap();
    client.into()
}

/// Other servers have the same port: at another address, and in another network namespace.
#[test]
fn only_connections_of_the_named_address_in_this_namespace_are_events() {
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.port();
    let other = TcpListener::bind(("127.0.0.2", port)).unwrap();
    let ask = Request::with("tcp.state", &[("listen", &address.to_string())]);
    let format = &kernel.service("tcp.state").unwrap().format;
    let memory = up(format);
    let _installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    drop(TcpStream::connect(other.local_addr().unwrap()).unwrap());
    if qfabric_linux::namespace::may_make() {
        let elsewhere = qfabric_linux::namespace::Namespace::new().unwrap();
        elsewhere
            .inside(|| drop(TcpListener::bind(address).map(|_here| TcpStream::connect(address).unwrap()).unwrap()))
            .unwrap();
    }
    let client = TcpStream::connect(address).unwrap();
    let own = i64::from(client.local_addr().unwrap().port());
    // Linux 6.12 reports a new connection once before it has the port of the peer.
    let events = std::iter::repeat_with(|| event(&memory));
    let ends = events.map(|event| (number(format, &event, "local"), number(format, &event, "peer_port")));
    let mut ends = ends.skip_while(|end| *end == (0x7f00_0001, 0));
    assert_eq!(ends.next(), Some((0x7f00_0001, own)));
}

#[test]
fn packets_of_an_interface_that_comes_up_later_are_events() {
    const NEAR: &str = "qf-follow0";
    let Some(kernel) = kernel() else { return };
    let ip = |words: &str| Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success());
    let ask = Request::of("net.tx");
    let program = ask.program(&kernel, "attr.seen += 1; return 1;");
    let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let followed = installed.followed().unwrap();
    if !ip(&format!("link add {NEAR} type veth peer name qf-follow1")) {
        return qfabric_linux::testing::skip("this process cannot make interfaces");
    }
    assert!(!followed.attach_new().unwrap().attached.contains(&NEAR.to_owned()), "the interface is not up yet");
    assert!(ip(&format!("link set {NEAR} up")));
    let names = followed.attach_new().unwrap().attached;
    let again = followed.attach_new().unwrap().attached;
    ip(&format!("link del {NEAR}"));
    assert!(names.contains(&NEAR.to_owned()) && !again.contains(&NEAR.to_owned()), "{names:?}, then {again:?}");
}

#[test]
fn connection_states_and_socket_readiness_are_events() {
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!(":{}", listener.local_addr().unwrap().port());
    let format = |service: &str| kernel.service(service).unwrap().format.clone();
    let (states, ready) = (up(&format("tcp.state")), up(&format("sock.ready")));
    let ask = |service, memory| {
        let ask = Request::with(service, &[("listen", &listen)]);
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
    let format = format("sock.ready");
    let events: Vec<_> = (0..3).map(|_| event(&ready)).collect();
    let of = |name| events.iter().map(|data| number(&format, data, name)).collect::<Vec<_>>();
    assert_eq!(of("why"), [1, 1, 2], "a connection, its data, its end");
    let ids = [cookie(&listener), cookie(&server), cookie(&server)];
    assert_eq!(of("socket"), ids, "ids that applications can ask for, not addresses of the kernel");
}

fn cookie(socket: impl std::os::fd::AsFd) -> i64 {
    rustix::net::sockopt::socket_cookie(socket).unwrap() as i64
}

/// One handler takes a batch at each system call, the other every 2 ms, and the application defers without a pause.
#[test]
fn two_handlers_of_a_session_take_every_deferred_value() {
    const VALUES: i64 = 1_000;
    let Some(kernel) = kernel() else { return };
    let down = DownMemory::new().unwrap();
    let ask = |options: &[(&str, &str)], attribute: &str| {
        let ask = Request::with("app.deferred", options).own();
        let text = format!("for (int i = 0; i < input.count; i++) attr.{attribute} += input.value[i]; return 1;");
        let program = ask.program(&kernel, &text);
        ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap()
    };
    let fast = ask(&[("when", "syscall")], "seen");
    let slow = ask(&[("when", "delay"), ("delay", "2ms")], "limit");
    let mut refused = 0;
    for value in 1..=VALUES {
        while down.down().defer(value).is_err() {
            refused += 1;
            nap();
        }
        let _ = rustix::process::getppid();
    }
    (0..5_000).take_while(|_| down.down().deferred() > 0).for_each(|_| nap());
    let sums = [0, 1].map(|number| down.down().attribute(number));
    assert_eq!(sums, [VALUES * (VALUES + 1) / 2; 2], "{refused} times full");
    // Without the slow handler its place is not waited for.
    (1..=60).for_each(|value| down.down().defer(value).unwrap());
    drop(slow);
    (0..5_000).take_while(|_| down.down().deferred() > 0).for_each(|_| nap());
    assert_eq!(down.down().deferred(), 0);
    drop(fast);
}

/// Two handlers with their own moments; a value names one of them, both or none.
#[test]
fn a_deferred_value_is_handled_at_the_moment_that_its_call_chooses() {
    let Some(kernel) = kernel() else { return };
    let down = DownMemory::new().unwrap();
    let ask = |options: &[(&str, &str)], attribute: &str| {
        let ask = Request::with("app.deferred", options).own();
        let text = format!("for (int i = 0; i < input.count; i++) attr.{attribute} += input.value[i]; return 1;");
        let program = ask.program(&kernel, &text);
        ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap()
    };
    let _at_call = ask(&[("when", "syscall")], "seen");
    let _later = ask(&[("when", "delay"), ("delay", "2ms")], "limit");
    (1..=20).for_each(|value| down.down().defer_at(value, Moment::Syscall).unwrap());
    down.down().defer_at(10_000, Moment::Delay).unwrap();
    down.down().defer(1_000).unwrap();
    down.down().defer_at(100_000, Moment::Schedule).unwrap();
    let sums = || [0, 1].map(|number| down.down().attribute(number));
    let expected = [1_210, 11_000];
    (0..5_000).take_while(|_| sums() != expected || down.down().deferred() > 0).for_each(|_| nap());
    assert_eq!((sums(), down.down().deferred()), (expected, 0));
}

/// Both handlers get each value. The second one notes what the first one has seen last.
#[test]
fn a_value_for_the_moment_before_the_scheduler_decides_is_handled_before_the_switch() {
    let Some(kernel) = kernel() else { return };
    let down = DownMemory::new().unwrap();
    let ask = |when: &str, text: &str| {
        let ask = Request::with("app.deferred", &[("when", when)]).own();
        let program = ask.program(&kernel, text);
        ask.install(&kernel, &[Step::Handler(&program)], Some(&down))
    };
    let before = ask("before_schedule", "attr.seen = input.value[input.count - 1]; return 1;");
    let _before = match before {
        // Linux before 6.15.
        Err(error) if error.to_string().contains("sched_entry_tp") => return qfabric_linux::testing::skip(error),
        before => before.unwrap(),
    };
    let _at_switch = ask("schedule", "attr.limit = attr.seen; return 1;").unwrap();
    let mut in_order = 0;
    for value in 1..=50 {
        down.down().defer(value).unwrap();
        (0..5_000).take_while(|_| down.down().deferred() > 0).for_each(|_| nap());
        assert_eq!(down.down().attribute(0), value);
        in_order += u32::from(down.down().attribute(1) == value);
    }
    // Another thread of this process can be between the two hooks while the value is deferred.
    assert!(in_order > 25, "{in_order} of 50 values");
    (51..=60).for_each(|value| down.down().defer_at(value, Moment::BeforeSchedule).unwrap());
    (0..5_000).take_while(|_| down.down().deferred() > 0).for_each(|_| nap());
    assert_eq!((down.down().attribute(0), down.down().attribute(1) <= 50), (60, true));
}

#[test]
fn option_latest_passes_over_values_for_other_moments() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::with("app.deferred", &[("when", "delay"), ("latest", "yes")]).own();
    let program = ask.program(&kernel, "attr.seen = input.value[0]; return 1;");
    let down = DownMemory::new().unwrap();
    let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
    (1..=20).for_each(|value| down.down().defer_at(value, Moment::Schedule).unwrap());
    (0..5_000).take_while(|_| down.down().deferred() > 0).for_each(|_| nap());
    assert_eq!((down.down().attribute(0), installed.counters().events), (0, 0), "no value, no event");
    down.down().defer_at(5, Moment::Delay).unwrap();
    (21..=60).for_each(|value| down.down().defer_at(value, Moment::Syscall).unwrap());
    (0..5_000).take_while(|_| down.down().attribute(0) == 0).for_each(|_| nap());
    assert_eq!(down.down().attribute(0), 5);
}

/// Nothing is deferred, so the handler never runs. The interrupts are charged all the same, each with 2 µs at least.
#[test]
fn a_timer_without_deferred_values_is_charged_for_its_interrupts() {
    let Some(kernel) = kernel() else { return };
    let ask = Request { measured: true, ..Request::with("app.deferred", &[("when", "delay"), ("delay", "1ms")]).own() };
    let program = ask.program(&kernel, "attr.seen += 1; return 1;");
    let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let charged = (0..5_000).find(|_| {
        nap();
        installed.counters().run_ns > 20_000
    });
    assert!(charged.is_some(), "{:?}", installed.counters());
    assert_eq!(installed.counters().events, 0);
}

#[test]
fn deferred_values_come_in_batches_at_the_next_system_call() {
    let Some(kernel) = kernel() else { return };
    let ask = Request::with("app.deferred", &[("when", "syscall")]).own();
    let program = ask.program(&kernel, "for (int i = 0; i < input.count; i++) attr.seen += input.value[i]; return 1;");
    let down = DownMemory::new().unwrap();
    let installed = ask.install(&kernel, &[Step::Handler(&program)], Some(&down)).unwrap();
    for value in 1..=20 {
        down.down().defer(value).unwrap();
    }
    for _ in 0..3 {
        let _ = rustix::process::getppid();
    }
    assert_eq!(down.down().attribute(0), 210);
    assert_eq!((installed.counters().events, down.down().deferred()), (2, 0));
}

#[test]
fn option_latest_delivers_only_the_last_deferred_value() {
    let Some(kernel) = kernel() else { return };
    for when in ["schedule", "delay"] {
        let ask = Request::with("app.deferred", &[("when", when), ("latest", "yes")]).own();
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

/// The other thread in each switch is the shell or the idle thread. The events concern this process; the numbers of the
/// other thread must be hidden.
#[test]
fn a_switch_event_hides_the_numbers_of_other_processes() {
    let Some(kernel) = kernel() else { return };
    let mut other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let ask = Request::of("sched.switch").own();
    let format = &kernel.service("sched.switch").unwrap().format;
    let memory = up(format);
    let installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let mut events = Vec::new();
    // A fixed number of naps would not do: a timer that fires before the thread has gone to sleep causes no switch.
    for _ in 0..5_000 {
        nap();
        events.extend(std::iter::from_fn(|| take_event(&memory)));
        if events.len() >= 20 {
            break;
        }
    }
    other.kill().and_then(|()| other.wait()).unwrap();
    assert!(events.len() >= 20, "{} switches in 5,000 naps: {:?}", events.len(), installed.counters());
    let mut sides = [0, 0];
    events.iter().for_each(|data| assert_others_hidden(format, data, &mut sides));
    assert!(sides.iter().all(|hidden| *hidden > 0), "another thread ran before and after this one: {sides:?}");
}

/// Asserts that one side of the switch is this process and that the numbers of the other side are hidden.
/// `hidden` counts how often each side was hidden.
fn assert_others_hidden(format: &Format, data: &[u8], hidden: &mut [u32; 2]) {
    let of = |name: &str| number(format, data, name);
    let pids = [of("prev_pid"), of("next_pid")];
    assert!(pids.contains(&own_pid().into()) && pids.iter().all(|pid| [0, own_pid().into()].contains(pid)), "{pids:?}");
    let fields = [["prev_tid", "prev_prio", "prev_state"], ["next_tid", "next_prio", "next_pid"]];
    for (side, fields) in fields.iter().enumerate() {
        let known = fields.iter().any(|field| of(field) != 0);
        assert_eq!(known, pids[side] != 0, "side {side} of {pids:?}");
        hidden[side] += u32::from(!known);
    }
}
