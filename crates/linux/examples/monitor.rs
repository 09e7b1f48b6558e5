//! Prints all attributes of this host once a second, similar to `qfabric monitor`: `cargo run -p qfabric-linux
//! --example monitor -- [pid]`.

use std::time::Duration;

use qfabric_host::monitor::{Monitor, Watch};
use qfabric_linux::clock;
use qfabric_linux::monitor::Meters;
use qfabric_types::monitor::{HOST, Readers};
use qfabric_types::{AppId, Nanos};

fn main() {
    let mut meters = Meters::open();
    for missing in meters.missing() {
        println!("{:<28} not available: {}", missing.name, missing.why);
    }
    let pid = std::env::args().nth(1).and_then(|pid| pid.parse().ok());
    let application = pid.map_or(HOST, |_| AppId(1));
    if let Some(Err(missing)) = pid.map(|pid| meters.add_process(application, pid)) {
        return eprintln!("{}", missing.why);
    }
    let mut monitor = Monitor::new();
    for attribute in meters.attributes().to_vec() {
        let watch = Watch::every(Nanos::from_millis(1_000));
        // Without a process, attributes of applications are refused and left out.
        let _ = monitor.watch(application, attribute.name.as_str(), watch, &mut meters, clock::now());
    }
    while let Some(due) = monitor.next_wakeup() {
        std::thread::sleep(Duration::from_nanos(due.since(clock::now()).get()));
        let mut readings = Vec::new();
        monitor.poll(clock::now(), &mut meters, &mut |reading| readings.push(reading));
        println!();
        for reading in readings {
            let name = monitor.name(reading.attribute).unwrap_or("?");
            println!("{name:<28} {}", reading.unit.show(reading.value));
        }
    }
}
