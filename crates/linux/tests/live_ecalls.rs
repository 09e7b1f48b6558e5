//! Handlers in the running kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use qfabric_ecode::Limits;
use qfabric_linux::ecalls::{Install, Kernel, Step, UpMemory};
use qfabric_types::memory::{Geometry, Layout};

fn none() -> BTreeMap<String, String> {
    BTreeMap::new()
}

fn request<'a>(service: &'a str, options: &'a BTreeMap<String, String>, steps: &'a [Step<'a>]) -> Install<'a> {
    let limits = Limits::default();
    Install { service, options, only_pid: None, steps, limits, down: None, deadline: None, fault_passes: true }
}

#[test]
fn every_service_can_be_had_here_and_its_events_arrive() {
    let kernel = Kernel::open().unwrap();
    for service in kernel.services() {
        println!("{}: {:?} {} bytes", service.name, service.unavailable, service.format.size);
        let up = UpMemory::new(Geometry::new(Layout::Ring, 64, service.format.size).unwrap()).unwrap();
        let steps = [Step::Memory { memory: &up, position: None }];
        let value = |name: &str| match name {
            "interface" => "lo",
            "listen" => ":7777",
            "period" => "1ms",
            "when" => "syscall",
            _ => "no",
        };
        let options = service.options.iter().filter(|o| o.required).map(|o| (o.name.to_string(), value(o.name).to_string())).collect();
        let mut request = request(service.name, &options, &steps);
        request.only_pid = (service.name == "app.deferred").then_some(std::process::id() as i32);
        match kernel.install(&request) {
            Ok(installed) => {
                std::thread::sleep(Duration::from_millis(30));
                println!("   {:?} verified {} flag {}", installed.counters(), installed.verified_instructions(), up.reader().flag());
            }
            Err(error) => println!("   {error}"),
        }
    }
    let _ = none();
}

#[test]
fn a_socket_with_data_sets_its_bit_and_wakes_a_sleeper() {
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd};
    let kernel = Kernel::open().unwrap();
    let module = qfabric_linux::ecalls::SocketModule::open(&kernel).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    qfabric_linux::ecalls::bind_socket(module.bind_fd(), server.as_fd()).unwrap();
    let fd = server.as_raw_fd() as u32;
    client.write_all(b"x").unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert!(!module.page().any_active(fd), "nobody is interested");
    module.page().set_interest(fd, true);
    assert!(module.page().may_sleep(fd));
    client.write_all(b"x").unwrap();
    let mut poll = [rustix::event::PollFd::from_borrowed_fd(module.wake_fd(), rustix::event::PollFlags::IN)];
    let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut poll, Some(&second)).unwrap(), 1);
    let mut active = Vec::new();
    module.page().for_each_active(fd, |fd| active.push(fd));
    assert_eq!(active, [fd]);
    drop(client);
    std::thread::sleep(Duration::from_millis(5));
    assert!(module.page().any_active(fd), "the peer closed");
}
