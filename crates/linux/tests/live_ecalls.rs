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
