//! Tests that everything an owner installed in the kernel goes away when the owner ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::ecalls::{EventRing, Install, Installed, Kernel, Step, program_exists};

fn kernel() -> Option<Kernel> {
    Kernel::open().map_err(qfabric_linux::testing::skip).ok()
}

fn install(kernel: &Kernel, ring: &EventRing, service: &str, options: &[(&str, &str)]) -> Installed {
    let options: BTreeMap<_, _> = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let input = kernel.service(service).map(|service| service.format.clone());
    let program = compile("return 0;", &Environment { input, ..Environment::default() }).unwrap();
    let steps = [Step::Handler(&program), Step::Tail { ring, id: 1, user: None }];
    let limits = Limits::default();
    let request = Install {
        service,
        options: &options,
        only_pid: None,
        steps: &steps,
        limits,
        down: None,
        deadline: None,
        fault_passes: true,
        measured: false,
    };
    kernel.install(&request).unwrap()
}

/// Installs one handler for each kind of hook. `listen`: the address of a server.
fn install_all(kernel: &Kernel, ring: &EventRing, listen: &str) -> Vec<Installed> {
    vec![
        install(kernel, ring, "sched.wakeup", &[]),
        install(kernel, ring, "sock.ready", &[]),
        install(kernel, ring, "net.rx", &[("interface", "lo")]),
        install(kernel, ring, "timer", &[("period", "10ms")]),
        install(kernel, ring, "sock.stream", &[("listen", listen), ("redirect", "yes")]),
    ]
}

/// A server, and its address.
fn server() -> (TcpListener, String) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    (server, address)
}

/// Both ends of a connection, which has the program of the server's chain while it is open.
fn connection(server: &TcpListener) -> [TcpStream; 2] {
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    [client, server.accept().unwrap().0]
}

/// Only ends a test that hangs: no step takes this long, not even with eight hogs per core.
const PATIENCE: Duration = Duration::from_secs(120);

fn all_removed_within(ids: &[u32], patience: Duration) -> bool {
    let started = Instant::now();
    while ids.iter().any(|&id| program_exists(id)) {
        if started.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn dropped_handlers_are_removed_from_the_kernel() {
    let Some(kernel) = kernel() else { return };
    let ring = EventRing::new(4096).unwrap();
    let (server, address) = server();
    let installed = install_all(&kernel, &ring, &address);
    let _open = connection(&server);
    let ids: Vec<u32> = installed.iter().flat_map(Installed::program_ids).copied().collect();
    assert!(ids.len() == 7 && ids.iter().all(|&id| program_exists(id)), "{ids:?}");
    drop(installed);
    assert!(all_removed_within(&ids, PATIENCE), "{ids:?}");
}

const OWNER: &str = "QFABRIC_TEST_OWNER";

/// Not a test of its own: the process that the next test starts and kills.
#[test]
fn owner() {
    let Ok(address) = std::env::var(OWNER) else { return };
    let kernel = kernel().unwrap();
    let ring = EventRing::new(4096).unwrap();
    let installed = install_all(&kernel, &ring, &address);
    let ids: Vec<String> = installed.iter().flat_map(Installed::program_ids).map(u32::to_string).collect();
    // Write past the test harness, which captures printed output.
    writeln!(std::fs::File::create("/proc/self/fd/2").unwrap(), "programs {}", ids.join(" ")).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn handlers_of_a_killed_owner_are_removed_from_the_kernel() {
    if kernel().is_none() {
        return;
    }
    let (server, address) = server();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner", "--nocapture"])
        .env(OWNER, &address)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stderr.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("programs")).unwrap();
    let ids: Vec<u32> = line.split(' ').skip(1).map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 7 && ids.iter().all(|&id| program_exists(id)), "{ids:?}");
    let _open = connection(&server);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(all_removed_within(&ids, PATIENCE), "{ids:?}");
}
