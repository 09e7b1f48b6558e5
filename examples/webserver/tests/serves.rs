//! The real program on real sockets: every back end serves the same, and none is held up by anybody.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use qfabric_client::Nanos;
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::testing::{live_lock, may_reserve};

const PATIENCE: Duration = Duration::from_secs(2);

/// A daemon for the tests that run at the same time; the last one ends it. Without the rights for one, the back end
/// `ecalls` is left out.
#[derive(Debug)]
struct Place {
    daemon: Option<Embedded>,
    _folder: tempfile::TempDir,
    _alone: std::fs::File,
}

impl Place {
    fn shared() -> Arc<Place> {
        static SHARED: Mutex<Weak<Place>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let made = Arc::new(Place::new());
            *shared = Arc::downgrade(&made);
            made
        })
    }

    fn new() -> Place {
        let (folder, alone) = (tempfile::tempdir().unwrap(), live_lock());
        let mut config = Config::default().in_directory(folder.path());
        config.log.filter = "error".into();
        config.control.budget = Nanos::ZERO;
        let daemon = may_reserve().then(|| Embedded::start(config).unwrap());
        Place { daemon, _folder: folder, _alone: alone }
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
            .args(["--listen", "127.0.0.1:0", "--backend", backend, "--work-rounds", "1000", "--patience", "2s"])
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
        client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        client
    }

    fn cpu_time(&self) -> Nanos {
        qfabric_linux::clock::process_cpu(self.child.id() as i32).unwrap()
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
    let place = Place::shared();
    let servers: Vec<_> = place.backends().into_iter().map(|backend| place.start(backend, &[])).collect();
    for conversation in conversations {
        let said: Vec<_> = servers.iter().map(|server| ask(server, conversation)).collect();
        assert!(said[0].starts_with("HTTP/1.1 "), "{said:?}");
        assert!(said.iter().all(|other| *other == said[0]), "{said:?}");
    }
}

#[test]
fn garbage_after_a_request_does_not_cost_its_answer() {
    let place = Place::shared();
    for backend in place.backends() {
        let said = ask(&place.start(backend, &[]), &[b"GET / HTTP/1.1\r\n\r\n\x00\xff\r\n\r\n"]);
        assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("HTTP/1.1 400 "), "{backend}: {said}");
    }
}

#[test]
fn who_says_nothing_or_not_enough_is_closed_while_others_are_served() {
    let place = Place::shared();
    for backend in place.backends() {
        let server = place.start(backend, &[]);
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
        assert!(begin.elapsed() >= PATIENCE, "{backend}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_client_that_has_ended_its_side_still_gets_its_answer() {
    let place = Place::shared();
    for backend in place.backends() {
        let server = place.start(backend, &[]);
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
    let place = Place::shared();
    for backend in place.backends() {
        let server = place.start(backend, &["--page", page.path().to_str().unwrap()]);
        let mut slow = server.connect();
        slow.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        std::thread::sleep(PATIENCE / 4);
        assert!(ask(&server, &[b"GET /x HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 404 "));
        assert_eq!(read_to_end(&mut slow).bytes().filter(|b| *b == b'#').count(), size, "{backend}");
    }
}

#[test]
fn beyond_the_bound_connections_wait_for_one_that_leaves() {
    let place = Place::shared();
    for backend in place.backends() {
        let server = place.start(backend, &["--connections", "2"]);
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
        third.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        assert!(one_reply(&mut third).starts_with("HTTP/1.1 200 "), "{backend}");
    }
}

#[test]
fn a_server_told_to_end_finishes_its_answers_and_says_what_it_did() {
    let place = Place::shared();
    for backend in place.backends() {
        let mut server = place.start(backend, &["--work-rounds", "200000000"]);
        let (mut busy, mut idle) = (server.connect(), server.connect());
        idle.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(one_reply(&mut idle).contains("keep-alive"));
        let before = server.cpu_time();
        busy.write_all(b"GET /work HTTP/1.1\r\n\r\n").unwrap();
        while server.cpu_time() < before + Nanos::from_millis(10) {
            std::thread::sleep(Duration::from_millis(1)); // it has not begun the work
        }
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

#[test]
fn a_back_end_without_its_daemon_says_how_to_get_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_qfabric-webserver"))
        .args(["--listen", "127.0.0.1:0", "--backend", "ecalls", "--socket", "/no/such.sock"])
        .output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("/no/such.sock") && said.contains("qfabric daemon"), "{said}");
}

/// The controller before this server: fixed work, four times what the server can do, for a second.
#[test]
fn an_overloaded_server_has_requests_dropped_and_leaves_nothing_behind() {
    let place = Place::shared();
    let Some(daemon) = &place.daemon else { return };
    let client = qfabric_client::Client::connect_to(daemon.socket()).unwrap();
    let mut server = place.start("ecalls", &["--overload", "lo", "--wait", "20ms", "--work-rounds", "20000000"]);
    let subscriptions = client.subscriptions().unwrap();
    assert!(subscriptions.iter().any(|s| s.service == "tcp.accept"), "{subscriptions:?}");
    let until = Instant::now() + Duration::from_secs(1);
    let mut clients = Vec::new();
    while Instant::now() < until {
        clients.extend(TcpStream::connect_timeout(&server.address, Duration::from_millis(30)).map(|mut client| {
            client.write_all(b"GET /work HTTP/1.0\r\n\r\n").unwrap();
            client
        }));
        std::thread::sleep(Duration::from_millis(2));
    }
    let counters = client.subscriptions().unwrap().remove(0).counters;
    assert!(counters.blocked > 0 && counters.passed > 0 && counters.faults == 0, "{counters:?}");
    drop(clients);
    server.terminate();
    assert!(server.ended().0.success());
    assert_eq!(client.subscriptions().unwrap(), []);
}
