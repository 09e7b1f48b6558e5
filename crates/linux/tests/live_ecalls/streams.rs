//! Tests of the bytes of TCP connections, in front of servers that know nothing of handlers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use qfabric_linux::ecalls::{InstallError, Installed, Kernel, Step};

use crate::common::{Request, event, kernel, number, take_event, up};

/// Only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(to: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// The next bytes, as many as `expected` has.
fn receive(from: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    from.read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

/// Reads what a client sends. When a handler drops bytes or hands them over, the kernel wakes a server that waits for
/// them, whose `recv` then fails with `EAGAIN`, on blocking sockets, too.
fn read(client: &mut TcpStream, request: &mut [u8]) -> bool {
    loop {
        match client.read(request) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read.is_ok_and(|bytes| bytes > 0),
        }
    }
}

/// A server that answers whatever arrives with `slow`.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut request = [0; 512];
                while read(&mut client, &mut request) && client.write_all(b"slow").is_ok() {}
            });
        }
    });
    address
}

fn install(kernel: &Kernel, server: SocketAddr, text: &str) -> Result<Installed, InstallError> {
    let listen = server.to_string();
    let ask = Request::with("sock.stream", &[("listen", &listen), ("drop", "yes"), ("redirect", "yes")]);
    let program = ask.program(kernel, text);
    ask.install(kernel, &[Step::Handler(&program)], None)
}

#[test]
fn bytes_of_a_connection_are_events_and_can_be_dropped() {
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ask = Request::with("sock.stream", &[("listen", &address.to_string()), ("drop", "yes")]);
    let program = ask.program(&kernel, "if (input.data[0] != 'x') return 1; emit(); return 0;");
    let format = &kernel.service("sock.stream").unwrap().format;
    let memory = up(format);
    let steps = [Step::Handler(&program), Step::Memory { memory: &memory, position: None }];
    let installed = ask.install(&kernel, &steps, None).unwrap();
    let mut client = connect(address);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    receive(&mut server, "hello");
    event(&memory);
    client.write_all(b"x away").unwrap();
    let data = event(&memory);
    client.write_all(b"again").unwrap();
    receive(&mut server, "again");
    let port = |of: &TcpStream| i64::from(of.local_addr().unwrap().port());
    let id = rustix::net::sockopt::socket_cookie(&server).unwrap() as i64;
    let expected = [("len", 6), ("data_len", 6), ("peer", 0x7f00_0001), ("family", 2), ("socket", id)];
    let ports = [("local_port", port(&server)), ("peer_port", port(&client))];
    for (field, value) in expected.into_iter().chain(ports) {
        assert_eq!(number(format, &data, field), value, "{field}");
    }
    let at = |field: &str| format.field(field).unwrap().offset as usize;
    assert_eq!(&data[at("data")..at("data") + 7], b"x away\0");
    assert_eq!(&data[at("tail")..at("tail") + 4], b"away");
    assert_eq!((installed.counters().blocked, installed.counters().contended), (1, 0));
}

#[test]
fn a_connection_over_ipv6_has_its_address_and_its_first_bytes_only() {
    let Some(kernel) = kernel() else { return };
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    let address = listener.local_addr().unwrap();
    let ask = Request::with("sock.stream", &[("listen", &address.to_string())]);
    let format = &kernel.service("sock.stream").unwrap().format;
    let memory = up(format);
    let _installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let mut client = connect(address);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[b'6'; 300]).unwrap();
    receive(&mut server, &"6".repeat(300));
    let data = event(&memory);
    let at = |field: &str| format.field(field).unwrap().offset as usize;
    assert_eq!(data[at("peer6")..at("peer6") + 16], std::net::Ipv6Addr::LOCALHOST.octets());
    assert_eq!(data[at("data")..at("data") + 192], [b'6'; 192]);
    assert_eq!((number(format, &data, "data_len"), number(format, &data, "peer")), (192, 0));
}

/// The accelerator is a client of the server as well. Its connection introduces itself with `+`; the handler sends the
/// requests for `/s…` to it, and its answers to the client that asked. The server sees none of these bytes.
#[test]
fn an_accelerator_answers_static_requests_in_front_of_an_unmodified_server() {
    let Some(kernel) = kernel() else { return };
    let server = server();
    let text = "static unsigned long accelerator; static unsigned long client;
        if (input.data[0] == '+') { accelerator = input.socket; return 0; }
        if (input.socket == accelerator) return client;
        if (accelerator == 0 || input.data[5] != 's') return 1;
        client = input.socket;
        return accelerator;";
    let installed = install(&kernel, server, text).unwrap();
    let mut client = connect(server);
    client.write_all(b"GET /static/1").unwrap();
    receive(&mut client, "slow");
    let mut accelerator = connect(server);
    accelerator.write_all(b"+").unwrap();
    let introduced = (0..60_000).find(|_| {
        std::thread::sleep(Duration::from_millis(1));
        installed.counters().blocked == 1
    });
    assert!(introduced.is_some(), "{:?}", installed.counters());
    for number in 1..=3 {
        let request = format!("GET /static/{number}");
        client.write_all(request.as_bytes()).unwrap();
        receive(&mut accelerator, &request);
        let answer = format!("a longer and fast answer {number}");
        accelerator.write_all(answer.as_bytes()).unwrap();
        receive(&mut client, &answer);
        client.write_all(b"GET /dynamic").unwrap();
        receive(&mut client, "slow");
    }
    let counters = installed.counters();
    assert_eq!((counters.passed, counters.blocked, counters.faults), (10, 1, 0), "{counters:?}");
}

/// The connection goes on after each answer, whether the answer is shorter or longer than its request.
#[test]
fn the_kernel_answers_requests_and_the_server_the_others() {
    let Some(kernel) = kernel() else { return };
    let server = server();
    let texts = ["short".to_owned(), "l".repeat(500), "x".repeat(14_000)];
    let answers = texts.each_ref().map(|text| format!("{}:{text},", text.len())).concat();
    let ask = Request::with("sock.stream", &[("listen", &server.to_string()), ("answers", &answers)]);
    let program = ask.program(&kernel, "if (input.data[5] != 's') return 1; return '0' - input.data[12];");
    let installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let mut clients = [connect(server), connect(server)];
    for round in 0..3 {
        for client in &mut clients {
            for (number, text) in (1..).zip(&texts) {
                client.write_all(format!("GET /static/{number} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
                receive(client, text);
            }
            for request in ["GET /dynamic", "GET /static/7 HTTP/1.1", "GET /s"] {
                client.write_all(request.as_bytes()).unwrap();
                receive(client, "slow");
            }
        }
        assert_eq!(installed.counters().passed, 12 * (round + 1));
    }
}

/// The handler of the guide.
#[test]
fn a_whole_request_is_answered_and_a_part_of_one_goes_to_the_server() {
    let Some(kernel) = kernel() else { return };
    let server = server();
    let page = include_str!("../../../../docs/guide/src/ecalls.md");
    let text =
        page.split("```c\n").filter_map(|rest| rest.split("```").next()).find(|code| code.contains("input.tail"));
    let ask = Request::with("sock.stream", &[("listen", &server.to_string()), ("answers", "5:hello,")]);
    let program = ask.program(&kernel, text.unwrap());
    let _installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let mut client = connect(server);
    let long = format!("GET /hi HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(400));
    let requests: [(&str, &str); 6] = [
        ("GET /hi HTTP/1.1\r\n", "slow"),
        ("GET /hi HTTP/1.1\r\n\r\n", "hello"),
        ("GET /hi HTTP/1.1\r\n\r\nGET /hi HTTP/1.1\r\n\r\n", "slow"),
        ("GET /ho HTTP/1.1\r\n\r\n", "slow"),
        ("GET /hi HTTP/1.1\r\nHost: a\r\n\r\n", "hello"),
        (&long, "hello"),
    ];
    for (request, answer) in requests {
        client.write_all(request.as_bytes()).unwrap();
        receive(&mut client, answer);
    }
}

/// The two answers are for different clients, who asked at the same time.
#[test]
fn each_client_gets_its_own_answer() {
    const CLIENTS: usize = 16;
    let Some(kernel) = kernel() else { return };
    let server = server();
    let ask = Request::with("sock.stream", &[("listen", &server.to_string()), ("answers", "3:one,3:two,")]);
    let program = ask.program(&kernel, "return '0' - input.data[0];");
    let _installed = ask.install(&kernel, &[Step::Handler(&program)], None).unwrap();
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("{} and the rest of it", number % 2 + 1).as_bytes()).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        receive(client, ["one", "two"][number % 2]);
    }
}

#[test]
fn bytes_for_a_connection_that_does_not_exist_go_to_the_server() {
    let Some(kernel) = kernel() else { return };
    let server = server();
    let _installed = install(&kernel, server, "return 0x7fffffff;").unwrap();
    let mut client = connect(server);
    client.write_all(b"anything").unwrap();
    receive(&mut client, "slow");
}

/// Other servers have the same port: at another address, and in another network namespace.
#[test]
fn connections_of_other_servers_pass_by() {
    let Some(kernel) = kernel() else { return };
    let server = server();
    let other = TcpListener::bind(("127.0.0.2", server.port())).unwrap();
    let ask = Request::with("sock.stream", &[("listen", &server.to_string())]);
    let memory = up(&kernel.service("sock.stream").unwrap().format);
    let _installed = ask.install(&kernel, &[Step::Memory { memory: &memory, position: None }], None).unwrap();
    let exchange = |listener: &TcpListener| {
        let mut client = connect(listener.local_addr().unwrap());
        client.write_all(b"other").unwrap();
        receive(&mut listener.accept().unwrap().0, "other");
    };
    exchange(&other);
    if qfabric_linux::namespace::may_make() {
        let elsewhere = qfabric_linux::namespace::Namespace::new().unwrap();
        elsewhere.inside(|| exchange(&TcpListener::bind(server).unwrap())).unwrap();
    }
    assert!(take_event(&memory).is_none());
    let mut client = connect(server);
    client.write_all(b"this one").unwrap();
    receive(&mut client, "slow");
    event(&memory);
}

#[test]
fn a_port_has_one_chain_at_a_time() {
    let Some(kernel) = kernel() else { return };
    let server = server();
    let first = install(&kernel, server, "return 0;").unwrap();
    let error = install(&kernel, server, "return 1;").unwrap_err();
    assert!(error.to_string().contains("belongs to another chain"), "{error}");
    drop(first);
    let _second = install(&kernel, server, "return 1;").unwrap();
    let mut client = connect(server);
    client.write_all(b"anything").unwrap();
    receive(&mut client, "slow");
}

/// Reads until the client closes. Returns the bytes, and how often `recv` failed with `EAGAIN`.
fn read_to_end(server: &mut TcpStream) -> (Vec<u8>, usize) {
    let (mut bytes, mut part, mut empty) = (Vec::new(), [0; 512], 0);
    loop {
        match server.read(&mut part) {
            Ok(0) => return (bytes, empty),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                empty += 1;
            }
        }
    }
}

/// A `recv` that waits fails with `EAGAIN` for events that do not reach the server, although the socket blocks (guide).
/// It has no other error, fails at most twice for each event, and loses no byte.
#[test]
fn a_blocking_server_gets_all_bytes_that_pass_if_it_reads_again_after_eagain() {
    const ROUNDS: usize = 100;
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let installed = install(&kernel, address, "return input.data[0] == 'p';").unwrap();
    let mut client = connect(address);
    let (mut server, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || read_to_end(&mut server));
    let decided = |events: usize| {
        let waited = (0..60_000).find(|_| {
            std::thread::sleep(Duration::from_millis(1));
            installed.counters().passed + installed.counters().blocked >= events as u64
        });
        assert!(waited.is_some(), "{:?}", installed.counters());
    };
    client.set_nodelay(true).unwrap();
    for round in 0..ROUNDS {
        client.write_all(b"dropped").unwrap();
        decided(2 * round + 1);
        client.write_all(b"passed").unwrap();
        decided(2 * round + 2);
    }
    drop(client);
    let (bytes, empty) = reader.join().unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), "passed".repeat(ROUNDS));
    println!("{empty} of {ROUNDS} dropped events ended a recv");
    assert!(empty <= 4 * ROUNDS, "{empty}: more than two for each of {} events", 2 * ROUNDS);
}

/// The handler sends bytes that begin with `e` back to their client. The client's bytes for the server wait behind
/// them.
#[test]
fn a_client_that_does_not_read_loses_no_byte_and_holds_up_no_other_client() {
    const ECHOED: usize = 12 << 20;
    let Some(kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _installed = install(&kernel, address, "return input.data[0] == 'e' ? input.socket : 1;").unwrap();
    let (mut client, mut server) = (connect(address), listener.accept().unwrap().0);
    client.set_nodelay(true).unwrap();
    server.set_nonblocking(true).unwrap();
    for _ in 0..ECHOED >> 20 {
        client.write_all(&[b'e'; 1 << 20]).unwrap();
    }
    let (mut other, mut other_server) = (connect(address), listener.accept().unwrap().0);
    other.write_all(b"another client").unwrap();
    let mut request = [0; 14];
    assert!(read(&mut other_server, &mut request), "another client is served meanwhile");
    assert_eq!(&request, b"another client");
    // One that TCP joins to the bytes before it is an echo, too.
    client.write_all(b"p").unwrap();
    let mut echoes = client.try_clone().unwrap();
    let reader = std::thread::spawn(move || echoes.read_exact(&mut vec![0; ECHOED]).unwrap());
    let (mut byte, mut empty) = ([0; 1], 0);
    let arrived = (0..60_000).any(|_| match server.read(&mut byte) {
        Ok(read) => read == 1,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            empty += 1;
            std::thread::sleep(Duration::from_millis(1));
            client.write_all(b"p").unwrap();
            false
        }
    });
    assert!(arrived && byte == *b"p", "after {empty} attempts");
    reader.join().unwrap();
}
