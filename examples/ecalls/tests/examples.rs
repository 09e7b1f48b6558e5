//! Runs each of the examples over the loopback interface, with a daemon in this process.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::ecalls::Ecalls;
use qfabric_client::{Client, Nanos};
use qfabric_daemon::{Config, Embedded};
use qfabric_ecalls_examples::accelerator::{Accelerator, RequestCounts};
use qfabric_ecalls_examples::filter::Measurements;
use qfabric_linux::testing::{live_lock, may_reserve};

/// Bound of every wait, so that a test fails instead of hanging; longer than any step, even with eight hogs per core.
const PATIENCE: Duration = Duration::from_secs(120);

fn with_daemon(test: impl FnOnce(&Embedded)) {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() {
        return;
    }
    let _alone = live_lock();
    let mut config = Config::default();
    config.log.filter = "error".into();
    config.api.timeout = Nanos::new(PATIENCE.as_nanos() as u64);
    let daemon = Embedded::start(config).unwrap();
    test(&daemon);
}

fn with_ecalls(test: impl FnOnce(&Ecalls)) {
    with_daemon(|daemon| {
        let client = Client::connect_to(daemon.socket()).unwrap().with_patience(PATIENCE);
        test(&Ecalls::connect(&client).unwrap());
    });
}

fn bind_local() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn answer(socket: &UdpSocket) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// Runs one of the programs as a separate process, because signals belong to a process.
fn example_command(daemon: &Embedded, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-ecalls-examples"));
    command.args(words).env("QFABRIC_SOCKET", daemon.socket()).stdout(Stdio::piped());
    command
}

fn output(child: std::process::Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_has_its_requests_in_memory_when_the_signal_comes() {
    with_daemon(|daemon| {
        let (free_port, client) = (bind_local(), bind_local());
        let server = free_port.local_addr().unwrap();
        drop(free_port);
        client.connect(server).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut serving = example_command(daemon, &["requests", &server.port().to_string(), "2"]).spawn().unwrap();
        let mut answers = Vec::new();
        // The first requests may arrive before the handler is installed.
        while serving.try_wait().unwrap().is_none() {
            let (mut buffer, _) = ([0; 256], client.send(b"page"));
            answers.extend(client.recv(&mut buffer).map(|length| buffer[..length].to_vec()));
        }
        assert!(answers.iter().all(|answer| answer == b"you asked page") && !answers.is_empty(), "{answers:?}");
        assert_eq!(output(serving), "served \"page\"\nserved \"page\"\n");
    });
}

#[test]
fn every_64th_sample_sends_the_average_by_signal() {
    with_daemon(|daemon| {
        let stop = AtomicBool::new(false);
        let printed = std::thread::scope(|scope| {
            // Every CPU is kept busy, so that the averages are high.
            for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let printed = example_command(daemon, &["averages", "4"]).spawn().map(output);
            stop.store(true, Ordering::Relaxed);
            printed.unwrap()
        });
        let percent = |line: &str| line.split(' ').nth(4).unwrap().parse::<f64>().unwrap();
        let busy: Vec<f64> = printed.lines().map(percent).collect();
        assert!(busy.len() == 4 && busy.iter().all(|busy| *busy <= 100.0) && busy[3] > 50.0, "{printed}");
    });
}

#[test]
fn only_measurements_above_the_threshold_leave_the_kernel() {
    with_ecalls(|ecalls| {
        let (receiver, sensor) = (bind_local(), bind_local());
        let to = receiver.local_addr().unwrap();
        let measure = |id: u32, value: u32| {
            sensor.send_to(&[id.to_le_bytes(), value.to_le_bytes()].concat(), to).unwrap();
        };
        let mut measurements = Measurements::watch(ecalls, "lo", to.port(), 100).unwrap();
        for (id, value) in [(1, 50), (2, 150), (3, 70_000)] {
            measure(id, value);
        }
        assert_eq!([measurements.take().unwrap(), measurements.take().unwrap()], [(2, 150), (3, 70_000)]);
        measurements.set_threshold(10);
        measure(4, 11);
        assert_eq!((measurements.take().unwrap(), measurements.seen()), ((4, 11), 4));
    });
}

#[test]
fn static_requests_are_answered_before_they_reach_the_server() {
    with_ecalls(|ecalls| {
        let (server, client) = (bind_local(), bind_local());
        client.connect(server.local_addr().unwrap()).unwrap();
        let pages = vec![b"zero".to_vec(), b"one".to_vec()];
        let mut accelerator = Accelerator::before(ecalls, "lo", &server, pages).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let answered = accelerator.answer(&stop).unwrap();
                (answered, accelerator.counts().unwrap())
            });
            for (request, expected) in
                [("GET /static/1", "one"), ("GET /static/0", "zero"), ("GET /static/7", "no such page")]
            {
                client.send(request.as_bytes()).unwrap();
                assert_eq!(answer(&client), expected);
            }
            client.send(b"GET /dynamic/1").unwrap();
            assert_eq!(answer(&server), "GET /dynamic/1", "the server must receive only the dynamic request");
            stop.store(true, Ordering::Relaxed);
            let (answered, seen) = answering.join().unwrap();
            assert_eq!((answered, seen), (3, RequestCounts { hits: 3, dynamic: 1 }));
        });
        server.set_nonblocking(true).unwrap();
        assert!(server.recv(&mut [0; 64]).is_err(), "static requests reached the server's socket");
    });
}
