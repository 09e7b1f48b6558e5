//! The real program on real sockets: every back end serves the same, and none is held up by anybody.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const BACKENDS: [&str; 3] = ["select", "poll", "epoll"];
const PATIENCE: Duration = Duration::from_millis(600);

struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(backend: &str, options: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_qfabric-webserver"))
            .args(["--listen", "127.0.0.1:0", "--backend", backend, "--work-rounds", "1000", "--patience", "600ms"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Server { child, lines, address }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    fn ended(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.lines.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes back until the server ends the connection.
fn ask(server: &Server, parts: &[&[u8]]) -> String {
    let mut client = server.connect();
    for part in parts {
        client.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    read_to_end(&mut client)
}

fn read_to_end(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    String::from_utf8(bytes).unwrap()
}

fn one_reply(client: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let count = client.read(&mut bytes).unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

#[test]
fn every_back_end_gives_the_same_answers_to_the_same_bytes() {
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(9_000));
    let conversations: [&[&[u8]]; 8] = [
        &[b"GET / HTTP/1.0\r\n\r\n"],
        &[b"GET /wo", b"rk HTTP/1.1\r\nConnection", b": close\r\n\r", b"\n"],
        &[b"HEAD / HTTP/1.0\r\n\r\n"],
        &[b"GET /x HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nGET /work HTTP/1.0\r\n\r\n"],
        &[b"GET / HTTP/1.1\r\n\r\n\x00\x16\x03 garbage\r\n\r\nGET / HTTP/1.1\r\n\r\n"],
        &[b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"],
        &[long.as_bytes()],
        &[b"\r\n\r\nGET / HTTP/1.1\nConnection: close\n\n"],
    ];
    let servers = BACKENDS.map(|backend| Server::start(backend, &[]));
    for conversation in conversations {
        let [first, others @ ..] = servers.each_ref().map(|server| ask(server, conversation));
        assert!(first.starts_with("HTTP/1.1 "), "{first:?}");
        assert!(others.iter().all(|other| *other == first), "{others:?} instead of {first:?}");
    }
}

#[test]
fn garbage_after_a_request_does_not_cost_its_answer() {
    for backend in BACKENDS {
        let said = ask(&Server::start(backend, &[]), &[b"GET / HTTP/1.1\r\n\r\n\x00\xff\r\n\r\n"]);
        assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("HTTP/1.1 400 "), "{backend}: {said}");
    }
}

#[test]
fn who_says_nothing_or_not_enough_is_closed_while_others_are_served() {
    for backend in BACKENDS {
        let server = Server::start(backend, &[]);
        let begin = Instant::now();
        let (mut silent, mut dripping) = (server.connect(), server.connect());
        let drip = dripping.try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = b"GET / HTTP/1.1\r\n"
                .iter()
                .cycle()
                .take(100)
                .try_for_each(|byte| (&drip).write_all(&[*byte]).map(|()| std::thread::sleep(PATIENCE / 10)));
        });
        assert!(ask(&server, &[b"GET / HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 200 "));
        assert_eq!((read_to_end(&mut silent), read_to_end(&mut dripping)), (String::new(), String::new()));
        let took = begin.elapsed();
        assert!(took >= PATIENCE && took < 5 * PATIENCE, "{backend}: {took:?}");
    }
}

#[test]
fn a_client_that_has_ended_its_side_still_gets_its_answer() {
    for backend in BACKENDS {
        let server = Server::start(backend, &[]);
        let mut client = server.connect();
        client.write_all(b"GET /work HTTP/1.1\r\n\r\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_end(&mut client).starts_with("HTTP/1.1 200 "), "{backend}");
    }
}

#[test]
fn a_slow_reader_gets_a_large_page_whole_while_others_are_served() {
    let page = tempfile::NamedTempFile::new().unwrap();
    let size = 8 << 20;
    std::fs::write(page.path(), vec![b'#'; size]).unwrap();
    for backend in BACKENDS {
        let server = Server::start(backend, &["--page", page.path().to_str().unwrap()]);
        let mut slow = server.connect();
        slow.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        std::thread::sleep(PATIENCE / 4);
        assert!(ask(&server, &[b"GET /x HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 404 "));
        assert_eq!(read_to_end(&mut slow).bytes().filter(|b| *b == b'#').count(), size, "{backend}");
    }
}

#[test]
fn beyond_the_bound_connections_wait_for_one_that_leaves() {
    for backend in BACKENDS {
        let server = Server::start(backend, &["--connections", "2"]);
        let mut clients = [server.connect(), server.connect()];
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert!(one_reply(client).starts_with("HTTP/1.1 200 "));
        }
        let mut third = server.connect();
        third.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        third.set_read_timeout(Some(PATIENCE / 4)).unwrap();
        assert!(third.read(&mut [0]).is_err(), "{backend}: served beyond the bound");
        drop(clients);
        third.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert!(one_reply(&mut third).starts_with("HTTP/1.1 200 "), "{backend}");
    }
}

#[test]
fn a_server_told_to_end_finishes_its_answers_and_says_what_it_did() {
    for backend in BACKENDS {
        let mut server = Server::start(backend, &["--work-rounds", "200000000"]);
        let (mut busy, mut idle) = (server.connect(), server.connect());
        idle.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(one_reply(&mut idle).contains("keep-alive"));
        busy.write_all(b"GET /work HTTP/1.1\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        server.terminate();
        assert!(read_to_end(&mut busy).starts_with("HTTP/1.1 200 "), "{backend}");
        let (status, said) = server.ended();
        assert!(status.success() && said.starts_with("2 connections (at most 2 at once), 2 replies"), "{said}");
        assert!(TcpStream::connect(server.address).is_err());
    }
}

#[test]
fn nonsense_is_refused_by_name() {
    let taken = Server::start("epoll", &[]);
    let address = taken.address.to_string();
    for (options, named) in [
        (["--listen", address.as_str()], address.as_str()),
        (["--page", "/no/such/page"], "/no/such/page"),
        (["--cpu", "1023"], "--cpu 1023"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_qfabric-webserver"))
            .args(["--listen", "127.0.0.1:0"])
            .args(options)
            .output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(said.contains(named), "{said}");
    }
}
