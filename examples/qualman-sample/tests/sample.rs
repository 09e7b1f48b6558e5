//! Runs the Rust programs on two hosts, each with a daemon: network namespaces with a link between them. The tests of the C
//! and Python bindings run the other programs.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded, MemoryAmount};
use qfabric_linux::namespace::Namespace;
use qfabric_linux::net::testing::{Interface, own_network};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::net::{LinkRequest, NetMechanism};
use qfabric_types::{BitRate, Bytes};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
const SERVICE: &str = "10.79.0.2:7800";

/// The host of the client, in the network of the calling thread, and the host of the server.
struct Hosts {
    client: Embedded,
    server: Embedded,
    there: Namespace,
    certificates: tempfile::TempDir,
    _link: Interface,
}

/// The server while it waits for a client and serves it.
struct Server {
    running: Child,
    output: BufReader<ChildStdout>,
}

impl Hosts {
    fn new() -> Hosts {
        own_network().unwrap();
        let there = Namespace::new().unwrap();
        let link = Interface::veth_to("qf0", "eth0", &there, ADDRESSES).unwrap();
        let client = with_link("qf0");
        let server = there.inside(|| with_link("eth0")).unwrap();
        Hosts { client, server, there, certificates: certificates(), _link: link }
    }

    fn tls(&self, host: &str) -> [String; 2] {
        [self.certificates.path().display().to_string(), host.to_owned()]
    }

    fn serve(&self) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-qualman-server"));
        command.args(["eth0", SERVICE]).args(self.tls("wall")).env("QFABRIC_SOCKET", self.server.socket());
        self.there.enter_at_exec(&mut command).unwrap();
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut server = Server { output: BufReader::new(running.stdout.take().unwrap()), running };
        assert!(server.says().contains(SERVICE));
        server
    }

    fn play(&self, interface: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-qualman-sample"));
        command.args([interface, SERVICE]).args(self.tls("cam")).arg("20");
        command.env("QFABRIC_SOCKET", self.client.socket()).stdin(Stdio::null()).output().unwrap()
    }
}

impl Server {
    /// Its next line.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// A daemon whose link every user may use.
fn with_link(interface: &str) -> Embedded {
    let mut config = Config::default();
    config.log.filter = "error".into();
    config.memory.global_reserve = Some(MemoryAmount(Bytes::from_mib(256)));
    let daemon = Embedded::start(config).unwrap();
    let link = LinkRequest { mechanism: Some(NetMechanism::Htb), ..LinkRequest::of_rate(BitRate::new(10_000_000)) };
    at(daemon.socket()).open_link(interface, &link).unwrap();
    daemon
}

fn at(socket: &Path) -> Client {
    Client::connect_to(socket).unwrap().with_patience(Duration::from_secs(120))
}

fn certificates() -> tempfile::TempDir {
    let (folder, hosts) = (tempfile::tempdir().unwrap(), ["cam", "wall"].map(|host| host.parse().unwrap()));
    qfabric_realm::init_ca(folder.path(), &"studio".parse().unwrap()).unwrap();
    for host in &hosts {
        qfabric_realm::issue(folder.path(), host, &[], folder.path(), 30).unwrap();
    }
    qfabric_realm::enlist(folder.path(), &hosts).unwrap();
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_sample_reserves_memory_network_and_cpu_and_plays_a_film_from_another_host() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let hosts = Hosts::new();
    let (client, server) = (at(hosts.client.socket()), at(hosts.server.socket()));
    let mut serving = hosts.serve();
    let output = hosts.play("qf0");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("20 frames, brightness 76800, 0.") && shown.contains(" CPU, contract "), "{shown}");
    let served = serving.says();
    assert!(served.starts_with("cam is served, 1.843 Mbit/s are reserved"), "{served}");
    assert!(serving.running.wait().unwrap().success());
    let status = client.status().unwrap();
    assert_eq!((status.memory.unwrap().promised, status.applications.len()), (Bytes::ZERO, 0));
    assert!(client.joint_contracts().unwrap().is_empty());
    assert!(server.interface("eth0").unwrap().streams.is_empty());

    let _serving = hosts.serve();
    let output = hosts.play("qf9");
    assert!(!output.status.success() && text(&output.stderr).contains("network qf9 in"), "{}", text(&output.stderr));
    assert_eq!(client.status().unwrap().memory.unwrap().promised, Bytes::ZERO);
}
