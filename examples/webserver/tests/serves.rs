//! Tests the program on real sockets: every back end gives the same answers, and no client can delay the others.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use qfabric_client::Nanos;
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::testing::{live_lock, may_reserve};

/// Bound of every wait, so that a test fails instead of hanging; longer than any step, even with eight hogs per core.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of a server for which it matters when it closes the connections of clients that say nothing.
const SHORT: Duration = Duration::from_secs(2);

/// The daemon that all tests running at the same time share; the last test ends it. Without the rights to start a
/// daemon, the tests leave out the back end `ecalls`.
#[derive(Debug)]
struct Environment {
    daemon: Option<Embedded>,
    _folder: tempfile::TempDir,
    _alone: std::fs::File,
}

impl Environment {
    fn shared() -> Arc<Environment> {
        static SHARED: Mutex<Weak<Environment>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let made = Arc::new(Environment::new());
            *shared = Arc::downgrade(&made);
            made
        })
    }

    fn new() -> Environment {
        let (folder, alone) = (tempfile::tempdir().unwrap(), live_lock());
        let mut config = Config::default().in_directory(folder.path());
        config.log.filter = "error".into();
        config.control.budget = Nanos::ZERO;
        config.api.timeout = Nanos::new(PATIENCE.as_nanos() as u64);
        let daemon = may_reserve().then(|| Embedded::start(config).unwrap());
        Environment { daemon, _folder: folder, _alone: alone }
    }

    fn backends(&self) -> Vec<&'static str> {
        let all = ["select", "poll", "epoll", "ecalls"];
        all.into_iter().take(if self.daemon.is_some() { 4 } else { 3 }).collect()
    }

    fn start(&self, backend: &str, options: &[&str]) -> Server {
        let socket = self.daemon.as_ref().map_or(Path::new("none"), |daemon| daemon.socket());
        Server::start(backend, &[&["--socket", socket.to_str().unwrap()], options].concat())
    }
}

struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(backend: &str, options: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_qfabric-webserver"))
            .args(["--listen", "127.0.0.1:0", "--backend", backend, "--work-rounds", "1000", "--patience", "5s"])
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
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn cpu_time(&self) -> Nanos {
        qfabric_linux::clock::process_cpu(self.child.id() as i32).unwrap()
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    fn wait_for_end(&mut self) -> (ExitStatus, String) {
        let mut output = String::new();
        self.lines.read_to_string(&mut output).unwrap();
        (self.child.wait().unwrap(), output)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the parts and returns all that the server sends until it ends the connection.
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
    let environment = Environment::shared();
    let servers: Vec<_> = environment.backends().into_iter().map(|backend| environment.start(backend, &[])).collect();
    for conversation in conversations {
        let output: Vec<_> = servers.iter().map(|server| ask(server, conversation)).collect();
        assert!(output[0].starts_with("HTTP/1.1 "), "{output:?}");
        assert!(output.iter().all(|other| *other == output[0]), "{output:?}");
    }
}

#[test]
fn garbage_after_a_request_does_not_cost_its_answer() {
    let environment = Environment::shared();
    for backend in environment.backends() {
        let output = ask(&environment.start(backend, &[]), &[b"GET / HTTP/1.1\r\n\r\n\x00\xff\r\n\r\n"]);
        assert!(output.starts_with("HTTP/1.1 200 ") && output.contains("HTTP/1.1 400 "), "{backend}: {output}");
    }
}

#[test]
fn a_silent_or_slow_client_is_closed_while_others_are_served() {
    let environment = Environment::shared();
    for backend in environment.backends() {
        let server = environment.start(backend, &["--patience", "2s"]);
        let begin = Instant::now();
        let (mut silent, mut dripping) = (server.connect(), server.connect());
        let drip = dripping.try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = b"GET / HTTP/1.1\r\n"
                .iter()
                .cycle()
                .take(100)
                .try_for_each(|byte| (&drip).write_all(&[*byte]).map(|()| std::thread::sleep(SHORT / 10)));
        });
        assert!(ask(&server, &[b"GET / HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 200 "));
        assert_eq!((read_to_end(&mut silent), read_to_end(&mut dripping)), (String::new(), String::new()));
        assert!(begin.elapsed() >= SHORT, "{backend}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_client_that_has_ended_its_side_still_gets_its_answer() {
    let environment = Environment::shared();
    for backend in environment.backends() {
        let server = environment.start(backend, &[]);
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
    let environment = Environment::shared();
    for backend in environment.backends() {
        let server = environment.start(backend, &["--page", page.path().to_str().unwrap(), "--patience", "120s"]);
        let mut slow = server.connect();
        slow.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        std::thread::sleep(SHORT / 4);
        assert!(ask(&server, &[b"GET /x HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 404 "));
        assert_eq!(read_to_end(&mut slow).bytes().filter(|b| *b == b'#').count(), size, "{backend}");
    }
}

#[test]
fn connections_beyond_the_limit_wait_until_another_ends() {
    let environment = Environment::shared();
    for backend in environment.backends() {
        let server = environment.start(backend, &["--connections", "2", "--patience", "120s"]);
        let mut clients = [server.connect(), server.connect()];
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert!(one_reply(client).starts_with("HTTP/1.1 200 "));
        }
        let mut third = server.connect();
        third.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        third.set_read_timeout(Some(SHORT / 4)).unwrap();
        assert!(third.read(&mut [0]).is_err(), "{backend}: served a connection beyond the limit");
        drop(clients);
        third.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(one_reply(&mut third).starts_with("HTTP/1.1 200 "), "{backend}");
    }
}

#[test]
fn a_terminated_server_finishes_its_answers_and_prints_its_counters() {
    let environment = Environment::shared();
    for backend in environment.backends() {
        let mut server = environment.start(backend, &["--work-rounds", "200000000", "--patience", "120s"]);
        let (mut busy, mut idle) = (server.connect(), server.connect());
        idle.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(one_reply(&mut idle).contains("keep-alive"));
        let before = server.cpu_time();
        busy.write_all(b"GET /work HTTP/1.1\r\n\r\n").unwrap();
        while server.cpu_time() < before + Nanos::from_millis(10) {
            std::thread::sleep(Duration::from_millis(1)); // the server has not begun the work
        }
        server.terminate();
        assert!(read_to_end(&mut busy).starts_with("HTTP/1.1 200 "), "{backend}");
        let (status, output) = server.wait_for_end();
        assert!(status.success() && output.starts_with("2 connections (at most 2 at once), 2 replies"), "{output}");
        assert!(TcpStream::connect(server.address).is_err());
    }
}

#[test]
fn an_unusable_option_is_refused_and_named() {
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
        let output = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(output.contains(named), "{output}");
    }
}

#[test]
fn a_back_end_without_its_daemon_names_the_command_that_starts_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_qfabric-webserver"))
        .args(["--listen", "127.0.0.1:0", "--backend", "ecalls", "--socket", "/no/such.sock"])
        .output();
    let output = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(output.contains("/no/such.sock") && output.contains("qfabric daemon"), "{output}");
}

/// Tests the controller with fixed work and four times the load that the server can serve, until it drops requests.
#[test]
fn an_overloaded_server_has_requests_dropped_and_leaves_nothing_behind() {
    let environment = Environment::shared();
    let Some(daemon) = &environment.daemon else { return };
    let client = qfabric_client::Client::connect_to(daemon.socket()).unwrap().with_patience(PATIENCE);
    let options = "--overload lo --wait 20ms --work-rounds 20000000 --patience 2s".split(' ').collect::<Vec<_>>();
    let mut server = environment.start("ecalls", &options);
    let subscriptions = client.subscriptions().unwrap();
    assert!(subscriptions.iter().any(|s| s.service == "tcp.accept"), "{subscriptions:?}");
    let connect = |_| {
        let client = TcpStream::connect_timeout(&server.address, Duration::from_millis(30)).map(|mut client| {
            client.write_all(b"GET /work HTTP/1.0\r\n\r\n").unwrap();
            client
        });
        std::thread::sleep(Duration::from_millis(2));
        client.ok()
    };
    let (until, mut clients) = (Instant::now() + PATIENCE, VecDeque::new());
    let counters = loop {
        clients.extend((0..200).filter_map(connect));
        // Most of the first ones have been served, or have waited long enough.
        while clients.len() > 800 {
            clients.pop_front();
        }
        let counters = client.subscriptions().unwrap().remove(0).counters;
        if counters.blocked > 0 && counters.passed > 0 {
            break counters;
        }
        assert!(Instant::now() < until, "{counters:?}");
    };
    assert_eq!(counters.faults, 0, "{counters:?}");
    drop(clients);
    server.terminate();
    assert!(server.wait_for_end().0.success());
    assert_eq!(client.subscriptions().unwrap(), []);
}
