//! Runs the Rust program with a daemon in this process. The tests of the C and Python bindings run the other two.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded, MemoryAmount};
use qfabric_linux::net::testing::{Interface, own_network};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::net::{LinkRequest, NetMechanism};
use qfabric_types::{BitRate, Bytes};

/// Sends a frame with pixels of the brightness 1 every 50 ms while `act` runs: faster than the program reads them, so
/// that a late frame does not decide the test.
fn while_frames_arrive<A>(port: u16, act: impl FnOnce() -> A) -> A {
    let ended = AtomicBool::new(false);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // Refused until the program listens.
                let _ = socket.send_to(&[0b0101_0101; 19_200], ("127.0.0.1", port));
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let result = act();
        ended.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn the_sample_reserves_memory_network_and_cpu_and_frees_them() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    own_network().unwrap();
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let _link = Interface::veth("qf0", "qf0-far").unwrap();
    let mut config = Config::default();
    config.log.filter = "error".into();
    config.memory.global_reserve = Some(MemoryAmount(Bytes::from_mib(256)));
    let daemon = Embedded::start(config).unwrap();
    let client = Client::connect_to(daemon.socket()).unwrap();
    let link = LinkRequest { mechanism: Some(NetMechanism::Htb), ..LinkRequest::of_rate(BitRate::new(10_000_000)) };
    client.open_link("qf0", &link).unwrap();

    let sample = |interface: &str, port: u16| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-qualman-sample"));
        command.args([interface, &format!("127.0.0.1:{port}"), "20"]).env("QFABRIC_SOCKET", daemon.socket());
        while_frames_arrive(port, || command.stdin(Stdio::null()).output().unwrap())
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output = sample("qf0", 5_004);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("20 frames, brightness 76800, 0.") && shown.contains(" CPU, contract "), "{shown}");
    let status = client.status().unwrap();
    assert_eq!((status.memory.unwrap().promised, status.applications.len()), (Bytes::ZERO, 0));
    assert!(client.joint_contracts().unwrap().is_empty());

    let output = sample("qf9", 5_005);
    assert!(!output.status.success() && text(&output.stderr).contains("network qf9 in"), "{}", text(&output.stderr));
    assert_eq!(client.status().unwrap().memory.unwrap().promised, Bytes::ZERO);
}
