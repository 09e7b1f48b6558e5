//! Each example over the loopback interface, under a real daemon.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_client::ecalls::Ecalls;
use qfabric_daemon::{Config, Embedded};
use qfabric_ecalls_examples::PATIENCE;
use qfabric_ecalls_examples::accelerator::{Accelerator, Seen};
use qfabric_ecalls_examples::filter::Measurements;
use qfabric_linux::testing::{live_lock, may_reserve};

fn with_daemon(test: impl FnOnce(&Embedded)) {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() {
        return;
    }
    let _alone = live_lock();
    let mut config = Config::default();
    config.log.filter = "error".into();
    let daemon = Embedded::start(config).unwrap();
    test(&daemon);
}

fn with_ecalls(test: impl FnOnce(&Ecalls)) {
    with_daemon(|daemon| test(&Ecalls::connect(&Client::connect_to(daemon.socket()).unwrap()).unwrap()));
}

fn local() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn answer(socket: &UdpSocket) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// An example as a program of its own: its signals are its process's.
fn example(daemon: &Embedded, words: &[&str]) -> Command {
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
        let (place, client) = (local(), local());
        let server = place.local_addr().unwrap();
        drop(place);
        client.connect(server).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut serving = example(daemon, &["requests", &server.port().to_string(), "2"]).spawn().unwrap();
        let mut answers = Vec::new();
        // The first ones may come before the handler is there.
        while serving.try_wait().unwrap().is_none() {
            let (mut buffer, _) = ([0; 256], client.send(b"page"));
            answers.extend(client.recv(&mut buffer).map(|length| buffer[..length].to_vec()));
        }
        assert!(answers.iter().all(|answer| answer == b"you asked page") && !answers.is_empty(), "{answers:?}");
        assert_eq!(output(serving), "served \"page\"\nserved \"page\"\n");
    });
}

#[test]
fn every_64th_sample_is_told_with_the_average() {
    with_daemon(|daemon| {
        let stop = AtomicBool::new(false);
        let told = std::thread::scope(|scope| {
            // Somebody is busy on every CPU, so that the average says so.
            for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let told = example(daemon, &["averages", "4"]).spawn().map(output);
            stop.store(true, Ordering::Relaxed);
            told.unwrap()
        });
        let percent = |line: &str| line.split(' ').nth(4).unwrap().parse::<f64>().unwrap();
        let busy: Vec<f64> = told.lines().map(percent).collect();
        assert!(busy.len() == 4 && busy.iter().all(|busy| *busy <= 100.0) && busy[3] > 50.0, "{told}");
    });
}

#[test]
fn only_measurements_of_interest_leave_the_kernel() {
    with_ecalls(|ecalls| {
        let (receiver, sensor) = (local(), local());
        let to = receiver.local_addr().unwrap();
        let measure = |id: u32, value: u32| {
            sensor.send_to(&[id.to_le_bytes(), value.to_le_bytes()].concat(), to).unwrap();
        };
        let mut measurements = Measurements::watch(ecalls, "lo", to.port(), 100).unwrap();
        for (id, value) in [(1, 50), (2, 150), (3, 70_000)] {
            measure(id, value);
        }
        assert_eq!([measurements.take().unwrap(), measurements.take().unwrap()], [(2, 150), (3, 70_000)]);
        measurements.above(10);
        measure(4, 11);
        assert_eq!((measurements.take().unwrap(), measurements.seen()), ((4, 11), 4));
    });
}

#[test]
fn static_requests_are_answered_before_they_reach_the_server() {
    with_ecalls(|ecalls| {
        let (server, client) = (local(), local());
        client.connect(server.local_addr().unwrap()).unwrap();
        let pages = vec![b"zero".to_vec(), b"one".to_vec()];
        let mut accelerator = Accelerator::before(ecalls, "lo", &server, pages).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let answered = accelerator.answer(&stop).unwrap();
                (answered, accelerator.seen().unwrap())
            });
            for (request, expected) in
                [("GET /static/1", "one"), ("GET /static/0", "zero"), ("GET /static/7", "no such page")]
            {
                client.send(request.as_bytes()).unwrap();
                assert_eq!(answer(&client), expected);
            }
            client.send(b"GET /dynamic/1").unwrap();
            assert_eq!(answer(&server), "GET /dynamic/1", "the only request that the server ever sees");
            stop.store(true, Ordering::Relaxed);
            let (answered, seen) = answering.join().unwrap();
            assert_eq!((answered, seen), (3, Seen { hits: 3, dynamic: 1 }));
        });
        server.set_nonblocking(true).unwrap();
        assert!(server.recv(&mut [0; 64]).is_err(), "static requests reached the server's socket");
    });
}
